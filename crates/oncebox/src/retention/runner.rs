//! Passes over what is old, one after another, on one connection of their own.
//!
//! ```text
//!  run ──▶ pass over each consumer's records ──▶ sent rows of the outbox ──▶ ended replays ──▶ wait ──┐
//!   ▲                                                                                                 │
//!   └─────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each step is a transaction that leaves the store as it should be, so a process that dies anywhere has done no harm, and
//! neither do two that run at once: records that one has in hand are passed over by the other, or are gone.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::crashpoint::crashpoint;
use oncebox_core::horizon::{Consumers, Expired, Expiry, RETENTION_MIN};
use oncebox_core::outbox::Outbox;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::Replays;
use oncebox_core::retention::{Pass, REPLAYS_KEPT, RetentionBounds};
use oncebox_core::store::InvalidName;
use oncebox_core::{ConsumerName, StoreError, Timestamp};
use tokio::time::Instant;

use super::stats::RetentionStats;
use crate::consumer::Stop;
use crate::own_session::OwnSession;

/// How long to wait after a step that failed: from the first, doubling to the last.
const AFTER_FAILURE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

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
    store: S,
    kept: Vec<(ConsumerName, Duration)>,
    sent_kept: Option<Duration>,
    bounds: RetentionBounds,
    stats: Arc<RetentionStats>,
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
    /// The store said something that waiting does not mend. Nothing is lost: old records stay.
    #[error("retention stopped, and old records stay: {0}; mend it, and start it again")]
    Stopped(#[source] StoreError),
}

impl<S: QuarantineStore> Retention<S> {
    /// Retention in this store, of nothing yet.
    pub fn new(store: S) -> Self {
        let bounds = RetentionBounds::default();
        Self { store, kept: Vec::new(), sent_kept: None, bounds, stats: Arc::default() }
    }

    /// Keeps the records of this consumer for so long, an hour at least.
    pub fn keep(self, consumer: &str, retention: Duration) -> Result<Self, RetentionError> {
        self.keep_of(ConsumerName::new(consumer)?, retention)
    }

    /// Keeps the records that consumers with global keys share for so long: as long as the longest of them needs.
    pub fn keep_global(self, retention: Duration) -> Result<Self, RetentionError> {
        self.keep_of(ConsumerName::global(), retention)
    }

    fn keep_of(mut self, consumer: ConsumerName, retention: Duration) -> Result<Self, RetentionError> {
        if retention < RETENTION_MIN {
            return Err(RetentionError::TooShort { consumer, asked: retention });
        }
        self.kept.retain(|(other, _)| *other != consumer);
        self.kept.push((consumer, retention));
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

    /// Its counters.
    pub fn stats(&self) -> Arc<RetentionStats> {
        Arc::clone(&self.stats)
    }

    /// Passes until `shutdown` resolves. A step that is under way is finished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), RetentionError> {
        let stop = Stop::default();
        let working = async {
            let done = self.work(&stop).await;
            // Nobody waits for a signal that no longer matters.
            stop.set();
            done
        };
        let stopping = async {
            tokio::select! {
                () = shutdown => stop.set(),
                () = stop.wait() => {}
            }
        };
        tokio::join!(working, stopping).0
    }

    async fn work(&self, stop: &Stop) -> Result<(), RetentionError> {
        let own = OwnSession::new(self.store.clone());
        let shortest = self.kept.iter().map(|(_, retention)| *retention).chain(self.sent_kept).min();
        let between = shortest.map_or(self.bounds.every, |retention| self.bounds.between_passes(retention));
        while !stop.is_set() {
            for (name, retention) in &self.kept {
                self.pass(&own, stop, name, *retention).await?;
            }
            if let Some(retention) = self.sent_kept {
                let sweep = async |tx: &mut S::Tx, before, max| tx.sweep_sent(before, max).await;
                self.sweep(&own, stop, "rows of the outbox that were sent", retention, sweep).await?;
            }
            let sweep = async |tx: &mut S::Tx, before, max| tx.sweep_replays(before, max).await;
            self.sweep(&own, stop, "replays that ended", REPLAYS_KEPT, sweep).await?;
            rest(between, stop).await;
        }
        Ok(())
    }

