//! What versions will say of the messages of a plan.
//!
//! Whether a message is next depends on those that run before it, and on those that wait for what it brings:
//!
//! ```text
//!  state 4, dead in this order: 6, 5, 5', 3, 9       6 waits ─▶ 5 is next, and wakes 6 ─▶ 5' and 3 are stale, 9 is a gap
//! ```
//!
//! So the plan is gone through twice: first each aggregate is played through in memory, then each message is told. Without
//! order, lanes run side by side: what ends as the same version and what ends as stale may then change places.

use std::collections::{BTreeMap, HashMap};

use oncebox_core::Key;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::versions::{Standing, VersionPolicy, Versions};

use crate::admin::{Admin, PAGE};
use crate::error::Error;
use crate::forecast::{Forecast, Limits};
use crate::meant::Meant;

/// Where messages will stand when their turn comes; those that are next are left out.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    by_row: HashMap<i64, Standing>,
}

impl Standings {
    /// What a forecast becomes when versions are asked, too.
    pub(crate) fn refine(&self, row: i64, forecast: Forecast) -> Forecast {
        match (forecast, self.by_row.get(&row)) {
            (Forecast::WillApply, Some(Standing::Same)) => Forecast::SameVersion,
            (Forecast::WillApply, Some(Standing::Stale)) => Forecast::Stale,
            (Forecast::WillApply, Some(Standing::Gap)) => Forecast::Gap,
            _ => forecast,
        }
    }
}

/// What is to be played through.
#[derive(Debug, Default)]
struct Cast {
    /// The messages that would be revived, in their order.
    revived: Vec<Revived>,
    aggregates: BTreeMap<Key, Aggregate>,
}

#[derive(Debug)]
struct Revived {
    row: i64,
    aggregate: Key,
    version: u64,
}

/// How far an aggregate has come, and what waits for it to come further.
#[derive(Debug, Default)]
struct Aggregate {
    applied: Option<u64>,
    /// By version, with the rows. Those that wait already are among them, meant or not: what was missing wakes them.
    waiting: BTreeMap<u64, Vec<i64>>,
}

impl<S: QuarantineStore> Admin<S> {
    /// Plays the messages that are meant through, without running any. Nothing if nobody reads versions.
    pub(crate) async fn standings(&self, meant: &Meant, force: bool) -> Result<Standings, Error> {
        let Some(policy) = self.versions.as_deref() else { return Ok(Standings::default()) };
        let mut cast = self.cast(meant, force, policy).await?;
        let keys: Vec<Key> = cast.aggregates.keys().cloned().collect();
        for keys in keys.chunks(PAGE) {
            let mut tx = self.begin().await?;
            let applied = tx.read_versions(meant.consumer.id, keys).await?;
            self.end(tx).await;
            for (key, applied) in keys.iter().zip(applied) {
                cast.aggregates.entry(key.clone()).or_default().applied = applied;
            }
        }
        Ok(cast.play(policy))
    }

    async fn cast(&self, meant: &Meant, force: bool, policy: &dyn VersionPolicy) -> Result<Cast, Error> {
        let mut judge = self.judge(Limits::default(), force);
        let mut cast = Cast::default();
        let mut after = 0;
        while let Some(page) = self.page_to_judge(meant, &mut after, &mut judge).await? {
            for (row, said) in page {
                let is_meant = meant.includes(&row);
                let runs = judge.next(&row, is_meant, said) == Forecast::WillApply && is_meant;
                let waits_already = row.is_gap && !runs;
                if !runs && !waits_already {
                    continue;
                }
                let Ok((aggregate, version)) = policy.place(&row.message) else { continue };
                let state = cast.aggregates.entry(aggregate.clone()).or_default();
                if waits_already {
                    state.waiting.entry(version).or_default().push(row.row);
                } else {
                    cast.revived.push(Revived { row: row.row, aggregate, version });
                }
            }
        }
        Ok(cast)
    }
}

