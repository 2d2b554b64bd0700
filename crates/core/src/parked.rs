//! The parked role of a store: messages that are set aside, to be tried again later or looked at by a person.
//!
//! ```text
//!            ┌────────── lease ran out ──────────┐
//!            ▼                                   │
//!  park ─▶ due ──lease──▶ in hand ──end──▶ gone  │     (applied, or found done)
//!            ▲               │  └───────────────-┘
//!            │               └──put back──▶ due later, or dead
//!            └───────────── revive ──────────────┘
//! ```
//!
//! One table and one mechanism for waiting retries, gaps and dead letters. **The inbox record is the arbiter**: whoever
//! parks a message claims its key and records the outcome [`Parked`](crate::OutcomeKind::Parked) in the same
//! transaction, so that a message is either applied or parked and never both; whoever runs it turns that record back
//! into a claim with [`reclaim`](crate::store::Inbox::reclaim).
//!
//! A row's fence is raised with each lease, and when a lease is given back; ending it or putting it back with an older
//! fence fails with `Fenced`. Giving back raises it to the next multiple of [`ParkReceipt::ROUND`], so that it also tells
//! how many leases in a row ended without that: with the death of a process. A row is not leased while an earlier row of its order key is there, dead ones included:
//! order is kept by waiting. A store may remember that a row is behind another, so as not to look at it again; then whoever
//! takes a row away wakes the next one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};
use crate::failure::Class;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::message::Message;
use crate::store::{ConsumerId, Store};
use crate::time::Timestamp;

/// A store that can set messages aside.
pub trait ParkStore: Store<Tx: Parking> {}

impl<S: Store<Tx: Parking>> ParkStore for S {}

