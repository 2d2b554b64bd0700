//! Where time, ids and chance come from.
//!
//! Nothing else in Oncebox reads a clock or rolls a die, so a test can hold both still and a failing run can be
//! repeated. Two questions are kept apart: *what time is it* ([`Clock::now`], wall clock, for records) and *how long
//! since* (`tokio::time::Instant`, which tests pause). Leases are a third: they are judged by the clock of the store
//! that keeps them, never by ours.

use std::fmt::Debug;

pub use jiff::Timestamp;
use uuid::Uuid;

/// Wall-clock time and randomness.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The current wall-clock time.
    fn now(&self) -> Timestamp;

    /// Sixty-four unpredictable bits; a test's clock repeats them from a seed.
    fn random(&self) -> u64;

    /// A fresh time-ordered id (UUIDv7), so that ids made one after another stay close in an index.
    fn id(&self) -> Uuid {
        let millis = u64::try_from(self.now().as_millisecond()).unwrap_or(0);
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.random().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random().to_le_bytes()[..2]);
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    }
}

/// The machine's clock and the operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one door to randomness")]
    fn random(&self) -> u64 {
        // 60 of the low 64 bits of a version 4 UUID are random; the two variant bits sit at the top and are mixed
        // away by folding both halves together.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        high.rotate_left(17) ^ low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_made_later_sort_later() {
        #[derive(Debug)]
        struct At(i64);
        impl Clock for At {
            fn now(&self) -> Timestamp {
                Timestamp::from_millisecond(self.0).unwrap()
            }
            fn random(&self) -> u64 {
                SystemClock.random()
            }
        }
        assert!(At(1_000).id() < At(1_001).id());
        assert_ne!(At(1_000).id(), At(1_000).id());
    }
}
