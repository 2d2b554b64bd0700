//! Passes over what is old, one after another, on one connection of their own.
//!
//! ```text
//!  run ──▶ for each consumer: a pass over its records, what stored mode processed, its old archive
//!   ▲                    │
//!   │                    └──▶ journals ──▶ sent rows of the outbox ──▶ ended replays ──▶ wait ──┐
//!   └───────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each step is a transaction that leaves the store as it should be, so a process that dies anywhere has done no harm, and
//! neither do two that run at once: records that one has in hand are passed over by the other, or are gone.

use std::future::Future;
use std::time::Duration;

use oncebox_core::crashpoint::crashpoint;
use oncebox_core::horizon::{Consumers, Expired, Expiry};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::retention::{ArchiveKept, Pace, Pass, REPLAYS_KEPT, Round};
use oncebox_core::{Code, ConsumerId, ConsumerName, StoreError, Timestamp};
use tokio::time::Instant;

use super::old::Old;
use super::settings::{Kept, Retention, RetentionError};
use crate::consumer::Stop;
use crate::own_session::OwnSession;

impl<S: QuarantineStore> Retention<S> {
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
        let kept = self.kept.iter().map(|kept| kept.retention).chain(self.journals.values().copied());
        let shortest = kept.chain(self.sent_kept).min();
        let between = shortest.map_or(self.bounds.every, |retention| self.bounds.between_passes(retention));
        let own = OwnSession::new(self.store.clone());
        let pace = Pace::new(self.bounds, between);
        let mut going = Going { stop, pace, began: Instant::now(), lost: Duration::ZERO, round: Round::Whole };
        while !stop.is_set() {
            (going.began, going.lost, going.round) = (Instant::now(), Duration::ZERO, Round::Whole);
            for kept in &self.kept {
                self.retire(&own, &mut going, kept).await?;
            }
            for (name, kept) in &self.journals {
                self.shorten_journal(&own, &mut going, name, *kept).await?;
            }
            if let Some(retention) = self.sent_kept {
                self.sweep(&own, &mut going, Old::Sent, retention).await?;
            }
            self.sweep(&own, &mut going, Old::Replays, REPLAYS_KEPT).await?;
            let wait = self.round_ended(&mut going);
            rest(wait, stop).await;
        }
        Ok(())
    }

    /// Says it once when the most is not enough. Answers how long to wait for the next round.
    fn round_ended(&self, going: &mut Going<'_>) -> Duration {
        let was_at_its_most = going.pace.is_at_its_most();
        let (round, took) = (going.round, going.worked());
        let wait = going.pace.ended(round, took);
        let share = going.pace.share();
        self.stats.set_share(share);
        if going.pace.is_at_its_most() && !was_at_its_most && !going.stop.is_set() {
            let seconds = took.as_secs();
            tracing::warn!(
                code = %Code::RetentionStopped,
                share,
                seconds,
                "old records come faster than they go; retention works as much as it may, and what stays takes space; \
                 `oncebox retention apply` removes it at an hour that suits you"
            );
        }
        wait
    }

    /// Removes what is old of one consumer.
    async fn retire(&self, own: &OwnSession<S>, going: &mut Going<'_>, kept: &Kept) -> Result<(), RetentionError> {
        let Kept { consumer: name, retention, archive } = kept;
        let known = self.patiently(going, Some(name), || self.store.consumer(name)).await?;
        let Some(consumer) = known else { return Ok(()) };
        self.pass(own, going, kept, consumer).await?;
        self.sweep(own, going, Old::Received(consumer, name), *retention).await?;
        if let Some(ArchiveKept::For(kept)) = *archive {
            self.sweep(own, going, Old::Archived(consumer, name), kept).await?;
        }
        Ok(())
    }

    /// Removes what is old of the journal of one consumer, whether or not it still keeps one.
    async fn shorten_journal(
        &self,
        own: &OwnSession<S>,
        going: &mut Going<'_>,
        name: &ConsumerName,
        kept: Duration,
    ) -> Result<(), RetentionError> {
        let known = self.patiently(going, Some(name), || self.store.consumer(name)).await?;
        match known {
            Some(consumer) => self.sweep(own, going, Old::Journal(consumer, name), kept).await,
            None => Ok(()),
        }
    }

    /// One pass over the records of one consumer.
    async fn pass(
        &self,
        own: &OwnSession<S>,
        going: &mut Going<'_>,
        kept: &Kept,
        consumer: ConsumerId,
    ) -> Result<(), RetentionError> {
        let stop = going.stop;
        let Kept { consumer: name, retention, archive } = kept;
        let asked = self.patiently(going, Some(name), || before(own, *retention)).await?;
        let Some(older_than) = asked else { return Ok(()) };
        let mut pass = Pass::new(consumer, older_than, self.bounds).archiving(archive.is_some());
        let mut after_failure = self.bounds.failure_rest;
        while let Some(step) = pass.next().filter(|_| !stop.is_set()) {
            pass.work_for(self.share(going));
            let started = Instant::now();
            match expire(own, step).await {
                Ok(done) => {
                    let wait = pass.stepped(&done, started.elapsed());
                    self.stats.change(name.as_str(), |progress| {
                        progress.deleted += done.deleted;
                        progress.steps += 1;
                        progress.horizon = done.horizon;
                    });
                    after_failure = self.bounds.failure_rest;
                    rest(wait, stop).await;
                }
                Err(error) => {
                    let wait = pass.failed(started.elapsed());
                    self.failed(Some(name), error)?;
                    going.lose(started, wait.max(after_failure)).await;
                    after_failure = self.bounds.longer_rest(after_failure);
                }
            }
        }
        if pass.next().is_none() {
            self.stats.change(name.as_str(), |progress| progress.passes += 1);
        }
        // A pass that may remove nothing at all would be followed by the next without end.
        if pass.is_cut_short() && pass.deleted() > 0 {
            going.round = Round::CutShort;
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
        going: &mut Going<'_>,
        old: Old<'_>,
        retention: Duration,
    ) -> Result<(), RetentionError> {
        let stop = going.stop;
        let max = old.step_max(&self.bounds);
        let asked = self.patiently(going, old.consumer(), || before(own, retention)).await?;
        let Some(before) = asked else { return Ok(()) };
        let mut removed = 0;
        let mut after_failure = self.bounds.failure_rest;
        while !stop.is_set() {
            if removed >= self.bounds.pass_max {
                going.round = if removed > 0 { Round::CutShort } else { going.round };
                break;
            }
            let share = self.share(going);
            let started = Instant::now();
            let swept = own.run(
                async |mut tx: S::Tx| {
                    let swept = old.sweep(&mut tx, before, max).await;
                    (tx, swept)
                },
                |swept| *swept > 0,
            );
            let swept = match swept.await {
                Ok(swept) => swept,
                // A table that came with an upgrade, and that nobody has granted yet: a journal is no reason to stop.
                Err(error) if matches!(old, Old::Journal(..)) && !error.is_retryable() => {
                    let consumer = old.consumer().map(ConsumerName::as_str);
                    tracing::warn!(code = %error.code(), consumer, "the journal stays as long as it is: {error}");
                    break;
                }
                Err(error) => {
                    self.failed(old.consumer(), error)?;
                    going.lose(started, after_failure).await;
                    after_failure = self.bounds.longer_rest(after_failure);
                    continue;
                }
            };
            after_failure = self.bounds.failure_rest;
            removed += swept;
            old.count(swept, &self.stats);
            if swept < max as u64 {
                break;
            }
            let mut bounds = self.bounds;
            bounds.share = share;
            rest(bounds.rest_after(started.elapsed()), stop).await;
        }
        if removed > 0 {
            tracing::info!(removed, "old {} were removed", old.name());
        }
        Ok(())
    }

    /// The share for the next step.
    fn share(&self, going: &Going<'_>) -> u8 {
        let share = going.pace.share_after(going.worked());
        self.stats.set_share(share);
        share
    }

    /// Does something again until it works; `None`: it is time to stop.
    async fn patiently<T, Fut>(
        &self,
        going: &mut Going<'_>,
        of: Option<&ConsumerName>,
        mut ask: impl FnMut() -> Fut,
    ) -> Result<Option<T>, RetentionError>
    where
        Fut: Future<Output = Result<T, StoreError>>,
    {
        let mut wait = self.bounds.failure_rest;
        while !going.stop.is_set() {
            let started = Instant::now();
            match ask().await {
                Ok(found) => return Ok(Some(found)),
                Err(error) => {
                    self.failed(of, error)?;
                    going.lose(started, wait).await;
                    wait = self.bounds.longer_rest(wait);
                }
            }
        }
        Ok(None)
    }

    /// What can't be mended by waiting ends it; anything else is waited for.
    fn failed(&self, of: Option<&ConsumerName>, error: StoreError) -> Result<(), RetentionError> {
        if !error.is_retryable() {
            return Err(RetentionError::Stopped(error));
        }
        // Whoever needs the store says loudly that it is away; here nothing waits for it.
        tracing::debug!(consumer = of.map(ConsumerName::as_str), %error, "a step of retention failed; it is tried again");
        match of {
            Some(name) => self.stats.change(name.as_str(), |progress| progress.failures += 1),
            None => self.stats.change_swept(|progress| progress.failures += 1),
        }
        Ok(())
    }
}

/// A round over everything, under way.
struct Going<'a> {
    stop: &'a Stop,
    pace: Pace,
    began: Instant,
    /// What went by because something failed: a store that was away is no reason to press it when it is back.
    lost: Duration,
    round: Round,
}

impl Going<'_> {
    fn worked(&self) -> Duration {
        self.began.elapsed().saturating_sub(self.lost)
    }

    /// Waits after something that began at `started` and failed.
    async fn lose(&mut self, started: Instant, wait: Duration) {
        rest(wait, self.stop).await;
        self.lost += started.elapsed();
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
