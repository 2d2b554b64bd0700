//! Destinations that fail: each is left alone for a while, so that the others go on and nobody is asked ten thousand
//! times.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The destinations of one relay that fail. Shared by its workers.
#[derive(Debug)]
pub(super) struct Pauses {
    by_topic: Mutex<HashMap<String, Pause>>,
    first: Duration,
    max: Duration,
    topics_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    since: Instant,
    until: Instant,
    delay: Duration,
}

/// What a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// The first of this destination.
    New,
    /// One more.
    Still,
}

impl Pauses {
    pub(super) fn new((first, max): (Duration, Duration), topics_max: usize) -> Self {
        Self { by_topic: Mutex::default(), first, max, topics_max }
    }

    /// A destination failed: it is left alone for twice as long as before.
    pub(super) fn failed(&self, topic: &str) -> Failing {
        let now = Instant::now();
        let mut by_topic = self.by_topic();
        match by_topic.get_mut(topic) {
            // Another worker has just noted the same.
            Some(pause) if pause.until > now => Failing::Still,
            Some(pause) => {
                pause.delay = (pause.delay * 2).min(self.max);
                pause.until = now + pause.delay;
                Failing::Still
            }
            None => {
                if by_topic.len() < self.topics_max {
                    let pause = Pause { since: now, until: now + self.first, delay: self.first };
                    by_topic.insert(topic.to_owned(), pause);
                }
                Failing::New
            }
        }
    }

    /// A destination works. For how long it did not, if it did not.
    pub(super) fn works(&self, topic: &str) -> Option<Duration> {
        self.by_topic().remove(topic).map(|pause| pause.since.elapsed())
    }

    /// Whether nothing fails.
    pub(super) fn is_empty(&self) -> bool {
        self.by_topic().is_empty()
    }

    /// The destinations to leave alone now.
    pub(super) fn topics(&self) -> Vec<String> {
        let now = Instant::now();
        self.by_topic().iter().filter(|(_, pause)| pause.until > now).map(|(topic, _)| topic.clone()).collect()
    }

    /// How long until one of them may be tried again.
    pub(super) fn next(&self) -> Option<Duration> {
        let now = Instant::now();
        self.by_topic().values().filter_map(|pause| pause.until.checked_duration_since(now)).min()
    }

    fn by_topic(&self) -> MutexGuard<'_, HashMap<String, Pause>> {
        self.by_topic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_destination_is_left_alone_ever_longer_and_forgiven_at_once() {
        let pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(3)), 10);
        assert_eq!(pauses.failed("a"), Failing::New);
        assert_eq!(pauses.failed("a"), Failing::Still, "by another worker");
        assert_eq!(pauses.topics(), ["a"]);
        for expected in [2, 3, 3] {
            tokio::time::advance(pauses.next().unwrap()).await;
            assert!(pauses.topics().is_empty());
            assert_eq!(pauses.failed("a"), Failing::Still);
            assert_eq!(pauses.next(), Some(Duration::from_secs(expected)));
        }
        assert!(pauses.works("a").is_some() && pauses.works("a").is_none() && pauses.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_remembered() {
        let pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(1)), 2);
        for topic in ["a", "b", "c"] {
            assert_eq!(pauses.failed(topic), Failing::New);
        }
        assert_eq!(pauses.topics().len(), 2);
    }
}
