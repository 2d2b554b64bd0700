//! The seam to a broker, inbound.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::counters::Depth;
use crate::error::{SourceError, StoreError};
use crate::fingerprint::Fingerprint;
use crate::message::Message;
use crate::parked::{GapBefore, ParkReceipt};
use crate::store::{ConsumerId, Store};
use crate::time::Timestamp;

/// Where messages come from, for consumers on the store `S`.
///
/// A broker works with any store (`impl<S: Store> Source<S> for …`); a queue that lives in a store works with that one
/// and settles in its transactions.
pub trait Source<S: Store>: Send + Sync + 'static {
    /// What the broker needs to settle a delivery: a tag, a handle, a row with its fence. Changes per delivery.
    type Receipt: Send + Sync + 'static;

    /// What this source guarantees.
    fn capabilities(&self) -> SourceCapabilities;

    /// What it receives from, for people and traces: a queue, a topic, a stream; never an address, which may hold a
    /// password. Empty: it has no name.
    fn destination(&self) -> &str {
        ""
    }

    /// Called once by a consumer, before [`open`](Self::open): what the source itself keeps in the store, it keeps for
    /// this consumer.
    fn serve(&self, consumer: ConsumerId) {
        let _ = consumer;
    }

    /// Called once before the first [`receive`](Self::receive): connects, checks settings and that `store` is the one
    /// it settles in.
    fn open(&self, store: &S) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Up to `max` deliveries: those that are there, or the first that come within `wait`, or none.
    ///
    /// Awaited to its end, never cancelled. Deliveries that are lost between here and the engine come again when their
    /// lease runs out.
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery<Self::Receipt>>, SourceError>> + Send;

    /// Which of these deliveries are done, for sources that keep offsets in the store: asked at the beginning of the
    /// message's own transaction, and what is not done then is not done by anyone else before it ends. Fails with `Fenced`
    /// if any delivery has a new owner.
    fn done_in(
        &self,
        tx: &mut S::Tx,
        receipts: &[&Self::Receipt],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send {
        let _ = tx;
        std::future::ready(Ok(vec![false; receipts.len()]))
    }

    /// Settles inside the message's own transaction, for sources that live in the store. Fails with `Fenced` if any
    /// delivery has a new owner; then nothing of the transaction may commit.
    fn ack_in(
        &self,
        tx: &mut S::Tx,
        receipts: &[&Self::Receipt],
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (tx, receipts);
        std::future::ready(Ok(()))
    }

    /// The messages are done and durable: the broker may forget them. A lost lease here is a future duplicate, not an
    /// error. Crashing before or during it means a redelivery, which the inbox answers.
    fn ack(&self, deliveries: Vec<Delivery<Self::Receipt>>) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// The messages are not done: give them to someone, later. Where the source keeps order, later messages of the same
    /// order key wait behind them.
    fn release(
        &self,
        deliveries: Vec<Delivery<Self::Receipt>>,
        release: Release,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// Keeps deliveries ours for another lease. Those that are lost already are simply not extended.
    fn extend(&self, receipts: &[Arc<Self::Receipt>]) -> impl Future<Output = Result<(), SourceError>> + Send;

    /// What waits at the source and is in nobody's hands, if that can be told cheaply; `None` if it can't. Asked every few
    /// seconds, beside everything else.
    fn backlog(&self) -> impl Future<Output = Result<Option<Depth>, SourceError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Called once at the end, after the last settle: gives back what is held beside deliveries.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// How a delivery goes back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// Not before this long.
    pub delay: Duration,
    /// Why it failed, in words without payload. `None`: without blame, as at a shutdown.
    pub reason: Option<String>,
}

/// One arrival of a message. Settling consumes it, so that settling twice does not compile.
pub struct Delivery<R> {
    /// What was sent. Shared: the engine, the handler and its hooks all look at it.
    pub message: Arc<Message>,
    /// Where it lies in its broker, if that survives a redelivery.
    pub coordinate: Option<Coordinate>,
    /// How often it was delivered, this one included, if the broker knows. A hint.
    pub count: Option<u32>,
    /// It may have been delivered before, to a process that died, more often than [`count`](Self::count) says: the broker
    /// does not count. The consumer counts these itself, in its store, to find what kills processes; so only those that may
    /// have come before should say so.
    pub is_uncounted: bool,
    /// The leased lane that it came on, where a source owns order by leased lanes; the partition, where it keeps offsets
    /// in the store.
    pub lane: Option<LaneNumber>,
    /// What is known of it if it was set aside before.
    pub parked: Option<ParkedBefore>,
    receipt: Arc<R>,
}

impl<R> Delivery<R> {
    /// An arrival of `message`, to be settled with `receipt`.
    pub fn new(message: impl Into<Arc<Message>>, receipt: R) -> Self {
        Self {
            message: message.into(),
            coordinate: None,
            count: None,
            is_uncounted: false,
            lane: None,
            parked: None,
            receipt: Arc::new(receipt),
        }
    }

    /// The same arrival again, for planted bugs: settling one of the two takes nothing from the other.
    #[doc(hidden)]
    #[must_use]
    pub fn twin(&self) -> Self {
        let Self { message, coordinate, count, is_uncounted, lane, parked, receipt } = self;
        Self {
            message: Arc::clone(message),
            coordinate: coordinate.clone(),
            count: *count,
            is_uncounted: *is_uncounted,
            lane: *lane,
            parked: parked.clone(),
            receipt: Arc::clone(receipt),
        }
    }

    /// The same arrival with another receipt, for sources that are made of others. `None` if `change` has none for it.
    pub fn exchange<Q>(self, change: impl FnOnce(Arc<R>) -> Option<Arc<Q>>) -> Option<Delivery<Q>> {
        let Self { message, coordinate, count, is_uncounted, lane, parked, receipt } = self;
        Some(Delivery { message, coordinate, count, is_uncounted, lane, parked, receipt: change(receipt)? })
    }

    /// What the source needs to settle it.
    pub fn receipt(&self) -> &Arc<R> {
        &self.receipt
    }
}

impl<R> fmt::Debug for Delivery<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("message", &self.message).field("count", &self.count).finish_non_exhaustive()
    }
}

