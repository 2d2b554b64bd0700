//! The offsets role of a store: how far a consumer has come in each log that it reads, kept in the transactions that did
//! the work.
//!
//! ```text
//!  take ──▶ epoch n, next (or nowhere yet: begin) ──▶ lock ─▶ handle ─▶ advance from → to ──commit──▶ …
//!                      │
//!  another takes: epoch n + 1, and whoever holds n can neither lock nor advance
//! ```
//!
//! A log is read in one order by one owner at a time: a partition of a Kafka topic. One number stands for all its messages
//! that are done, so none of them needs a record of its own. That holds only as long as messages are done without a gap,
//! which is why an advance names the offset that it starts from and is refused if the store is elsewhere.

use std::future::Future;

use crate::error::{StoreError, StoreErrorKind};
use crate::store::{ConsumerId, Store};

/// A store that can keep offsets.
pub trait OffsetStore: Store<Tx: Offsets> {}

impl<S: Store<Tx: Offsets>> OffsetStore for S {}

/// The offsets on a transaction. Logs in one call are all different.
pub trait Offsets {
    /// Takes these logs over, each under a new epoch, and answers in their order how far they have come. Durable with the
    /// transaction; from then on nothing commits under an older epoch, and everything that did is in the answer. Waits for
    /// those who have one locked. Taken twice, the first owner is the one that is cut off.
    fn take_offsets(
        &mut self,
        consumer: ConsumerId,
        logs: &[String],
    ) -> impl Future<Output = Result<Vec<TakenOffset>, StoreError>> + Send;

    /// Says where logs begin that have come nowhere yet. Fails with `Fenced` if one has a new owner, or has an offset; then
    /// nothing may commit.
    fn begin_offsets(
        &mut self,
        consumer: ConsumerId,
        starts: &[(HeldLog, i64)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Locks these logs until the transaction ends, and answers the offset of each: what is below is done. Fails with
    /// `Fenced` if one has a new owner.
    fn lock_offsets(
        &mut self,
        consumer: ConsumerId,
        held: &[HeldLog],
    ) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;

    /// Moves logs on. Fails with `Fenced` if one has a new owner, and with `Corrupt` if one is not where its step starts;
    /// then nothing may commit.
    fn advance_offsets(
        &mut self,
        consumer: ConsumerId,
        steps: &[OffsetStep],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A log under the epoch in which it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeldLog {
    /// The log: `topic/partition`.
    pub log: String,
    /// Counts its owners.
    pub epoch: i64,
}

/// What whoever takes a log over is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOffset {
    /// To hold it under.
    pub epoch: i64,
    /// The next message to read; `None`: it has come nowhere yet.
    pub next: Option<i64>,
    /// What the last message that was done looked like, to know the log again; `None`: none was.
    pub witness: Option<i64>,
}

/// One step in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetStep {
    /// The log.
    pub held: HeldLog,
    /// The offset that it is at.
    pub from: i64,
    /// The offset that it comes to.
    pub to: i64,
    /// What the message before `to` looks like: a hash that another log would not have at this place.
    pub witness: i64,
}

/// For those who write a store: the error for a log that has a new owner.
pub fn log_lost(attempted: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Fenced, attempted, "the partition has a new owner, who goes on from there")
}

/// For those who write a store: the error for a log that is not where a step starts.
pub fn log_elsewhere(attempted: &'static str) -> StoreError {
    let why = "its offset in the store is not the one that these messages follow, so some were left out or are done; \
               nothing was committed; start the consumer again, and it goes on from the store's offset";
    StoreError::new(StoreErrorKind::Corrupt, attempted, why)
}
