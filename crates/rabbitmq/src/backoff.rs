//! When to try to connect again.

use std::time::Duration;

use oncebox_core::{Clock, SystemClock};
use tokio::time::Instant;

/// The first pause after a failure.
const FIRST: Duration = Duration::from_millis(100);

/// A pause that doubles with each failure, up to a bound, and that chance makes up to a quarter shorter, so that processes
/// that lost one broker together do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    pub(crate) fn failed(&mut self, pause_max: Duration) {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(pause_max);
        self.failures = self.failures.saturating_add(1);
        let spared = pause / 4 * u32::from(SystemClock.random() as u8) / 256;
        self.until = Some(Instant::now() + pause - spared);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// When the next attempt is due; `None`: now.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_their_bound_and_end_with_success() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.until(), None);
        let mut last = Duration::ZERO;
        for _ in 0..40 {
            backoff.failed(Duration::from_secs(5));
            last = backoff.until().map(|until| until - Instant::now()).unwrap_or_default();
            assert!(last >= FIRST * 3 / 4 && last <= Duration::from_secs(5), "{last:?}");
        }
        assert!(last >= Duration::from_millis(3750), "{last:?}");
        backoff.succeeded();
        assert_eq!(backoff.until(), None);
    }
}