impl Cast {
    /// Each message in turn, and after each that is next, those that it wakes.
    fn play(mut self, policy: &dyn VersionPolicy) -> Standings {
        let mut standings = Standings::default();
        for Revived { row, aggregate, version } in self.revived {
            let aggregate = self.aggregates.entry(aggregate).or_default();
            match policy.standing(version, aggregate.applied) {
                Standing::Next => {
                    aggregate.applied = Some(version);
                    aggregate.wake(policy, &mut standings);
                }
                Standing::Gap => {
                    // It waits, or gives up again: in both cases it is in nobody's way, and woken by what it misses.
                    standings.by_row.insert(row, Standing::Gap);
                    aggregate.waiting.entry(version).or_default().push(row);
                }
                standing => _ = standings.by_row.insert(row, standing),
            }
        }
        standings
    }
}

impl Aggregate {
    /// Lets what waits go on, the lowest first: where that is still too far ahead, all are.
    fn wake(&mut self, policy: &dyn VersionPolicy, standings: &mut Standings) {
        while let Some(lowest) = self.waiting.first_entry() {
            let version = *lowest.key();
            if policy.standing(version, self.applied) == Standing::Gap {
                return;
            }
            for row in lowest.remove() {
                match policy.standing(version, self.applied) {
                    Standing::Next => {
                        self.applied = Some(version);
                        standings.by_row.remove(&row);
                    }
                    standing => _ = standings.by_row.insert(row, standing),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::{Failure, Message};

    use super::*;

    /// The first version is 1; `applies` says what happens to gaps.
    struct Policy {
        applies: bool,
    }

    impl VersionPolicy for Policy {
        fn place(&self, _: &Message) -> Result<(Key, u64), Failure> {
            Err(Failure::permanent("not asked for"))
        }

        fn standing(&self, version: u64, applied: Option<u64>) -> Standing {
            match Standing::of(version, applied, 1) {
                Standing::Gap if self.applies => Standing::Next,
                standing => standing,
            }
        }
    }

    /// Where messages of one aggregate will stand.
    fn standings(policy: &Policy, applied: Option<u64>, waiting: &[u64], revived: &[u64]) -> Vec<Standing> {
        let (key, mut cast) = (Key::id("a").expect("a key"), Cast::default());
        let aggregate = cast.aggregates.entry(key.clone()).or_default();
        aggregate.applied = applied;
        for version in waiting {
            aggregate.waiting.entry(*version).or_default().push(-1);
        }
        for (row, version) in (0..).zip(revived) {
            cast.revived.push(Revived { row, aggregate: key.clone(), version: *version });
        }
        let found = cast.play(policy);
        let standing = |row: i64| found.by_row.get(&row).copied().unwrap_or(Standing::Next);
        (0..).zip(revived).map(|(row, _)| standing(row)).collect()
    }

    use Standing::{Gap, Next, Same, Stale};

    #[test]
    fn each_message_stands_where_those_before_it_leave_it() {
        let waiting = Policy { applies: false };
        assert_eq!(standings(&waiting, Some(4), &[], &[5, 6, 6, 5, 8]), [Next, Next, Same, Stale, Gap]);
        assert_eq!(standings(&waiting, None, &[], &[0, 1, 2, 4]), [Stale, Next, Next, Gap]);
    }

    #[test]
    fn what_waits_is_woken_by_what_was_missing() {
        let waiting = Policy { applies: false };
        assert_eq!(standings(&waiting, Some(4), &[], &[7, 6, 9, 5, 3]), [Next, Next, Gap, Next, Stale]);
        assert_eq!(standings(&waiting, Some(4), &[6], &[7, 5, 6]), [Next, Next, Stale], "6 waited before the plan");
        assert_eq!(standings(&waiting, Some(4), &[], &[6, 6, 5]), [Next, Same, Next]);
    }

    #[test]
    fn gaps_may_be_applied() {
        let applying = Policy { applies: true };
        assert_eq!(standings(&applying, Some(4), &[], &[6, 5, 9]), [Next, Stale, Next]);
    }
}
