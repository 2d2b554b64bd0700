//! How far retention is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use oncebox_core::Timestamp;

/// Counters of one running [`Retention`](super::Retention).
#[derive(Debug, Default)]
pub struct RetentionStats {
    consumers: Mutex<BTreeMap<String, RetentionProgress>>,
}

/// What was done for one consumer since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionProgress {
    /// Records that were deleted.
    pub deleted: u64,
    /// Transactions that this took.
    pub steps: u64,
    /// Passes that came to their end.
    pub passes: u64,
    /// Steps that failed and were tried again.
    pub failures: u64,
    /// How far back the consumer can tell a duplicate: `None`, as far as it lives.
    pub horizon: Option<Timestamp>,
}

impl RetentionStats {
    /// What was done so far, by consumer.
    pub fn snapshot(&self) -> BTreeMap<String, RetentionProgress> {
        self.consumers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, consumer: &str, change: impl FnOnce(&mut RetentionProgress)) {
        let mut consumers = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        change(consumers.entry(consumer.to_owned()).or_default());
    }
}
