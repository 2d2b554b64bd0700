//! Whether a backlog shrinks, by what can be counted cheaply.
//!
//! A count stops at a bound, and beyond it says the same of ten thousand messages and of five million. There, how many
//! came is held against how many were done; where that is not known either, nothing is said.

use std::collections::VecDeque;
use std::time::Duration;

use oncebox::counters::Depth;
use tokio::time::Instant;

/// Looks that are kept of each backlog; older ones are thinned out to this.
pub(super) const LOOKS_MAX: usize = 60;

/// What was seen of one backlog.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    looks: VecDeque<(Instant, Look)>,
}

/// What one look sees.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// How many wait, or, with `is_more`, that at least so many do.
    pub(super) waiting: u64,
    pub(super) is_more: bool,
    /// How long the oldest waits that nobody has in hand, in seconds; `None`: not known, or there is none.
    pub(super) oldest: Option<u64>,
    /// How many came within [`Depth::ARRIVED_WITHIN`]; more than [`Depth::COUNTED_MAX`]: at least so many.
    pub(super) arrived: Option<u64>,
    /// How many this process has done since it began.
    pub(super) done: u64,
    /// How many all processes have; `None` where this one has its own share, or that was not read yet.
    pub(super) done_by_all: Option<u64>,
}

/// A backlog that does not shrink.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) is_more: bool,
    /// About how many came, where that was counted.
    pub(super) arrived: Option<u64>,
    pub(super) done: u64,
}

impl Backlog {
    /// Notes what is seen now; `None`: how much waits is not known.
    pub(super) fn look(&mut self, at: Instant, seen: Option<Look>, keep: Duration) {
        let Some(seen) = seen else { return self.looks.clear() };
        self.looks.push_back((at, seen));
        // One look that is older than what is asked about stays, to compare with.
        while self.looks.len() > 2 && at.duration_since(self.looks[1].0) >= keep {
            self.looks.pop_front();
        }
        while self.looks.len() > 2 * LOOKS_MAX {
            self.looks.remove(1);
        }
    }

    /// Whether anything is known of it now.
    pub(super) fn is_known(&self) -> bool {
        !self.looks.is_empty()
    }

    /// It was never empty, it is no smaller than at first, and at the pace of that time it takes longer than that again.
    pub(super) fn stuck(&self, after: Duration) -> Option<Stuck> {
        let ((began, first), (at, last)) = (self.looks.front()?, self.looks.back()?);
        let passed = at.duration_since(*began);
        if passed < after || self.looks.iter().any(|(_, look)| look.waiting == 0) {
            return None;
        }
        let by_all = first.done_by_all.zip(last.done_by_all).map(|(first, last)| last.saturating_sub(first));
        // A process that stands by has done nothing, and another has. What others have done is known a little later.
        let done = last.done.saturating_sub(first.done).max(by_all.unwrap_or(0));
        let arrived = self.arrived(passed);
        let waits_longer = last.oldest.is_some_and(|oldest| oldest > after.as_secs());
        let is_stuck = match (first.is_more, last.is_more) {
            (false, false) => last.waiting >= first.waiting && done < last.waiting,
            (true, false) => false,
            // It grew. Of how many there are, only the least is known; how long the oldest waits tells the rest.
            (false, true) => done < last.waiting || waits_longer,
            (true, true) => match arrived {
                Some(arrived) => waits_longer && arrived >= done,
                // It may have come all at once: then the oldest waits longer and longer while it shrinks.
                None => last.oldest > first.oldest && first.oldest.is_some() && done < last.waiting,
            },
        };
        let (first, last, is_more) = (first.waiting, last.waiting, last.is_more);
        is_stuck.then_some(Stuck { first, last, is_more, arrived, done })
    }

