//! One transaction: claim, handle, settle, commit.
//!
//! ```text
//!  begin ─▶ claim the leaders' keys ─▶ handlers of the fresh ones ─▶ outcomes ─▶ settle in the source ─▶ commit
//!                 │                           │
//!                 └ duplicates, conflicts     └ first failure ends the attempt: roll back, name the suspect
//! ```
//!
//! It runs in a task of its own and is awaited to its end, so nothing cancels it between begin and commit. It blames
//! nobody: what a failure means is decided by the lane, from a run alone.

use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::outbox::Outbox;
use oncebox_core::store::{Ended, Inbox, Session, Transaction};
use oncebox_core::{Failure, Outcome, OutcomeKind, Source, Store, StoreError, StoreErrorKind, planted};

use super::Engine;
use super::archived;
use super::aside::{by_version, park_behind};
use super::batch::collapse;
use super::blame::{self, Blame};
use super::bound;
use super::fate::{Fate, Judged, Kind, claim, conclude, hold_back};
use super::guard::{Guarded, Panicked};
use super::handling;
use super::identity::Claims;
use super::plants;
use super::setup::Flow;
use super::too_old;
use super::versioned::Sorted;
use super::work::Work;
use crate::context::Hook;
use crate::trace::{Handled, Processing};

/// What to do with messages that are fresh.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mode {
    /// Run their handlers.
    Handle,
    /// Record this instead: the effect was there already, or the business refuses it.
    Instead(Outcome),
}

/// How an attempt ended.
pub(super) enum End<S: Store> {
    /// All durable. `woken`: what waited for versions goes on.
    Committed { session: S::Session, fates: Vec<Fate>, hooks: Vec<Hook>, woken: bool },
    /// Rolled back because of one message, as far as this run can tell.
    Suspect {
        session: Option<S::Session>,
        doubt: Option<S::Doubt>,
        place: usize,
        failure: Failure,
        unique: Option<String>,
    },
    /// Rolled back, and no message stands out.
    Broken { session: Option<S::Session>, doubt: Option<S::Doubt>, error: StoreError, during: During },
    /// Something panicked outside what handlers do. Rolled back, or found by the next claim.
    Panicked,
    /// Nobody knows. The fates are what they will have been if it went through.
    Unknown { doubt: S::Doubt, error: StoreError, fates: Vec<Fate> },
}

/// What was under way when a transaction broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    /// Nothing had begun yet, so nothing in it can be to blame.
    Begin,
    /// Our own statements.
    Engine,
    /// The handler of one message.
    Handler(usize),
    /// A batch handler.
    BatchHandler,
}

/// Why the work inside a transaction stopped.
pub(super) enum Stop<S: Store> {
    Store(S::Tx, StoreError, During),
    /// A batch handler was stopped in the middle of something.
    Turn {
        doubt: Option<S::Doubt>,
        failure: Failure,
    },
    Message {
        tx: Option<S::Tx>,
        doubt: Option<S::Doubt>,
        place: usize,
        failure: Failure,
    },
}

/// Runs one transaction over `works` and gives them back with how it ended. `marks`: see [`handling`].
pub(super) async fn attempt<S: ConsumerStore, Src: Source<S>>(
    engine: Arc<Engine<S, Src>>,
    session: Option<S::Session>,
    works: Vec<Work<S, Src::Receipt>>,
    mode: Mode,
    marks: bool,
) -> (Vec<Work<S, Src::Receipt>>, End<S>) {
    let run = Guarded::new(Box::pin(run(&engine, session, &works, mode, marks)));
    let end = match run.await {
        Ok(end) => end,
        Err(Panicked) if planted::is("panic-takes-messages") => std::panic::resume_unwind(Box::new("planted")),
        // Its transaction was dropped with it, and so rolled back.
        Err(Panicked) => End::Panicked,
    };
    (works, end)
}

