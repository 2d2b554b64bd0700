//! Whether this process can do its work, and why not.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::counting::Overview;
use tokio::time::Instant;

/// Looks that are kept of each backlog; older ones are thinned out to this.
const LOOKS_MAX: usize = 60;

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
        let mut seen: Vec<(String, Option<u64>, u64)> = overview
            .consumers()
            .iter()
            .map(|(name, stats)| {
                let now = stats.snapshot();
                let waiting = overview.backlog(stats).and_then(|backlog| backlog.messages);
                (format!("consumer {name}"), waiting, left_the_source(&now))
            })
            .collect();
        if let Some(relay) = overview.relay() {
            let unsent = overview.in_store().outbox.map(|outbox| outbox.unsent);
            let now = relay.snapshot();
            seen.push(("the relay".to_owned(), unsent, now.published + now.set_aside));
        }
        let mut backlogs = self.backlogs.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, waiting, done) in seen {
            let at = backlogs.iter().position(|(known, _)| *known == part).unwrap_or_else(|| {
                backlogs.push((part, Backlog::default()));
                backlogs.len() - 1
            });
            backlogs[at].1.look(Instant::now(), waiting, done, self.stuck_after);
        }
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
                let Stuck { first, last, done } = stuck;
                reasons.push(format!(
                    "the backlog of {part} does not shrink: {last} wait, {first} did {} s ago, and {done} were done since",
                    self.stuck_after.as_secs()
                ));
            }
        }
        reasons
    }
}

/// Messages that wait no more, whatever became of them; those that were given back are not among them.
fn left_the_source(now: &Snapshot) -> u64 {
    let duplicates = now.transport_duplicates + now.business_duplicates;
    let done = now.handled + now.already_applied + now.stale + now.same_version;
    let aside = now.parked + now.parked_behind + now.gaps + now.dead;
    duplicates + done + aside
}

/// What was seen of one backlog.
#[derive(Debug, Default)]
struct Backlog {
    looks: VecDeque<Look>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    waiting: u64,
    done: u64,
}

/// A backlog that does not shrink.
#[derive(Debug, PartialEq, Eq)]
struct Stuck {
    first: u64,
    last: u64,
    done: u64,
}

impl Backlog {
    fn look(&mut self, at: Instant, waiting: Option<u64>, done: u64, keep: Duration) {
        let Some(waiting) = waiting else { return self.looks.clear() };
        self.looks.push_back(Look { at, waiting, done });
        // One look that is older than what is asked about stays, to compare with.
        while self.looks.len() > 2 && at.duration_since(self.looks[1].at) >= keep {
            self.looks.pop_front();
        }
        while self.looks.len() > 2 * LOOKS_MAX {
            self.looks.remove(1);
        }
    }

    /// It was never empty, it is no smaller than at first, and at the pace of that time it takes longer than that again.
    fn stuck(&self, after: Duration) -> Option<Stuck> {
        let (first, last) = (self.looks.front()?, self.looks.back()?);
        let done = last.done.saturating_sub(first.done);
        let is_long = last.at.duration_since(first.at) >= after;
        let never_empty = self.looks.iter().all(|look| look.waiting > 0);
        let is_stuck = is_long && never_empty && last.waiting >= first.waiting && done < last.waiting;
        is_stuck.then_some(Stuck { first: first.waiting, last: last.waiting, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(300);

    /// Looks every five seconds.
    fn watched(looks: impl IntoIterator<Item = (Option<u64>, u64)>) -> Option<Stuck> {
        let (mut backlog, mut at) = (Backlog::default(), Instant::now());
        for (waiting, done) in looks {
            backlog.look(at, waiting, done, AFTER);
            at += Duration::from_secs(5);
        }
        assert!(backlog.looks.len() <= 2 * LOOKS_MAX);
        backlog.stuck(AFTER)
    }

    #[test]
    fn a_backlog_that_does_not_shrink_is_noticed() {
        let stuck = watched((0..61).map(|n| (Some(100 + n), 0)));
        assert_eq!(stuck, Some(Stuck { first: 100, last: 160, done: 0 }));
        assert!(watched((0..61).map(|_| (Some(10_000), 5))).is_some(), "hardly anything is done");
    }

    #[test]
    fn one_that_shrinks_or_is_short_or_young_is_none() {
        assert_eq!(watched((0..61).map(|n| (Some(100 - n), n))), None, "it shrinks");
        assert_eq!(watched((0..61).map(|n| (Some(3), 1_000 * n))), None, "three wait, and thousands are done");
        assert_eq!(watched((0..59).map(|_| (Some(100), 0))), None, "not that long");
        assert_eq!(watched((0..61).map(|n| (Some(n % 30), 0))), None, "it was empty in between");
        assert_eq!(watched((0..61).map(|n| ((n != 30).then_some(100), 0))), None, "it was not known in between");
    }
}
