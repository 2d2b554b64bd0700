//! The quarantine of a store: what an operator sees of the parked messages, and what may be done to them.
//!
//! ```text
//!           ┌── annotate ──┐
//!           ▼              │
//!  dead ────┴──────────────┘
//!   │ │ └── supersede ──▶ dead, with another content under another key
//!   │ └──── revive ─────▶ due; a runner leases it, as it leases any other (see [`parked`](crate::parked))
//!   └────── discard ────▶ gone; its record says rejected, with the reason
//! ```
//!
//! **The inbox record stays the arbiter.** What an operator does to a message and what a runner does to it meet at its
//! record: whoever is second finds that it no longer says parked, and leaves it. A row that somebody holds at this
//! moment is passed over, never waited for.
//!
//! Its siblings are [`Replays`], [`Audits`], [`Consumers`], [`Archives`] and [`Journals`]; an operator needs all six.

use std::future::Future;

use crate::archive::Archives;
use crate::audit::Audits;
use crate::error::StoreError;
use crate::failure::Class;
use crate::fingerprint::Fingerprint;
use crate::horizon::Consumers;
use crate::journal::Journals;
use crate::key::Key;
use crate::message::Message;
use crate::outbox::OutboxStore;
use crate::outcome::OutcomeKind;
use crate::parked::{Cause, LeasedPark, Park, Parking};
use crate::replay::{ReplayId, Replays};
use crate::store::{ConsumerId, ConsumerStore, Store};
use crate::time::Timestamp;
use crate::versions::Versions;

/// A store that an operator can work on.
pub trait QuarantineStore:
    ConsumerStore + Store<Tx: Parking + Versions + Quarantine + Replays + Audits + Consumers + Archives + Journals>
{
}

impl<S> QuarantineStore for S where
    S: OutboxStore + Store<Tx: Parking + Versions + Quarantine + Replays + Audits + Consumers + Archives + Journals>
{
}

/// What an operator sees of the parked messages, and does to them, in a transaction. Times are the store's own.
pub trait Quarantine {
    /// The parked messages of a consumer in the order in which they were parked, those after the row `after`.
    fn page(
        &mut self,
        consumer: ConsumerId,
        after: i64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ParkedRow>, StoreError>> + Send;

    /// One parked message.
    fn parked(&mut self, row: i64) -> impl Future<Output = Result<Option<ParkedRow>, StoreError>> + Send;

    /// The parked messages of a consumer, counted by cause, the largest count first.
    fn causes(&mut self, consumer: ConsumerId) -> impl Future<Output = Result<Vec<CauseCount>, StoreError>> + Send;

    /// What the inbox remembers under each of these keys, in the consumer's own records or in those that consumers
    /// share. Reads, and claims nothing.
    fn remembered(
        &mut self,
        consumer: ConsumerId,
        keys: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<Remembered>>, StoreError>> + Send;

    /// Sets or removes the note on rows. Answers for each whether it is there.
    fn annotate(
        &mut self,
        rows: &[i64],
        note: Option<&str>,
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Removes rows for good, whatever they wait for. The records of each, its consumer's own and a shared one if the consumer
    /// shares its keys, or did, are no longer parked and say [`Rejected`](OutcomeKind::Rejected) with this reason, so that a
    /// redelivery is answered and not run. Answers for each whether it was removed; `false`: it is gone, or somebody holds it at this moment. A runner that leased it
    /// before finds the record changed, or its receipt fenced.
    fn discard(&mut self, rows: &[i64], reason: &str) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Makes dead rows due now, each tagged with the replay that did it. Answers for each whether it did; `false`: it
    /// is gone, not dead, or held by somebody at this moment. Of two who revive one row, one gets `true`.
    fn revive(
        &mut self,
        rows: &[i64],
        replay: Option<ReplayId>,
    ) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Takes one dead row in hand, as reviving and leasing it would, to be ended or put back in this same transaction: how
    /// a dry run gets its message. `None`: it is gone, not dead, or held by somebody at this moment.
    fn take_in_hand(&mut self, row: i64) -> impl Future<Output = Result<Option<LeasedPark>, StoreError>> + Send;

    /// Replaces the message of a dead row by `with`, which keeps its place in the order of its key. The record of the
    /// old message says rejected, with `reason`; the new one gets a record that says parked. Under the same key the
    /// record stays and carries the new fingerprint, in both places while another scope is bridged. `link` is the entry in the audit log that tells the difference.
    /// Unless it answers [`Done`](Superseded::Done), nothing has changed.
    fn supersede(
        &mut self,
        row: i64,
        with: &Park,
        link: i64,
        reason: &str,
    ) -> impl Future<Output = Result<Superseded, StoreError>> + Send;
}

/// A parked message with everything that is known of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ParkedRow {
    /// Its number: the order in which messages were parked.
    pub row: i64,
    /// Whose it is.
    pub consumer: ConsumerId,
    /// What it is found under.
    pub key: Key,
    /// What it says.
    pub fingerprint: Fingerprint,
    /// The inbox record under its key belongs to it.
    pub owns_record: bool,
    /// Later messages of this order key wait for it.
    pub order_key: Option<String>,
    /// The message as it came.
    pub message: Message,
    /// What it waits for.
    pub state: ParkedState,
    /// When it is due, or until when it is in hand; `None` while it is dead.
    pub due_at: Option<Timestamp>,
    /// The class of its failure; `None` if it did not fail itself.
    pub class: Option<Class>,
    /// What failures of one cause have in common.
    pub cause: Cause,
    /// Why, without payload or secrets.
    pub reason: String,
    /// How often its handler was run and failed.
    pub attempts: u32,
    /// When it was parked first.
    pub first_at: Timestamp,
    /// When it failed last.
    pub last_at: Timestamp,
    /// What an operator wrote about it.
    pub note: Option<String>,
    /// The replay that revived it last.
    pub replay: Option<ReplayId>,
    /// Its content was edited; the entry in the audit log that tells the difference.
    pub supersedes: Option<i64>,
    /// A dead row of its order key stands before it, at or before the row after which its page begins.
    pub is_held_up: bool,
    /// It waits for a missing version, or gave that up: it holds nobody up.
    pub is_gap: bool,
}

impl ParkedRow {
    /// A row with what every row has; a store fills in the rest.
    #[allow(clippy::too_many_arguments, reason = "a store reads them as columns, in this order")]
    pub fn new(
        row: i64,
        consumer: ConsumerId,
        key: Key,
        fingerprint: Fingerprint,
        message: Message,
        state: ParkedState,
        cause: Cause,
        at: (Timestamp, Timestamp),
    ) -> Self {
        Self {
            row,
            consumer,
            key,
            fingerprint,
            owns_record: false,
            order_key: None,
            message,
            state,
            due_at: None,
            class: None,
            cause,
            reason: String::new(),
            attempts: 0,
            first_at: at.0,
            last_at: at.1,
            note: None,
            replay: None,
            supersedes: None,
            is_held_up: false,
            is_gap: false,
        }
    }

    /// Whether it waits for a person.
    pub fn is_dead(&self) -> bool {
        self.state == ParkedState::Dead
    }

    /// The order key that it holds up while it is there: rows that wait for a gap, or gave that up, hold up nobody.
    pub fn holds_up(&self) -> Option<&str> {
        self.order_key.as_deref().filter(|_| !self.is_gap)
    }
}

/// What a parked message waits for, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParkedState {
    /// Its next attempt, or it is in hand.
    Retrying,
    /// Its turn behind another message of its order key.
    Turn,
    /// A missing version.
    Gap,
    /// A person.
    Dead,
}

impl ParkedState {
    /// All of them, in the order of their stored numbers.
    pub const ALL: [Self; 4] = [Self::Retrying, Self::Turn, Self::Gap, Self::Dead];