async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    session: Option<S::Session>,
    works: &[Work<S, Src::Receipt>],
    mode: Mode,
    marks: bool,
) -> End<S> {
    plants::acknowledge_first(engine, works).await;
    let session = match session {
        Some(session) => Ok(session),
        None => engine.store.connect().await,
    };
    let lock_wait = if works.len() > 1 { engine.bounds.lock_wait_batch } else { engine.bounds.lock_wait_alone };
    let session = match session {
        Ok(session) => bound::look_again(engine, session).await,
        Err(error) => Err(error),
    };
    let begun = match session {
        Ok(session) => session.begin(lock_wait).await,
        Err(error) => Err(error),
    };
    let tx = match begun {
        Ok(tx) => tx,
        Err(error) => return End::Broken { session: None, doubt: None, error, during: During::Begin },
    };
    match inside(engine, tx, works, mode, marks).await {
        Ok(Done { tx, fates, hooks, processing, woken }) => match commit(engine, tx).await {
            Ended::Committed(session) => {
                processing.into_iter().for_each(|processing| processing.end(Handled::Committed));
                trace_duplicates(engine, works, &fates);
                End::Committed { session, fates, hooks, woken }
            }
            Ended::RolledBack { session, error } => End::Broken { session, doubt: None, error, during: During::Engine },
            Ended::Unknown { doubt, error } => {
                processing.into_iter().for_each(|processing| processing.end(Handled::Unknown));
                End::Unknown { doubt, error, fates }
            }
        },
        Err(Stop::Store(tx, error, during)) => match undo(tx).await {
            Ok(session) => End::Broken { session, doubt: None, error, during },
            Err(error) => End::Broken { session: None, doubt: None, error, during },
        },
        Err(Stop::Turn { doubt, failure }) => {
            let error = StoreError::new(StoreErrorKind::Refused, "run a batch handler", failure.reason());
            End::Broken { session: None, doubt, error, during: During::BatchHandler }
        }
        Err(Stop::Message { tx, doubt, place, failure }) => {
            let during = During::Handler(place);
            let session = match tx {
                None => None,
                Some(tx) => match undo(tx).await {
                    Ok(session) => session,
                    Err(error) => return End::Broken { session: None, doubt, error, during },
                },
            };
            match blame::assign(&engine.store, &engine.classify, failure) {
                Blame::Message { failure, unique } => End::Suspect { session, doubt, place, failure, unique },
                Blame::Store(error) => End::Broken { session, doubt, error, during },
            }
        }
    }
}

/// A trace that ends in a duplicate says so. Our own commit, found again, has its span.
fn trace_duplicates<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: &[Work<S, Src::Receipt>],
    fates: &[Fate],
) {
    if engine.flow == Flow::Front {
        return;
    }
    for (work, fate) in works.iter().zip(fates) {
        if matches!(fate, Fate::Duplicate(_, kind) if *kind != Kind::Ours) {
            let message = std::slice::from_ref(&work.delivery.message);
            Processing::begin(&engine.place, message.iter()).end(Handled::Duplicate);
        }
    }
}

/// Rolls back, unless there is nothing left to roll back: a handler that ended the transaction itself has committed
/// claims of messages that never ran, and whoever goes on takes them for duplicates.
pub(super) async fn undo<T: Transaction>(mut tx: T) -> Result<Option<T::Session>, StoreError> {
    match tx.verify().await {
        Err(error) if error.kind() == StoreErrorKind::Breached => Err(error),
        _ => Ok(tx.rollback().await),
    }
}

async fn commit<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, tx: S::Tx) -> Ended<S::Session, S::Doubt> {
    if let Err(error) = crashpoint("before-commit").await {
        return Ended::RolledBack { session: tx.rollback().await, error };
    }
    engine.commit(tx).await
}

/// Everything but the commit.
pub(super) struct Done<S: Store> {
    pub(super) tx: S::Tx,
    pub(super) fates: Vec<Fate>,
    pub(super) hooks: Vec<Hook>,
    pub(super) processing: Vec<Processing>,
    /// Whether what waits for versions was woken.
    pub(super) woken: bool,
}

