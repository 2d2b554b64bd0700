//! The insert that makes a key ours.

use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Outcome, OutcomeKind};
use crate::store::ConsumerId;

/// One key to make ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Whose records it is claimed in.
    pub consumer: ConsumerId,
    /// The key.
    pub key: Key,
    /// What the message says.
    pub fingerprint: Fingerprint,
    /// A short hash of the message's id, kept where the key is not that id, so that a transport duplicate and a
    /// business duplicate can be told apart later.
    pub id_hash: Option<i32>,
}

/// What became of a claim. It holds until the transaction ends: rolled back, it never was.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Claim {
    /// The key is ours: run the handler.
    Fresh,
    /// The message was handled before; this is how it ended.
    Duplicate(Earlier),
    /// Another message was handled under this key. Never dropped, never acknowledged as a duplicate.
    Conflict(Conflict),
    /// It was made before the consumer's horizon and has no record: whether it was handled, nobody can tell any more. Not
    /// claimed, so do nothing for it: keep it for a person. Only answered where the claim says when the message was made.
    Forgotten {
        /// How far back the consumer looks.
        horizon: crate::time::Timestamp,
    },
    /// Neither inserted nor found: the row vanished in between. Claim again; never acknowledge.
    Undecided,
}

/// What is remembered of the first delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// How it ended.
    pub outcome: Outcome,
    /// The hash of its message id, where one was kept.
    pub id_hash: Option<i32>,
    /// What the record says that it is of.
    pub fingerprint: Fingerprint,
}

impl Earlier {
    /// It is set aside, and not done.
    pub fn is_parked(&self) -> bool {
        self.outcome.kind() == OutcomeKind::Parked
    }
}

/// Two messages under one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The one that was handled.
    pub stored: Fingerprint,
    /// The one that came now.
    pub offered: Fingerprint,
}

impl Conflict {
    /// What is likely wrong, for the person who reads the log.
    pub fn diagnosis(self) -> &'static str {
        if self.stored.same_type_as(self.offered) {
            "another message with different content was handled or is parked under this key; either a producer reused its id, or \
             the key is too broad, or a field that every retry sets anew should be left out of the fingerprint"
        } else {
            "a message of another type was handled or is parked under this key; the key is probably too broad, so put the type into \
             it ({@type})"
        }
    }
}

/// Decides between duplicate and conflict for a row that was found.
pub fn judge(offered: Fingerprint, earlier: Earlier) -> Claim {
    let stored = earlier.fingerprint;
    if offered.agrees_with(stored) { Claim::Duplicate(earlier) } else { Claim::Conflict(Conflict { stored, offered }) }
}
