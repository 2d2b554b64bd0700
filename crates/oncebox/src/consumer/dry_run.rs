//! Dry runs: a dead message goes through the same claim, versions, handler and deadline as in a replay, and is rolled
//! back.
//!
//! ```text
//!  begin ─▶ take in hand ─▶ claim ─▶ versions ─▶ handler ─▶ settle ─▶ roll back      always; hooks are dropped
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::dry_run::{DryRan, DryRun, DryRunFuture};
use oncebox_core::parked::{ParkReceipt, Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::store::Session;
use oncebox_core::{Class, Failure, Outcome, OutcomeKind, Source, StoreError, StoreErrorKind};

use super::attempt::{Done, Mode, Stop, inside, undo};
use super::blame::{self, Blame};
use super::bounds::backoff;
use super::fate::Fate;
use super::work::Work;
use super::{Consumer, Engine, RunError, intake, verdict};
use crate::parked_source::{ParkedSource, delivery};

/// Runs the handlers of a consumer over what was set aside, and keeps nothing: for operators who want to know before a
/// replay what it would do. Made by [`Consumer::dry_runner`].
///
/// Each message runs as if it were the only one: it does not see what those before it would have written. While its
/// handler runs it holds locks like any other, and on SQLite the one writer. What only a commit finds out (a deferred
/// constraint) stays unknown, and a message that kills its process kills this one.
pub struct DryRunner<S: QuarantineStore>(Arc<Engine<S, ParkedSource<S>>>);

impl<S: QuarantineStore, Src: Source<S>> Consumer<S, Src> {
    /// Runs the handlers over what was set aside, and keeps nothing. The consumer itself need not run.
    pub async fn dry_runner(&self) -> Result<DryRunner<S>, RunError> {
        let mut setup = self.setup.parked();
        setup.would_bind(self.setup.offer()).await?;
        // What did not happen is not counted.
        setup.stats = Arc::default();
        Engine::start_parked(setup).await.map(DryRunner)
    }
}

impl<S: QuarantineStore> DryRun for DryRunner<S> {
    fn dry_run<'r>(&'r self, row: &'r ParkedRow) -> DryRunFuture<'r> {
        let (engine, consumer, row) = (Arc::clone(&self.0), row.consumer, row.row);
        Box::pin(async move {
            let attempted = format!("dry-run parked message {row} with the handlers of {}", engine.name);
            if consumer != engine.records.own {
                let why = "it belongs to another consumer; make the dry run with that one";
                return Err(StoreError::new(StoreErrorKind::Configuration, attempted, why));
            }
            #[allow(clippy::disallowed_methods, reason = "awaited here; a task so that nothing cancels it half-way")]
            let ran = tokio::spawn(async move { run(&engine, row).await }).await;
            ran.unwrap_or_else(|error| {
                let why = format!("its task broke down: {error}");
                Err(StoreError::new(StoreErrorKind::Refused, attempted, why))
            })
        })
    }
}

impl<S: QuarantineStore> fmt::Debug for DryRunner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DryRunner").field(&self.0).finish()
    }
}

type Parked<S> = Engine<S, ParkedSource<S>>;

/// Tries again while others are in the way.
async fn run<S: QuarantineStore>(engine: &Parked<S>, row: i64) -> Result<DryRan, StoreError> {
    let mut tries = 1;
    loop {
        match once(engine, row).await {
            Err(error) if error.kind() == StoreErrorKind::Contended && tries <= engine.bounds.contended_tries_max => {
                let (first, max) = (Duration::from_millis(2), Duration::from_millis(200));
                tokio::time::sleep(backoff(first, max, tries, engine.clock.random())).await;
                tries += 1;
            }
            ran => return ran,
        }
    }
}