/// Everything between begin and commit.
pub(super) async fn inside<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    mut tx: S::Tx,
    works: &[Work<S, Src::Receipt>],
    mode: Mode,
    marks: bool,
) -> Result<Done<S>, Stop<S>> {
    /// Goes on with a value, or stops with the transaction in hand.
    macro_rules! check {
        ($tx:ident, $result:expr) => {
            match $result {
                Ok(value) => value,
                Err(error) => return Err(Stop::Store($tx, error, During::Engine)),
            }
        };
    }
    check!(tx, crashpoint("begun").await);

    let claims: Vec<Option<&Claims>> = works.iter().map(|w| w.ready.as_ref().ok()?.claims.as_ref()).collect();
    let parked_as = works.iter().map(|work| work.delivery.parked.as_ref().map(|parked| parked.fingerprint));
    let places = collapse(claims.iter().copied().zip(parked_as));
    let mut judged = check!(tx, claim(&mut tx, works, &claims, &places).await);
    tx = plants::commit_claims::<S>(tx, engine.bounds.lock_wait_alone).await;
    check!(tx, crashpoint("claimed").await);
    for (place, kind) in check!(tx, archived::find(engine, &mut tx, works, &judged.fresh).await) {
        // How it ended went with its record.
        judged.leave(place, Fate::Duplicate(Outcome::of(OutcomeKind::Applied).replayed(), kind), claims[place]);
    }
    for (place, failure) in check!(tx, too_old::find(engine, &mut tx, works, &judged.fresh).await) {
        judged.leave(place, Fate::Unclear(failure), claims[place]);
    }
    if engine.by_offset {
        check!(tx, leave_done(engine, &mut tx, works, &mut judged).await);
    }
    if engine.in_sequence() {
        hold_back(&mut judged, works, &claims);
    }

    if engine.parks_behind() {
        check!(tx, park_behind(engine, &mut tx, &mut judged, works, &claims).await);
    }
    // Also for what is rejected or was applied already: that version is done, and the next one must not wait for it.
    let mut sorted = match &engine.versioned {
        Some(versioned) => check!(tx, by_version(engine, versioned, &mut tx, &mut judged, works, &claims).await),
        None => Sorted::default(),
    };
    let mut hooks = std::mem::take(&mut sorted.hooks);
    if let Mode::Instead(outcome) = mode {
        for place in std::mem::take(&mut judged.fresh) {
            judged.fates[place] = Some(Fate::Handled(outcome.clone()));
        }
    }
    let (mut tx, added) = handling::handle(engine, tx, works, &claims, &mut judged, marks).await?;
    hooks.extend(added.hooks);
    check!(tx, crashpoint("handled").await);

    let fates = conclude(works, &places, std::mem::take(&mut judged.fates));
    for (fate, claims) in fates.iter().zip(&claims) {
        if let (Fate::Handled(outcome), Some(claims)) = (fate, claims)
            && !outcome.is_plain()
        {
            let ours = claims.all().filter(|claim| judged.is_ours(claim));
            let outcomes: Vec<_> = ours.map(|c| (c.consumer, c.key.clone(), outcome.clone())).collect();
            judged.outcomes.extend(outcomes);
        }
    }
    if !judged.outcomes.is_empty() {
        check!(tx, tx.record(&judged.outcomes).await);
    }
    if !judged.take_back.is_empty() {
        check!(tx, tx.unclaim(&judged.take_back).await);
    }
    let woken = check!(tx, sorted.advance(engine, &mut tx).await);
    if !added.outgoing.is_empty() {
        check!(tx, tx.emit(&added.outgoing).await);
    }
    // A parked row that was put back is not ended.
    let stays =
        |work: &Work<S, Src::Receipt>, fate: &Fate| work.delivery.parked.is_some() && matches!(fate, Fate::Aside(_));
    // Our own commit that went through has settled its row already.
    let ours = |fate: &Fate| matches!(fate, Fate::Duplicate(_, Kind::Ours));
    // What its source counts as done is behind the offset already.
    let counted = |fate: &Fate| engine.by_offset && matches!(fate, Fate::Duplicate(..));
    let settled = works
        .iter()
        .zip(&fates)
        .filter(|(work, fate)| fate.is_settled() && !ours(fate) && !counted(fate) && !stays(work, fate));
    let receipts: Vec<&Src::Receipt> = settled.map(|(work, _)| &**work.delivery.receipt()).collect();
    if !planted::is("ack-before-commit") {
        check!(tx, engine.source.ack_in(&mut tx, &receipts).await);
    }
    let hooks = plants::run_hooks_early(hooks).await;
    check!(tx, crashpoint("flushed").await);
    Ok(Done { tx, fates, hooks, processing: added.processing, woken })
}

/// Takes out what the source's offsets in the store say is done.
async fn leave_done<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    works: &[Work<S, Src::Receipt>],
    judged: &mut Judged,
) -> Result<(), StoreError> {
    let receipts: Vec<&Src::Receipt> = works.iter().map(|work| &**work.delivery.receipt()).collect();
    for (place, done) in engine.source.done_in(tx, &receipts).await?.into_iter().enumerate() {
        if done && !planted::is("done-by-offset-handled") {
            let ours = works[place].ready.as_ref().is_ok_and(|ready| ready.in_doubt);
            let kind = if ours { Kind::Ours } else { Kind::Transport };
            // How it ended is not kept with an offset.
            judged.leave(place, Fate::Duplicate(Outcome::of(OutcomeKind::Applied), kind), None);
        }
    }
    Ok(())
}
