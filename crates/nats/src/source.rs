//! Messages from a durable pull consumer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::{FromConsumer, PullConsumer, pull};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use oncebox_core::counters::Depth;
use oncebox_core::source::{Order, SourceCapabilities};
use oncebox_core::{Code, Delivery, Release, Source, SourceError, Store};
use tokio::time::Instant;

use crate::error::{self, Trouble};
use crate::fetch::{self, Broken};
use crate::link::{ANSWER_MAX, Link};
use crate::oldest;
use crate::receipt::{JetStreamReceipt, Room, lease_end};
use crate::server::Server;
use crate::settings::{NewConsumer, Settings};
use crate::stuck;

/// How many acknowledgements, releases or extensions are under way at a time.
const SETTLING_MAX: usize = 256;

/// How many requests for one message each follow a connection that was lost while deliveries were on their way. If one of
/// them was the cause, it is met alone, and those behind it get through.
const ONE_BY_ONE: u32 = 16;

/// A durable pull consumer of a stream. Several processes share it.
///
/// It is checked when the source is opened, and neither created nor changed unless you ask with
/// [`create`](Self::create): its ack policy must be `explicit` and its `max_deliver` -1 (the server falls silent about a
/// message that reaches it; Oncebox sets aside what keeps failing). Its `ack_wait` is the lease of a delivery, which is
/// extended while it is in hand. Its `max_ack_pending` bounds what all processes together have in hand: give it at least
/// their `in_flight_max`, or they wait for each other.
///
/// # Order
///
/// JetStream keeps order only with one message under way: [`ordered`](Self::ordered) demands `max_ack_pending = 1`, and then
/// the whole consumer goes one by one, whatever the order keys. For more than one at a time, partition the subjects
/// (`orders.0.>`, `orders.1.>`, …) and give each part a consumer and a source of its own.
///
/// # When the time of a delivery is over
///
/// JetStream does not check whose an acknowledgement is. The source keeps the time itself and leaves out what comes too
/// late; a message whose acknowledgement was left out comes again, and the inbox answers it.
///
/// The same goes for a server that dies: an acknowledgement is awaited until the server confirms it, and still the server
/// writes it down a moment later, whatever its `sync_interval`. Messages are not lost by that; some come again.
pub struct JetStreamSource {
    server: Server,
    stream: String,
    durable: String,
    ordered: bool,
    create: Option<NewConsumer>,
    /// How many more requests ask for one message only.
    one_by_one: AtomicU32,
    /// The connection was lost while the only delivery under way was on its way.
    may_be_stuck: AtomicBool,
    /// That a message came which the client library cannot read.
    has_told_stuck: AtomicBool,
    /// Written by `open` and `close`.
    open: Mutex<Option<Open>>,
}

/// What there is between `open` and `close`.
#[derive(Clone)]
pub(crate) struct Open {
    pub(crate) link: Link,
    pub(crate) consumer: PullConsumer,
    pub(crate) settings: Settings,
    pub(crate) room: Arc<Room>,
}

