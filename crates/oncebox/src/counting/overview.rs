//! What a process knows of itself and of what waits for it, for metrics and health.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use oncebox_core::counters::Depth;
use oncebox_core::depths::{LaneDepth, ParkedDepth};
use oncebox_core::outbox::Backlog;
use tokio::time::Instant;

use crate::consumer::Stats;
use crate::relay::RelayStats;
use crate::retention::RetentionStats;

/// What a process knows. Shared by whoever [counts](super::Counting) and whoever tells.
#[derive(Debug, Default)]
pub struct Overview {
    pub(super) consumers: Vec<(String, Arc<Stats>)>,
    pub(super) relay: Option<Arc<RelayStats>>,
    pub(super) retention: Option<Arc<RetentionStats>>,
    in_store: Mutex<InStore>,
    reached: Mutex<Reached>,
    pub(super) flushes: AtomicU64,
    pub(super) failed_flushes: AtomicU64,
}

/// What waits in the store, as it was seen a few seconds ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InStore {
    /// When the oldest unsent row of the outbox was made, and how many there are; `None` before it was looked at.
    pub outbox: Option<Backlog>,
    /// For how long the oldest unsent row has waited.
    pub outbox_lag_seconds: Option<u64>,
    /// Lanes of the outbox in which rows wait.
    pub lanes: Vec<LaneDepth>,
    /// What is parked, by consumer.
    pub parked: BTreeMap<String, ParkedDepth>,
    /// What waits in queues of the store, by the place that a consumer names: `queue:payments`.
    pub queues: BTreeMap<String, Depth>,
    /// What all processes counted, those that are gone included, up to their last flush: by part (`consumer invoices`,
    /// `relay`) and counter.
    pub counted: BTreeMap<String, BTreeMap<String, u64>>,
}

/// When the store was reached.
#[derive(Clone, Debug, Default)]
struct Reached {
    at: Option<Instant>,
    error: Option<String>,
}

impl Overview {
    /// The consumers of this process.
    pub fn consumers(&self) -> &[(String, Arc<Stats>)] {
        &self.consumers
    }

    /// The relay of this process.
    pub fn relay(&self) -> Option<&Arc<RelayStats>> {
        self.relay.as_ref()
    }

    /// What removes old records in this process.
    pub fn retention(&self) -> Option<&Arc<RetentionStats>> {
        self.retention.as_ref()
    }

    /// What waits in the store.
    pub fn in_store(&self) -> InStore {
        self.in_store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What waits for a consumer: what its source told, or, for a queue of the store, what was counted there. `None` if
    /// nobody knows.
    pub fn backlog(&self, stats: &Stats) -> Option<Depth> {
        let told = stats.backlog()?;
        let counted = told.place.as_ref().and_then(|place| self.in_store().queues.get(place).cloned());
        let depth = counted.unwrap_or(told);
        depth.messages.is_some().then_some(depth)
    }

    /// Whether the store answered the last time; otherwise what it said. `None` before the first time.
    pub fn store(&self) -> Option<Result<Instant, String>> {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match reached.error {
            Some(error) => Some(Err(error)),
            None => reached.at.map(Ok),
        }
    }

    /// How often counters were written, and how often they could not be.
    pub fn flushes(&self) -> (u64, u64) {
        (self.flushes.load(Relaxed), self.failed_flushes.load(Relaxed))
    }

    pub(super) fn set_in_store(&self, seen: InStore) {
        *self.in_store.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Answers whether that is news.
    pub(super) fn set_reached(&self, reached: Result<(), String>) -> bool {
        let mut now = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let was_away = now.error.is_some();
        match reached {
            Ok(()) => *now = Reached { at: Some(Instant::now()), error: None },
            Err(error) => now.error = Some(error),
        }
        was_away != now.error.is_some()
    }
}
