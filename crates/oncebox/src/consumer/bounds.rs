//! Every bound of a consumer, with its default.

use std::time::Duration;

use oncebox_core::identity::LOOK_AGAIN;

/// What a consumer may hold, wait for and retry. Everything that queues, loops or retries has its bound here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Serial queues that run side by side, each with a connection of its own. Default 4.
    pub lanes: usize,
    /// Messages in one transaction. Default 100.
    pub batch_messages_max: usize,
    /// Payload bytes in one transaction; a single larger message still goes alone. Default 4 MiB.
    pub batch_bytes_max: usize,
    /// The largest payload that is handled. Default 1 MiB.
    pub payload_bytes_max: usize,
    /// Messages received and not settled. Default 1,000.
    pub in_flight_max: usize,
    /// Payload bytes received and not settled. Default 64 MiB.
    pub in_flight_bytes_max: usize,
    /// How long one call of a handler may take before its transaction is ended. Default 30 s.
    pub handler_deadline: Duration,
    /// How long a statement waits for someone else's lock when the batch could run singly instead. Default 50 ms.
    pub lock_wait_batch: Duration,
    /// How long a statement waits for someone else's lock when a message runs alone. Default 5 s.
    pub lock_wait_alone: Duration,
    /// How often a message that runs alone is tried at once when others are in its way; then it is released. Default 10.
    pub contended_tries_max: u32,
    /// How often a process may die while it handles a message alone, before the message is parked for a person. Default 5.
    pub starts_max: u32,
    /// How long a process waits before it tries a message alone during which two have died. One that dies while waiting
    /// clears the message: something else kills processes. Default 1 s.
    pub suspect_wait: Duration,
    /// Verdicts that it takes before most of them failing counts as a dependency that is down: then the consumer pauses
    /// and probes. 0: it never does. Default 20, at most 50.
    pub breaker_sample: usize,
    /// Messages of one order key that may be parked; what follows them stays with its source. Default 10,000.
    pub parked_per_key_max: u64,
    /// How long a parked message stays with the process that tries it again, unless extended. Default 30 s.
    pub parked_lease: Duration,
    /// How long the batches in hand may take after a shutdown was asked for. Default 20 s.
    pub drain_deadline: Duration,
    /// How long ago at most a transaction looked whether its consumer's name is still bound to the way it tells messages apart.
    /// A look is one small read. Default 5 s.
    pub identity_look_every: Duration,
    /// How long one after-commit hook may take. Default 5 s.
    pub hook_deadline: Duration,
    /// Entries of the journal that wait to be written, if one is kept; what finds no room is counted and left out. Default
    /// 10,000.
    pub journal_buffer_max: usize,
    /// How long an entry of the journal waits at most before it is written: what a process that dies takes with it.
    /// Default 1 s.
    pub journal_every: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            lanes: 4,
            batch_messages_max: 100,
            batch_bytes_max: 4 * 1024 * 1024,
            payload_bytes_max: 1024 * 1024,
            in_flight_max: 1_000,
            in_flight_bytes_max: 64 * 1024 * 1024,
            handler_deadline: Duration::from_secs(30),
            lock_wait_batch: Duration::from_millis(50),
            lock_wait_alone: Duration::from_secs(5),
            contended_tries_max: 10,
            starts_max: 5,
            suspect_wait: Duration::from_secs(1),
            breaker_sample: 20,
            parked_per_key_max: 10_000,
            parked_lease: Duration::from_secs(30),
            drain_deadline: Duration::from_secs(20),
            identity_look_every: LOOK_AGAIN,
            hook_deadline: Duration::from_secs(5),
            journal_buffer_max: 10_000,
            journal_every: Duration::from_secs(1),
        }
    }
}

impl Bounds {
    /// The bound that makes no sense, if one does.
    pub(super) fn mistake(&self) -> Option<&'static str> {
        [
            (self.lanes == 0, "lanes must be at least 1"),
            (self.lanes > 1_000, "lanes must be at most 1000: each one holds a connection"),
            (self.batch_messages_max == 0, "batch_messages_max must be at least 1"),
            (self.parked_per_key_max == 0, "parked_per_key_max must be at least 1"),
            (self.journal_buffer_max > 1_000_000, "journal_buffer_max must be at most 1000000"),
            (self.journal_every < Duration::from_millis(1), "journal_every must be at least a millisecond"),
            (self.identity_look_every > Duration::from_secs(60), "identity_look_every must be at most a minute"),
            (self.journal_every > Duration::from_secs(3600), "journal_every must be at most an hour"),
            (self.in_flight_max == 0, "in_flight_max must be at least 1"),
            (self.in_flight_max > 1_000_000, "in_flight_max must be at most 1000000"),
            (self.payload_bytes_max > self.in_flight_bytes_max, "in_flight_bytes_max must hold one payload_bytes_max"),
            (self.in_flight_bytes_max > 4 << 40, "in_flight_bytes_max must be at most 4 TiB"),
        ]
        .into_iter()
        .find_map(|(wrong, says)| wrong.then_some(says))
    }
}

/// Exponential backoff with full jitter on its upper half: `first`, doubled per delivery, at most `max`.
pub(super) fn backoff(first: Duration, max: Duration, delivery: u32, random: u64) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(delivery.saturating_sub(1)).unwrap_or(u32::MAX));
    let ceiling = doubled.min(max);
    // Between half of it and all of it: enough spread to part a crowd, never so short that it is no wait.
    let half = ceiling / 2;
    half + half.mul_f64((random % 1_000) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_stays_within_its_bounds() {
        let (first, max) = (Duration::from_millis(200), Duration::from_secs(300));
        for delivery in [0, 1, 2, 5, 31, 32, 33, 64, u32::MAX] {
            for random in [0, 499, 999, u64::MAX] {
                let wait = backoff(first, max, delivery, random);
                assert!(wait >= first / 2 && wait <= max, "{delivery} {random} {wait:?}");
            }
        }
        assert!(backoff(first, max, 4, 0) > backoff(first, max, 1, 999));
    }
}
