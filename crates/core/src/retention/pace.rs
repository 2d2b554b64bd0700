//! How hard retention works: little, unless it falls behind.
//!
//! ```text
//!  share ─▶ 10 % ──a round takes longer than its time──▶ 20 % ──again──▶ 40 % ──▶ share_max
//!             ▲                                            │
//!             └────── a round takes less than half ────────┘
//! ```
//!
//! A share that never rises is a share of a store's speed, and more records may come than that removes, without end. A
//! [`Pace`] decides this from times that it is told, and reads no clock.

use std::time::Duration;

use super::RetentionBounds;

/// Which share of the time rounds over all consumers work.
#[derive(Clone, Debug)]
pub struct Pace {
    bounds: RetentionBounds,
    /// What a round may take: as long as the wait for the next one.
    within: Duration,
    /// The share with which the next round begins.
    share: u8,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Everything that was old is gone.
    Whole,
    /// Something old is left because of [`pass_max`](RetentionBounds::pass_max).
    CutShort,
}

impl Pace {
    /// Of rounds between which `within` passes.
    pub fn new(bounds: RetentionBounds, within: Duration) -> Self {
        let share = bounds.share.clamp(1, 100);
        Self { bounds, within: within.max(Duration::from_millis(1)), share }
    }

    /// The share for a round that has been going for so long: it doubles whenever another `within` is over, so one that
    /// would take for ever does not have to end first.
    pub fn share_after(&self, elapsed: Duration) -> u8 {
        let mut share = self.share;
        for _ in 0..(elapsed.as_nanos() / self.within.as_nanos()).min(7) {
            share = self.raised(share);
        }
        share
    }

    /// A round is over. Answers how long to wait for the next one.
    pub fn ended(&mut self, round: Round, took: Duration) -> Duration {
        match round {
            Round::CutShort => {
                self.share = self.raised(self.share_after(took));
                // What is old now would otherwise wait for its turn behind what gets old meanwhile.
                Duration::ZERO
            }
            Round::Whole => {
                if took > self.within {
                    self.share = self.share_after(took);
                } else if took < self.within / 2 {
                    self.share = (self.share / 2).max(self.bounds.share.clamp(1, 100));
                }
                self.within
            }
        }
    }

    /// Whether it can't work any harder.
    pub fn is_at_its_most(&self) -> bool {
        self.raised(self.share) == self.share
    }

    /// The share with which the next round begins.
    pub fn share(&self) -> u8 {
        self.share
    }

    fn raised(&self, share: u8) -> u8 {
        // Whoever asks for more than the bound gets what they ask for.
        share.saturating_mul(2).min(self.bounds.share_max.min(100)).max(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn pace() -> Pace {
        Pace::new(RetentionBounds::default(), HOUR)
    }

    #[test]
    fn a_round_in_time_changes_nothing() {
        let mut pace = pace();
        for minutes in [0, 1, 29, 31, 60] {
            assert_eq!(pace.ended(Round::Whole, Duration::from_secs(minutes * 60)), HOUR);
            assert_eq!(pace.share(), 10, "after {minutes} minutes");
        }
    }

    #[test]
    fn a_round_that_takes_too_long_works_harder_before_it_ends() {
        let pace = pace();
        let shares = [0, 1, 2, 3, 4, 1_000_000].map(|hours| pace.share_after(HOUR * hours));
        assert_eq!(shares, [10, 20, 40, 50, 50, 50], "and never more than the most");
    }

    #[test]
    fn the_share_falls_again_and_does_not_swing() {
        let mut pace = pace();
        pace.ended(Round::Whole, HOUR * 2);
        assert_eq!(pace.share(), 40);
        pace.ended(Round::Whole, HOUR * 6 / 10);
        assert_eq!(pace.share(), 40, "half of it would take too long again");
        pace.ended(Round::Whole, HOUR * 4 / 10);
        pace.ended(Round::Whole, HOUR * 4 / 10);
        pace.ended(Round::Whole, HOUR * 4 / 10);
        assert_eq!(pace.share(), 10, "and never less than was asked for");
    }

    #[test]
    fn a_round_that_was_cut_short_is_followed_by_the_next_at_once() {
        let mut pace = pace();
        let ended: Vec<(Duration, u8, bool)> = (0..4)
            .map(|_| (pace.ended(Round::CutShort, Duration::ZERO), pace.share(), pace.is_at_its_most()))
            .collect();
        let none = Duration::ZERO;
        assert_eq!(ended, [(none, 20, false), (none, 40, false), (none, 50, true), (none, 50, true)]);
    }

    #[test]
    fn whoever_asks_for_more_than_the_bound_gets_it() {
        for (share, most) in [(80, 50), (100, 100), (255, 255)] {
            let mut pace = Pace::new(RetentionBounds { share, share_max: most, ..RetentionBounds::default() }, HOUR);
            pace.ended(Round::CutShort, HOUR * 9);
            assert_eq!(pace.share(), share.min(100));
        }
        let mut none = Pace::new(RetentionBounds { share: 0, ..RetentionBounds::default() }, Duration::ZERO);
        none.ended(Round::Whole, HOUR);
        assert_eq!(none.share(), 50, "a share of nothing counts as one percent");
    }
}
