//! Why a message came again, as far as one can tell from its delivery.

use std::collections::BTreeMap;

use oncebox_core::Delivery;

use super::fate::Kind;

/// The likely cause of a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The broker says that it delivered it before: a crash before the acknowledgement, a lease that ran out, a slow
    /// consumer.
    Redelivery,
    /// The broker delivers it for the first time: its producer sent it twice.
    SentAgain,
    /// It had been set aside and was tried again, by a retry or a replay, and was done meanwhile.
    Replay,
    /// Another message id with the same intent.
    OtherId,
    /// The broker does not say. Kafka never does: a rewind, a rebalance and a producer's retry look alike.
    Unknown,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Redelivery, Self::SentAgain, Self::Replay, Self::OtherId, Self::Unknown];

    /// As metrics and people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redelivery => "redelivery",
            Self::SentAgain => "sent_again",
            Self::Replay => "replay",
            Self::OtherId => "other_id",
            Self::Unknown => "unknown",
        }
    }

    /// What to look at first where there are suddenly many.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Redelivery => {
                "the broker delivers again what was not acknowledged in time: look for consumers that crash or restart, and \
                 compare the lease (visibility timeout, ack_wait) with how long handlers take"
            }
            Self::SentAgain => {
                "the producer sends again what it has sent: look for its timeouts and retries, or for a job that ran twice"
            }
            Self::Replay => {
                "messages that were set aside are played again although they are done: look at running replays"
            }
            Self::OtherId => {
                "the same intent comes under new message ids: let the producer keep its id when it tries again"
            }
            Self::Unknown => {
                "the broker does not say why: look for a rewind of offsets, a rebalance or a producer's retries"
            }
        }
    }

    /// `None` if it is no duplicate but our own commit, found again.
    pub(super) fn likely<R>(kind: Kind, delivery: &Delivery<R>) -> Option<Self> {
        Some(match (kind, delivery.count) {
            (Kind::Ours, _) => return None,
            (Kind::Business, _) => Self::OtherId,
            (Kind::Transport, _) if delivery.parked.is_some() => Self::Replay,
            (Kind::Transport, Some(2..)) => Self::Redelivery,
            (Kind::Transport, Some(_)) => Self::SentAgain,
            (Kind::Transport, None) => Self::Unknown,
        })
    }
}

/// Causes of the duplicates in one batch, by message type: counted together, so that one lock is taken for all.
#[derive(Debug, Default)]
pub(super) struct Causes(pub(super) BTreeMap<(String, Cause), u64>);

impl Causes {
    pub(super) fn one(kind: &str, cause: Cause) -> Self {
        let mut causes = Self::default();
        causes.note(kind, cause);
        causes
    }

    pub(super) fn note(&mut self, kind: &str, cause: Cause) {
        *self.0.entry((kind.to_owned(), cause)).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::Message;

    use super::*;

    #[test]
    fn the_broker_s_count_tells_a_redelivery_from_a_producer_s_retry() {
        let counted = |count| {
            let mut delivery = Delivery::new(Message::new("noted"), ());
            delivery.count = count;
            delivery
        };
        let transport = |count| Cause::likely(Kind::Transport, &counted(count));
        assert_eq!(transport(Some(2)), Some(Cause::Redelivery));
        assert_eq!(transport(Some(1)), Some(Cause::SentAgain));
        assert_eq!(transport(None), Some(Cause::Unknown));
        assert_eq!(Cause::likely(Kind::Business, &counted(Some(2))), Some(Cause::OtherId));
        assert_eq!(Cause::likely(Kind::Ours, &counted(Some(2))), None);
    }
}
