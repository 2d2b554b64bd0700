//! The consumers of a store and their horizons: how far back each can still tell a duplicate.
//!
//! A record that was deleted can't answer a duplicate any more. The horizon is the time of the newest deleted record:
//! a message that was made after it, and has no record, was never handled; of an older one nobody knows. A consumer that
//! moved to other records, those of its own or the shared ones, takes the horizon of its former ones along.
//!
//! ```text
//!   deleted records │ kept records                                  │ never deleted │
//!  ─────────────────┼───────────────────────────────────────────────┼───────┬───────┼─▶ time
//!                horizon                              RETENTION_MIN ago     │      now
//!   a message made here and without a record is too old  ◀── looked at ── LOOK_FROM ago
//! ```
//!
//! Whoever claims a key looks at the horizon afterwards, in the same transaction, and only for a message that was made
//! long enough ago. A claim that finds the key free because its record was deleted comes after that deletion, and so does
//! the look.

use std::future::Future;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::identity::Binding;
use crate::store::{ConsumerId, ConsumerName, Store};
use crate::time::Timestamp;

/// Records younger than this are not deleted, by the store's clock.
pub const RETENTION_MIN: Duration = Duration::from_secs(60 * 60);

/// A message that was made less than this ago, by its consumer's clock, was made after everything that can have been
/// deleted. The distance to [`RETENTION_MIN`] is what the clocks of producer, consumer and store may differ by.
pub const LOOK_FROM: Duration = Duration::from_secs(30 * 60);

/// A producer's clock may be ahead of the store's by this much: a message that seems to be made so shortly after the
/// horizon may be one whose record was deleted.
pub const CLOCKS_DIFFER: Duration = Duration::from_secs(5 * 60);

/// A store that knows how far back its consumers remember.
pub trait HorizonStore: Store<Tx: Consumers> {}

impl<S: Store<Tx: Consumers>> HorizonStore for S {}

/// Whether a message that was made at `made_at` and has no record may have had one.
pub fn is_forgotten(made_at: Timestamp, horizon: Option<Timestamp>) -> bool {
    let is_after = |horizon| between(horizon, made_at).is_some_and(|after| after > CLOCKS_DIFFER);
    horizon.is_some_and(|horizon| !is_after(horizon))
}

/// Whether a message that was made at `made_at` is so old at `now` that the horizon has to be looked at.
pub fn needs_a_look(made_at: Timestamp, now: Timestamp) -> bool {
    between(made_at, now).is_some_and(|age| age >= LOOK_FROM)
}

/// `None` if `to` comes first.
fn between(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok()
}

/// Refuses to delete records that consumers count on at `now`, the store's own time.
pub fn check_age(older_than: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    if between(older_than, now).is_some_and(|age| age >= RETENTION_MIN) {
        return Ok(());
    }
    let why = format!("it is {now}, and records are kept for {} minutes at least", RETENTION_MIN.as_secs() / 60);
    Err(StoreError::new(StoreErrorKind::Refused, format!("delete the records from before {older_than}"), why))
}

/// Refuses a checkpoint that consumers would not see at `now`, the store's own time: they look at it for messages that were
/// made [a while](LOOK_FROM) ago.
pub fn check_checkpoint(at: Timestamp, now: Timestamp) -> Result<(), StoreError> {
    if between(at, now).is_some_and(|age| age >= RETENTION_MIN) {
        return Ok(());
    }
    let why = format!("it is {now}, and a checkpoint lies {} minutes back at least", RETENTION_MIN.as_secs() / 60);
    Err(StoreError::new(StoreErrorKind::Refused, format!("set a checkpoint at {at}"), why))
}

/// The consumers on a transaction.
pub trait Consumers {
    /// All consumers that were ever registered.
    fn consumers(&mut self) -> impl Future<Output = Result<Vec<KnownConsumer>, StoreError>> + Send;