impl JetStreamSource {
    /// The consumer `durable` of the stream `stream`.
    pub fn new(server: impl Into<Server>, stream: impl Into<String>, durable: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            stream: stream.into(),
            durable: durable.into(),
            ordered: false,
            create: None,
            one_by_one: AtomicU32::new(0),
            may_be_stuck: AtomicBool::new(false),
            has_told_stuck: AtomicBool::new(false),
            open: Mutex::default(),
        }
    }

    /// Demands a consumer that keeps order: one with `max_ack_pending = 1`.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Creates the consumer when the source is opened, if there is none. One that exists with other settings is an
    /// error; it is never changed.
    #[must_use]
    pub fn create(mut self, consumer: NewConsumer) -> Self {
        self.create = Some(consumer);
        self
    }

    fn attempted(&self, what: &str) -> String {
        format!("{what} consumer {} of stream {} on {}", self.durable, self.stream, self.server)
    }

    async fn connect(&self) -> Result<Open, Trouble> {
        let link = Link::open(&self.server).await?;
        let stream = link.context.get_stream(&self.stream).await.map_err(|error| error::stream(&error.kind()))?;
        let info = match &self.create {
            Some(new) => {
                let config = new.config(&self.durable, self.ordered);
                let created: PullConsumer =
                    stream.create_consumer_strict(config).await.map_err(|error| error::create(&error.kind()))?;
                created.cached_info().clone()
            }
            None => stream.consumer_info(&self.durable).await.map_err(|error| error::consumer(&error.kind()))?,
        };
        let config = pull::Config::try_from_consumer_config(info.config.clone())
            .map_err(|_| Trouble::setting("it is a push consumer; create a pull consumer"))?;
        let settings = Settings::read(&config, self.ordered).map_err(Trouble::setting)?;
        let consumer = PullConsumer::new(config, info, link.context.clone());
        let room = Arc::new(Room::new(settings.pending_max));
        Ok(Open { link, consumer, settings, room })
    }

    async fn connect_anew(&self) -> Result<(), Trouble> {
        let open = self.connect().await?;
        *self.slot() = Some(open);
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, what: &str) -> Result<Open, SourceError> {
        let open = self.slot().clone();
        open.ok_or_else(|| Trouble::setting("it is not open").in_source(self.attempted(what)))
    }

    /// After a connection that was lost over the only delivery under way: that one, if the client library cannot read it.
    /// Asked once for each loss, whatever the answer: a message that can be read comes again by itself, but only to a source
    /// that fetches.
    async fn unstick(&self, open: &Open) -> Result<Option<Delivery<JetStreamReceipt>>, Trouble> {
        if !open.link.is_up() || !self.may_be_stuck.swap(false, Relaxed) {
            return Ok(None);
        }
        let found = stuck::find(open).await?;
        if let Some(delivery) = &found {
            self.tell_stuck(delivery);
        }
        Ok(found)
    }

    /// Logged once, and then only at the level debug: a producer of such messages may send many.
    fn tell_stuck(&self, delivery: &Delivery<JetStreamReceipt>) {
        let (stream, label) = (&self.stream, delivery.message.label());
        let place = delivery.coordinate.as_ref().map(|place| place.as_str().to_owned()).unwrap_or_default();
        let what = "headers that the client library cannot read (not UTF-8, or with a carriage return), over which the \
                    connection was lost; it was read by its number and is handled, and what cannot be read comes along \
                    as base64; correct its producer";
        if self.has_told_stuck.swap(true, Relaxed) {
            tracing::debug!(%stream, "message {label} ({place}) has {what}");
        } else {
            tracing::warn!(
                code = %Code::HeadersUnreadable, %stream,
                "message {label} ({place}) has {what} (later ones are logged at the level debug)"
            );
        }
    }

    /// Says `kind` of each receipt to the server and waits until it has confirmed.
    async fn tell(
        &self,
        what: &str,
        kind: AckKind,
        receipts: Vec<Arc<JetStreamReceipt>>,
        confirmed: impl Fn(&JetStreamReceipt),
    ) -> Result<(), SourceError> {
        let link = self.opened(what)?.link;
        if !link.is_up() {
            return Err(Link::down().in_source(self.attempted(what)));
        }
        let word: Bytes = kind.into();
        let tell = |receipt: Arc<JetStreamReceipt>| {
            let request = async_nats::Request::new().payload(word.clone()).timeout(Some(ANSWER_MAX));
            let client = link.client.clone();
            async move {
                let heard = client.send_request(receipt.reply.clone(), request).await.is_ok();
                (receipt, heard)
            }
        };
        let telling: Vec<_> = receipts.into_iter().map(tell).collect();
        let mut telling = stream::iter(telling).buffer_unordered(SETTLING_MAX);
        let mut unheard = 0usize;
        while let Some((receipt, heard)) = telling.next().await {
            if heard {
                confirmed(&receipt);
            } else {
                unheard += 1;
            }
        }
        if unheard == 0 {
            return Ok(());
        }
        let why = format!("the server did not confirm {unheard} of them; they may come again");
        Err(Trouble::later(why).in_source(self.attempted(what)))
    }
}

