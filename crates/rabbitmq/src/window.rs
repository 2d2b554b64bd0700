//! Deliveries that are with us and not with the engine: those that came ahead, and those that were released.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use oncebox_core::Message;
use tokio::time::Instant;

/// What waits in one channel, by delivery tag, which is the order in which it came. All of it is unacknowledged, so the
/// prefetch is its bound.
///
/// What is released waits here instead of going back to the broker: a quorum queue would put it behind everything else, a
/// classic one behind what was fetched ahead.
#[derive(Debug)]
pub(crate) struct Window<A> {
    keeps_order: bool,
    /// Which channel the tags are of; those of an older one mean nothing.
    generation: u64,
    waiting: BTreeMap<u64, Waiting<A>>,
}

/// One delivery that waits.
#[derive(Debug)]
pub(crate) struct Waiting<A> {
    pub(crate) message: Arc<Message>,
    pub(crate) count: Option<u32>,
    /// It may have been delivered more often than `count` says.
    pub(crate) is_uncounted: bool,
    pub(crate) acker: A,
    pub(crate) due: Instant,
}

impl<A> Window<A> {
    pub(crate) fn new(keeps_order: bool) -> Self {
        Self { keeps_order, generation: 0, waiting: BTreeMap::new() }
    }

    pub(crate) fn set_keeps_order(&mut self) {
        self.keeps_order = true;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The channel is gone: the broker delivers all of it again.
    pub(crate) fn next_generation(&mut self) {
        self.generation += 1;
        self.waiting.clear();
    }

    /// Adds what came on the present channel, or was released on the channel of `generation`. Of an older one it comes
    /// again by itself.
    pub(crate) fn add(&mut self, generation: u64, tag: u64, waiting: Waiting<A>) -> bool {
        let is_ours = generation == self.generation;
        if is_ours {
            self.waiting.insert(tag, waiting);
        }
        is_ours
    }

    /// Up to `max` that are due, oldest first. Where order is kept, none that is behind one that is not due and has its
    /// order key; those without a key are in order among themselves, for consumers that make their own key.
    pub(crate) fn take(&mut self, max: usize, now: Instant) -> Vec<(u64, Waiting<A>)> {
        let mut blocked: HashSet<Option<&str>> = HashSet::new();
        let mut tags = Vec::new();
        for (&tag, waiting) in &self.waiting {
            if tags.len() == max {
                break;
            }
            let key = waiting.message.order_key.as_deref();
            if waiting.due > now {
                blocked.insert(key);
            } else if !self.keeps_order || !blocked.contains(&key) {
                tags.push(tag);
            }
        }
        tags.into_iter().filter_map(|tag| Some((tag, self.waiting.remove(&tag)?))).collect()
    }

    /// When the next one is due that is not yet.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.due).filter(|due| *due > now).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LATER: Duration = Duration::from_secs(1);

    fn window(keeps_order: bool, keys: &[(u64, Option<&str>, Duration)]) -> (Window<()>, Instant) {
        let now = Instant::now();
        let mut window = Window::new(keeps_order);
        for &(tag, key, delay) in keys {
            let mut message = Message::new("t");
            message.order_key = key.map(str::to_owned);
            let waiting =
                Waiting { message: Arc::new(message), count: None, is_uncounted: false, acker: (), due: now + delay };
            assert!(window.add(0, tag, waiting));
        }
        (window, now)
    }

    fn tags(taken: Vec<(u64, Waiting<()>)>) -> Vec<u64> {
        taken.into_iter().map(|(tag, _)| tag).collect()
    }

    #[test]
    fn a_released_one_holds_up_those_behind_it_with_its_key() {
        let zero = Duration::ZERO;
        let waiting = [(1, Some("a"), LATER), (2, Some("a"), zero), (3, Some("b"), zero), (4, None, zero)];
        let (mut window, now) = window(true, &waiting);
        assert_eq!(tags(window.take(10, now)), [3, 4]);
        assert_eq!(window.next_due(now), Some(now + LATER));
        assert_eq!(tags(window.take(10, now + LATER)), [1, 2]);
    }

    #[test]
    fn without_order_nobody_waits_for_another() {
        let (mut window, now) = window(false, &[(1, Some("a"), LATER), (2, Some("a"), Duration::ZERO)]);
        assert_eq!(tags(window.take(10, now)), [2]);
    }

    #[test]
    fn the_oldest_come_first_and_no_more_than_asked_for() {
        let all: Vec<_> = [3, 1, 2].map(|tag| (tag, None, Duration::ZERO)).to_vec();
        let (mut window, now) = window(false, &all);
        assert_eq!(tags(window.take(2, now)), [1, 2]);
        assert_eq!(tags(window.take(2, now)), [3]);
    }

    #[test]
    fn tags_of_an_older_channel_mean_nothing() {
        let (mut window, now) = window(false, &[(1, None, Duration::ZERO)]);
        window.next_generation();
        let stale =
            Waiting { message: Arc::new(Message::new("t")), count: None, is_uncounted: false, acker: (), due: now };
        assert!(!window.add(0, 1, stale));
        assert!(window.take(10, now).is_empty());
    }
}
