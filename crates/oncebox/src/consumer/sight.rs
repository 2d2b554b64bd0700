//! What can be seen of a running consumer beside its counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use oncebox_core::counters::Depth;

use super::Stats;
use super::cause::{Cause, Causes};
use super::guarantee::Guarantee;
use super::seconds::{Seconds, SecondsSnapshot};

/// Message types that are told apart; what comes beyond them is counted under `other`. Each takes a series of metrics for
/// each cause.
const TYPES_MAX: usize = 100;

/// What is more than a number.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) handler: Seconds,
    duplicates: Mutex<BTreeMap<(String, Cause), u64>>,
    backlog: Mutex<Option<Depth>>,
    /// 0 before it is known.
    guarantee: AtomicU8,
    is_running: AtomicBool,
}

/// How many duplicates of one type came by one likely cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DuplicatesOf {
    /// The message type, or `other`.
    pub kind: String,
    /// Why, as far as one can tell.
    pub cause: Cause,
    /// How many.
    pub count: u64,
}

impl Sight {
    pub(super) fn add_duplicates(&self, causes: Causes) {
        if causes.0.is_empty() {
            return;
        }
        let mut all = self.duplicates.lock().unwrap_or_else(PoisonError::into_inner);
        for ((kind, cause), count) in causes.0 {
            let is_known =
                all.range((kind.clone(), Cause::Redelivery)..).next().is_some_and(|((known, _), _)| *known == kind);
            let kind = if is_known || all.len() < TYPES_MAX * Cause::ALL.len() { kind } else { "other".to_owned() };
            *all.entry((kind, cause)).or_default() += count;
        }
    }

    pub(super) fn set_backlog(&self, backlog: Option<Depth>) {
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = backlog;
    }

    pub(super) fn promise(&self, guarantee: Guarantee) {
        // The flow of what is set aside has a source of its own, which weakens nothing.
        let _ = self.guarantee.compare_exchange(0, guarantee as u8 + 1, Relaxed, Relaxed);
    }

    pub(super) fn set_running(&self, is_running: bool) {
        self.is_running.store(is_running, Relaxed);
    }
}

impl Stats {
    /// What the consumer promises; `None` before it has started.
    pub fn guarantee(&self) -> Option<Guarantee> {
        let known = [Guarantee::AtLeastOnce, Guarantee::OncePerSending, Guarantee::EffectivelyOnce];
        let code = self.sight.guarantee.load(Relaxed);
        known.into_iter().find(|guarantee| *guarantee as u8 + 1 == code)
    }

    /// Whether it has started and was not told to stop.
    pub fn is_running(&self) -> bool {
        self.sight.is_running.load(Relaxed)
    }

    /// What waits at its source, as it was told a few seconds ago; `None` if the source can't tell.
    pub fn backlog(&self) -> Option<Depth> {
        self.sight.backlog.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Duplicates by message type and likely cause. Types are those that have handlers.
    pub fn duplicates(&self) -> Vec<DuplicatesOf> {
        let all = self.sight.duplicates.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |((kind, cause), count): (&(String, Cause), &u64)| DuplicatesOf {
            kind: kind.clone(),
            cause: *cause,
            count: *count,
        };
        all.iter().map(of).collect()
    }

    /// How long calls of handlers took.
    pub fn handler_seconds(&self) -> SecondsSnapshot {
        self.sight.handler.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_beyond_the_bound_are_counted_together() {
        let stats = Stats::default();
        for n in 0..1_000 {
            stats.sight.add_duplicates(Causes::one(&format!("type-{n}"), Cause::Unknown));
        }
        stats.sight.add_duplicates(Causes::one("type-1", Cause::Replay));
        let seen = stats.duplicates();
        assert!(seen.len() <= TYPES_MAX * Cause::ALL.len() + 2, "{}", seen.len());
        assert_eq!(seen.iter().map(|of| of.count).sum::<u64>(), 1_001);
        assert!(seen.iter().any(|of| of.kind == "other") && seen.iter().any(|of| of.kind == "type-1"));
    }
}
