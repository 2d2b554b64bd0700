//! Queues: that they are there, and that they are what they were said to be.

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Connection, Queue};

use crate::error::{Trouble, TroubleKind, soft};
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
}

const TYPE: &str = "x-queue-type";
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

impl QueueSpec {
    pub(crate) fn queue(&self) -> Result<ShortString, Trouble> {
        match self.name.len() {
            0 => Err(Trouble::configuration("the queue has no name; say which queue to read")),
            _ => ShortString::try_new(self.name.as_str())
                .map_err(|_| Trouble::configuration("the name of the queue is longer than the 255 bytes of AMQP")),
        }
    }

    fn arguments(&self, kind: Option<QueueKind>) -> FieldTable {
        let mut arguments = FieldTable::default();
        if let Some(kind) = kind {
            arguments.insert(TYPE.into(), AMQPValue::LongString(kind.argument().into()));
        }
        if self.single_active {
            arguments.insert(SINGLE_ACTIVE.into(), AMQPValue::Boolean(true));
        }
        arguments
    }

    /// Makes sure that the queue is there and is what it should be, as far as the broker tells. Uses connections of its
    /// own, because the broker answers "no" by closing the channel.
    pub(crate) async fn ensure(&self, rabbit: &Rabbit) -> Result<(), Trouble> {
        let queue = self.queue()?;
        let link = Link::connect(rabbit).await?;
        let found = within(rabbit, find_queue(&link.connection, queue.clone())).await;
        link.close().await;
        match found {
            Ok(()) => self.verify(rabbit, queue).await,
            Err(trouble) if self.create && trouble.kind == TroubleKind::Configuration => {
                // Not there, unless it is not allowed to us: then declaring says so.
                self.declare(rabbit, queue, self.kind).await
            }
            Err(trouble) => Err(trouble),
        }
    }

    async fn declare(&self, rabbit: &Rabbit, queue: ShortString, kind: Option<QueueKind>) -> Result<(), Trouble> {
        self.try_declare(rabbit, queue, kind).await?.map_err(Trouble::from)
    }

    /// The broker's answer, if there was one.
    async fn try_declare(
        &self,
        rabbit: &Rabbit,
        queue: ShortString,
        kind: Option<QueueKind>,
    ) -> Result<Result<(), lapin::Error>, Trouble> {
        let link = Link::connect(rabbit).await?;
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let declared = within(rabbit, async {
            Ok(link.channel.queue_declare(queue, options, self.arguments(kind)).await.map(drop))
        })
        .await;
        link.close().await;
        declared
    }

    /// Over AMQP, the arguments of a queue can't be read. But declaring it again with what we want changes nothing, and
    /// where something differs, the answer names it. Where the answer does not help (it names an argument that we know
    /// nothing of, or we may not declare), the user's word stands.
    async fn verify(&self, rabbit: &Rabbit, queue: ShortString) -> Result<(), Trouble> {
        let candidates: &[Option<QueueKind>] = match (self.kind, self.single_active) {
            (None, false) => return Ok(()),
            (Some(QueueKind::Quorum), _) => &[Some(QueueKind::Quorum)],
            // A queue that was declared without a kind is a classic one, unless its virtual host says otherwise.
            (Some(QueueKind::Classic), _) => &[Some(QueueKind::Classic), None],
            (None, true) => &[Some(QueueKind::Quorum), Some(QueueKind::Classic), None],
        };
        for &kind in candidates {
            let Err(error) = self.try_declare(rabbit, queue.clone(), kind).await? else { return Ok(()) };
            let Some(said) = soft(&error) else { return Err(error.into()) };
            let text = said.get_message().as_str();
            if text.contains(SINGLE_ACTIVE) && self.single_active {
                return Err(Trouble::configuration(format!(
                    "queue {} was declared without {SINGLE_ACTIVE}, so several consumers would read it side by side; \
                     declare it anew with that argument, or do without single_active()",
                    self.name
                )));
            }
            if !text.contains(TYPE) {
                tracing::info!(queue = %self.name, "cannot tell what the queue is, so its description is trusted: {text}");
                return Ok(());
            }
        }
        match self.kind {
            Some(kind) => Err(Trouble::configuration(format!(
                "queue {} is no {} queue; name its kind as it is, or declare it anew",
                self.name,
                kind.argument()
            ))),
            None => Ok(()),
        }
    }
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
