//! What a store still knows of one message: how an operator finds out what became of it.
//!
//! ```text
//!  waits in a queue ──▶ handled: an inbox record ──▶ forgotten by retention
//!                   └─▶ parked: a row, and a record that says so
//!  emitted: a row of the outbox ──▶ published: gone, or kept for a while
//! ```
//!
//! Nothing here changes anything. Where no index leads to a message, only the newest [`LOOKED_AT_MAX`] rows are looked at,
//! so that a look never holds up a store with a hundred million of them.

use std::future::Future;

use crate::error::StoreError;
use crate::key::Key;
use crate::outcome::OutcomeKind;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// So many rows of a queue, or of what was sent, are looked at for an id: the newest.
pub const LOOKED_AT_MAX: i64 = 100_000;

/// The header that names the message whose handler emitted this one: its id.
pub const CAUSE: &str = "oncebox-cause";

/// What a store still knows of one message, on a transaction.
pub trait Trails {
    /// Every record under these keys, whoever's it is.
    fn trail_records(&mut self, keys: &[Key]) -> impl Future<Output = Result<Vec<TrailRecord>, StoreError>> + Send;

    /// The rows of parked messages under these keys or with this id, oldest first, up to `max`.
    fn trail_parked(
        &mut self,
        keys: &[Key],
        id: Option<&str>,
        max: usize,
    ) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send;

    /// Copies with this id in the queues of the store, oldest first, up to `max`.
    fn trail_queued(
        &mut self,
        id: &str,
        max: usize,
    ) -> impl Future<Output = Result<Vec<TrailQueued>, StoreError>> + Send;

    /// Rows of the outbox, oldest first, up to `max`.
    fn trail_outbox(
        &mut self,
        which: WhichOutbox<'_>,
        max: usize,
    ) -> impl Future<Output = Result<Vec<TrailOutbox>, StoreError>> + Send;

    /// Where there are more rows than are [looked at](LOOKED_AT_MAX): what was not found there may be older.
    fn trail_beyond(&mut self) -> impl Future<Output = Result<Beyond, StoreError>> + Send;
}

/// Where older rows are not looked at for an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// In the queues of the store.
    pub queued: bool,
    /// Among parked messages.
    pub parked: bool,
    /// In the outbox.
    pub outbox: bool,
}

/// Which rows of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichOutbox<'w> {
    /// This one.
    Row(i64),
    /// Those after this one that are not sent.
    NotSentAfter(i64),
    /// The messages with this id.
    Id(&'w str),
    /// What the handler of the message with this id emitted.
    CausedBy(&'w str),
}

/// What the inbox remembers of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailRecord {
    /// Whose record it is; those that consumers share are their own.
    pub consumer: ConsumerId,
    /// Under which key.
    pub key: Key,
    /// How it ended.
    pub outcome: OutcomeKind,
    /// When.
    pub at: Timestamp,
    /// Why it was rejected, if it was.
    pub reason: Option<String>,
}

/// A copy of a message in a queue of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailQueued {
    /// The name of the queue.
    pub queue: String,
    /// Its number there.
    pub row: i64,
    /// What it says it is.
    pub kind: String,
    /// Who made it, where ids are unique within a producer.
    pub source: Option<String>,
    /// When it was added.
    pub received_at: Timestamp,
    /// When it can be delivered, or until when it is in hand; `None`: it is processed.
    pub visible_at: Option<Timestamp>,
    /// How often it was delivered.
    pub deliveries: u64,
    /// Why it was released last.
    pub error: Option<String>,
}

/// A row of the outbox, without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailOutbox {
    /// Its number.
    pub row: i64,
    /// How far it is.
    pub state: OutboxState,
    /// Where it goes.
    pub topic: String,
    /// Its id.
    pub id: String,
    /// What it says it is.
    pub kind: String,
    /// Its order key.
    pub order_key: Option<String>,
    /// When it was emitted.
    pub emitted_at: Timestamp,
    /// When it was set aside or sent.
    pub settled_at: Option<Timestamp>,
    /// Why the broker refused it.
    pub reason: Option<String>,
    /// How large its payload is.
    pub payload_bytes: u64,
}

/// How far a row of the outbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutboxState {
    /// It is to be published.
    Unsent,
    /// It waits behind one that is set aside.
    Behind,
    /// The broker refused it.
    Aside,
    /// It is published, and kept.
    Sent,
}

impl OutboxState {
    /// All of them, in the order of their stored numbers.
    pub const ALL: [Self; 4] = [Self::Unsent, Self::Behind, Self::Aside, Self::Sent];

    /// As people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsent => "unsent",
            Self::Behind => "behind",
            Self::Aside => "aside",
            Self::Sent => "sent",
        }
    }

    /// The stored number.
    pub fn code(self) -> i16 {
        match self {
            Self::Unsent => 0,
            Self::Behind => 1,
            Self::Aside => 2,
            Self::Sent => 3,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

/// For those who write a store: what the stored headers of a message hold that was caused by the message with this id.
/// Headers are stored as a JSON list of pairs.
pub fn cause_in_headers(id: &str) -> String {
    serde_json::json!([CAUSE, id]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_found_in_stored_headers() {
        let headers = vec![("a".to_owned(), "b".to_owned()), (CAUSE.to_owned(), "x\"7".to_owned())];
        let stored = serde_json::to_string(&headers).unwrap();
        assert!(stored.contains(&cause_in_headers("x\"7")), "{stored}");
        assert!(!stored.contains(&cause_in_headers("x")));
    }

    #[test]
    fn states_have_the_numbers_that_are_stored() {
        for state in OutboxState::ALL {
            assert_eq!(OutboxState::from_code(state.code()), Some(state));
        }
    }
}
