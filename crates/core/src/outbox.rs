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

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use crate::error::{StoreError, StoreErrorKind};
use crate::key::Key;
use crate::message::{ATTRIBUTE_BYTES_MAX, Message};
use crate::queue::{HeldLane, QueueId, QueueSpec};
use crate::sink::Outgoing;
use crate::source::LaneNumber;
use crate::store::Store;
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
    QueueSpec::outbox().lane(key).unwrap_or(LaneNumber(0))
}

/// For those who write a store: what makes a row unique among those that are not sent. Refuses a message that no row can
/// be made of.
pub fn emit_key(outgoing: &Outgoing) -> Result<Key, StoreError> {
    let Outgoing { topic, message } = outgoing;
    let refused = |why: String| StoreError::new(StoreErrorKind::Refused, EMIT, why);
    let Some(id) = &message.id else {
        let label = message.label();
        return Err(refused(format!(
            "the message {label} has no id, and without one nobody downstream knows it again"
        )));
    };
    if topic.is_empty() || topic.len() > ATTRIBUTE_BYTES_MAX {
        return Err(refused(format!("the topic of message {id} is empty or longer than {ATTRIBUTE_BYTES_MAX} bytes")));
    }
    message.check().map_err(|error| refused(error.to_string()))?;
    Key::id(id.as_str()).map_err(|error| refused(error.to_string()))
}

/// For those who write a store: the error of [`emit`](Outbox::emit) for a message whose id another row has.
pub fn id_taken(outgoing: &Outgoing) -> StoreError {
    let why = format!(
        "there are two messages with the id {}, and the first is not published yet; give each its own id",
        outgoing.message.label()
    );
    StoreError::new(StoreErrorKind::Refused, EMIT, why)
}

/// For those who write a store: the error of a settlement in a lane that has a new owner.
pub fn lane_lost(attempted: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Fenced, attempted, "a lease ran out and its lane has a new owner")
}

const EMIT: &str = "add a message to the outbox";

/// The outbox on a transaction.
pub trait Outbox {
    /// Adds rows, in order. Each message has an id; one that another unsent row has already is `Refused`, and then nothing
    /// may commit.
    fn emit(&mut self, rows: &[Outgoing]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Unsent rows, oldest first; of each lane the oldest, and of no lane so many that others have to wait. Rows that wait behind one that is set aside are not among them, nor are rows of lanes
    /// that are not, or no longer, held under these epochs. Takes nothing: the lanes are the lock. If it
    /// [noted](Fetched::noted) something, commit it; otherwise it has only read.
    fn fetch_unsent(&mut self, fetch: Fetch<'_>) -> impl Future<Output = Result<Fetched, StoreError>> + Send;

    /// Ends rows that the broker has confirmed. Fails with `Fenced` if a lane of any has a new owner; then nothing may
    /// commit. A row that is gone already is no error: only its owner can have ended it, in a commit whose answer was lost.
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

    /// Removes up to `max` of the rows that were sent before `before` and [kept](KeepSent::Sent), the oldest first. Answers
    /// how many; fewer than `max`: there are no more. A row that is not sent is never among them. Safe to repeat, and beside
    /// relays; call it again and again in transactions of their own rather than with a large `max`.
    fn sweep_sent(&mut self, before: Timestamp, max: usize) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// How much is in the outbox.
    fn outbox_backlog(&mut self) -> impl Future<Output = Result<Backlog, StoreError>> + Send;
}

/// Which rows a relay wants.
#[derive(Clone, Copy, Debug)]
pub struct Fetch<'f> {
    /// Of these lanes.
    pub lanes: &'f [HeldLane],
    /// So many at most.
    pub max: usize,
    /// Leaving out these topics.
    pub without: &'f [String],
    /// Of a lane that is named here, only rows after this one: whoever asks has those before it in hand. A row that commits
    /// late may have an older number, so this is never all that is ever asked for.
    pub after: &'f BTreeMap<LaneNumber, i64>,
}

/// What a relay was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// To be published.
    pub rows: Vec<Unsent>,
    /// The store has written down which rows wait, so that it need not look at them again. That lasts if it is committed.
    pub noted: bool,
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
