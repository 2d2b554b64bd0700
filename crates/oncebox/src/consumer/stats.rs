//! What a consumer counts while it runs.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::sight::Sight;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters of one consumer in this process.
        #[derive(Debug, Default)]
        pub struct Stats {
            $(pub(crate) $name: AtomicU64,)*
            in_hand: AtomicU64,
            waiting_for: Mutex<Option<String>>,
            /// What is more than a number; see its methods.
            pub(super) sight: Sight,
        }

        /// The counters at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Messages that were received and are not settled, at this moment.
            pub in_hand: u64,
            /// What the consumer waits for, if it can't go on: the store, or the source.
            pub waiting_for: Option<String>,
        }

        impl Snapshot {
            /// The counters by their names, without what is true only at this moment.
            pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl Stats {
            /// The counters now.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    in_hand: self.in_hand.load(SeqCst),
                    $($name: self.$name.load(Relaxed),)*
                    waiting_for: self.waiting_for.lock().unwrap_or_else(PoisonError::into_inner).clone(),
                }
            }
        }
    };
}

counters! {
    /// Arrivals.
    deliveries,
    /// Messages whose handler ran and committed, whatever its outcome.
    handled,
    /// Of those, refused by the business.
    rejected,
    /// Messages that a named business constraint showed to be applied already.
    already_applied,
    /// Duplicates of the same message id.
    transport_duplicates,
    /// Duplicates with another message id and the same business key.
    business_duplicates,
    /// Messages whose key belongs to another message.
    conflicts,
    /// Messages from before the horizon of the consumer, which were not handled.
    too_old,
    /// Verdicts of failure, each from a run alone.
    failures,
    /// Messages that were set aside to be tried again.
    parked,
    /// Messages that were set aside behind another of their order key.
    parked_behind,
    /// Arrivals that went back to their source because as many of their order key are parked as may be.
    held_back,
    /// Arrivals that found a version of their aggregate missing.
    gaps,
    /// Messages older than the state of their aggregate.
    stale,
    /// Messages whose version of their aggregate was applied before, under another id.
    same_version,
    /// Messages that were set aside for a person.
    dead,
    /// Arrivals of messages that had been set aside.
    retried,
    /// Runs of messages that may have killed processes before, each alone.
    suspects,
    /// Times that the consumer paused because most messages failed.
    breaker_opened,
    /// Deliveries given back without blame.
    released,
    /// Transactions that were rolled back because others were in the way.
    contended,
    /// Transactions that committed.
    commits,
    /// Commits whose answer was lost; each was looked up.
    unknown_commits,
    /// Leases that were taken over before the message was done.
    leases_lost,
    /// Deliveries that are in the journal.
    journaled,
    /// Deliveries that should be in the journal and are not.
    journal_lost,
}

impl Stats {
    pub(crate) fn add(counter: &AtomicU64, n: usize) {
        counter.fetch_add(n as u64, Relaxed);
    }

    pub(crate) fn set_waiting_for(&self, what: Option<String>) {
        *self.waiting_for.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

/// Messages in hand, counted for as long as this lives.
#[derive(Debug)]
pub(super) struct InHand {
    stats: Arc<Stats>,
    messages: u64,
}

impl InHand {
    /// One message.
    pub(super) fn new(stats: &Arc<Stats>) -> Self {
        stats.in_hand.fetch_add(1, SeqCst);
        Self { stats: Arc::clone(stats), messages: 1 }
    }

    pub(super) fn join(&mut self, mut other: Self) {
        self.messages += std::mem::take(&mut other.messages);
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        if self.messages > 0 {
            self.stats.in_hand.fetch_sub(self.messages, SeqCst);
        }
    }
}
