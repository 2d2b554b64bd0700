//! What retention removes, and what is said before it begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::horizon::RETENTION_MIN;
use oncebox_core::journal::JOURNAL_KEPT;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::retention::{ArchiveKept, RetentionBounds};
use oncebox_core::store::InvalidName;
use oncebox_core::{ConsumerName, StoreError};

use super::stats::RetentionStats;

/// Removes old records of consumers.
///
/// ```no_run
/// # async fn run(store: oncebox::memory::MemoryStore) -> Result<(), Box<dyn std::error::Error>> {
/// use oncebox::retention::{RETENTION, RETENTION_MONEY, Retention};
///
/// Retention::new(store).keep("clicks", RETENTION)?.keep("invoices", RETENTION_MONEY)?.run(oncebox::shutdown::signal()).await?;
/// # Ok(())
/// # }
/// ```
///
/// A record that is gone can't answer a duplicate. So the consumer's horizon moves in the same transaction, and what was
/// made before it and comes again is parked as too old, not applied. Records of messages that are parked stay, whatever
/// their age. It may run in every process beside the consumers, or in one by itself.
pub struct Retention<S: QuarantineStore> {
    pub(super) store: S,
    pub(super) kept: Vec<Kept>,
    /// For how long entries of their journals are kept.
    pub(super) journals: BTreeMap<ConsumerName, Duration>,
    pub(super) sent_kept: Option<Duration>,
    pub(super) bounds: RetentionBounds,
    pub(super) stats: Arc<RetentionStats>,
}

/// How long the records of one consumer are kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) consumer: ConsumerName,
    pub(super) retention: Duration,
    /// For how long their keys are known after that.
    pub(super) archive: Option<ArchiveKept>,
}

/// Why retention could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetentionError {
    /// This is no name of a consumer.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Records can't be kept for so short a time.
    #[error("cannot keep the records of {consumer} for {asked:?}: they are kept for an hour at least")]
    TooShort {
        /// Whose.
        consumer: ConsumerName,
        /// What was asked for.
        asked: Duration,
    },
    /// Keys are archived where records go.
    #[error("cannot archive the keys of {consumer}: nobody said how long its records are kept; say that first")]
    NotKept {
        /// Whose.
        consumer: ConsumerName,
    },
    /// An archive that is no longer than the retention would hold nothing.
    #[error("cannot archive the keys of {consumer} for {asked:?}: its records themselves are kept for {retention:?}")]
    ArchiveTooShort {
        /// Whose.
        consumer: ConsumerName,
        /// What was asked for.
        asked: Duration,
        /// How long its records are kept.
        retention: Duration,
    },
    /// The store said something that waiting does not mend. Nothing is lost: old records stay.
    #[error("retention stopped, and old records stay: {0}; mend it, and start it again")]
    Stopped(#[source] StoreError),
}

impl<S: QuarantineStore> Retention<S> {
    /// Retention in this store, of nothing yet.
    pub fn new(store: S) -> Self {
        let bounds = RetentionBounds::default();
        Self { store, kept: Vec::new(), journals: BTreeMap::new(), sent_kept: None, bounds, stats: Arc::default() }
    }

    /// Keeps the records of this consumer for so long, an hour at least; and its journal, if it has one, for a
    /// [week](JOURNAL_KEPT).
    pub fn keep(self, consumer: &str, retention: Duration) -> Result<Self, RetentionError> {
        let consumer = ConsumerName::new(consumer)?;
        let mut kept = self.keep_of(consumer.clone(), retention)?;
        kept.journals.entry(consumer).or_insert(JOURNAL_KEPT);
        Ok(kept)
    }

    /// Keeps the [journal](crate::Consumer::journal) of this consumer for so long. What is there of one that it no longer
    /// keeps goes as well.
    pub fn keep_journal(mut self, consumer: &str, kept: Duration) -> Result<Self, RetentionError> {
        self.journals.insert(ConsumerName::new(consumer)?, kept);
        Ok(self)
    }

    /// Keeps the records that consumers with global keys share for so long: as long as the longest of them needs.
    pub fn keep_global(self, retention: Duration) -> Result<Self, RetentionError> {
        self.keep_of(ConsumerName::global(), retention)
    }

    fn keep_of(mut self, consumer: ConsumerName, retention: Duration) -> Result<Self, RetentionError> {
        if retention < RETENTION_MIN {
            return Err(RetentionError::TooShort { consumer, asked: retention });
        }
        self.kept.retain(|other| other.consumer != consumer);
        self.kept.push(Kept { consumer, retention, archive: None });
        Ok(self)
    }

    /// Archives the keys of this consumer's records when they go, so that an operator can tell of a message from before
    /// the horizon that it was handled. Twelve bytes a key, and nothing that consumers read. [Keep](Self::keep) its records
    /// first; every process that removes them must archive them.
    pub fn archive(self, consumer: &str, kept: ArchiveKept) -> Result<Self, RetentionError> {
        self.archive_of(ConsumerName::new(consumer)?, kept)
    }

    /// The same for the records that consumers with global keys share.
    pub fn archive_global(self, kept: ArchiveKept) -> Result<Self, RetentionError> {
        self.archive_of(ConsumerName::global(), kept)
    }

    fn archive_of(mut self, consumer: ConsumerName, kept: ArchiveKept) -> Result<Self, RetentionError> {
        let Some(one) = self.kept.iter_mut().find(|one| one.consumer == consumer) else {
            return Err(RetentionError::NotKept { consumer });
        };
        match kept {
            ArchiveKept::For(asked) if asked <= one.retention => {
                return Err(RetentionError::ArchiveTooShort { consumer, asked, retention: one.retention });
            }
            kept => one.archive = Some(kept),
        }
        Ok(self)
    }

    /// Removes rows of the outbox that a relay sent and [kept](crate::Relay::keep_sent), after so long.
    #[must_use]
    pub fn keep_sent(mut self, retention: Duration) -> Self {
        self.sent_kept = Some(retention);
        self
    }

    /// Changes its bounds.
    #[must_use]
    pub fn bounds(mut self, change: impl FnOnce(&mut RetentionBounds)) -> Self {
        change(&mut self.bounds);
        self
    }

    /// Counts into the counters of another one, which runs in the same process for other consumers.
    #[must_use]
    pub fn counted_in(mut self, stats: Arc<RetentionStats>) -> Self {
        self.stats = stats;
        self
    }

    /// Its counters.
    pub fn stats(&self) -> Arc<RetentionStats> {
        Arc::clone(&self.stats)
    }
}

impl<S: QuarantineStore> std::fmt::Debug for Retention<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("store", &self.store).field("kept", &self.kept).finish_non_exhaustive()
    }
}
