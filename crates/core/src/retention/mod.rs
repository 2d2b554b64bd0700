//! How old records go: in small steps, with pauses between them.
//!
//! ```text
//!  pass: step ── pause ── step ── pause ── … ── end           pause = what the step took × (100 - share) / share
//!          │                                                  a slow step makes the next one smaller
//!          └ one transaction: delete up to `limit` records, move the horizon
//! ```
//!
//! A step takes longer when the store is slow, and when consumers keep it waiting; then the next one is smaller and
//! comes later. A [`Pass`] decides this and touches nothing: who runs it has the connection. A [`Pace`] lets the share rise
//! where rounds of passes fall behind.

mod pace;

use std::time::Duration;

pub use pace::{Pace, Round};

use crate::archive::BLOCK_KEYS_MAX;
use crate::horizon::{Expired, Expiry, Place};
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// How long records are kept unless told otherwise.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long records of money are kept: chargebacks and reconciliations come late.
pub const RETENTION_MONEY: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How long replays are kept that came to their end.
pub const REPLAYS_KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Blocks of the [archive](crate::archive) that one step removes, at most: each holds the keys of a step, 12 kB or so.
pub const ARCHIVE_STEP_MAX: usize = 100;

/// For how long the keys of records that are gone stay in the [archive](crate::archive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKept {
    /// As long as the store lives.
    ForEver,
    /// For so long after they were handled.
    For(Duration),
}

/// A smaller step is not worth its transaction.
const STEP_MIN: usize = 50;

/// What the removal of old records may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionBounds {
    /// Records that one step deletes, at most. Default 1,000.
    pub step_max: usize,
    /// How long a step should take: a slower one is followed by a smaller one. Default 20 ms.
    pub step_takes: Duration,
    /// The share of the time in which it works, in percent; it rests for the others. Default 10.
    pub share: u8,
    /// The share to which this rises where it falls behind. Default 50.
    pub share_max: u8,
    /// The longest rest between two steps. Default 5 s.
    pub rest_max: Duration,
    /// The rest after a step that failed. It doubles with each that follows, to sixty times as much. Default 1 s.
    pub failure_rest: Duration,
    /// Records that one pass over a consumer deletes, at most; then others have their turn. Default 10,000,000.
    pub pass_max: u64,
    /// From the end of one pass to the beginning of the next, at most; less where the retention is short. Default 1 h.
    pub every: Duration,
}

impl Default for RetentionBounds {
    fn default() -> Self {
        Self {
            step_max: 1_000,
            step_takes: Duration::from_millis(20),
            share: 10,
            share_max: 50,
            rest_max: Duration::from_secs(5),
            failure_rest: Duration::from_secs(1),
            pass_max: 10_000_000,
            every: Duration::from_secs(60 * 60),
        }
    }
}

impl RetentionBounds {
    /// How long to wait between passes where records are kept for `retention`: a hundredth of it, a minute at least, and
    /// [`every`](Self::every) at most. So records stay for a hundredth longer than they must.
    pub fn between_passes(&self, retention: Duration) -> Duration {
        (retention / 100).max(Duration::from_secs(60)).min(self.every)
    }

    /// How long to rest after one more failure in a row, where it was this long after the last.
    pub fn longer_rest(&self, last: Duration) -> Duration {
        last.saturating_mul(2).min(self.failure_rest.saturating_mul(60))
    }

    /// How long to rest after a step that took so long.
    pub fn rest_after(&self, took: Duration) -> Duration {
        let share = u32::from(self.share.clamp(1, 100));
        (took * (100 - share) / share).min(self.rest_max)
    }
}

/// One pass over the old records of a consumer.
#[derive(Clone, Debug)]
pub struct Pass {
    consumer: ConsumerId,
    older_than: Timestamp,
    bounds: RetentionBounds,
    from: Option<Place>,
    limit: usize,
    archive: bool,
    deleted: u64,
    horizon: Option<Timestamp>,
}

impl Pass {
    /// Over what was handled before `older_than`, by the store's clock.
    pub fn new(consumer: ConsumerId, older_than: Timestamp, bounds: RetentionBounds) -> Self {
        let limit = bounds.step_max.div_ceil(4).max(1);
        let from = Some(Place::default());
        Self { consumer, older_than, bounds, from, limit, archive: false, deleted: 0, horizon: None }
    }

    /// Whether the keys of what it deletes go into the [archive](crate::archive).
    #[must_use]
    pub fn archiving(mut self, archive: bool) -> Self {
        self.archive = archive;
        self
    }

    /// From now on it works for this share of the time, in percent.
    pub fn work_for(&mut self, share: u8) {
        self.bounds.share = share;
    }