impl<S: Store> Source<S> for JetStreamSource {
    type Receipt = JetStreamReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("jetstream");
        capabilities.order = if self.ordered { Order::Broker } else { Order::None };
        capabilities.lease = self.slot().as_ref().map(|open| open.settings.lease);
        capabilities.counts = true;
        capabilities.coordinates = true;
        capabilities
    }

    fn destination(&self) -> &str {
        &self.stream
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        self.connect_anew().await.map_err(|trouble| trouble.in_source(self.attempted("open")))
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<JetStreamReceipt>>, SourceError> {
        let attempted = "receive from";
        let open = self.opened(attempted)?;
        let deadline = Instant::now() + wait;
        let one_by_one = self.one_by_one.load(Relaxed);
        let most = if one_by_one > 0 { 1 } else { max.min(open.settings.batch_max) };
        let wanted = open.room.wait(most, deadline).await;
        if wanted == 0 {
            return Ok(Vec::new());
        }
        match self.unstick(&open).await {
            Ok(None) => {}
            Ok(Some(delivery)) => return Ok(vec![delivery]),
            Err(trouble) => return Err(trouble.in_source(self.attempted(attempted))),
        }
        let trouble = match fetch::fetch(&open, wanted, deadline).await {
            Ok(received) => {
                self.one_by_one.store(one_by_one.saturating_sub(1), Relaxed);
                return Ok(received);
            }
            Err(Broken::Otherwise(trouble)) => trouble,
            Err(broken @ (Broken::Off | Broken::ForGood)) => {
                self.one_by_one.store(ONE_BY_ONE, Relaxed);
                self.may_be_stuck.store(open.settings.pending_max == 1, Relaxed);
                match broken {
                    Broken::ForGood => self.connect_anew().await.err().unwrap_or_else(Link::down),
                    _ => Link::down(),
                }
            }
        };
        Err(trouble.in_source(self.attempted(attempted)))
    }

    async fn ack(&self, deliveries: Vec<Delivery<JetStreamReceipt>>) -> Result<(), SourceError> {
        self.tell("acknowledge deliveries of", AckKind::Ack, ended(&deliveries), |_| {}).await
    }

    async fn release(&self, deliveries: Vec<Delivery<JetStreamReceipt>>, release: Release) -> Result<(), SourceError> {
        let kind = AckKind::Nak((!release.delay.is_zero()).then_some(release.delay));
        self.tell("release deliveries of", kind, ended(&deliveries), |_| {}).await
    }

    async fn extend(&self, receipts: &[Arc<JetStreamReceipt>]) -> Result<(), SourceError> {
        let lease = self.opened(EXTEND)?.settings.lease;
        // Counted from before the server hears of it, and only if it says that it did.
        let until = lease_end(Instant::now(), lease);
        let ours: Vec<_> = receipts.iter().filter(|receipt| receipt.is_ours()).cloned().collect();
        self.tell(EXTEND, AckKind::Progress, ours, |receipt| receipt.extended(until)).await
    }

    /// What the consumer was not given yet. What it has in hand is not among it; but how long the oldest waits is told of
    /// what is not acknowledged, in hand or not.
    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        let attempted = "ask after";
        let open = self.opened(attempted)?;
        if !open.link.is_up() {
            return Err(Link::down().in_source(self.attempted(attempted)));
        }
        let info = open.consumer.get_info().await.map_err(|error| error::consumer(&error.kind()));
        let info = info.map_err(|trouble| trouble.in_source(self.attempted(attempted)))?;
        let oldest_seconds = oldest::waits(&open.link, &info).await;
        Ok(Some(Depth { messages: Some(info.num_pending), oldest_seconds, ..Depth::default() }))
    }

    async fn close(&self) {
        let open = self.slot().take();
        if let Some(open) = open {
            open.link.close().await;
        }
    }
}

const EXTEND: &str = "extend deliveries of";

/// Ends deliveries; those that were ours until now. The server must not hear of the others.
fn ended(deliveries: &[Delivery<JetStreamReceipt>]) -> Vec<Arc<JetStreamReceipt>> {
    deliveries.iter().map(Delivery::receipt).filter(|receipt| receipt.end()).cloned().collect()
}

impl fmt::Debug for JetStreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamSource")
            .field("server", &self.server)
            .field("stream", &self.stream)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}