async fn once<S: QuarantineStore>(engine: &Parked<S>, row: i64) -> Result<DryRan, StoreError> {
    let mut tx = engine.store.connect().await?.begin(engine.bounds.lock_wait_alone).await?;
    let leased = match tx.take_in_hand(row).await {
        Ok(Some(leased)) => leased,
        Ok(None) => {
            undo(tx).await?;
            return Ok(DryRan::Moving);
        }
        Err(error) => {
            undo(tx).await?;
            return Err(error);
        }
    };
    let Some(work) = intake::work_apart(engine, delivery(leased)).await else {
        undo(tx).await?;
        return Ok(DryRan::Moving);
    };
    if let Err(failure) = &work.ready {
        undo(tx).await?;
        return Ok(failed(engine, &work, failure));
    }
    let works = [work];
    match inside(engine, tx, &works, Mode::Handle, false).await {
        Ok(Done { tx, fates, .. }) => finished(engine, tx, &works[0], fates).await,
        Err(Stop::Store(tx, error, _)) => {
            undo(tx).await?;
            Err(error)
        }
        Err(Stop::Turn { doubt, failure }) => stopped(engine, None, doubt, &works[0], failure).await,
        Err(Stop::Message { tx, doubt, failure, .. }) => stopped(engine, tx, doubt, &works[0], failure).await,
    }
}

/// Everything was done but the commit.
async fn finished<S: QuarantineStore>(
    engine: &Parked<S>,
    mut tx: S::Tx,
    work: &Work<S, ParkReceipt>,
    fates: Vec<Fate>,
) -> Result<DryRan, StoreError> {
    let ran = match fates.into_iter().next() {
        Some(Fate::Handled(outcome)) => Ok(handled(&outcome)),
        Some(Fate::Duplicate(outcome, _)) => Ok(DryRan::PutAway(outcome.kind())),
        Some(Fate::Conflict(conflict)) => {
            let failure = Failure::permanent(conflict.diagnosis()).code("conflict");
            Ok(failed(engine, work, &failure))
        }
        Some(Fate::Aside(waits)) => set_aside(&mut tx, work.delivery.receipt().row, waits).await,
        Some(Fate::Unclear(failure)) => Ok(failed(engine, work, &failure)),
        Some(Fate::Later | Fate::Suspect | Fate::HeldBack) | None => Ok(DryRan::Moving),
    };
    undo(tx).await?;
    ran
}

/// The handler did not finish, or there was none to ask.
async fn stopped<S: QuarantineStore>(
    engine: &Parked<S>,
    tx: Option<S::Tx>,
    doubt: Option<S::Doubt>,
    work: &Work<S, ParkReceipt>,
    failure: Failure,
) -> Result<DryRan, StoreError> {
    if let Some(tx) = tx {
        undo(tx).await?;
    }
    if let Some(doubt) = doubt {
        engine.store.resolve(&doubt).await?;
    }
    match blame::assign(&engine.store, &engine.classify, failure) {
        Blame::Store(error) => Err(error),
        Blame::Message { unique: Some(name), .. } if engine.constraints.contains(&name) => {
            Ok(DryRan::PutAway(OutcomeKind::AlreadyApplied))
        }
        Blame::Message { failure, .. } if failure.class() == Some(Class::Rejected) => {
            Ok(DryRan::Rejected(failure.reason().to_owned()))
        }
        Blame::Message { failure, .. } => Ok(failed(engine, work, &failure)),
    }
}

fn handled(outcome: &Outcome) -> DryRan {
    match outcome.kind() {
        OutcomeKind::Applied => DryRan::Applied,
        OutcomeKind::Rejected => {
            let reason = outcome.result().map(|reason| String::from_utf8_lossy(reason).into_owned());
            DryRan::Rejected(reason.unwrap_or_default())
        }
        kind => DryRan::PutAway(kind),
    }
}

fn failed<S: QuarantineStore>(engine: &Parked<S>, work: &Work<S, ParkReceipt>, failure: &Failure) -> DryRan {
    DryRan::SetAside(verdict::judge(engine, work, failure))
}

/// The verdict stands in the row, until that is rolled back.
async fn set_aside<T: Quarantine>(tx: &mut T, row: i64, waits: Waits) -> Result<DryRan, StoreError> {
    Ok(match tx.parked(row).await? {
        Some(ParkedRow { class, cause, reason, attempts, .. }) => {
            DryRan::SetAside(Verdict { waits, class, cause, reason, attempts })
        }
        None => DryRan::Moving,
    })
}
