//! The versions role of a store: how far each aggregate has come.
//!
//! A versioned message is the next of its aggregate, the same as the last one, older, or too far ahead because something
//! is missing. Which of these is decided with the aggregate's record locked, so that two processes can't both be next.

use std::future::Future;

use crate::error::StoreError;
use crate::failure::Failure;
use crate::key::Key;
use crate::message::Message;
use crate::store::{ConsumerId, Store};

/// A store that can keep versions.
pub trait VersionStore: Store<Tx: Versions> {}

impl<S: Store<Tx: Versions>> VersionStore for S {}

/// The versions on a transaction.
pub trait Versions {
    /// Locks the records of these aggregates, all different, until the transaction ends, and answers how far each has
    /// come; `None`: nothing was applied yet. Waits for others as a claim does.
    fn lock_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<u64>>, StoreError>> + Send;

    /// How far each of these aggregates has come, without a lock: for those who only look. Answers as
    /// [`lock_versions`](Self::lock_versions) does.
    fn read_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> impl Future<Output = Result<Vec<Option<u64>>, StoreError>> + Send;

    /// Notes how far aggregates have come. Only those that this transaction has locked.
    fn advance_versions(
        &mut self,
        consumer: ConsumerId,
        versions: &[(Key, u64)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// How a consumer reads versions and what it does about them. Whoever forecasts what a consumer will do asks the same
/// questions as the consumer, and gets the same answers.
pub trait VersionPolicy: Send + Sync {
    /// Of which aggregate a message is a version, and which.
    fn place(&self, message: &Message) -> Result<(Key, u64), Failure>;

    /// Where this version stands towards an aggregate that has come as far as `applied`. One that is too far ahead and
    /// applied all the same counts as next.
    fn standing(&self, version: u64, applied: Option<u64>) -> Standing;
}

/// Where a message stands towards its aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is the next one: apply it.
    Next,
    /// This version was applied already.
    Same,
    /// It is older than the state: applying it would turn the state back.
    Stale,
    /// Something before it is missing.
    Gap,
}

impl Standing {
    /// Where `version` stands towards an aggregate that has come as far as `applied`. The first version is `first`.
    pub fn of(version: u64, applied: Option<u64>, first: u64) -> Self {
        match applied {
            Some(applied) if version == applied => Self::Same,
            Some(applied) if version < applied => Self::Stale,
            Some(applied) if version - applied == 1 => Self::Next,
            None if version == first => Self::Next,
            None if version < first => Self::Stale,
            _ => Self::Gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_next_the_same_stale_or_a_gap() {
        assert_eq!(Standing::of(1, None, 1), Standing::Next);
        assert_eq!(Standing::of(2, None, 1), Standing::Gap);
        assert_eq!(Standing::of(0, None, 1), Standing::Stale);
        assert_eq!(Standing::of(8, Some(7), 1), Standing::Next);
        assert_eq!(Standing::of(7, Some(7), 1), Standing::Same);
        assert_eq!(Standing::of(6, Some(7), 1), Standing::Stale);
        assert_eq!(Standing::of(9, Some(7), 1), Standing::Gap);
        assert_eq!(Standing::of(u64::MAX, Some(0), 1), Standing::Gap);
    }
}
