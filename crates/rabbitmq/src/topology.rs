//! Queues: that they are there, and that they are what they were said to be.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Connection, Queue};

use crate::error::{Trouble, TroubleKind};
use crate::inspect::look;
use crate::link::{Link, within};
use crate::rabbit::Rabbit;

/// What a queue is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// Replicated, always durable, and the only one that counts its deliveries.
    Quorum,
    /// On one node; durable, so that it outlives a restart.
    Classic,
}

impl QueueKind {
    fn argument(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

/// What a queue should be.
#[derive(Clone, Debug)]
pub(crate) struct QueueSpec {
    pub(crate) name: String,
    pub(crate) kind: Option<QueueKind>,
    pub(crate) single_active: bool,
    pub(crate) create: bool,
    /// Whether what it gives up goes to a queue beside it. Quorum queues that we create do that: from RabbitMQ 4 on, they give
    /// up what was delivered too often, and it would be gone.
    pub(crate) keeps_dead: bool,
}

const TYPE: &str = "x-queue-type";
const SINGLE_ACTIVE: &str = "x-single-active-consumer";
pub(crate) const DEAD_KEY: &str = "x-dead-letter-routing-key";

/// What the name of a quorum queue is followed by, in the name of the queue that takes what it gives up.
const DEAD: &str = ".dead";

impl QueueSpec {
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: None, single_active: false, create: false, keeps_dead: false }
    }

    pub(crate) fn queue(&self) -> Result<ShortString, Trouble> {
        match self.name.len() {
            0 => Err(Trouble::configuration("the queue has no name; say which queue to read")),
            _ => short(&self.name, "the name of the queue"),
        }
    }

    pub(crate) fn dead_queue(&self) -> String {
        format!("{}{DEAD}", self.name)
    }

    fn arguments(&self) -> FieldTable {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut arguments = FieldTable::default();
        if let Some(kind) = self.kind {
            arguments.insert(TYPE.into(), text(kind.argument()));
        }
        if self.single_active {
            arguments.insert(SINGLE_ACTIVE.into(), AMQPValue::Boolean(true));
        }
        if self.keeps_dead {
            // The exchange without a name brings everything to the queue that the routing key names.
            arguments.insert("x-dead-letter-exchange".into(), text(""));
            arguments.insert(DEAD_KEY.into(), text(&self.dead_queue()));
            // Not removed here before it is there; the broker wants the second for the first.
            arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
            arguments.insert("x-overflow".into(), text("reject-publish"));
        }
        arguments
    }

    /// Makes sure that the queue is there and is what it should be, as far as the broker tells. Uses connections of its
    /// own, because the broker answers "no" by closing the channel.
    pub(crate) async fn ensure(&self, rabbit: &Rabbit) -> Result<(), Trouble> {
        let queue = self.queue()?;
        match find(rabbit, queue.clone()).await {
            Ok(()) => self.verify(rabbit).await,
            Err(trouble) if self.create && trouble.kind == TroubleKind::Configuration => {
                // Not there, unless it is not allowed to us: then declaring says so.
                self.create(rabbit, queue).await
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn create(&self, rabbit: &Rabbit, queue: ShortString) -> Result<(), Trouble> {
        if self.kind != Some(QueueKind::Quorum) {
            return self.declare(rabbit, queue).await;
        }
        let dead = self.dead_queue();
        let name = short(&dead, "the name of the queue, with `.dead` behind it,")?;
        // One that is there may be anything: it is somebody's choice.
        if find(rabbit, name.clone()).await.is_err() {
            Self { single_active: false, name: dead, ..self.clone() }.declare(rabbit, name).await?;
        }
        Self { keeps_dead: true, ..self.clone() }.declare(rabbit, queue).await
    }

    async fn declare(&self, rabbit: &Rabbit, queue: ShortString) -> Result<(), Trouble> {
        let link = Link::connect(rabbit).await?;
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let declared = link.channel.queue_declare(queue, options, self.arguments());
        let declared = within(rabbit, async { declared.await.map(drop) }).await;
        link.close().await;
        declared
    }

    /// What is there must be what it was said to be. Where the broker does not tell, the user's word stands.
    async fn verify(&self, rabbit: &Rabbit) -> Result<(), Trouble> {
        if self.kind.is_none() && !self.single_active {
            return Ok(());
        }
        // Gone in the meantime: whoever reads it says so.
        let Some(facts) = look(rabbit, self).await? else { return Ok(()) };
        let is_known = |argument| facts.unseen.is_none() || facts.argument(argument).is_some();
        if let Some(unseen) = &facts.unseen {
            tracing::info!(queue = %self.name, "not all of the queue can be seen, so its description is trusted: {unseen}");
        }
        if self.single_active && is_known(SINGLE_ACTIVE) && facts.argument(SINGLE_ACTIVE) != Some("true") {
            return Err(Trouble::configuration(format!(
                "queue {} was declared without {SINGLE_ACTIVE}, so several consumers would read it side by side; \
                 declare it anew with that argument, or do without single_active()",
                self.name
            )));
        }
        match self.kind {
            Some(kind) if is_known(TYPE) && facts.kind() != kind.argument() => Err(Trouble::configuration(format!(
                "queue {} is no {} queue; name its kind as it is, or declare it anew",
                self.name,
                kind.argument()
            ))),
            _ => Ok(()),
        }
    }
}

fn short(name: &str, what: &str) -> Result<ShortString, Trouble> {
    let too_long = |_| Trouble::configuration(format!("{what} is longer than the 255 bytes of AMQP"));
    ShortString::try_new(name).map_err(too_long)
}

/// Whether the queue is there, asked on a connection of its own.
async fn find(rabbit: &Rabbit, queue: ShortString) -> Result<(), Trouble> {
    let link = Link::connect(rabbit).await?;
    let found = within(rabbit, find_queue(&link.connection, queue)).await;
    link.close().await;
    found
}

/// Whether the queue is there.
pub(crate) async fn find_queue(connection: &Connection, queue: ShortString) -> Result<(), lapin::Error> {
    count_ready(connection, queue).await.map(drop)
}

/// How many messages are ready in the queue, asked on a channel that is thrown away: if it is not there, that closes it.
pub(crate) async fn count_ready(connection: &Connection, queue: ShortString) -> Result<u64, lapin::Error> {
    look_at_queue(connection, queue).await.map(|found| found.message_count().into())
}

/// What the broker says of a queue without being asked to make it.
pub(crate) async fn look_at_queue(connection: &Connection, queue: ShortString) -> Result<Queue, lapin::Error> {
    let channel = connection.create_channel().await?;
    let options = QueueDeclareOptions { passive: true, ..Default::default() };
    let found = channel.queue_declare(queue, options, FieldTable::default()).await?;
    channel.close(200, "OK".into()).await?;
    Ok(found)
}

/// The same for an exchange.
pub(crate) async fn find_exchange(connection: &Connection, exchange: ShortString) -> Result<(), lapin::Error> {
    let channel = connection.create_channel().await?;
    let options = ExchangeDeclareOptions { passive: true, ..Default::default() };
    channel.exchange_declare(exchange, lapin::ExchangeKind::Direct, options, FieldTable::default()).await?;
    channel.close(200, "OK".into()).await
}
