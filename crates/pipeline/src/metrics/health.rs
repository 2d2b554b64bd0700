//! Whether this process can do its work, and why not.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncebox::consumer::Stats;
use oncebox::counting::Overview;
use oncebox::outbox;
use oncebox::relay::RelayStats;
use tokio::time::Instant;

use super::backlog::{Backlog, LOOKS_MAX, Look, Stuck};

/// A store that was not reached for this long counts as away, whatever it said the last time.
const SILENT_MAX: Duration = Duration::from_secs(90);

/// Watches backlogs over time, and judges.
#[derive(Debug)]
pub struct Health {
    stuck_after: Duration,
    backlogs: Mutex<Vec<(String, Backlog)>>,
}

impl Health {
    /// A backlog that does not shrink for `stuck_after` is a reason.
    pub fn new(stuck_after: Duration) -> Self {
        Self { stuck_after, backlogs: Mutex::default() }
    }

    /// How often to [look](Self::look).
    pub(super) fn look_every(&self) -> Duration {
        (self.stuck_after / LOOKS_MAX as u32).max(Duration::from_secs(1))
    }

    /// Notes how much waits now.
    pub fn look(&self, overview: &Overview) {
        let consumers = overview.consumers().iter();
        let mut seen: Vec<(String, Option<Look>)> = consumers
            .map(|(name, stats)| {
                let part = format!("consumer {name}");
                let look = of_consumer(overview, &part, stats);
                (part, look)
            })
            .collect();
        if let Some(relay) = overview.relay() {
            seen.push((RELAY.to_owned(), of_relay(overview, relay)));
        }
        let mut backlogs = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, look) in seen {
            let at = backlogs.iter().position(|(known, _)| *known == part).unwrap_or_else(|| {
                backlogs.push((part, Backlog::default()));
                backlogs.len() - 1
            });
            backlogs[at].1.look(Instant::now(), look, self.stuck_after);
        }
    }

    /// Whether each backlog that is known does not shrink, by part.
    pub(super) fn stuck(&self) -> Vec<(String, bool)> {
        let backlogs = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = backlogs.iter().filter(|(_, backlog)| backlog.is_known());
        known.map(|(part, backlog)| (part.clone(), backlog.stuck(self.stuck_after).is_some())).collect()
    }

    /// Why this process is not ready; nothing: it is. No reason holds more than names from the file and what errors say,
    /// which is without secrets.
    pub fn reasons(&self, overview: &Overview) -> Vec<String> {
        let mut reasons = Vec::new();
        match overview.store() {
            None => reasons.push("the store was not reached yet".to_owned()),
            Some(Err(error)) => reasons.push(format!("the store does not answer: {error}")),
            Some(Ok(at)) if at.elapsed() > SILENT_MAX => {
                reasons.push(format!("the store was last reached {} s ago", at.elapsed().as_secs()));
            }
            Some(Ok(_)) => {}
        }
        for (name, stats) in overview.consumers() {
            if !stats.is_running() {
                reasons.push(format!("consumer {name} does not run"));
            } else if let Some(what) = stats.snapshot().waiting_for {
                reasons.push(format!("consumer {name} waits: {what}"));
            }
        }
        if let Some(what) = overview.relay().and_then(|relay| relay.snapshot().waiting_for) {
            reasons.push(format!("the relay waits: {what}"));
        }
        let backlogs = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, backlog) in backlogs.iter() {
            if let Some(stuck) = backlog.stuck(self.stuck_after) {
                reasons.push(told(part, &stuck, self.stuck_after));
            }
        }
        reasons
    }
}

/// The part whose backlog is the outbox.
const RELAY: &str = "relay";

fn told(part: &str, stuck: &Stuck, after: Duration) -> String {
    let Stuck { first, last, is_more, arrived, done } = stuck;
    let (part, least) = (if part == RELAY { "the relay" } else { part }, if *is_more { "at least " } else { "" });
    let came = match arrived {
        Some(arrived) if *is_more => format!("about {arrived} came and {done} were done since"),
        _ => format!("and {done} were done since"),
    };
    let after = after.as_secs();
    format!("the backlog of {part} does not shrink: {least}{last} wait, {first} did {after} s ago, {came}")
}

/// Counters of messages that wait no more, whatever became of them; those that were given back are not among them.
const LEFT_THE_SOURCE: [&str; 10] = [
    "transport_duplicates",
    "business_duplicates",
    "handled",
    "already_applied",
    "stale",
    "same_version",
    "parked",
    "parked_behind",
    "gaps",
    "dead",
];

/// Counters of rows that left the outbox.
const LEFT_THE_OUTBOX: [&str; 2] = ["published", "set_aside"];

fn of_consumer(overview: &Overview, part: &str, stats: &Stats) -> Option<Look> {
    let depth = overview.backlog(stats)?;
    let own = stats.snapshot();
    Some(Look {
        waiting: depth.messages?,
        is_more: depth.is_more,
        oldest: depth.oldest_seconds,
        arrived: depth.arrived,
        done: sum(&LEFT_THE_SOURCE, own.counts()),
        // What waits for this process alone is done by it alone.
        done_by_all: if depth.is_share { None } else { by_all(overview, part, &LEFT_THE_SOURCE) },
    })
}

fn of_relay(overview: &Overview, relay: &RelayStats) -> Option<Look> {
    let in_store = overview.in_store();
    let unsent = in_store.outbox?.unsent;
    Some(Look {
        waiting: unsent,
        is_more: unsent >= outbox::Backlog::COUNTED_MAX,
        oldest: in_store.outbox_lag_seconds.filter(|_| unsent > 0),
        arrived: None,
        done: sum(&LEFT_THE_OUTBOX, relay.snapshot().counts()),
        done_by_all: by_all(overview, RELAY, &LEFT_THE_OUTBOX),
    })
}

fn by_all(overview: &Overview, part: &str, names: &[&str]) -> Option<u64> {
    let in_store = overview.in_store();
    let counts = in_store.counted.get(part)?;
    Some(sum(names, counts.iter().map(|(name, count)| (name.as_str(), *count))))
}

fn sum<'n>(names: &[&str], counts: impl Iterator<Item = (&'n str, u64)>) -> u64 {
    counts.filter(|(name, _)| names.contains(name)).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_the_source_is_counted_under_these_names() {
        let names: Vec<&str> = Stats::default().snapshot().counts().map(|(name, _)| name).collect();
        assert!(LEFT_THE_SOURCE.iter().all(|name| names.contains(name)), "{names:?}");
        let names: Vec<&str> = RelayStats::default().snapshot().counts().map(|(name, _)| name).collect();
        assert!(LEFT_THE_OUTBOX.iter().all(|name| names.contains(name)), "{names:?}");
    }

    #[test]
    fn a_reason_says_what_was_counted() {
        let mut stuck = Stuck { first: 100, last: 160, is_more: false, arrived: Some(9), done: 0 };
        let after = Duration::from_secs(300);
        let says = "the backlog of consumer a does not shrink: 160 wait, 100 did 300 s ago, and 0 were done since";
        assert_eq!(told("consumer a", &stuck, after), says);
        (stuck.last, stuck.is_more) = (10_000, true);
        let says = "the backlog of the relay does not shrink: at least 10000 wait, 100 did 300 s ago, about 9 came and \
                    0 were done since";
        assert_eq!(told("relay", &stuck, after), says);
    }
}
