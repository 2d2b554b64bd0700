//! A queue as a source.
//!
//! ```text
//!  broker ──prefetch──▶ consumer ──▶ window ──receive──▶ engine ──ack──▶ broker
//!                                      ▲                   │
//!                                      └──────release──────┘
//!
//!  anything fails: window emptied, next generation, connection, channel and consumer anew; the broker delivers
//!  everything that is not acknowledged again, in order
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Acker, Consumer};
use oncebox_core::counters::Depth;
use oncebox_core::source::{Order, SourceCapabilities};
use oncebox_core::{Clock, Code, Delivery, Message, Release, Source, SourceError, Store, SystemClock};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::error::Trouble;
use crate::guard::Unread;
use crate::link::{Link, within};
use crate::rabbit::Rabbit;
use crate::read;
use crate::topology::{QueueKind, QueueSpec, count_ready, find_queue};
use crate::window::{Waiting, Window};

/// Messages from a RabbitMQ queue. Made by [`Rabbit::source`].
///
/// What is released stays with this process, unacknowledged, and is handed out again when its delay is over; what was not
/// acknowledged when the source closes goes back to the queue, in order.
pub struct RabbitSource {
    rabbit: Rabbit,
    queue: QueueSpec,
    prefetch: u16,
    /// Held by whoever receives, opens or closes.
    intake: tokio::sync::Mutex<Intake>,
    window: Mutex<Window<Acker>>,
    /// Something was released.
    released: Notify,
    /// That something was acknowledged on the present connection.
    has_settled: AtomicBool,
    /// That a message came which can't be read in full.
    has_told_unread: AtomicBool,
}

/// What receiving needs.
#[derive(Default)]
struct Intake {
    flow: Option<Flow>,
    backoff: Backoff,
    is_closed: bool,
}

/// The present connection. The link goes first when it is dropped: see [`Link`].
struct Flow {
    link: Link,
    consumer: Consumer,
    since: Instant,
}

/// What it takes to acknowledge one delivery, on the channel that it came on.
pub struct RabbitReceipt {
    tag: u64,
    generation: u64,
    acker: Acker,
}

impl fmt::Debug for RabbitReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitReceipt").field("tag", &self.tag).field("generation", &self.generation).finish()
    }
}

/// Why a flow ended.
enum Lost {
    /// The channel or the connection broke.
    Broken(Trouble),
    /// The broker ended our consumer without an error: mostly, the queue was deleted.
    Cancelled,
}

/// A connection that lasted so long, or on which something was acknowledged, is no reason to reconnect more slowly. One that
/// ends before may have ended over what it delivers, and then the next one does too: each costs all that is prefetched a
/// delivery, of which a quorum queue allows 20.
const LASTING: Duration = Duration::from_secs(30);

/// How long acknowledgements may take to be written. The broker reads them even when it stops publishers.
const ACK: Duration = Duration::from_secs(10);

impl RabbitSource {
    /// See [`prefetch`](Self::prefetch).
    pub const PREFETCH: u16 = 250;

    pub(crate) fn new(rabbit: Rabbit, queue: String) -> Self {
        Self {
            rabbit,
            queue: QueueSpec::named(queue),
            prefetch: Self::PREFETCH,
            intake: tokio::sync::Mutex::default(),
            window: Mutex::new(Window::new(false)),
            released: Notify::new(),
            has_settled: AtomicBool::new(false),
            has_told_unread: AtomicBool::new(false),
        }
    }

    /// How many deliveries may be with this process and not acknowledged, those that were released and wait for their delay
    /// included: the bound on its memory. Default 250.
    #[must_use]
    pub fn prefetch(mut self, deliveries: u16) -> Self {
        self.prefetch = deliveries;
        self
    }

    /// Says what the queue is. Checked when the source is opened, where the broker tells. Quorum queues count deliveries.
    #[must_use]
    pub fn kind(mut self, kind: QueueKind) -> Self {
        self.queue.kind = Some(kind);
        self
    }

    /// Says what the queue is, and creates it, durable, if it is not there. Without this, a queue that is missing is an
    /// error.
    ///
    /// A quorum queue gets a second one beside it, with `.dead` behind its name, by way of the exchange without a name: from
    /// RabbitMQ 4 on it gives up what was delivered 20 times, and each lost connection counts. What is there stays there
    /// until somebody reads it.
    #[must_use]
    pub fn declare(mut self, kind: QueueKind) -> Self {
        self.queue.kind = Some(kind);
        self.queue.create = true;
        self
    }

    /// Says that the queue has `x-single-active-consumer`, so that one process at a time reads it, in order. Declared
    /// with [`declare`](Self::declare), otherwise checked when the source is opened, where the broker tells.
    ///
    /// Needed to keep order. A process that was cut off from the broker may not know yet that another has taken over; the
    /// inbox still makes each message take effect once.
    #[must_use]
    pub fn single_active(mut self) -> Self {
        self.queue.single_active = true;
        self.window().set_keeps_order();
        self
    }

