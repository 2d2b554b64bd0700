//! How far this process is behind the ends of its partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use tokio::time::Instant;

use super::rebalance::Group;
use super::shared::Shared;
use super::{Config, start};

/// How old an end may be before it is asked for again.
const EVERY: Duration = Duration::from_secs(5);

/// How often to look at all.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the thread waits for an answer: it polls for nobody meanwhile.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The ends of partitions, asked for one by one between two polls.
#[derive(Debug, Default)]
pub(super) struct Lag {
    ends: BTreeMap<i32, End>,
    failed: Option<Instant>,
    looked: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    asked: Instant,
    offset: i64,
    /// Where the group is, for a partition of which nothing was read yet.
    committed: Option<i64>,
}

impl Lag {
    pub(super) fn look(&mut self, consumer: &BaseConsumer<Group>, config: &Config, shared: &Shared) {
        // Called after each record.
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let (marks, is_away) = {
            let state = shared.state();
            (state.partitions.marks(), state.trouble.is_some())
        };
        let is_recent = |at: Instant| at.elapsed() < EVERY;
        self.ends.retain(|partition, _| marks.iter().any(|(assigned, _)| assigned == partition));
        let is_old = |partition: &i32| self.ends.get(partition).is_none_or(|end| !is_recent(end.asked));
        if let Some((partition, mark)) = marks.iter().find(|(partition, _)| is_old(partition))
            && !is_away
            && !self.failed.is_some_and(is_recent)
        {
            match ask(consumer, config, *partition, mark.is_none()) {
                Ok(end) => drop(self.ends.insert(*partition, end)),
                Err(_) => {
                    self.failed = Some(Instant::now());
                    self.ends.clear();
                }
            }
        }
        shared.state().lag = if is_away { None } else { self.sum(&marks) };
    }

    /// `None` unless all of it is known. Who has no partition knows nothing: the group may be on its way to give it some.
    fn sum(&self, marks: &[(i32, Option<i64>)]) -> Option<u64> {
        if marks.is_empty() {
            return None;
        }
        let behind = |(partition, mark): &(i32, Option<i64>)| {
            let end = self.ends.get(partition)?;
            u64::try_from(end.offset.saturating_sub(mark.or(end.committed)?)).ok().or(Some(0))
        };
        marks.iter().map(behind).sum()
    }
}

fn ask(
    consumer: &BaseConsumer<Group>,
    config: &Config,
    partition: i32,
    with_committed: bool,
) -> Result<End, KafkaError> {
    let (_, offset) = consumer.fetch_watermarks(&config.topic, partition, ANSWER_MAX)?;
    let mut committed = None;
    if with_committed {
        let list = start::list(config, [(partition, Offset::Invalid)]);
        let answer = consumer.committed_offsets(list, ANSWER_MAX)?;
        committed = answer.elements().iter().find_map(|element| match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        });
    }
    Ok(End { asked: Instant::now(), offset, committed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_all_is_not_known() {
        let mut lag = Lag::default();
        let end = End { asked: Instant::now(), offset: 10, committed: None };
        lag.ends.insert(0, end);
        assert_eq!(lag.sum(&[(0, Some(4))]), Some(6));
        assert_eq!(lag.sum(&[(0, Some(12))]), Some(0), "the end was asked for before");
        assert_eq!(lag.sum(&[(0, Some(4)), (1, Some(0))]), None);
        assert_eq!(lag.sum(&[(0, None)]), None);
        assert_eq!(lag.sum(&[]), None, "no partition is ours, perhaps not yet");
        lag.ends.insert(1, End { committed: Some(7), ..end });
        assert_eq!(lag.sum(&[(0, Some(4)), (1, None)]), Some(9), "nothing was read of it yet");
    }
}
