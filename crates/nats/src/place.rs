//! Where a delivery lies, as its reply subject says.

use oncebox_core::{Coordinate, Timestamp};

/// What JetStream writes into the subject that a delivery is acknowledged on:
/// `$JS.ACK.[domain.account.]stream.consumer.delivered.sequence.consumer-sequence.stored-at.pending[.token]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'r> {
    stream: &'r str,
    sequence: u64,
    /// Nanoseconds since 1970.
    stored_at: i128,
    pub(crate) deliveries: u64,
}

impl<'r> Place<'r> {
    /// `None` if JetStream did not make it.
    pub(crate) fn read(reply: &'r str) -> Option<Self> {
        let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let own = match parts.len() {
            7 => &parts[..],
            9.. => &parts[2..],
            _ => return None,
        };
        Some(Self {
            stream: own[0],
            deliveries: own[2].parse().ok()?,
            sequence: own[3].parse().ok()?,
            stored_at: own[5].parse().ok()?,
        })
    }

    /// The time of storing is a part of it: a stream that was deleted and made again counts from 1 again.
    pub(crate) fn coordinate(&self) -> Coordinate {
        Coordinate::new(format!("{}/{}@{}", self.stream, self.sequence, self.stored_at))
    }

    /// When the stream stored the message.
    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_nanosecond(self.stored_at).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.deliveries).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_reply_subjects_say_the_same() {
        let old = Place::read("$JS.ACK.ORDERS.billing.2.17.40.1700000000123456789.5").unwrap();
        let new = Place::read("$JS.ACK._.hash.ORDERS.billing.2.17.40.1700000000123456789.5").unwrap();
        let newer = Place::read("$JS.ACK.hub.hash.ORDERS.billing.2.17.40.1700000000123456789.5.token").unwrap();
        assert_eq!(old, new);
        assert_eq!(old, newer);
        assert_eq!(old.coordinate().as_str(), "ORDERS/17@1700000000123456789");
        assert_eq!((old.count(), old.time().as_nanosecond()), (2, 1_700_000_000_123_456_789));
    }

    #[test]
    fn other_subjects_are_no_places() {
        for reply in ["", "_INBOX.a.b", "$JS.ACK.", "$JS.ACK.a.b.c.d.e.f.g", "$JS.ACK.a.b.1.2.3.4.5.6"] {
            assert_eq!(Place::read(reply), None, "{reply}");
        }
    }
}
