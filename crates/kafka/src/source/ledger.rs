//! Offsets in the store, as the thread that polls asks for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use oncebox_core::offsets::{HeldLog, OffsetStore, Offsets, TakenOffset};
use oncebox_core::store::{Ended, Session, Transaction};
use oncebox_core::{ConsumerId, SourceError, StoreError};
use tokio::runtime::Handle;

use super::shared::Trouble;

/// Where offsets are kept, if not in the group. Called on the thread that polls, which waits for the answer.
pub(super) trait Ledger: Send + Sync {
    /// Takes partitions over, and answers in their order how far they have come.
    fn take(&self, partitions: &[i32]) -> Result<Vec<TakenOffset>, Trouble>;

    /// Says where partitions begin that have come nowhere yet, each under the epoch in which it was taken.
    fn begin(&self, starts: &[(i32, i64, i64)]) -> Result<(), Trouble>;
}

/// How long its statements wait for someone else's lock: whoever had a partition before may be in the middle of a message.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// The offsets of one consumer in a store.
pub(super) struct StoreLedger<S> {
    pub(super) store: S,
    pub(super) consumer: ConsumerId,
    pub(super) topic: String,
    pub(super) runtime: Handle,
}

/// What a partition is called in the store.
pub(super) fn log(topic: &str, partition: i32) -> String {
    format!("{topic}/{partition}")
}

impl<S: OffsetStore> StoreLedger<S> {
    /// Runs `work` in a transaction and commits. After an error nobody knows whether it was; taken again, a partition has
    /// yet another epoch, and that does no harm.
    fn run<T>(&self, work: impl AsyncFnOnce(&mut S::Tx) -> Result<T, StoreError>) -> Result<T, Trouble> {
        let run = self.runtime.block_on_or_end(async {
            let mut tx = self.store.connect().await?.begin(LOCK_WAIT).await?;
            let done = match work(&mut tx).await {
                Ok(done) => done,
                Err(error) => {
                    tx.rollback().await;
                    return Err(error);
                }
            };
            match tx.commit().await {
                Ended::Committed(_) => Ok(done),
                Ended::RolledBack { error, .. } => Err(error),
                Ended::Unknown { doubt, error } => {
                    // It may hold the partitions locked; if the store is away, the next try finds out.
                    let _ = self.store.resolve(&doubt).await;
                    Err(error)
                }
            }
        });
        match run {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(Trouble::from(&SourceError::from(error))),
            None => Err(Trouble::unavailable("the program is about to end")),
        }
    }
}

/// A runtime that may be shutting down.
trait BlockOnOrEnd {
    fn block_on_or_end<T>(&self, future: impl Future<Output = T>) -> Option<T>;
}

impl BlockOnOrEnd for Handle {
    fn block_on_or_end<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        // The thread outlives the runtime of a program that does not close its source, and timers panic then.
        catch_unwind(AssertUnwindSafe(|| self.block_on(future))).ok()
    }
}

impl<S: OffsetStore> Ledger for StoreLedger<S> {
    fn take(&self, partitions: &[i32]) -> Result<Vec<TakenOffset>, Trouble> {
        let logs: Vec<String> = partitions.iter().map(|partition| log(&self.topic, *partition)).collect();
        self.run(async |tx| tx.take_offsets(self.consumer, &logs).await)
    }

    fn begin(&self, starts: &[(i32, i64, i64)]) -> Result<(), Trouble> {
        let start = |(partition, epoch, next): &(i32, i64, i64)| {
            (HeldLog { log: log(&self.topic, *partition), epoch: *epoch }, *next)
        };
        let starts: Vec<(HeldLog, i64)> = starts.iter().map(start).collect();
        self.run(async |tx| tx.begin_offsets(self.consumer, &starts).await)
    }
}
