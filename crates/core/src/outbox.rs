//! The outbox role of a store: messages to publish, written in the transaction that decided them.
//!
//! ```text
//!  emit ──commit──▶ unsent ──fetch, publish, confirm──▶ sent: gone (or kept, marked, until retention)
//!                      │  ▲
//!        refused: set aside, and what follows under its topic and order key waits ──retry or skip──┘
//! ```
//!
//! Rows are read by being unsent, never by "greater than the last one": a transaction that commits late has an old
//! number. A row belongs to a lane; a lane has one relay at a time, with an epoch
//! ([`hold_lanes`](crate::queue::QueueTx::hold_lanes) on the queue that [`OutboxStore::outbox`] names), and settling under
//! an older epoch changes nothing. Numbers are given as rows are inserted, so order is promised among transactions that
//! are serialised on the order key by something they both lock.

use std::future::Future;
use std::sync::Arc;

use crate::error::StoreError;
use crate::message::Message;
use crate::queue::{HeldLane, QueueId, QueueSpec};
use crate::sink::Outgoing;
use crate::source::LaneNumber;
use crate::store::{ConsumerName, Store};
use crate::time::Timestamp;

/// A store that keeps an outbox.
pub trait OutboxStore: Store<Tx: Outbox> {
    /// The queue under which the outbox's lanes are held, with [`LANES`] lanes.
    fn outbox(&self) -> impl Future<Output = Result<QueueId, StoreError>> + Send;

    /// Resolves when rows were committed to the outbox in this process, or never. Polling goes on beside it.
    fn emitted(&self) -> impl Future<Output = ()> + Send;

    /// Tells [`emitted`](Self::emitted); called after the commit.
    fn announce_emitted(&self);
}

/// The lanes of an outbox.
pub const LANES: u16 = QueueSpec::LANES;

/// The lane of a row: of its order key if it has one, otherwise of its id, so that rows without order spread.
pub fn lane(outgoing: &Outgoing) -> LaneNumber {
    let message = &outgoing.message;
    let key = message.order_key.as_deref().or_else(|| message.id.as_ref().map(|id| id.as_str()));
    let spec = QueueSpec { name: ConsumerName::outbox(), lanes: Some(LANES) };
    spec.lane(key).unwrap_or(LaneNumber(0))
}

/// The outbox on a transaction.
pub trait Outbox {
    /// Adds rows, in order. Each message has an id; one that another unsent row has already is `Refused`, and then nothing
    /// may commit.
    fn emit(&mut self, rows: &[Outgoing]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Up to `max` unsent rows of these lanes, oldest first, leaving out topics in `without`. Rows that wait behind one
    /// that is set aside are not among them. Takes nothing and locks nothing: the lanes are the lock.
    fn fetch_unsent(
        &mut self,
        lanes: &[HeldLane],
        max: usize,
        without: &[String],
    ) -> impl Future<Output = Result<Vec<Unsent>, StoreError>> + Send;

    /// Ends rows that the broker has confirmed. Fails with `Fenced` if a lane of any has a new owner; then nothing may
    /// commit.
    fn end_sent(&mut self, rows: &[SentReceipt], keep: KeepSent)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Sets rows aside that the broker refuses, each with the reason; what follows them under their topic and order key
    /// waits. Fails with `Fenced` like [`end_sent`](Self::end_sent).
    fn set_unsent_aside(
        &mut self,
        rows: &[(SentReceipt, String)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Up to `max` rows that are set aside, after the row `after`, oldest first.
    fn page_aside(&mut self, after: i64, max: usize) -> impl Future<Output = Result<Vec<AsideRow>, StoreError>> + Send;

    /// Makes rows that are set aside unsent again. Answers for each whether it was.
    fn retry_aside(&mut self, rows: &[i64]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Removes rows that are set aside, for good: what waited behind them goes on. Answers for each whether it was.
    fn skip_aside(&mut self, rows: &[i64]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// How much is in the outbox.
    fn outbox_backlog(&mut self) -> impl Future<Output = Result<Backlog, StoreError>> + Send;
}

/// A row to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// To settle it.
    pub receipt: SentReceipt,
    /// What to publish, and where.
    pub outgoing: Outgoing,
}

/// What it takes to settle a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentReceipt {
    /// The row.
    pub row: i64,
    /// The lane that it was fetched from, and its epoch then.
    pub lane: HeldLane,
}

/// Whether a row that was sent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepSent {
    /// It is deleted.
    #[default]
    Nothing,
    /// It stays, marked sent, until retention removes it.
    Sent,
}

/// A row that the broker refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsideRow {
    /// The row.
    pub row: i64,
    /// Where it was to go.
    pub topic: String,
    /// What it was.
    pub message: Arc<Message>,
    /// Why it was refused.
    pub reason: String,
    /// When.
    pub since: Timestamp,
}

/// How much is in an outbox. Exact up to [`Backlog::COUNTED_MAX`], which stands for "that many or more".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Rows to publish, those that wait behind others included.
    pub unsent: u64,
    /// Rows that are set aside.
    pub aside: u64,
    /// When the oldest unsent row was made.
    pub oldest: Option<Timestamp>,
}

impl Backlog {
    /// Counting stops here.
    pub const COUNTED_MAX: u64 = 100_000;
}
