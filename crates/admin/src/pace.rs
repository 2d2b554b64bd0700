//! How fast a driver may go.

use std::time::Duration;

use tokio::time::Instant;

/// Messages that may be revived now, filled at a steady rate. It lives with its driver: another one begins anew, which
/// lets a tenth of a second's worth through too early at the most.
pub(crate) struct Pace {
    rate: Option<u32>,
    saved: f64,
    since: Instant,
}

impl Pace {
    pub(crate) fn new(rate: Option<u32>) -> Self {
        Self { rate, saved: 0.0, since: Instant::now() }
    }

    /// How many may go now, at most `max`.
    pub(crate) fn allowed(&mut self, max: usize) -> usize {
        let Some(rate) = self.rate.map(f64::from) else { return max };
        let now = Instant::now();
        let filled = self.saved + now.duration_since(self.since).as_secs_f64() * rate;
        self.since = now;
        // Without a cap, a replay that waited for its canary would then go all at once.
        self.saved = filled.min((rate / 10.0).max(1.0));
        // At least 0, and far below what a usize holds.
        max.min(self.saved as usize)
    }

    /// Notes that this many went.
    pub(crate) fn spend(&mut self, count: usize) {
        self.saved = (self.saved - count as f64).max(0.0);
    }

    /// How long until the next may go.
    pub(crate) fn wait(&self) -> Duration {
        match self.rate {
            Some(rate) => Duration::from_secs_f64(((1.0 - self.saved) / f64::from(rate)).clamp(0.001, 1.0)),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_go_than_the_rate_allows() {
        let mut pace = Pace::new(Some(50));
        let (start, mut gone) = (Instant::now(), 0);
        while gone < 500 {
            let allowed = pace.allowed(100);
            pace.spend(allowed);
            gone += allowed;
            tokio::time::sleep(pace.wait()).await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.5..11.0).contains(&took), "500 at 50 a second took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_saves_no_more_than_a_moment() {
        let mut pace = Pace::new(Some(50));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(pace.allowed(1000), 5);
        assert_eq!(Pace::new(None).allowed(7), 7);
    }
}