    /// The next step; `None`: the pass is over.
    pub fn next(&self) -> Option<Expiry> {
        let left = self.bounds.pass_max.saturating_sub(self.deleted);
        let step_max = if self.archive { self.limit.min(BLOCK_KEYS_MAX) } else { self.limit };
        let limit = step_max.min(usize::try_from(left).unwrap_or(usize::MAX));
        let from = self.from.filter(|_| limit > 0)?;
        Some(Expiry { consumer: self.consumer, older_than: self.older_than, from, limit, archive: self.archive })
    }

    /// Its last step was committed and took so long. Answers how long to rest.
    pub fn stepped(&mut self, done: &Expired, took: Duration) -> Duration {
        self.deleted += done.deleted;
        self.from = done.next;
        self.horizon = done.horizon;
        if took > self.bounds.step_takes {
            self.limit = (self.limit / 2).max(STEP_MIN.min(self.bounds.step_max)).max(1);
        } else if took < self.bounds.step_takes / 2 && done.deleted >= self.limit as u64 {
            self.limit = (self.limit * 2).min(self.bounds.step_max).max(1);
        }
        self.bounds.rest_after(took)
    }

    /// Its last step failed after so long and is tried again.
    pub fn failed(&mut self, took: Duration) -> Duration {
        self.limit = (self.limit / 2).max(STEP_MIN.min(self.bounds.step_max)).max(1);
        self.bounds.rest_after(took)
    }

    /// How many records it has deleted.
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    /// The horizon after its last step.
    pub fn horizon(&self) -> Option<Timestamp> {
        self.horizon
    }

    /// Whether it was ended by [`pass_max`](RetentionBounds::pass_max) before it came to the end of the records.
    pub fn is_cut_short(&self) -> bool {
        self.from.is_some() && self.deleted >= self.bounds.pass_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(deleted: u64, more: bool) -> Expired {
        Expired { deleted, horizon: None, next: more.then_some(Place(7)) }
    }

    fn pass(bounds: RetentionBounds) -> Pass {
        Pass::new(ConsumerId(1), Timestamp::UNIX_EPOCH, bounds)
    }

    #[test]
    fn a_step_that_archives_fills_one_block_at_most() {
        let bounds = RetentionBounds { step_max: 10_000, ..RetentionBounds::default() };
        for (archive, limit) in [(true, 998), (false, 2_500)] {
            let step = pass(bounds).archiving(archive).next().unwrap();
            assert_eq!((step.archive, step.limit), (archive, limit));
        }
    }

    #[test]
    fn a_slow_store_gets_smaller_steps_and_longer_rests() {
        let mut pass = pass(RetentionBounds::default());
        let ms = Duration::from_millis;
        assert_eq!(pass.next().unwrap().limit, 250);
        assert_eq!(pass.stepped(&step(250, true), ms(5)), ms(45));
        assert_eq!(pass.next().unwrap(), Expiry { from: Place(7), limit: 500, ..pass.next().unwrap() });
        pass.stepped(&step(500, true), ms(5));
        pass.stepped(&step(1000, true), ms(5));
        assert_eq!(pass.next().unwrap().limit, 1_000, "never more than the most");
        assert_eq!(pass.stepped(&step(1000, true), ms(300)), ms(2_700));
        assert_eq!(pass.next().unwrap().limit, 500);
        for _ in 0..10 {
            pass.failed(ms(300));
        }
        assert_eq!(pass.next().unwrap().limit, 50, "and never less than is worth a transaction");
        assert_eq!(pass.failed(Duration::from_secs(60)), Duration::from_secs(5), "nor a rest without end");
        pass.work_for(50);
        assert_eq!(pass.stepped(&step(50, true), ms(5)), ms(5));
    }

    #[test]
    fn a_pass_ends_where_the_records_do_or_at_its_most() {
        let mut whole = pass(RetentionBounds::default());
        whole.stepped(&step(3, false), Duration::ZERO);
        assert!(whole.next().is_none() && !whole.is_cut_short());
        assert_eq!(whole.deleted(), 3);
        let mut cut = pass(RetentionBounds { pass_max: 300, ..RetentionBounds::default() });
        cut.stepped(&step(250, true), Duration::ZERO);
        assert_eq!(cut.next().unwrap().limit, 50);
        cut.stepped(&step(50, true), Duration::ZERO);
        assert!(cut.next().is_none() && cut.is_cut_short());
    }

    #[test]
    fn short_retentions_are_looked_after_more_often() {
        let bounds = RetentionBounds::default();
        let minutes = |m: u64| Duration::from_secs(m * 60);
        assert_eq!(bounds.between_passes(minutes(60)), minutes(1));
        assert_eq!(bounds.between_passes(minutes(60 * 24)), minutes(60 * 24) / 100);
        assert_eq!(bounds.between_passes(RETENTION_MONEY), minutes(60));
    }
}
