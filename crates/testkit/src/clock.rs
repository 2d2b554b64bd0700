//! A clock that stands still until a test moves it, and dice that roll the same numbers each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use oncebox_core::{Clock, Timestamp};

/// 2026-01-01T00:00:00Z in microseconds: any fixed instant would do.
const START: i64 = 1_767_225_600_000_000;

/// A [`Clock`] that a test moves. Clones show the same time.
///
/// It counts microseconds, the finest step that every SQL store keeps.
#[derive(Clone, Debug)]
pub struct ManualClock {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    micros: AtomicI64,
    dice: AtomicU64,
}

impl ManualClock {
    /// A clock that shows the beginning of 2026, with the dice of seed 0.
    pub fn new() -> Self {
        Self::seeded(0)
    }

    /// The same with the dice of `seed`. Print the seed when a run fails, and the run can be repeated.
    pub fn seeded(seed: u64) -> Self {
        let shared = Shared { micros: AtomicI64::new(START), dice: AtomicU64::new(seed) };
        Self { shared: Arc::new(shared) }
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).expect("a test moves its clock by less than 292 thousand years");
        self.shared.micros.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the time; backwards too, as a clock that is corrected does.
    pub fn set(&self, now: Timestamp) {
        self.shared.micros.store(now.as_microsecond(), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let micros = self.shared.micros.load(Ordering::SeqCst);
        Timestamp::from_microsecond(micros).expect("a test keeps its clock within the years that a timestamp can hold")
    }

    fn random(&self) -> u64 {
        splitmix(&self.shared.dice)
    }
}

/// The next number of a SplitMix64 sequence: short, well mixed, and the same on every machine.
pub(crate) fn splitmix(state: &AtomicU64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_a_test_says_so() {
        let clock = ManualClock::new();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.clone().advance(Duration::from_micros(1_500));
        assert_eq!(clock.now().as_microsecond() - start.as_microsecond(), 1_500);
        clock.set(start);
        assert_eq!(clock.now(), start);
    }

    #[test]
    fn the_same_seed_rolls_the_same_numbers() {
        let rolls = |seed| {
            let clock = ManualClock::seeded(seed);
            [clock.random(), clock.random(), clock.random()]
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert_ne!(rolls(7)[0], rolls(7)[1]);
    }

    #[test]
    fn ids_made_while_it_stands_still_differ() {
        let clock = ManualClock::new();
        assert_ne!(clock.id(), clock.id());
    }
}
