//! How often and when a message that failed is tried again.

use std::collections::HashMap;
use std::time::Duration;

/// How often and when a message that failed in a way that may pass is tried again. Delays live in the store, so a
/// message that waits blocks nobody but later messages of its order key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// How often its handler is run before it is dead. Default 8.
    pub attempts: u32,
    /// The longest delay after a first failure; it doubles with each. Default 200 ms.
    pub first: Duration,
    /// The longest delay of all. Default 5 min.
    pub max: Duration,
    /// It is dead when it has been failing for this long, whatever is left of its attempts. Default 24 h.
    pub within: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 8,
            first: Duration::from_millis(200),
            max: Duration::from_secs(300),
            within: Duration::from_secs(24 * 3600),
        }
    }
}

impl Retry {
    /// The usual: 8 attempts, from 200 ms to 5 min apart, within a day.
    pub fn new() -> Self {
        Self::default()
    }

    /// No second try: the first failure is the last.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// Sets how often a handler is run.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Sets the longest first delay.
    #[must_use]
    pub fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// Sets how long it may go on.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// How long to wait after this many failures; `None`: no longer. `age` is how long it has been failing.
    pub(super) fn wait(&self, failures: u32, age: Duration, asked: Option<Duration>, random: u64) -> Option<Duration> {
        if failures >= self.attempts {
            return None;
        }
        let wait = asked.unwrap_or_else(|| full_jitter(self.first, self.max, failures, random));
        (age.saturating_add(wait) <= self.within).then_some(wait)
    }
}

/// The policies of a consumer: one for all, and others for some types.
#[derive(Clone, Debug, Default)]
pub(super) struct Retries {
    pub(super) usual: Retry,
    pub(super) by_kind: HashMap<String, Retry>,
}

impl Retries {
    pub(super) fn of(&self, kind: &str) -> &Retry {
        self.by_kind.get(kind).unwrap_or(&self.usual)
    }
}

/// Anything up to `first`, doubled per failure, at most `max`: a crowd that failed at once comes back spread out.
fn full_jitter(first: Duration, max: Duration, failures: u32, random: u64) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    doubled.min(max).mul_f64((random % 1_000 + 1) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn delays_grow_are_spread_and_are_capped() {
        let retry = Retry::new().attempts(u32::MAX);
        for failures in [1, 2, 5, 31, 32, 33, 64, u32::MAX - 1] {
            for random in [0, 499, 999, u64::MAX] {
                let wait = retry.wait(failures, NONE, None, random).unwrap();
                assert!(wait > NONE && wait <= retry.max, "{failures} {random} {wait:?}");
            }
        }
        assert_eq!(retry.wait(1, NONE, None, 999), Some(retry.first));
        assert_eq!(retry.wait(3, NONE, None, 999), Some(retry.first * 4));
    }

    #[test]
    fn attempts_and_time_come_to_an_end() {
        let retry = Retry::new().attempts(3).within(Duration::from_secs(10));
        assert!(retry.wait(2, NONE, None, 0).is_some());
        assert_eq!(retry.wait(3, NONE, None, 0), None);
        assert_eq!(retry.wait(1, Duration::from_secs(11), None, 0), None);
        assert_eq!(Retry::never().wait(1, NONE, None, 0), None);
    }

    #[test]
    fn a_handler_that_says_when_is_heard() {
        let asked = Some(Duration::from_secs(7));
        assert_eq!(Retry::new().wait(1, NONE, asked, 0), asked);
        assert_eq!(Retry::new().within(Duration::from_secs(5)).wait(1, NONE, asked, 0), None);
    }
}
