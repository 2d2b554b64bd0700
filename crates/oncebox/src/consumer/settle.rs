//! After the commit: acknowledge in order, run hooks, count. And giving messages back.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::parked::Waits;
use oncebox_core::{Conflict, Outcome, OutcomeKind, Release, Source, Store};

use super::Engine;
use super::cause::{Cause, Causes};
use super::fate::{Fate, Kind};
use super::guard::{Guarded, Panicked};
use super::journal::End;
use super::stats::Stats;
use super::too_old::TOO_OLD;
use super::work::{Room, Work};
use crate::context::{BoxFuture, Hook};

/// A hook that a consumer runs for every message that it settled.
pub(super) struct SettledHook {
    pub(super) runs: HookRuns,
    pub(super) hook: Box<dyn Fn(Arc<oncebox_core::Message>, Outcome) -> BoxFuture<()> + Send + Sync>,
}

/// For which deliveries an after-commit hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookRuns {
    /// After the commit of the message. A crash in between skips it.
    Once,
    /// Also for each duplicate, so that a crash between commit and hook heals with the redelivery. The hook must bear
    /// being repeated. A queue in the store settles in the commit itself and delivers no message again, so on it this
    /// heals nothing.
    AlsoOnDuplicates,
}

/// Messages of a committed batch that are not settled.
pub(super) struct Unsettled<S: Store, R> {
    pub(super) conflicts: Vec<(Work<S, R>, Conflict)>,
    /// With the reason in place of what it takes to handle them.
    pub(super) unfit: Vec<Work<S, R>>,
    /// To go back to the source, in order.
    pub(super) held_back: Vec<Work<S, R>>,
    /// To run alone, each.
    pub(super) suspects: Vec<Work<S, R>>,
    /// To run after them.
    pub(super) again: Vec<Work<S, R>>,
}

/// Settles what a committed transaction decided.
pub(super) async fn committed<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: Vec<Work<S, Src::Receipt>>,
    fates: Vec<Fate>,
    hooks: Vec<Hook>,
) -> Unsettled<S, Src::Receipt> {
    Stats::add(&engine.stats.commits, 1);
    // A hang or an error here is a crash between commit and acknowledgement; the messages come again as duplicates.
    let _ = crashpoint("committed").await;
    engine.journal_fates(&works, &fates);
    let mut unsettled = Unsettled {
        conflicts: Vec::new(),
        unfit: Vec::new(),
        held_back: Vec::new(),
        suspects: Vec::new(),
        again: Vec::new(),
    };
    let mut settled = Vec::with_capacity(works.len());
    let mut after = Vec::new();
    let mut causes = Causes::default();
    for (mut work, fate) in works.into_iter().zip(fates) {
        let (outcome, duplicate) = match fate {
            Fate::Conflict(conflict) => {
                unsettled.conflicts.push((work, conflict));
                continue;
            }
            Fate::Unclear(failure) => {
                if failure.cause_code() == TOO_OLD {
                    Stats::add(&engine.stats.too_old, 1);
                }
                work.ready = Err(failure);
                unsettled.unfit.push(work);
                continue;
            }
            Fate::HeldBack => {
                unsettled.held_back.push(work);
                continue;
            }
            Fate::Later => {
                unsettled.again.push(work);
                continue;
            }
            Fate::Suspect => {
                unsettled.suspects.push(work);
                continue;
            }
            Fate::Aside(waits) => {
                let counter = match waits {
                    Waits::Turn => &engine.stats.parked_behind,
                    Waits::Person | Waits::Missing => &engine.stats.dead,
                    _ => &engine.stats.gaps,
                };
                Stats::add(counter, 1);
                if let Some(delay) = waits.delay() {
                    engine.due.after(delay);
                }
                settled.push(work);
                continue;
            }
            Fate::Handled(outcome) => (outcome, None),
            Fate::Duplicate(outcome, kind) => (outcome, Some(kind)),
        };
        count(&engine.stats, &outcome, duplicate);
        if let Some(cause) = duplicate.and_then(|kind| Cause::likely(kind, &work.delivery)) {
            causes.note(&work.delivery.message.kind, cause);
        }
        if duplicate.is_some_and(|kind| kind != Kind::Ours) {
            tracing::debug!(consumer = %engine.name, message_id = %work.delivery.message.label(), ?duplicate, "duplicate");
        }
        let repeated = duplicate.is_some_and(|kind| kind != Kind::Ours);
        // A message that is parked has not happened yet.
        let is_done = outcome.kind() != OutcomeKind::Parked;
        let wanted =
            engine.hooks.iter().filter(|hook| is_done && (!repeated || hook.runs == HookRuns::AlsoOnDuplicates));
        after.extend(wanted.map(|hook| later(hook, &work.delivery.message, &outcome)));
        settled.push(work);
    }
    engine.stats.sight.add_duplicates(causes);
    acknowledge(engine, settled).await;
    let _ = crashpoint("acknowledged").await;
    for hook in hooks.into_iter().chain(after) {
        run_hook(engine, hook).await;
    }
    unsettled
}

