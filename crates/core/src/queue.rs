//! The queue role of a store: messages in a table, leased with fences, by lanes where order is kept.
//!
//! ```text
//!  enqueue ──▶ visible ──lease──▶ invisible until its lease ends ──settle──▶ gone (or kept, marked processed)
//!                 ▲                      │        │
//!                 └──── lease ran out ───┘     release: invisible until its delay ends
//! ```
//!
//! A row's delivery count is its fence: each lease raises it, and settling or releasing with an older count changes
//! nothing. In an ordered queue a row belongs to a lane (a hash of its order key), a lane has one owner at a time with
//! an epoch, and a row is not leased while an earlier row of its order key is invisible.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::StoreError;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::message::Message;
use crate::source::LaneNumber;
use crate::store::{ConsumerName, ConsumerStore, Store};

/// A store that can keep queues.
pub trait QueueStore: ConsumerStore + Store<Tx: QueueTx> {
    /// Makes the queue known. Fails with `Configuration` if it exists with another number of lanes and is not empty.
    fn queue(&self, spec: &QueueSpec) -> impl Future<Output = Result<QueueId, StoreError>> + Send;

    /// Resolves when a message was enqueued in this process, or never. Polling goes on beside it.
    fn enqueued(&self) -> impl Future<Output = ()> + Send;

    /// Tells [`enqueued`](Self::enqueued); called after the commit.
    fn announce(&self);
}

/// The queue on a transaction. Times are the store's own.
pub trait QueueTx {
    /// Adds messages, in order. One with a key that the queue knows already is not added; its answer says so.
    fn enqueue(
        &mut self,
        queue: QueueId,
        messages: &[Enqueue],
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;

    /// Leases up to `max` visible rows, oldest first.
    fn lease(&mut self, request: &LeaseRequest) -> impl Future<Output = Result<Vec<Leased>, StoreError>> + Send;

    /// Ends rows. Fails with `Fenced` if any of them, or its lane, has a new owner; then nothing may commit.
    fn settle(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        keep: Keep,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes rows visible after `delay`, noting why. Rows with a new owner are left alone.
    fn release(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        delay: Duration,
        reason: Option<&str>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Keeps rows invisible for another `lease`. Rows with a new owner are left alone.
    fn extend(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        lease: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Renews the lanes that are held, gives back others, and takes free ones up to a fair share.
    fn hold_lanes(&mut self, request: &LaneRequest) -> impl Future<Output = Result<HeldLanes, StoreError>> + Send;

    /// Gives back all lanes and leaves the members of the queue.
    fn leave_lanes(&mut self, queue: QueueId, owner: Uuid) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The small id of a queue within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub i16);

/// What a queue is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its name.
    pub name: ConsumerName,
    /// How many lanes keep its order; `None`: no order. Changed only when the queue is empty.
    pub lanes: Option<u16>,
}

impl QueueSpec {
    /// Ordered queues have this many lanes unless told otherwise: enough for tens of processes to share.
    pub const LANES: u16 = 64;

    /// The queue behind a stored-mode consumer.
    pub fn received(consumer: &ConsumerName, ordered: bool) -> Self {
        let name = ConsumerName::received(consumer);
        Self { name, lanes: ordered.then_some(Self::LANES) }
    }

    /// The queue under which the lanes of the outbox are held. It holds no messages itself.
    pub fn outbox() -> Self {
        Self { name: ConsumerName::outbox(), lanes: Some(Self::LANES) }
    }

    /// The lane of an order key: the first four bytes of its SHA-256 as a big-endian number, modulo the lanes. Defined
    /// bytes, because processes of different versions must agree. Without an order key any lane will do.
    pub fn lane(&self, order_key: Option<&str>) -> Option<LaneNumber> {
        let lanes = u32::from(self.lanes?);
        Some(LaneNumber(order_key.map_or(0, |key| {
            let digest = Sha256::digest(key.as_bytes());
            let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
            i32::try_from(number % lanes).unwrap_or(0)
        })))
    }
}

/// A message to add.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// The message.
    pub message: Message,
    /// Its lane, in an ordered queue.
    pub lane: Option<LaneNumber>,
    /// Add it only once under this key.
    pub once: Option<(Key, Fingerprint)>,
}

/// What became of a message to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is in the queue once the transaction commits.
    Added,
    /// It was there already.
    Duplicate,
    /// Another message is there under its key.
    Conflict,
}

/// What to lease.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// From which queue.
    pub queue: QueueId,
    /// How many rows at most.
    pub max: usize,
    /// For how long.
    pub lease: Duration,
    /// Only from these lanes, and only while they are held under these epochs. `None` in an unordered queue.
    pub lanes: Option<Vec<HeldLane>>,
}

/// A leased row.
#[derive(Debug)]
pub struct Leased {
    /// The message.
    pub message: Message,
    /// What it takes to settle it.
    pub receipt: RowReceipt,
}

/// One lease of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowReceipt {
    /// The row.
    pub row: i64,
    /// Its delivery count at this lease: the fence.
    pub fence: i32,
    /// The lane and its epoch at this lease, in an ordered queue.
    pub lane: Option<HeldLane>,
}

/// A lane that is held under an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeldLane {
    /// The lane.
    pub lane: LaneNumber,
    /// Raised each time the lane changes hands.
    pub epoch: i64,
}

/// Which lanes to hold.
#[derive(Clone, Debug)]
pub struct LaneRequest {
    /// Of which queue.
    pub queue: QueueId,
    /// Who asks; one per process and source.
    pub owner: Uuid,
    /// For how long.
    pub lease: Duration,
    /// Lanes to give back now.
    pub give_back: Vec<LaneNumber>,
}

/// The lanes that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLanes {
    /// Held now.
    pub lanes: Vec<HeldLane>,
    /// How many a fair share is. With more, finish and give back some.
    pub share: usize,
}

/// Whether a settled row stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is deleted.
    Nothing,
    /// It stays, marked processed, until retention removes it.
    Processed,
}

impl fmt::Display for QueueSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue:{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_hash_never_changes() {
        let spec = QueueSpec { name: ConsumerName::new("q").unwrap(), lanes: Some(64) };
        // Stored rows carry these numbers: a change would break the order of a queue that is in use.
        assert_eq!(spec.lane(Some("account-1")), Some(LaneNumber(1)));
        assert_eq!(spec.lane(Some("")), Some(LaneNumber(2)));
        assert_eq!(spec.lane(None), Some(LaneNumber(0)));
        assert_eq!(QueueSpec { lanes: None, ..spec }.lane(Some("account-1")), None);
    }
}
