//! The journal: one entry for each delivery, for people who ask what happened to a message, and when.
//!
//! ```text
//!  delivery ──handled, found done, parked, given back──▶ noted ──once a second, many at once──▶ a row in the store
//!                                                          │
//!                                                          └─ a process that dies takes the last second with it
//! ```
//!
//! It is off unless a consumer asks for it. Nothing that is promised rests on it: it is written apart from the messages,
//! so that it neither fails nor holds up any, and what it could not write is counted. An entry tells how a delivery ended,
//! and nothing of what the message says: no payload, no header.

use std::future::Future;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::key::Key;
use crate::store::{ConsumerId, Store};
use crate::time::Timestamp;

/// For how long entries are kept, where nobody says otherwise.
pub const JOURNAL_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What one entry takes on PostgreSQL with its indexes, for a UUID as the key and a name of the process of 20 bytes. Measured,
/// and held by a test.
pub const ENTRY_BYTES_POSTGRES: u32 = 210;

/// The same on SQLite.
pub const ENTRY_BYTES_SQLITE: u32 = 130;

/// The longest cause, coordinate or name of a process that is kept, in bytes.
pub const TEXT_BYTES_MAX: usize = 200;

/// A store that keeps a journal.
pub trait JournalStore: Store<Tx: Journals> {}

impl<S: Store<Tx: Journals>> JournalStore for S {}

/// The journal on a transaction. Times are the store's own.
pub trait Journals {
    /// Adds entries, in one statement. Called twice, they are there twice.
    fn add_to_journal(
        &mut self,
        process: &str,
        entries: &[JournalEntry],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The entries of one message, the newest first, up to `max`.
    fn read_journal(
        &mut self,
        sought: JournalOf<'_>,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Journaled>, StoreError>> + Send;

    /// Removes entries of a consumer from before this time, the oldest first, up to `max`. Answers how many.
    fn sweep_journal(
        &mut self,
        consumer: ConsumerId,
        before: Timestamp,
        max: usize,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeliveryEnd {
    /// Its effect is committed.
    Applied,
    /// The business refused the message.
    Rejected,
    /// A business constraint showed that its effect was there already.
    AlreadyApplied,
    /// The message is older than the state of its aggregate.
    Stale,
    /// Another message with its version was applied before.
    SameVersion,
    /// The message was handled before, or is parked.
    Duplicate,
    /// It failed, and the message is parked to be tried again.
    Parked,
    /// The message is parked behind another of its order key.
    Behind,
    /// The message is parked until a missing version comes.
    Gap,
    /// The message is parked for a person.
    Dead,
    /// It was given back to its source without blame.
    Released,
    /// It failed and was given back to its source.
    Failed,
    /// Its lease was taken over before the message was done.
    LeaseLost,
    /// Stored mode has stored the message, or found it stored.
    Stored,
}

impl DeliveryEnd {
    /// All of them, in the order of their stored numbers.
    pub const ALL: [Self; 14] = [
        Self::Applied,
        Self::Rejected,
        Self::AlreadyApplied,
        Self::Stale,
        Self::SameVersion,
        Self::Duplicate,
        Self::Parked,
        Self::Behind,
        Self::Gap,
        Self::Dead,
        Self::Released,
        Self::Failed,
        Self::LeaseLost,
        Self::Stored,
    ];

    /// As people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Rejected => "rejected",
            Self::AlreadyApplied => "already_applied",
            Self::Stale => "stale",
            Self::SameVersion => "same_version",
            Self::Duplicate => "duplicate",
            Self::Parked => "parked",
            Self::Behind => "behind",
            Self::Gap => "gap",
            Self::Dead => "dead",
            Self::Released => "released",
            Self::Failed => "failed",
            Self::LeaseLost => "lease_lost",
            Self::Stored => "stored",
        }
    }

    /// The stored number. Never changes its meaning.
    pub fn code(self) -> i16 {
        match self {
            Self::Applied => 0,
            Self::Rejected => 1,
            Self::AlreadyApplied => 2,
            Self::Stale => 3,
            Self::SameVersion => 4,
            Self::Duplicate => 5,
            Self::Parked => 6,
            Self::Behind => 7,
            Self::Gap => 8,
            Self::Dead => 9,
            Self::Released => 10,
            Self::Failed => 11,
            Self::LeaseLost => 12,
            Self::Stored => 13,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.code() == code)
    }
}

/// What is noted of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Whose delivery it was.
    pub consumer: ConsumerId,
    /// How long before it is written it ended: the store knows the time, whoever noted it knows this.
    pub ago: Duration,
    /// What the inbox has the message under, or what stands in for a key that it has not.
    pub key: Key,
    /// Where the key does not tell it: the [hash](id_hash) of the message's id.
    pub id_hash: Option<i64>,
    /// The rest.
    pub told: Told,
}

/// What an entry tells of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// How it ended.
    pub end: DeliveryEnd,
    /// Why: the likely cause of a duplicate, or what failures of one cause have in common.
    pub cause: Option<String>,
    /// Which delivery of the message it was, as its broker counts; or, where it had been parked, which try.
    pub attempt: Option<u32>,
    /// It came from where parked messages are, not from its source.
    pub was_parked: bool,
    /// How long the last call of its handler took, of a batch handler for all of its messages; `None`: none was made.
    pub handler_millis: Option<u32>,
    /// Where the message lies in its broker.
    pub coordinate: Option<String>,
}

/// Which message is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalOf<'j> {
    /// At this consumer only.
    pub consumer: Option<ConsumerId>,
    /// Under one of these keys.
    pub keys: &'j [Key],
    /// Or with this id.
    pub id: Option<&'j str>,
}

/// An entry, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journaled {
    /// Whose delivery it was.
    pub consumer: ConsumerId,
    /// When it ended, by the store's clock.
    pub at: Timestamp,
    /// Under which key.
    pub key: Key,
    /// The process that had it: `host/pid`.
    pub process: String,
    /// The rest.
    pub told: Told,
}

/// The id of a message as it stands in an index. Never changes: stored entries carry it.
pub fn id_hash(id: &str) -> i64 {
    let digest = Sha256::digest(id);
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(first)
}

/// A text as it is kept, cut at [`TEXT_BYTES_MAX`].
pub fn bounded(text: &str) -> &str {
    let end = text.len().min(TEXT_BYTES_MAX);
    let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// What a journal costs in the store of this [name](crate::store::StoreCapabilities), in a sentence for people who switch it
/// on.
pub fn cost(store: &str) -> String {
    let bytes = match store {
        "postgres" => format!(" of about {ENTRY_BYTES_POSTGRES} bytes, indexes included"),
        "sqlite" => format!(" of about {ENTRY_BYTES_SQLITE} bytes, indexes included"),
        _ => String::new(),
    };
    format!(
        "each delivery adds a row{bytes}; rows are written once a second or every 1,000 deliveries, by one insert and one \
         commit beside the messages"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_the_numbers_that_are_stored() {
        for (number, end) in DeliveryEnd::ALL.into_iter().enumerate() {
            assert_eq!((end.code(), DeliveryEnd::from_code(end.code())), (number as i16, Some(end)));
        }
        assert_eq!(DeliveryEnd::from_code(99), None);
    }

    #[test]
    fn the_hash_of_an_id_never_changes() {
        assert_eq!(id_hash(""), i64::from_be_bytes([0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14]));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        assert_eq!(bounded(&"ä".repeat(150)).len(), TEXT_BYTES_MAX);
        assert_eq!(bounded(&format!("x{}", "ä".repeat(150))).len(), TEXT_BYTES_MAX - 1);
    }
}