    fn attempted(&self, what: &str) -> String {
        format!("{what} queue {} of {}", self.queue.name, self.rabbit)
    }

    fn window(&self) -> MutexGuard<'_, Window<Acker>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> bool {
        self.queue.kind == Some(QueueKind::Quorum)
    }

    /// Connects anew, once it is time to.
    async fn connect(&self, intake: &mut Intake, deadline: Instant) -> Result<(), Trouble> {
        if let Some(until) = intake.backoff.until() {
            sleep_until(until.min(deadline)).await;
            if until > deadline {
                return Err(Trouble::unavailable("the connection is lost, and it is not yet time to try again"));
            }
        }
        match self.consume().await {
            Ok(flow) => {
                intake.flow = Some(flow);
                self.has_settled.store(false, Relaxed);
                self.window().next_generation();
                Ok(())
            }
            Err(trouble) => {
                intake.backoff.failed(self.rabbit.reconnect_pause_max);
                Err(trouble)
            }
        }
    }

    async fn consume(&self) -> Result<Flow, Trouble> {
        let queue = self.queue.queue()?;
        let link = Link::connect(&self.rabbit).await?;
        within(&self.rabbit, find_queue(&link.connection, queue.clone())).await?;
        let consumer = within(&self.rabbit, async {
            link.channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
            let options = BasicConsumeOptions::default();
            link.channel.basic_consume(queue, "".into(), options, FieldTable::default()).await
        })
        .await?;
        Ok(Flow { link, consumer, since: Instant::now() })
    }

    /// Puts what came into the window.
    fn add(&self, unread: &Unread, came: Option<lapin::Result<lapin::message::Delivery>>) -> Result<(), Lost> {
        let mut delivery = match came {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Err(Lost::Broken(error.into())),
            None => return Err(Lost::Cancelled),
        };
        // First, because it puts back headers that the rest reads.
        let lost = unread.take(&mut delivery.properties);
        let count = read::count(&delivery, self.counts());
        let is_uncounted = read::is_uncounted(&delivery);
        let is_whole = lost.is_empty();
        let message = Arc::new(read::message(&mut delivery, lost, &self.queue.name, SystemClock.now()));
        if !is_whole {
            self.tell_unread(&message);
        }
        let waiting = Waiting { message, count, is_uncounted, acker: delivery.acker, due: Instant::now() };
        let mut window = self.window();
        let generation = window.generation();
        window.add(generation, delivery.delivery_tag, waiting);
        Ok(())
    }

    /// Logged once, and then only at the level debug: a producer of such messages may send many.
    fn tell_unread(&self, message: &Message) {
        let (queue, label) = (&self.queue.name, message.label());
        let what = "properties or headers that are not UTF-8, or nested too deep; it goes on without them, and they come \
                    along as oncebox-unreadable-… headers; correct its producer";
        if self.has_told_unread.swap(true, Relaxed) {
            tracing::debug!(%queue, "message {label} has {what}");
        } else {
            tracing::warn!(
                code = %Code::HeadersUnreadable, %queue,
                "message {label} has {what} (later ones are logged at the level debug)"
            );
        }
    }

    /// Up to `max` that are there, or the first that come before `deadline`.
    async fn fill(&self, flow: &mut Flow, max: usize, deadline: Instant) -> Result<Vec<Delivery<RabbitReceipt>>, Lost> {
        loop {
            // An error comes after all that was buffered, and then none of that is ours any more.
            while let Some(came) = flow.consumer.next().now_or_never() {
                self.add(&flow.link.unread, came)?;
            }
            let now = Instant::now();
            let (taken, next_due) = {
                let mut window = self.window();
                let generation = window.generation();
                let taken: Vec<_> =
                    window.take(max, now).into_iter().map(|taken| hand_out(generation, taken)).collect();
                (taken, window.next_due(now))
            };
            if !taken.is_empty() || now >= deadline {
                return Ok(taken);
            }
            tokio::select! {
                came = flow.consumer.next() => self.add(&flow.link.unread, came)?,
                () = self.released.notified() => {}
                () = sleep_until(next_due.map_or(deadline, |due| due.min(deadline))) => {}
            }
        }
    }
}

fn hand_out(generation: u64, (tag, waiting): (u64, Waiting<Acker>)) -> Delivery<RabbitReceipt> {
    let mut delivery = Delivery::new(waiting.message, RabbitReceipt { tag, generation, acker: waiting.acker });
    delivery.count = waiting.count;
    delivery.is_uncounted = waiting.is_uncounted;
    delivery
}

impl Flow {
    async fn close(self) {
        let Self { link, consumer, .. } = self;
        link.close().await;
        drop(consumer);
    }
}

