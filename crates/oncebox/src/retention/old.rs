//! What is removed beside the records of consumers, each kind in steps of its own size.

use oncebox_core::archive::Archives;
use oncebox_core::horizon::{Consumers, SweepReceived};
use oncebox_core::journal::Journals;
use oncebox_core::outbox::Outbox;
use oncebox_core::replay::Replays;
use oncebox_core::retention::{ARCHIVE_STEP_MAX, RetentionBounds};
use oncebox_core::{ConsumerId, ConsumerName, StoreError, Timestamp};

use super::stats::RetentionStats;

/// Something that gets old.
#[derive(Clone, Copy, Debug)]
pub(super) enum Old<'o> {
    /// What stored mode keeps of messages that this consumer processed.
    Received(ConsumerId, &'o ConsumerName),
    /// The archive of a consumer's keys.
    Archived(ConsumerId, &'o ConsumerName),
    /// The journal of a consumer's deliveries.
    Journal(ConsumerId, &'o ConsumerName),
    /// Rows of the outbox that were sent.
    Sent,
    /// Replays that came to their end.
    Replays,
}

impl<'o> Old<'o> {
    /// As people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Received(..) => "processed messages of stored mode",
            Self::Archived(..) => "blocks of the archive",
            Self::Journal(..) => "entries of the journal",
            Self::Sent => "rows of the outbox that were sent",
            Self::Replays => "replays that ended",
        }
    }

    /// Whose it is; `None`: it belongs to the store.
    pub(super) fn consumer(self) -> Option<&'o ConsumerName> {
        match self {
            Self::Received(_, name) | Self::Archived(_, name) | Self::Journal(_, name) => Some(name),
            Self::Sent | Self::Replays => None,
        }
    }

    /// Counts what a step removed.
    pub(super) fn count(self, removed: u64, stats: &RetentionStats) {
        match self {
            Self::Received(_, name) => stats.change(name.as_str(), |progress| progress.processed += removed),
            Self::Archived(_, name) => stats.change(name.as_str(), |progress| progress.archive_blocks += removed),
            Self::Journal(_, name) => stats.change(name.as_str(), |progress| progress.journal += removed),
            Self::Sent => stats.change_swept(|progress| progress.sent += removed),
            Self::Replays => stats.change_swept(|progress| progress.replays += removed),
        }
    }

    /// How much one step removes at most. One that removes less has left nothing.
    pub(super) fn step_max(self, bounds: &RetentionBounds) -> usize {
        let rows = bounds.step_max.max(1);
        if matches!(self, Self::Archived(..)) { rows.min(ARCHIVE_STEP_MAX) } else { rows }
    }

    /// One step.
    pub(super) async fn sweep<Tx>(self, tx: &mut Tx, before: Timestamp, max: usize) -> Result<u64, StoreError>
    where
        Tx: Consumers + Archives + Journals + Outbox + Replays,
    {
        match self {
            Self::Received(consumer, name) => {
                tx.sweep_received(SweepReceived { consumer, name, older_than: before, limit: max }).await
            }
            Self::Archived(consumer, _) => tx.sweep_archive(consumer, before, max).await,
            Self::Journal(consumer, _) => tx.sweep_journal(consumer, before, max).await,
            Self::Sent => tx.sweep_sent(before, max).await,
            Self::Replays => tx.sweep_replays(before, max).await,
        }
    }
}