    /// One pass over the records of one consumer.
    async fn pass(
        &self,
        own: &OwnSession<S>,
        stop: &Stop,
        name: &ConsumerName,
        retention: Duration,
    ) -> Result<(), RetentionError> {
        let Some(consumer) = self.patiently(stop, name.as_str(), || self.store.consumer(name)).await? else {
            return Ok(());
        };
        let Some(older_than) = self.patiently(stop, name.as_str(), || before(own, retention)).await? else {
            return Ok(());
        };
        let mut pass = Pass::new(consumer, older_than, self.bounds);
        while let Some(step) = pass.next().filter(|_| !stop.is_set()) {
            let started = Instant::now();
            let wait = match expire(own, step).await {
                Ok(done) => {
                    let wait = pass.stepped(&done, started.elapsed());
                    self.stats.change(name.as_str(), |progress| {
                        progress.deleted += done.deleted;
                        progress.steps += 1;
                        progress.horizon = done.horizon;
                    });
                    wait
                }
                Err(error) => {
                    let wait = pass.failed(started.elapsed());
                    self.failed(name.as_str(), error, wait)?.max(AFTER_FAILURE.0)
                }
            };
            rest(wait, stop).await;
        }
        if pass.next().is_none() {
            self.stats.change(name.as_str(), |progress| progress.passes += 1);
        }
        if pass.deleted() > 0 {
            let (deleted, horizon) = (pass.deleted(), pass.horizon());
            let horizon = horizon.map(|at| at.to_string()).unwrap_or_default();
            tracing::info!(consumer = %name, deleted, horizon, "old records were removed");
        }
        Ok(())
    }

    /// Removes what else is old, step by step.
    async fn sweep(
        &self,
        own: &OwnSession<S>,
        stop: &Stop,
        what: &'static str,
        retention: Duration,
        sweep: impl AsyncFn(&mut S::Tx, Timestamp, usize) -> Result<u64, StoreError>,
    ) -> Result<(), RetentionError> {
        let Some(before) = self.patiently(stop, what, || before(own, retention)).await? else { return Ok(()) };
        let (mut removed, max) = (0, self.bounds.step_max.max(1));
        while !stop.is_set() && removed < self.bounds.pass_max {
            let started = Instant::now();
            let swept = own.run(
                async |mut tx: S::Tx| {
                    let swept = sweep(&mut tx, before, max).await;
                    (tx, swept)
                },
                |swept| *swept > 0,
            );
            let swept = match swept.await {
                Ok(swept) => swept,
                Err(error) => {
                    rest(self.failed(what, error, AFTER_FAILURE.0)?, stop).await;
                    continue;
                }
            };
            removed += swept;
            if swept < max as u64 {
                break;
            }
            rest(self.bounds.rest_after(started.elapsed()), stop).await;
        }
        if removed > 0 {
            tracing::info!(removed, "old {what} were removed");
        }
        Ok(())
    }

    /// Does something again until it works; `None`: it is time to stop.
    async fn patiently<T, Fut>(
        &self,
        stop: &Stop,
        what: &str,
        mut ask: impl FnMut() -> Fut,
    ) -> Result<Option<T>, RetentionError>
    where
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let mut wait = AFTER_FAILURE.0;
        while !stop.is_set() {
            match ask().await {
                Ok(found) => return Ok(Some(found)),
                Err(error) => {
                    rest(self.failed(what, error, wait)?, stop).await;
                    wait = (wait * 2).min(AFTER_FAILURE.1);
                }
            }
        }
        Ok(None)
    }

    /// What can't be mended by waiting ends it; anything else is waited for.
    fn failed(&self, what: &str, error: StoreError, wait: Duration) -> Result<Duration, RetentionError> {
        if !error.is_retryable() {
            return Err(RetentionError::Stopped(error));
        }
        // Whoever needs the store says loudly that it is away; here nothing waits for it.
        tracing::debug!(what, %error, "a step of retention failed; it is tried again");
        self.stats.change(what, |progress| progress.failures += 1);
        Ok(wait)
    }
}

/// The time before which things are old, by the store's clock.
async fn before<S: QuarantineStore>(own: &OwnSession<S>, retention: Duration) -> Result<Timestamp, StoreError> {
    let look = async |mut tx: S::Tx| {
        let now = tx.store_time().await;
        (tx, now)
    };
    let now = own.run(look, |_| false).await?;
    Ok(now.checked_sub(retention).unwrap_or(Timestamp::MIN))
}

/// One step, committed where it deleted something.
async fn expire<S: QuarantineStore>(own: &OwnSession<S>, step: Expiry) -> Result<Expired, StoreError> {
    let expired = async |mut tx: S::Tx| {
        let mut done = tx.expire(step).await;
        if let Err(error) = crashpoint("retention-expired").await {
            done = Err(error);
        }
        (tx, done)
    };
    let done = own.run(expired, |done| done.deleted > 0).await?;
    crashpoint("retention-committed").await?;
    Ok(done)
}

/// Waits, and no longer than until it is time to stop.
async fn rest(wait: Duration, stop: &Stop) {
    let _ = tokio::time::timeout(wait, stop.wait()).await;
}

impl<S: QuarantineStore> std::fmt::Debug for Retention<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retention").field("store", &self.store).field("kept", &self.kept).finish_non_exhaustive()
    }
}