impl<S: Store> Source<S> for RabbitSource {
    type Receipt = RabbitReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("rabbitmq");
        capabilities.order = if self.queue.single_active { Order::Broker } else { Order::None };
        capabilities.counts = self.counts();
        capabilities
    }

    fn destination(&self) -> &str {
        &self.queue.name
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        let opened = async {
            if self.prefetch == 0 {
                return Err(Trouble::configuration("a prefetch of 0 has no bound; give at least 1"));
            }
            self.queue.ensure(&self.rabbit).await?;
            let mut intake = self.intake.lock().await;
            intake.is_closed = false;
            self.connect(&mut intake, Instant::now() + self.rabbit.connect_timeout).await
        };
        opened.await.map_err(|trouble| trouble.of_source(self.attempted("open")))
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<RabbitReceipt>>, SourceError> {
        let deadline = Instant::now() + wait;
        let mut intake = self.intake.lock().await;
        let received = async {
            if intake.is_closed {
                return Err(Trouble::unavailable("it is closed"));
            }
            if intake.flow.is_none() {
                self.connect(&mut intake, deadline).await?;
            }
            let Some(flow) = &mut intake.flow else { return Ok(Vec::new()) };
            let lost = match self.fill(flow, max, deadline).await {
                Ok(deliveries) => return Ok(deliveries),
                Err(lost) => lost,
            };
            // Closed before anything else is consumed: what an old connection holds comes to nobody.
            self.window().next_generation();
            if let Some(flow) = intake.flow.take() {
                let is_proven = self.has_settled.load(Relaxed) || flow.since.elapsed() >= LASTING;
                match lost {
                    _ if is_proven => intake.backoff.succeeded(),
                    Lost::Broken(_) => intake.backoff.failed(self.rabbit.reconnect_pause_max),
                    Lost::Cancelled => {}
                }
                flow.close().await;
            }
            match lost {
                Lost::Broken(trouble) => Err(Trouble::unavailable(trouble.reason)),
                // If the queue is gone, this says so.
                Lost::Cancelled => self.connect(&mut intake, deadline).await.map(|()| Vec::new()),
            }
        };
        received.await.map_err(|trouble| trouble.of_source(self.attempted("receive from")))
    }

    async fn ack(&self, deliveries: Vec<Delivery<RabbitReceipt>>) -> Result<(), SourceError> {
        let acks = deliveries.iter().map(|delivery| delivery.receipt().acker.ack(BasicAckOptions::default()));
        // On a channel that is gone there is nothing to acknowledge: the message comes again, and the inbox knows it.
        let generation = self.window().generation();
        match timeout(ACK, join_all(acks)).await {
            Ok(acks) => {
                let is_ours = |delivery: &Delivery<RabbitReceipt>| delivery.receipt().generation == generation;
                if deliveries.iter().zip(acks).any(|(delivery, ack)| is_ours(delivery) && ack.is_ok()) {
                    self.has_settled.store(true, Relaxed);
                }
                Ok(())
            }
            Err(_) => {
                let trouble = Trouble::unavailable(format!("the broker did not take acknowledgements within {ACK:?}"));
                Err(trouble.of_source(self.attempted("acknowledge messages of")))
            }
        }
    }

    async fn release(&self, deliveries: Vec<Delivery<RabbitReceipt>>, release: Release) -> Result<(), SourceError> {
        let due = Instant::now() + release.delay;
        {
            let mut window = self.window();
            for delivery in deliveries {
                let receipt = delivery.receipt();
                let waiting = Waiting {
                    message: Arc::clone(&delivery.message),
                    count: Some(delivery.count.unwrap_or(1).saturating_add(1)),
                    is_uncounted: delivery.is_uncounted,
                    acker: receipt.acker.clone(),
                    due,
                };
                window.add(receipt.generation, receipt.tag, waiting);
            }
        }
        self.released.notify_one();
        Ok(())
    }

    async fn extend(&self, _receipts: &[Arc<RabbitReceipt>]) -> Result<(), SourceError> {
        Ok(())
    }

    /// What is ready in the queue. What was sent to processes and is not acknowledged is not among it.
    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        let asked = async {
            let queue = self.queue.queue()?;
            // Between two calls of `receive`, which wait a quarter of a second.
            let intake = self.intake.lock().await;
            let Some(flow) = &intake.flow else { return Err(Trouble::unavailable("the connection is lost")) };
            within(&self.rabbit, count_ready(&flow.link.connection, queue)).await
        };
        let ready = asked.await.map_err(|trouble| trouble.of_source(self.attempted("count the messages of")))?;
        Ok(Some(Depth { messages: Some(ready), ..Depth::default() }))
    }

    async fn close(&self) {
        let mut intake = self.intake.lock().await;
        intake.is_closed = true;
        self.window().next_generation();
        if let Some(flow) = intake.flow.take() {
            flow.close().await;
        }
    }
}

impl fmt::Debug for RabbitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitSource")
            .field("rabbit", &self.rabbit)
            .field("queue", &self.queue.name)
            .finish_non_exhaustive()
    }
}