/// A message that was set aside and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedBefore {
    /// Its row, in hand.
    pub receipt: ParkReceipt,
    /// What it said when it was parked. A record under its key that says parked, of this content, is its own.
    pub fingerprint: Fingerprint,
    /// How often its handler was run and failed.
    pub attempts: u32,
    /// When it was parked first.
    pub since: Timestamp,
    /// What is known of its waiting for a version, if that is what it did.
    pub gap: Option<GapBefore>,
}

/// An id that a broker makes anew for each delivery: a delivery tag, a receipt handle, a lock token.
///
/// Good for settling that one delivery and for nothing else; it never becomes a [`Key`](crate::Key) or a
/// [`MessageId`](crate::MessageId).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DeliveryTag(String);

impl DeliveryTag {
    /// Wraps what the broker gave.
    pub fn new(tag: impl Into<String>) -> Self {
        Self(tag.into())
    }

    /// What the broker gave, to hand back to it.
    pub fn for_broker(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeliveryTag")
    }
}

/// Where a message lies in its broker: `topic/partition/offset`, a stream sequence, a queue row.
///
/// The same for each redelivery, another one for a producer's retry. A key only where
/// [`KeyStrategy::Coordinate`](crate::key::KeyStrategy::Coordinate) is chosen by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinate(String);

impl Coordinate {
    /// Names a place that is unique in this broker.
    pub fn new(place: impl Into<String>) -> Self {
        Self(place.into())
    }

    /// The place as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of a lane within a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneNumber(pub i32);

/// What a source guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceCapabilities {
    /// What it is, for logs: `queue`.
    pub name: &'static str,
    /// Who owns order on it.
    pub order: Order,
    /// How long a delivery stays ours without [`extend`](Source::extend); `None` if it needs none.
    pub lease: Option<Duration>,
    /// Deliveries carry a count.
    pub counts: bool,
    /// [`Coordinate`]s survive a redelivery.
    pub coordinates: bool,
    /// [`ack_in`](Source::ack_in) settles in the message's transaction.
    pub settles_in_transaction: bool,
    /// It keeps offsets in the store, one for each [lane](Delivery::lane), by which [`done_in`](Source::done_in) tells
    /// what was handled: messages need no record of their own. They must be settled in the order in which they came.
    pub offsets_in_store: bool,
}

impl SourceCapabilities {
    /// Capabilities of a source called `name` that promises nothing yet.
    pub const fn none(name: &'static str) -> Self {
        Self {
            name,
            order: Order::None,
            lease: None,
            counts: false,
            coordinates: false,
            settles_in_transaction: false,
            offsets_in_store: false,
        }
    }
}

/// What makes sure that one order key is handled in one place at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// Nothing: two processes may hold messages of one key.
    None,
    /// Only this process reads it.
    SingleProcess,
    /// The broker gives each order key to one consumer at a time: a partition, a single active consumer, one message under
    /// way. Whoever was cut off from it may not know yet that another has taken over; the inbox still makes each message
    /// take effect once.
    Broker,
    /// Lanes leased in the store, each with one owner and an epoch.
    LeasedLanes,
}
