//! How long handlers take, in buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper ends of the buckets, in microseconds. Nothing is slower than the handler deadline by much.
const BOUNDS: [u64; 13] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 30_000_000];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(super) struct Seconds {
    /// Each by itself, not summed up.
    buckets: [AtomicU64; BOUNDS.len()],
    beyond: AtomicU64,
    micros: AtomicU64,
    slowest: AtomicU64,
}

/// A histogram of durations at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SecondsSnapshot {
    /// Upper end in seconds, and how many were at most that long.
    pub buckets: Vec<(f64, u64)>,
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub sum: f64,
    /// How long the slowest took; `None` if there was none.
    pub slowest: Option<Duration>,
}

impl Seconds {
    pub(super) fn add(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets.get(bucket).unwrap_or(&self.beyond).fetch_add(1, Relaxed);
        self.micros.fetch_add(micros, Relaxed);
        self.slowest.fetch_max(micros, Relaxed);
    }

    pub(super) fn snapshot(&self) -> SecondsSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            count += bucket.load(Relaxed);
            buckets.push((*bound as f64 / 1e6, count));
        }
        count += self.beyond.load(Relaxed);
        let slowest = (count > 0).then(|| Duration::from_micros(self.slowest.load(Relaxed)));
        SecondsSnapshot { buckets, count, sum: self.micros.load(Relaxed) as f64 / 1e6, slowest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_at_most_its_bound() {
        let seconds = Seconds::default();
        for micros in [500, 501, 60_000_000] {
            seconds.add(Duration::from_micros(micros));
        }
        let seen = seconds.snapshot();
        assert_eq!((seen.buckets[0], seen.buckets[1]), ((0.0005, 1), (0.001, 2)));
        assert_eq!((seen.buckets[12].1, seen.count), (2, 3));
        assert!((seen.sum - 60.001_001).abs() < 1e-9);
        assert_eq!((seen.slowest, Seconds::default().snapshot().slowest), (Some(Duration::from_secs(60)), None));
    }
}