/// A hook that is called only in the task that runs it: the call itself is the user's code, and may panic.
fn later(hook: &Arc<SettledHook>, message: &Arc<oncebox_core::Message>, outcome: &Outcome) -> Hook {
    let (hook, message, outcome) = (Arc::clone(hook), Arc::clone(message), outcome.clone());
    Guarded::new(Box::pin(async move { (hook.hook)(message, outcome).await }))
}

fn count(stats: &Stats, outcome: &Outcome, duplicate: Option<Kind>) {
    match duplicate {
        Some(Kind::Transport) => Stats::add(&stats.transport_duplicates, 1),
        Some(Kind::Business) => Stats::add(&stats.business_duplicates, 1),
        None | Some(Kind::Ours) => match outcome.kind() {
            OutcomeKind::AlreadyApplied => Stats::add(&stats.already_applied, 1),
            OutcomeKind::Stale => Stats::add(&stats.stale, 1),
            OutcomeKind::SameVersion => Stats::add(&stats.same_version, 1),
            kind => {
                Stats::add(&stats.handled, 1);
                if kind == OutcomeKind::Rejected {
                    Stats::add(&stats.rejected, 1);
                }
            }
        },
    }
}

/// Tells the source that messages are done. If it can't be told, they come again and are found to be duplicates.
pub(super) async fn acknowledge<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: Vec<Work<S, Src::Receipt>>,
) {
    if works.is_empty() {
        return;
    }
    let (deliveries, _room) = unload(works);
    if let Err(error) = engine.source.ack(deliveries).await {
        tracing::info!(consumer = %engine.name, "not acknowledged, so they come again as duplicates: {error}");
    }
}

/// Gives messages back to the source. If it can't take them, they come again when their leases run out.
pub(super) async fn release<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: Vec<Work<S, Src::Receipt>>,
    delay: Duration,
    reason: Option<String>,
) {
    if works.is_empty() {
        return;
    }
    engine.journal(&works, |delivery| End::of_release(reason.as_deref(), delivery));
    let (deliveries, _room) = unload(works);
    if let Err(error) = engine.source.release(deliveries, Release { delay, reason }).await {
        tracing::info!(consumer = %engine.name, "not released, so they come again when their leases run out: {error}");
    }
}

/// Messages whose leases were lost. Who has taken them over is not disturbed: a source leaves alone what has a new owner.
/// Whatever a source still counts as ours goes back, and is in nobody's hands for no longer than that.
pub(super) async fn let_go<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: Vec<Work<S, Src::Receipt>>,
) {
    let (deliveries, _room) = unload(works);
    if let Err(error) = engine.source.release(deliveries, Release::default()).await {
        tracing::debug!(consumer = %engine.name, "not released after its lease was lost: {error}");
    }
}

/// The deliveries, and the room that they take until the caller is done with them. It is given back at once: one by one,
/// the first of them would wake the intake to receive a single message.
fn unload<S: Store, R>(works: Vec<Work<S, R>>) -> (Vec<oncebox_core::Delivery<R>>, Option<Room>) {
    let mut room: Option<Room> = None;
    let mut deliveries = Vec::with_capacity(works.len());
    for work in works {
        deliveries.push(work.delivery);
        match &mut room {
            Some(room) => room.join(work.room),
            None => room = Some(work.room),
        }
    }
    (deliveries, room)
}

/// Best effort: a hook that panics or dawdles harms nobody but itself.
pub(super) async fn run_hook<S: ConsumerStore, Src: Source<S>>(engine: &Engine<S, Src>, hook: Hook) {
    #[allow(clippy::disallowed_methods, reason = "awaited here; a task so that its panic stays its own")]
    let task = tokio::spawn(tokio::time::timeout(engine.bounds.hook_deadline, hook));
    match task.await {
        Ok(Ok(Ok(()))) => {}
        Ok(Err(_)) => tracing::warn!(consumer = %engine.name, "a hook took too long and was dropped"),
        Ok(Ok(Err(Panicked))) | Err(_) => tracing::warn!(consumer = %engine.name, "a hook panicked"),
    }
}
