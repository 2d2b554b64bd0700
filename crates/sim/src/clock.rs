//! Wall-clock time that follows the paused clock of the runtime, and dice from the seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncebox::{Clock, Timestamp};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z in microseconds: any fixed instant would do.
const START: i64 = 1_767_225_600_000_000;

/// A clock on which leases run as fast as the simulation does.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    began: Instant,
    dice: Mutex<fastrand::Rng>,
}

impl VirtualClock {
    pub(crate) fn new(seed: u64) -> Self {
        Self { began: Instant::now(), dice: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }

    /// How long the simulation has run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let since = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX / 4);
        Timestamp::from_microsecond(START + since).unwrap_or(Timestamp::MAX)
    }

    fn random(&self) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }
}
