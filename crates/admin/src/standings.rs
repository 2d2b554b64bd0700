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

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use oncebox_core::Key;
use oncebox_core::quarantine::{ParkedState, QuarantineStore};
use oncebox_core::versions::{Standing, VersionPolicy, Versions};

use crate::admin::{Admin, PAGE};
use crate::error::Error;
use crate::forecast::{Forecast, Limits};
use crate::meant::Meant;

/// Where messages will stand when their turn comes; those that are next are left out.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    by_row: HashMap<i64, Standing>,
    /// Those that are too far ahead and do not wait: dead again, they hold up their order key.
    dead_again: HashSet<i64>,
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

    /// Whether later messages of its order key will wait behind it.
    pub(crate) fn is_dead_again(&self, row: i64) -> bool {
        self.dead_again.contains(&row)
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
    order_key: Option<String>,
    /// Whether it would go on waiting if it were too far ahead.
    waits: bool,
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
        let now = self.now();
        let mut judge = self.judge(Limits::default(), force);
        let mut cast = Cast::default();
        let mut after = 0;
        while let Some(page) = self.page_to_judge(meant, &mut after, &mut judge).await? {
            for (row, said) in page {
                let is_meant = meant.includes(&row);
                let runs = judge.next(&row, is_meant, said) == Forecast::WillApply && is_meant;
                let waits_already = row.state == ParkedState::Gap;
                if !runs && !waits_already {
                    continue;
                }
                let Ok((aggregate, version)) = policy.place(&row.message) else { continue };
                let state = cast.aggregates.entry(aggregate.clone()).or_default();
                if waits_already {
                    state.waiting.entry(version).or_default().push(row.row);
                } else {
                    let parked_for = Duration::try_from(now.duration_since(row.first_at)).unwrap_or_default();
                    let (row, order_key, waits) = (row.row, row.order_key, policy.waits(parked_for));
                    cast.revived.push(Revived { row, aggregate, version, order_key, waits });
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
        let mut held = HashSet::new();
        for Revived { row, aggregate, version, order_key, waits } in self.revived {
            if order_key.as_ref().is_some_and(|key| held.contains(key)) {
                // It waits its turn behind one that is dead again.
                continue;
            }
            let aggregate = self.aggregates.entry(aggregate).or_default();
            match policy.standing(version, aggregate.applied) {
                Standing::Next => {
                    aggregate.applied = Some(version);
                    aggregate.wake(policy, &mut standings);
                }
                Standing::Gap => {
                    standings.by_row.insert(row, Standing::Gap);
                    if waits {
                        aggregate.waiting.entry(version).or_default().push(row);
                    } else {
                        standings.dead_again.insert(row);
                        held.extend(order_key);
                    }
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

    /// The first version is 1; `waits` and `applies` say what happens to gaps.
    struct Policy {
        waits: bool,
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

        fn waits(&self, _: Duration) -> bool {
            self.waits
        }
    }

    /// Where messages of one aggregate and one order key will stand; `None` for those that wait behind a dead one.
    fn standings(policy: &Policy, applied: Option<u64>, waiting: &[u64], revived: &[u64]) -> Vec<Option<Standing>> {
        let (key, mut cast) = (Key::id("a").expect("a key"), Cast::default());
        let aggregate = cast.aggregates.entry(key.clone()).or_default();
        aggregate.applied = applied;
        for version in waiting {
            aggregate.waiting.entry(*version).or_default().push(-1);
        }
        for (row, version) in (0..).zip(revived) {
            let (aggregate, order_key, waits) = (key.clone(), Some("a".to_owned()), policy.waits);
            cast.revived.push(Revived { row, aggregate, version: *version, order_key, waits });
        }
        let found = cast.play(policy);
        let first_dead = found.dead_again.iter().min().copied().unwrap_or(i64::MAX);
        let standing = |row: i64| found.by_row.get(&row).copied().unwrap_or(Standing::Next);
        (0..).zip(revived).map(|(row, _)| (row <= first_dead).then(|| standing(row))).collect()
    }

    fn all(standings: &[Standing]) -> Vec<Option<Standing>> {
        standings.iter().copied().map(Some).collect()
    }

    use Standing::{Gap, Next, Same, Stale};

    #[test]
    fn each_message_stands_where_those_before_it_leave_it() {
        let waiting = Policy { waits: true, applies: false };
        assert_eq!(standings(&waiting, Some(4), &[], &[5, 6, 6, 5, 8]), all(&[Next, Next, Same, Stale, Gap]));
        assert_eq!(standings(&waiting, None, &[], &[0, 1, 2, 4]), all(&[Stale, Next, Next, Gap]));
    }

    #[test]
    fn what_waits_is_woken_by_what_was_missing() {
        let waiting = Policy { waits: true, applies: false };
        assert_eq!(standings(&waiting, Some(4), &[], &[7, 6, 9, 5, 3]), all(&[Next, Next, Gap, Next, Stale]));
        assert_eq!(
            standings(&waiting, Some(4), &[6], &[7, 5, 6]),
            all(&[Next, Next, Stale]),
            "6 waited before the plan"
        );
        assert_eq!(standings(&waiting, Some(4), &[], &[6, 6, 5]), all(&[Next, Same, Next]));
    }

    #[test]
    fn gaps_that_do_not_wait_hold_up_their_order_key_or_are_applied() {
        let failing = Policy { waits: false, applies: false };
        assert_eq!(standings(&failing, Some(4), &[], &[5, 7, 6]), [Some(Next), Some(Gap), None]);
        let applying = Policy { waits: false, applies: true };
        assert_eq!(standings(&applying, Some(4), &[], &[6, 5, 9]), all(&[Next, Stale, Next]));
    }
}
