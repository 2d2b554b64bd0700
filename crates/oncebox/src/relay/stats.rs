//! The live counters of a relay.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The live counters of a relay. Take a [`snapshot`](Self::snapshot) to read them.
#[derive(Debug, Default)]
pub struct RelayStats {
    pub(super) published: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) set_aside: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) lanes_lost: AtomicU64,
    pub(super) lanes: AtomicUsize,
    waiting_for: Mutex<Option<String>>,
}

/// The counters of a relay at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelaySnapshot {
    /// Confirmed by the broker.
    pub published: u64,
    /// Not confirmed, and to be published again.
    pub failed: u64,
    /// Refused by the broker, and set aside for a person.
    pub set_aside: u64,
    /// Batches published.
    pub batches: u64,
    /// Batches whose rows have a new owner, who publishes them again.
    pub lanes_lost: u64,
    /// Lanes held now.
    pub lanes: usize,
    /// What it waits for, if something is away.
    pub waiting_for: Option<String>,
}

impl RelaySnapshot {
    /// The counters by their names, without what is true only at this moment.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { published, failed, set_aside, batches, lanes_lost, .. } = *self;
        [
            ("published", published),
            ("failed", failed),
            ("set_aside", set_aside),
            ("batches", batches),
            ("lanes_lost", lanes_lost),
        ]
        .into_iter()
    }
}

impl RelayStats {
    /// The counters now.
    pub fn snapshot(&self) -> RelaySnapshot {
        RelaySnapshot {
            published: self.published.load(Relaxed),
            failed: self.failed.load(Relaxed),
            set_aside: self.set_aside.load(Relaxed),
            batches: self.batches.load(Relaxed),
            lanes_lost: self.lanes_lost.load(Relaxed),
            lanes: self.lanes.load(Relaxed),
            waiting_for: self.waiting_for.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(super) fn add(counter: &AtomicU64, more: usize) {
        counter.fetch_add(more as u64, Relaxed);
    }

    pub(super) fn set_waiting_for(&self, what: Option<String>) {
        *self.waiting_for.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}