    /// How far back one consumer looks: to its horizon, or to its checkpoint where that is later. `None`: none of its
    /// records was ever deleted, and it has no checkpoint. Read after a claim, it knows of every deletion that the claim
    /// can have come after.
    fn horizon(&mut self, consumer: ConsumerId) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// Moves a consumer's horizon to `at`, forward only, as a deletion of records from then would: its messages from before
    /// may have been handled where its records were before a change of scope.
    fn raise_horizon(
        &mut self,
        consumer: ConsumerId,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How a consumer tells messages apart, as it is [kept](crate::identity) with its name; `None`: nothing is kept yet. With
    /// `to_change` nobody else changes it until the transaction ends.
    fn binding(
        &mut self,
        consumer: ConsumerId,
        to_change: bool,
    ) -> impl Future<Output = Result<Option<Binding>, StoreError>> + Send;

    /// Keeps with a consumer's name how it tells messages apart.
    fn set_binding(
        &mut self,
        consumer: ConsumerId,
        binding: &Binding,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What time it is for the store: records are as old as its clock says.
    fn store_time(&mut self) -> impl Future<Output = Result<Timestamp, StoreError>> + Send;

    /// Deletes up to `limit` records of what was handled before `older_than`, and moves the horizon with them. Records
    /// of keys under which a message is parked stay, whatever their age. Fails with `Refused` if `older_than` is less
    /// than [`RETENTION_MIN`] ago. Where the step says so, their keys go into the [archive](crate::archive) with it.
    ///
    /// It reads a bounded part of the records, from a [place](Place) on, and answers where to go on.
    fn expire(&mut self, step: Expiry) -> impl Future<Output = Result<Expired, StoreError>> + Send;

    /// How many records of a consumer were handled before `older_than`, without reading all of them.
    fn old_records(
        &mut self,
        consumer: ConsumerId,
        older_than: Timestamp,
    ) -> impl Future<Output = Result<OldRecords, StoreError>> + Send;

    /// Whether a consumer has any record.
    fn has_records(&mut self, consumer: ConsumerId) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes what stored mode keeps of messages that were processed long ago, and answers how much. What is not
    /// processed stays, and so does what has a message parked under its key. Fails with `Refused` as
    /// [`expire`](Self::expire) does.
    fn sweep_received(&mut self, sweep: SweepReceived<'_>) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Forbids for good to apply what was made before `at` and has no record, and to replay what was made before it.
    /// Answers whether it did; `false`: there is a later checkpoint. Fails with `Refused` if `at` is less than
    /// [`RETENTION_MIN`] ago.
    fn set_checkpoint(
        &mut self,
        consumer: ConsumerId,
        at: Timestamp,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// What stored mode keeps of messages that were processed, to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepReceived<'s> {
    /// Whose.
    pub consumer: ConsumerId,
    /// Its name, after which the queue is called that holds them.
    pub name: &'s ConsumerName,
    /// Those that were processed before this, by the store's clock.
    pub older_than: Timestamp,
    /// How many at most.
    pub limit: usize,
}

/// One step of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Whose records.
    pub consumer: ConsumerId,
    /// Those that were handled before this, by the store's clock.
    pub older_than: Timestamp,
    /// Where in the store to go on.
    pub from: Place,
    /// How many records at most.
    pub limit: usize,
    /// Whether their keys are archived.
    pub archive: bool,
}

impl Expiry {
    /// The first step of a pass that archives nothing.
    pub fn first(consumer: ConsumerId, older_than: Timestamp, limit: usize) -> Self {
        Self { consumer, older_than, from: Place::default(), limit, archive: false }
    }

    /// The same, and the keys are archived.
    #[must_use]
    pub fn archiving(self) -> Self {
        Self { archive: true, ..self }
    }
}

/// How far a pass over the records of a store has come. Only the store that gave it knows what it means; the default is
/// the beginning. Nothing depends on it but the time that a pass takes: one that begins anew finds what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place(pub i64);

/// Old records of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldRecords {
    /// How many there are, [held](Self::held) ones among them.
    pub records: u64,
    /// They were counted; otherwise `records` was estimated from a sample, or there are at least so many.
    pub counted: bool,
    /// When the oldest that was seen was handled.
    pub oldest: Option<Timestamp>,
    /// How many of them stay because a message is parked under their key. Counted up to [`HELD_MAX`].
    pub held: u64,
}

/// [`OldRecords::held`] is not counted any further.
pub const HELD_MAX: u64 = 10_000;

/// A consumer that the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownConsumer {
    /// Its small id.
    pub id: ConsumerId,
    /// Its name.
    pub name: ConsumerName,
    /// The time of its newest deleted record; `None`: none was ever deleted.
    pub horizon: Option<Timestamp>,
    /// What was made before this is not replayed, whoever asks.
    pub checkpoint: Option<Timestamp>,
    /// How it tells messages apart; `None`: it has not run since that is kept.
    pub binding: Option<Binding>,
}

/// What a step of expiry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many records were deleted.
    pub deleted: u64,
    /// The horizon after it.
    pub horizon: Option<Timestamp>,
    /// Where the next step goes on; `None`: the pass has come to its end.
    pub next: Option<Place>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_message_is_forgotten_if_it_may_have_been_made_before_the_horizon() {
        let horizon = Some(at(10_000));
        assert!(is_forgotten(at(0), horizon) && is_forgotten(at(10_000), horizon) && is_forgotten(at(10_300), horizon));
        assert!(!is_forgotten(at(10_301), horizon) && !is_forgotten(at(0), None));
    }

    #[test]
    fn whatever_can_have_been_deleted_is_looked_at() {
        let now = at(1_000_000);
        assert!(needs_a_look(at(0), now) && needs_a_look(at(1_000_000 - 1_800), now));
        assert!(!needs_a_look(at(1_000_000 - 1_799), now) && !needs_a_look(at(2_000_000), now));
        assert!(LOOK_FROM + CLOCKS_DIFFER < RETENTION_MIN);
    }

    #[test]
    fn a_checkpoint_lies_where_consumers_look() {
        let now = at(1_767_225_600);
        assert!(check_checkpoint(at(1_767_225_600 - 3_600), now).is_ok());
        for young in [1_767_225_600 - 3_599, 1_767_225_600 + 3_600] {
            let refused = check_checkpoint(at(young), now).expect_err("too young");
            assert_eq!(refused.kind(), StoreErrorKind::Refused);
        }
    }

    #[test]
    fn young_records_are_not_deleted() {
        let now = at(1_767_225_600);
        assert!(check_age(at(1_767_225_600 - 3_600), now).is_ok());
        let refused = check_age(at(1_767_225_600 - 3_599), now).expect_err("too young");
        assert_eq!(
            refused.to_string(),
            "cannot delete the records from before 2025-12-31T23:00:01Z: it is 2026-01-01T00:00:00Z, and records are \
             kept for 60 minutes at least"
        );
    }
}
