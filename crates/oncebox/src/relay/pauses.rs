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
    cause: Cause,
}

/// Why a destination fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The broker is away, and with it every destination.
    Away,
    /// Something about this destination, which a person must see to.
    Own,
}

/// What a failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// The first of its cause: worth a word.
    New,
    /// One more.
    Still,
}

/// A destination that works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Back {
    /// For how long it did not.
    pub(super) after: Duration,
    /// No other one fails for the same cause: worth a word.
    pub(super) is_last: bool,
}

impl Pauses {
    pub(super) fn new((first, max): (Duration, Duration), topics_max: usize) -> Self {
        Self { by_topic: Mutex::default(), first, max, topics_max }
    }

    /// A destination failed: it is left alone for twice as long as before.
    pub(super) fn failed(&self, topic: &str, cause: Cause) -> Failing {
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
                let known = cause == Cause::Away && by_topic.values().any(|pause| pause.cause == Cause::Away);
                if by_topic.len() < self.topics_max {
                    let pause = Pause { since: now, until: now + self.first, delay: self.first, cause };
                    by_topic.insert(topic.to_owned(), pause);
                }
                if known { Failing::Still } else { Failing::New }
            }
        }
    }

    /// A destination works. `None` if it did before.
    pub(super) fn works(&self, topic: &str) -> Option<Back> {
        let mut by_topic = self.by_topic();
        let pause = by_topic.remove(topic)?;
        let is_last = pause.cause == Cause::Own || by_topic.values().all(|other| other.cause == Cause::Own);
        Some(Back { after: pause.since.elapsed(), is_last })
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
        assert_eq!(pauses.failed("a", Cause::Own), Failing::New);
        assert_eq!(pauses.failed("a", Cause::Own), Failing::Still, "by another worker");
        assert_eq!(pauses.topics(), ["a"]);
        for expected in [2, 3, 3] {
            tokio::time::advance(pauses.next().unwrap()).await;
            assert!(pauses.topics().is_empty());
            assert_eq!(pauses.failed("a", Cause::Own), Failing::Still);
            assert_eq!(pauses.next(), Some(Duration::from_secs(expected)));
        }
        assert!(pauses.works("a").is_some() && pauses.works("a").is_none() && pauses.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_away_is_worth_a_word_and_so_is_its_return() {
        let pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(3)), 10);
        assert_eq!(pauses.failed("wrong", Cause::Own), Failing::New);
        assert_eq!(pauses.failed("a", Cause::Away), Failing::New);
        assert_eq!(pauses.failed("b", Cause::Away), Failing::Still, "the same broker");
        assert_eq!(pauses.failed("also wrong", Cause::Own), Failing::New, "a person must see to each");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pauses.works("a"), Some(Back { after: Duration::from_secs(2), is_last: false }));
        assert!(pauses.works("wrong").unwrap().is_last);
        assert!(pauses.works("b").unwrap().is_last);
        assert_eq!(pauses.failed("b", Cause::Away), Failing::New, "away again");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_remembered() {
        let pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(1)), 2);
        for topic in ["a", "b", "c"] {
            assert_eq!(pauses.failed(topic, Cause::Own), Failing::New);
        }
        assert_eq!(pauses.topics().len(), 2);
    }
}