    /// How many came in this time, by the mean of all looks. Of a look that stopped counting the least is taken: what is
    /// said of a backlog that came faster may be too little, and not too much.
    fn arrived(&self, passed: Duration) -> Option<u64> {
        let each: Option<Vec<u64>> = self.looks.iter().map(|(_, look)| look.arrived).collect();
        let each = each.filter(|each| !each.is_empty())?;
        let mean = each.iter().sum::<u64>() as f64 / each.len() as f64;
        Some((mean * passed.as_secs_f64() / Depth::ARRIVED_WITHIN.as_secs_f64()).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    /// Looks every five seconds, for five minutes.
    fn watched(look: impl Fn(u64) -> Look) -> Option<Stuck> {
        looked((0..61).map(|n| Some(look(n))))
    }

    fn looked(looks: impl IntoIterator<Item = Option<Look>>) -> Option<Stuck> {
        let (mut backlog, mut at) = (Backlog::default(), Instant::now());
        for look in looks {
            backlog.look(at, look, AFTER);
            at += Duration::from_secs(5);
        }
        assert!(backlog.looks.len() <= 2 * LOOKS_MAX);
        backlog.stuck(AFTER)
    }

    fn waiting(waiting: u64, done: u64) -> Look {
        Look { waiting, done, ..Look::default() }
    }

    /// More than is counted, the oldest for so long, so many that come in ten seconds, and so many done by all so far.
    fn many(oldest: u64, arrived: u64, done: u64) -> Look {
        let (oldest, arrived) = (Some(oldest), Some(arrived));
        Look { waiting: 10_000, is_more: true, oldest, arrived, done, done_by_all: Some(done) }
    }

    #[test]
    fn a_backlog_that_does_not_shrink_is_noticed() {
        let stuck = watched(|n| waiting(100 + n, 0)).unwrap();
        assert_eq!((stuck.first, stuck.last, stuck.done), (100, 160, 0));
        assert!(watched(|_| waiting(9_000, 5)).is_some(), "hardly anything is done");
    }

    #[test]
    fn one_that_shrinks_or_is_short_or_young_is_none() {
        assert_eq!(watched(|n| waiting(100 - n, n)), None, "it shrinks");
        assert_eq!(watched(|n| waiting(3, 1_000 * n)), None, "three wait, and thousands are done");
        assert_eq!(looked((0..59).map(|_| Some(waiting(100, 0)))), None, "not that long");
        assert_eq!(watched(|n| waiting(n % 30, 0)), None, "it was empty in between");
        assert_eq!(looked((0..61).map(|n| (n != 30).then_some(waiting(100, 0)))), None, "not known in between");
    }

    #[test]
    fn five_million_that_grow_are_noticed_though_ten_thousand_were_done() {
        // 34 a second are done, 50 come.
        let stuck = watched(|n| many(7_200 + n, 500, 34 * 5 * n)).unwrap();
        assert_eq!((stuck.arrived, stuck.done, stuck.is_more), (Some(15_000), 10_200, true));
        assert!(watched(|n| many(7_200 + 5 * n, 0, 0)).is_some(), "nobody does anything");
        assert!(watched(|n| many(7_200, 10_001, 34 * 5 * n)).is_some(), "a thousand a second come, or more");
    }

    #[test]
    fn a_million_that_shrinks_is_none_though_it_looks_the_same() {
        assert_eq!(watched(|n| many(7_200 - n, 100, 30 * 5 * n)), None, "10 a second come, 30 are done");
        assert_eq!(watched(|n| many(600 + 5 * n, 0, 30 * 5 * n)), None, "all came at once, and the oldest grows older");
        let below =
            |n: u64| if n < 60 { many(900, 0, 30 * 5 * n) } else { Look { is_more: false, ..many(900, 0, 9_000) } };
        assert_eq!(watched(below), None, "it is below what is counted now");
    }

    #[test]
    fn a_long_queue_that_passes_quickly_is_none() {
        assert_eq!(watched(|n| many(40, 5_100, 500 * 5 * n)), None, "none of them waits as long as we watch");
        assert_eq!(watched(|n| many(400, 10_001, 5_000 * 5 * n)), None, "nobody knows how many come");
        let in_hand = |n| Look { oldest: None, ..many(0, 0, n) };
        assert_eq!(watched(in_hand), None, "all are in hand, or due later");
    }

    #[test]
    fn one_that_grows_beyond_what_is_counted_is_noticed() {
        let grows =
            |oldest, pace: u64| move |n: u64| if n == 0 { waiting(9_000, 0) } else { many(oldest, 400, pace * n) };
        assert!(watched(grows(30, 100)).is_some(), "6,000 done, 10,000 wait at least");
        assert!(watched(grows(900, 1_000)).is_some(), "60,000 done, and it takes longer than we watch");
        assert_eq!(watched(grows(30, 1_000)), None, "60,000 done, and none waits long");
    }

    #[test]
    fn where_nobody_knows_how_many_came_the_oldest_is_asked() {
        let rows = |oldest, done| Look { waiting: 100_000, is_more: true, oldest, done, ..Look::default() };
        assert!(watched(|n| rows(Some(60 + 5 * n), 10 * n)).is_some());
        assert_eq!(watched(|n| rows(Some(900 - n), 10 * n)), None, "it goes forward");
        assert_eq!(watched(|n| rows(Some(60 + 5 * n), 10_000 * n)), None, "it may have come all at once");
        assert_eq!(watched(|n| rows(None, 10 * n)), None, "nobody knows");
    }

    #[test]
    fn one_that_stands_by_trusts_what_others_do() {
        let beside = |by_all: Option<u64>| Look { done_by_all: by_all, ..waiting(3, 0) };
        assert_eq!(watched(|n| beside(Some(1_000 * n))), None, "another one has thousands done");
        assert!(watched(|_| beside(Some(77))).is_some(), "nobody does anything");
        assert!(watched(|_| beside(None)).is_some(), "it is its own share, and it does nothing");
        let share = |n| Look { done_by_all: None, ..waiting(3, 1_000 * n) };
        assert_eq!(watched(share), None);
    }
}
