//! The settings of a consumer that a source relies on, checked before it reads.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};

/// A consumer to create, if there is none of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewConsumer {
    /// Which subjects of the stream it reads. Default: all.
    pub subjects: Vec<String>,
    /// How long a delivery stays with whoever received it, unless extended. Default 30 s.
    pub ack_wait: Duration,
    /// How many deliveries may be unsettled at a time, over all processes. Default 1,000, and 1 for an
    /// [ordered](crate::JetStreamSource::ordered) source, whatever is said here.
    pub ack_pending_max: usize,
    /// Where it begins. Default: with the oldest message of the stream.
    pub from: DeliverPolicy,
}

impl Default for NewConsumer {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            ack_wait: Duration::from_secs(30),
            ack_pending_max: 1_000,
            from: DeliverPolicy::All,
        }
    }
}

impl NewConsumer {
    /// Reads only these subjects.
    #[must_use]
    pub fn subjects<T: Into<String>>(mut self, subjects: impl IntoIterator<Item = T>) -> Self {
        self.subjects = subjects.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a delivery stays with whoever received it.
    #[must_use]
    pub fn ack_wait(mut self, ack_wait: Duration) -> Self {
        self.ack_wait = ack_wait;
        self
    }

    /// Sets how many deliveries may be unsettled at a time.
    #[must_use]
    pub fn ack_pending_max(mut self, max: usize) -> Self {
        self.ack_pending_max = max;
        self
    }

    /// Sets where it begins.
    #[must_use]
    pub fn from(mut self, from: DeliverPolicy) -> Self {
        self.from = from;
        self
    }

    pub(crate) fn config(&self, durable: &str, ordered: bool) -> pull::Config {
        let pending = if ordered { 1 } else { i64::try_from(self.ack_pending_max).unwrap_or(i64::MAX) };
        let mut config = pull::Config {
            durable_name: Some(durable.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            max_ack_pending: pending,
            deliver_policy: self.from,
            ..pull::Config::default()
        };
        // One subject has a field of its own, which older servers know too.
        match self.subjects.as_slice() {
            [subject] => config.filter_subject.clone_from(subject),
            subjects => config.filter_subjects = subjects.to_vec(),
        }
        config
    }
}

/// What a source has to know of its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How long a delivery is ours.
    pub(crate) lease: Duration,
    /// How many may be unsettled, over all processes.
    pub(crate) pending_max: usize,
    /// The most that may be asked for at once.
    pub(crate) batch_max: usize,
    /// The longest that may be waited for at once.
    pub(crate) wait_max: Duration,
}

impl Settings {
    /// Reads them, or says what is wrong and what to do.
    pub(crate) fn read(config: &pull::Config, ordered: bool) -> Result<Self, String> {
        if config.ack_policy != AckPolicy::Explicit {
            return Err("its ack policy is not `explicit`, so that acknowledging one message could settle others; \
                        create it anew with `explicit`"
                .to_owned());
        }
        if config.max_deliver > 0 {
            return Err(format!(
                "its max_deliver is {}, after which the server falls silent about a message; set it to -1: Oncebox sets \
                 aside what keeps failing",
                config.max_deliver
            ));
        }
        if config.headers_only {
            return Err("it delivers headers only; set headers_only to false".to_owned());
        }
        if ordered && config.max_ack_pending != 1 {
            return Err(format!(
                "order is asked for and its max_ack_pending is {}; set it to 1, or give each order key's subjects a \
                 consumer of their own",
                config.max_ack_pending
            ));
        }
        // Where there is a list of backoffs, its entries stand in for ack_wait.
        let lease = config.backoff.iter().copied().chain([config.ack_wait]).min().unwrap_or(config.ack_wait);
        if lease < LEASE_MIN {
            return Err(format!(
                "its ack_wait is {lease:?}; set it, and each backoff, to {LEASE_MIN:?} or more, so that a delivery can \
                 be extended in time"
            ));
        }
        Ok(Self {
            lease,
            pending_max: positive(config.max_ack_pending).unwrap_or(usize::MAX),
            batch_max: positive(config.max_batch).unwrap_or(usize::MAX),
            wait_max: if config.max_expires.is_zero() { Duration::MAX } else { config.max_expires },
        })
    }
}

/// Shorter leases end between two looks at the clock.
const LEASE_MIN: Duration = Duration::from_secs(1);

fn positive(setting: i64) -> Option<usize> {
    usize::try_from(setting).ok().filter(|&setting| setting > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> pull::Config {
        NewConsumer::default().config("billing", false)
    }

    #[test]
    fn what_create_makes_is_accepted() {
        let settings = Settings::read(&sound(), false).unwrap();
        assert_eq!((settings.lease, settings.pending_max), (Duration::from_secs(30), 1_000));
        let ordered = NewConsumer::default().config("billing", true);
        assert_eq!(Settings::read(&ordered, true).unwrap().pending_max, 1);
    }

    #[test]
    fn what_could_lose_or_settle_wrongly_is_refused() {
        let refused = |config: pull::Config, ordered| Settings::read(&config, ordered).unwrap_err();
        assert!(refused(pull::Config { ack_policy: AckPolicy::All, ..sound() }, false).contains("explicit"));
        assert!(refused(pull::Config { ack_policy: AckPolicy::None, ..sound() }, false).contains("explicit"));
        assert!(refused(pull::Config { max_deliver: 5, ..sound() }, false).contains("max_deliver is 5"));
        assert!(refused(pull::Config { headers_only: true, ..sound() }, false).contains("headers_only"));
        assert!(refused(sound(), true).contains("max_ack_pending is 1000"));
        let short = pull::Config { backoff: vec![Duration::from_millis(10)], ..sound() };
        assert!(refused(short, false).contains("10ms"));
    }

    #[test]
    fn the_shortest_backoff_is_the_lease() {
        let config = pull::Config { backoff: vec![Duration::from_secs(9), Duration::from_secs(60)], ..sound() };
        assert_eq!(Settings::read(&config, false).unwrap().lease, Duration::from_secs(9));
    }
}
