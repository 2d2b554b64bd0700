//! How messages arrive, and how long they take.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox::{Clock, SystemClock, Timestamp};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Messages that arrive evenly over time, those of a millisecond together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) per_second: f64,
    pub(super) messages: u32,
}

impl Pace {
    /// At this rate for this long, and never more than `messages_max`.
    pub(super) fn new(per_second: f64, seconds: f64, messages_max: u32) -> Self {
        let messages = (per_second * seconds).clamp(1.0, f64::from(messages_max)) as u32;
        Self { per_second, messages }
    }

    /// Calls `send` with the numbers that are due, at each tick.
    pub(super) async fn run(self, mut send: impl FnMut(Range<u32>)) {
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (started, mut sent) = (Instant::now(), 0);
        while sent < self.messages {
            ticks.tick().await;
            let due = (started.elapsed().as_secs_f64() * self.per_second) as u32 + 1;
            let due = due.min(self.messages);
            send(sent..due);
            sent = due;
        }
    }
}

/// How long each message took, from the moment it was put into the queue to the moment its commit was known.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies(Arc<Mutex<Vec<u64>>>);

impl Latencies {
    /// These were queued at these times and are committed now.
    pub(super) fn add(&self, queued_at: impl IntoIterator<Item = Timestamp>) {
        let now = SystemClock.now();
        let micros = |at: Timestamp| u64::try_from(now.as_microsecond() - at.as_microsecond()).unwrap_or(0);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(queued_at.into_iter().map(micros));
    }

    pub(super) fn summary(&self, per_second: f64) -> Option<Latency> {
        Latency::of(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone(), per_second)
    }
}

/// From queue to commit, at a rate that leaves room.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    /// The rate at which messages arrived.
    pub(super) messages_per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Latency {
    /// Of messages that arrived at this rate and took so many microseconds each. `None` if there were none.
    pub(super) fn of(mut micros: Vec<u64>, per_second: f64) -> Option<Self> {
        micros.sort_unstable();
        let at = |share: f64| Some(*micros.get((micros.len() as f64 * share) as usize)? as f64 / 1_000.0);
        Some(Self { messages_per_second: per_second, p50_ms: at(0.5)?, p99_ms: at(0.99)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_added() {
        let latencies = Latencies::default();
        assert!(latencies.summary(1.0).is_none());
        let now = SystemClock.now().as_microsecond();
        latencies.add((1..=100).map(|n| Timestamp::from_microsecond(now - n * 1_000_000).unwrap()));
        let summary = latencies.summary(1.0).unwrap();
        assert!((51_000.0..52_000.0).contains(&summary.p50_ms), "{summary:?}");
        assert!((100_000.0..101_000.0).contains(&summary.p99_ms), "{summary:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_sends_every_number_once_and_takes_its_time() {
        let (started, mut sent) = (Instant::now(), Vec::new());
        Pace::new(10_000.0, 0.5, 1_000_000).run(|numbers| sent.extend(numbers)).await;
        assert_eq!(sent, (0..5_000).collect::<Vec<_>>());
        assert!((0.49..0.51).contains(&started.elapsed().as_secs_f64()));
    }
}
