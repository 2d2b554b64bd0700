//! What is removed beside the records of consumers, each kind in steps of its own size.

use oncebox_core::archive::Archives;
use oncebox_core::horizon::{Consumers, SweepReceived};
use oncebox_core::outbox::Outbox;
use oncebox_core::replay::Replays;
use oncebox_core::retention::{ARCHIVE_STEP_MAX, RetentionBounds};
use oncebox_core::{ConsumerId, ConsumerName, StoreError, Timestamp};

/// Something that gets old.
#[derive(Clone, Copy, Debug)]
pub(super) enum Old<'o> {
    /// What stored mode keeps of messages that this consumer processed.
    Received(ConsumerId, &'o ConsumerName),
    /// The archive of a consumer's keys.
    Archived(ConsumerId),
    /// Rows of the outbox that were sent.
    Sent,
    /// Replays that came to their end.
    Replays,
}

impl Old<'_> {
    /// As people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Received(..) => "processed messages of stored mode",
            Self::Archived(_) => "blocks of the archive",
            Self::Sent => "rows of the outbox that were sent",
            Self::Replays => "replays that ended",
        }
    }

    /// How much one step removes at most. One that removes less has left nothing.
    pub(super) fn step_max(self, bounds: &RetentionBounds) -> usize {
        let rows = bounds.step_max.max(1);
        if matches!(self, Self::Archived(_)) { rows.min(ARCHIVE_STEP_MAX) } else { rows }
    }

    /// One step.
    pub(super) async fn sweep<Tx>(self, tx: &mut Tx, before: Timestamp, max: usize) -> Result<u64, StoreError>
    where
        Tx: Consumers + Archives + Outbox + Replays,
    {
        match self {
            Self::Received(consumer, name) => {
                tx.sweep_received(SweepReceived { consumer, name, older_than: before, limit: max }).await
            }
            Self::Archived(consumer) => tx.sweep_archive(consumer, before, max).await,
            Self::Sent => tx.sweep_sent(before, max).await,
            Self::Replays => tx.sweep_replays(before, max).await,
        }
    }
}