    /// The state as people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retrying => "retrying",
            Self::Turn => "turn",
            Self::Gap => "gap",
            Self::Dead => "dead",
        }
    }

    /// The stored number, as in [`Waits::code`](crate::parked::Waits::code).
    pub fn code(self) -> i16 {
        match self {
            Self::Retrying => 0,
            Self::Turn => 1,
            Self::Gap => 2,
            Self::Dead => 3,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The state of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// How many messages are parked for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// All of them.
    pub messages: u64,
    /// Those that wait for a person.
    pub dead: u64,
    /// When the first of them was parked.
    pub first_at: Timestamp,
    /// When one of them failed last.
    pub last_at: Timestamp,
}

/// What an inbox record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Of which content.
    pub fingerprint: Fingerprint,
    /// How it ended.
    pub outcome: OutcomeKind,
    /// It is among the records that consumers share, and this consumer has none of its own: whether it speaks of this
    /// consumer depends on whether that shares its keys.
    pub is_shared: bool,
}

impl Remembered {
    /// Whether it says that a row with this content is parked. A row that was there before its record does not know that
    /// it has one, so this is looked up; only where consumers share records, one that is not the row's own may be of
    /// another consumer's row, and `owns_record` counts.
    pub fn is_of_parked(&self, content: Fingerprint, owns_record: bool) -> bool {
        self.outcome == OutcomeKind::Parked && self.fingerprint.agrees_with(content) && (owns_record || !self.is_shared)
    }
}

/// What became of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Superseded {
    /// The row holds the new message.
    Done,
    /// The row is gone, not dead, or held by somebody at this moment.
    Refused,
    /// Another message was handled, or is parked, under the new key.
    Taken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parked::Waits;

    #[test]
    fn states_have_names_and_the_numbers_of_what_they_wait_for() {
        for state in ParkedState::ALL {
            assert_eq!(ParkedState::from_code(state.code()), Some(state));
            assert_eq!(ParkedState::from_name(state.name()), Some(state));
        }
        assert_eq!(ParkedState::Dead.code(), Waits::Person.code());
        assert_eq!(ParkedState::Turn.code(), Waits::Turn.code());
        assert_eq!(ParkedState::from_code(9), None);
    }
}