/// The parked messages on a transaction. Times are the store's own.
pub trait Parking {
    /// Sets messages aside, in order. Answers for each whether it was added; `false`: one of the same consumer, key and
    /// fingerprint is there already. That one owns the record from now on, where this one says that it would.
    fn park(&mut self, parks: &[Park]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// For each order key, whether a parked message of this consumer is there that a later one must not overtake. Rows
    /// that wait for a gap to close ([`Waits::Gap`]), or gave that up, hold nobody up.
    fn is_blocked(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// For each order key, how many such messages are there. Nobody counts further than `max`.
    fn count_blocking(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
        max: u64,
    ) -> impl Future<Output = Result<Vec<u64>, StoreError>> + Send;

    /// Leases up to `max` rows that are due, the longest due first. A row whose order key has an earlier row is not
    /// due.
    fn lease_parked(&mut self, request: &ParkLease)
    -> impl Future<Output = Result<Vec<LeasedPark>, StoreError>> + Send;

    /// Keeps rows in hand for another `lease`. Rows with a new owner are left alone.
    fn extend_parked(
        &mut self,
        rows: &[ParkReceipt],
        lease: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes rows that are done. Fails with `Fenced` if any has a new owner, and with `Refused` if this transaction found
    /// a record under a row's key that says parked and did not [reclaim](crate::store::Inbox::reclaim) it: that record is
    /// of this very row, which has not happened. After either nothing may commit. What else says under a row's key that it is
    /// parked counts as applied from now on: another deployment wrote that, by a scheme that the caller does not know. That is
    /// so of its consumer's own records, and of the shared ones if the consumer shares its keys, or did, and no other consumer
    /// of which that is true has parked the same message.
    fn end_parked(&mut self, rows: &[ParkReceipt]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Puts rows back after they were tried, with what is known now. A row whose consumer has a record that says that this
    /// message is parked owns that from now on. One that waits for a version, and does so again with the same class and
    /// reason, keeps the time of its verdict: see [`GapBefore::since`]. Fails with `Fenced` if any has a new owner.
    fn put_back(&mut self, rows: &[PutBack]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Gives rows back untried, due at once (or after `delay`), without a verdict. Rows with a new owner are left
    /// alone.
    fn release_parked(
        &mut self,
        rows: &[ParkReceipt],
        delay: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How many rows of this order key wait for a gap to close.
    fn count_gaps(
        &mut self,
        consumer: ConsumerId,
        order_key: &str,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Makes rows of these order keys that wait for a gap to close, or gave that up, due at once: it may have. Rows in hand
    /// are left alone: whoever has them looks after the gap with the version locked.
    fn wake_gaps(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Notes that a process waits with a message in hand and does nothing with it. Committed before the wait.
    fn note_wait(
        &mut self,
        consumer: ConsumerId,
        key: &Key,
    ) -> impl Future<Output = Result<Waiting, StoreError>> + Send;

    /// Notes that a message is about to be handled by a process that may not survive it, and answers how often that
    /// was noted and not [forgotten](Self::forget_starts), this time included. Committed before the handler runs.
    ///
    /// Where `waited` was not the first wait since the last start, and nobody noted anything after it, the one before
    /// it was waiting and never came to its start: it died of something else, so may those have that died before, and
    /// counting begins anew with this start.
    fn note_start(
        &mut self,
        consumer: ConsumerId,
        key: &Key,
        waited: Waiting,
    ) -> impl Future<Output = Result<u32, StoreError>> + Send;

    /// Forgets starts: the process has survived.
    fn forget_starts(&mut self, keys: &[(ConsumerId, Key)]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What was known of a message when a process noted that it waits with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Starts that were noted and not forgotten.
    pub starts: u32,
    /// Waits since the last start, this one included.
    pub waits: u32,
}

/// A message to set aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Park {
    /// Whose it is.
    pub consumer: ConsumerId,
    /// The message as it came.
    pub message: Arc<Message>,
    /// What it is found under again: the key that it claims, or a stand-in where it has none.
    pub key: Key,
    /// What it says: another content under the same key is parked beside it.
    pub fingerprint: Fingerprint,
    /// The inbox record under `key` belongs to this message and says that it is parked. `false` for a conflict, whose
    /// key belongs to another, and for what could not be tried. Such a message may get a record later, so nothing is
    /// decided by this: a record that says parked, of this content, is this message's.
    pub owns_record: bool,
    /// Later messages of this order key must not overtake it.
    pub order_key: Option<String>,
    /// Why it is set aside.
    pub verdict: Verdict,
}

/// A row to put back after it was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// The row, in hand.
    pub receipt: ParkReceipt,
    /// What is known of it now.
    pub verdict: Verdict,
    /// What it waits under. Heeded where it begins to wait for a missing version, which wakes it by its aggregate, and
    /// where it waited for one before; all other rows keep the order key that they were parked under. A row that had none
    /// when it began to wait has none again once it waits for no version: nothing of its key is to stand behind it.
    pub order_key: Option<String>,
}

impl PutBack {
    /// One that has nothing to do with versions.
    pub fn new(receipt: ParkReceipt, verdict: Verdict) -> Self {
        Self { receipt, verdict, order_key: None }
    }

    /// What it waits under, if it waits for a missing version or did.
    #[must_use]
    pub fn under(self, order_key: Option<String>) -> Self {
        Self { order_key, ..self }
    }
}

/// What is known of a message's failure, and what happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What happens next.
    pub waits: Waits,
    /// The class of its failure; `None` if it did not fail itself and only waits behind another.
    pub class: Option<Class>,
    /// What failures of one cause have in common; see [`Cause`].
    pub cause: Cause,
    /// Why, in words without payload or secrets.
    pub reason: String,
    /// How often its handler was run and failed.
    pub attempts: u32,
}

/// What a parked message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waits {
    /// Time: it is due after this long.
    Retry(Duration),
    /// Its turn: it is due when nothing of its order key is before it.
    Turn,
    /// A missing version: looked at again after this long. Holds nobody up.
    Gap(Duration),
    /// A person: dead.
    Person,
    /// A person, for a version that did not come in time, or is not waited for: dead, and holds nobody up. If that version
    /// comes after all, it is [woken](Parking::wake_gaps).
    Missing,
}

impl Waits {
    /// The state as it is stored: 0 retrying, 1 behind another, 2 waiting for a gap, 3 dead.
    pub fn code(self) -> i16 {
        match self {
            Self::Retry(_) => 0,
            Self::Turn => 1,
            // A gap that was given up is never due by itself, which tells it from the others.
            Self::Gap(_) | Self::Missing => 2,
            Self::Person => 3,
        }
    }

    /// How long until it is due; `None`: never by itself.
    pub fn delay(self) -> Option<Duration> {
        match self {
            Self::Retry(delay) | Self::Gap(delay) => Some(delay),
            Self::Turn => Some(Duration::ZERO),
            Self::Person | Self::Missing => None,
        }
    }
}

/// What failures of one cause have in common, stable over restarts: the class, the message's type, and the code of the
/// error (or its text with everything that varies taken out).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause(String);

impl Cause {
    /// The longest kept.
    pub const MAX: usize = 200;

    /// The cause of failures of this class and code in messages of this type.
    pub fn new(class: Option<Class>, kind: &str, code: &str) -> Self {
        let class = class.map_or("waiting", Class::name);
        let mut text = format!("{class}/{kind}/{code}");
        if text.len() > Self::MAX {
            let end = (0..=Self::MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
        }
        Self(text)
    }

    /// Takes back what a store kept.
    pub fn from_stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which rows to lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkLease {
    /// Whose.
    pub consumer: ConsumerId,
    /// At most this many.
    pub max: usize,
    /// For how long.
    pub lease: Duration,
}

/// A row in hand.
#[derive(Clone, Debug)]
pub struct LeasedPark {
    /// To end it or to put it back.
    pub receipt: ParkReceipt,
    /// The message.
    pub message: Message,
    /// What it said when it was parked.
    pub fingerprint: Fingerprint,
    /// The inbox record under its key says that this message is parked, as far as its row knows.
    pub owns_record: bool,
    /// How often its handler was run and failed.
    pub attempts: u32,
    /// When it was parked first.
    pub parked_at: Timestamp,
    /// What its verdict says, if it waits for a version or gave that up.
    pub gap: Option<GapBefore>,
}

/// What is known of a row that waits for a missing version, or gave that up and was woken or revived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapBefore {
    /// The class of its failure, if it gave up.
    pub class: Option<Class>,
    /// Why it waits, or gave up.
    pub reason: String,
    /// When it got the first verdict in a row that says this.
    pub since: Timestamp,
}

/// The records that a transaction has found, or left, saying that their message is parked, each with the content of that
/// message as far as it is known. No row of theirs is removed as done.
#[derive(Clone, Debug, Default)]
pub struct FoundParked(HashMap<(ConsumerId, Key), Option<Fingerprint>>);

impl FoundParked {
    /// Adds one. What is known of its content stays known.
    pub fn add(&mut self, place: (ConsumerId, Key), content: Option<Fingerprint>) {
        let known = self.0.entry(place).or_default();
        *known = content.or(*known);
    }

    /// It says something else now.
    pub fn remove(&mut self, place: &(ConsumerId, Key)) {
        self.0.remove(place);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them says so of a row under this key with this content. One of a message that is known to be another
    /// does not, though they share the key.
    pub fn says_so_of(&self, key: &[u8], content: Fingerprint) -> bool {
        let agrees = |found: &Option<Fingerprint>| found.is_none_or(|found| found.agrees_with(content));
        self.0.iter().any(|((_, found_key), found)| found_key.as_bytes() == key && agrees(found))
    }
}

/// Why a row is not removed as done: the record that stands for it says that it is not.
pub fn still_parked(attempted: &str) -> StoreError {
    let why = "the record under a row's key says that its message is parked, so it was not handled; the row stays";
    StoreError::new(StoreErrorKind::Refused, attempted, why)
}

/// One lease of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParkReceipt {
    /// The row.
    pub row: i64,
    /// Raised by one with each lease, and to the next multiple of [`ROUND`](Self::ROUND) when it is given back.
    pub fence: i32,
}

impl ParkReceipt {
    /// More leases in a row than any row sees.
    pub const ROUND: i32 = 1024;

    /// How many leases in a row nobody gave back, this one included.
    pub fn leases(self) -> u32 {
        u32::try_from(self.fence % Self::ROUND).unwrap_or(1).max(1)
    }

    /// The fence of a row that is given back under this one. After the last round it begins anew: a row that went around
    /// two million times has no old owner left.
    pub fn given_back(self) -> i32 {
        Self::round_after(self.fence)
    }

    /// The fence of a row that is given back, or changed by an operator, when it had this one: it is in nobody's hand, and
    /// tells of no lease.
    pub fn round_after(fence: i32) -> i32 {
        (fence / Self::ROUND + 1) % (i32::MAX / Self::ROUND + 1) * Self::ROUND
    }

    /// The fence of a row that is leased when it had this one.
    pub fn after(fence: i32) -> i32 {
        fence % i32::MAX + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_begin_anew_after_the_last_one() {
        let given_back = |fence| ParkReceipt { row: 1, fence }.given_back();
        assert_eq!((given_back(0), given_back(1), given_back(1023), given_back(1024)), (1024, 1024, 1024, 2048));
        assert_eq!(
            (given_back(i32::MAX), given_back(i32::MAX - 1023), given_back(i32::MAX - 1024)),
            (0, 0, i32::MAX - 1023)
        );
        assert_eq!(
            (ParkReceipt::after(0), ParkReceipt::after(i32::MAX - 1), ParkReceipt::after(i32::MAX)),
            (1, i32::MAX, 1)
        );
    }
}
