//! Every bound of a relay, with its default.

use std::time::Duration;

/// What a relay may hold, wait for and retry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayBounds {
    /// Workers that publish side by side, each with a connection and a part of the lanes. Default 2.
    pub workers: usize,
    /// Messages that one worker publishes at a time. Default 500.
    pub batch_messages_max: usize,
    /// How long lanes stay with a relay that does not stir: the longest that another takes to take over. Default 10 s.
    pub lease: Duration,
    /// How often an idle relay looks for rows of other processes: from the first, doubling to the last. Default 5 ms to
    /// 200 ms.
    pub poll: (Duration, Duration),
    /// How long a destination that fails is left alone: from the first, doubling to the last. Default 100 ms to 10 s.
    pub pause: (Duration, Duration),
    /// Destinations that are remembered as failing. Default 10,000.
    pub destinations_max: usize,
    /// How long the batches in hand may take after a shutdown was asked for. Default 20 s.
    pub drain_deadline: Duration,
}

impl Default for RelayBounds {
    fn default() -> Self {
        Self {
            workers: 2,
            batch_messages_max: 500,
            lease: Duration::from_secs(10),
            poll: (Duration::from_millis(5), Duration::from_millis(200)),
            pause: (Duration::from_millis(100), Duration::from_secs(10)),
            destinations_max: 10_000,
            drain_deadline: Duration::from_secs(20),
        }
    }
}

impl RelayBounds {
    /// The bound that makes no sense, if one does.
    pub(super) fn mistake(&self) -> Option<&'static str> {
        [
            (self.workers == 0 || self.workers > 64, "workers must be 1 to 64"),
            (self.batch_messages_max == 0, "batch_messages_max must be at least 1"),
            (self.lease < Duration::from_millis(100), "lease must be at least 100 ms"),
            (self.destinations_max == 0, "destinations_max must be at least 1"),
        ]
        .into_iter()
        .find_map(|(wrong, says)| wrong.then_some(says))
    }
}
