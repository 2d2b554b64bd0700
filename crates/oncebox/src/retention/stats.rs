//! How far retention is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use oncebox_core::Timestamp;

/// Counters of one running [`Retention`](super::Retention).
#[derive(Debug, Default)]
pub struct RetentionStats {
    consumers: Mutex<BTreeMap<String, RetentionProgress>>,
    swept: Mutex<SweepProgress>,
    share: AtomicU8,
}

/// What was done for one consumer since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionProgress {
    /// Records that were deleted.
    pub deleted: u64,
    /// Messages of stored mode that were processed long ago, and deleted.
    pub processed: u64,
    /// Blocks of archived keys that were deleted.
    pub archive_blocks: u64,
    /// Entries of its journal that were deleted.
    pub journal: u64,
    /// Transactions that this took.
    pub steps: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Steps that failed and were tried again.
    pub failures: u64,
    /// How far back the consumer can tell a duplicate: `None`, as far as it lives.
    pub horizon: Option<Timestamp>,
}

/// What was done since the start for what belongs to no consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepProgress {
    /// Rows of the outbox that were sent, and deleted.
    pub sent: u64,
    /// Replays that came to their end, and were deleted.
    pub replays: u64,
    /// Steps that failed and were tried again.
    pub failures: u64,
}

impl RetentionStats {
    /// What was done so far, by consumer.
    pub fn snapshot(&self) -> BTreeMap<String, RetentionProgress> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was done so far for what belongs to no consumer.
    pub fn swept(&self) -> SweepProgress {
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of the time in which it works, in percent; it rises where records come faster than they go. 0: it has
    /// not begun.
    pub fn share(&self) -> u8 {
        self.share.load(Ordering::Relaxed)
    }

    pub(super) fn set_share(&self, share: u8) {
        self.share.store(share, Ordering::Relaxed);
    }

    pub(super) fn change(&self, consumer: &str, change: impl FnOnce(&mut RetentionProgress)) {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        change(consumers.entry(consumer.to_owned()).or_default());
    }

    pub(super) fn change_swept(&self, change: impl FnOnce(&mut SweepProgress)) {
        change(&mut self.swept.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
