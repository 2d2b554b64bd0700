//! Running the handlers of a batch in its transaction.
//!
//! ```text
//!  mark ─▶ a ─▶ b ─▶ c ✗        back to the mark, c left out ─▶ a ─▶ b ─▶ d ─▶ … ─▶ mark ─▶ …
//! ```
//!
//! On the good path there is nothing between two handlers. Where failures are frequent, a batch of a hundred hardly ever
//! gets through whole; then marks are set every few messages, and one that fails costs those since the last mark and not
//! the batch. It is not judged by that: it leaves the batch, with what follows under its order key, and runs alone.

use std::collections::VecDeque;
use std::sync::Arc;

use oncebox_core::store::Transaction;
use oncebox_core::{ConsumerStore, Failure, Message, Outcome, Source, Store, StoreError, StoreErrorKind, planted};
use tokio::time::Instant;

use super::Engine;
use super::attempt::{During, Stop};
use super::blame::{self, Blame};
use super::call::{self, Caller, Gathered, Ran};
use super::fate::{Fate, Judged};
use super::guard::{self, Panicked};
use super::identity::Claims;
use super::routes::{Route, Shape};
use super::setup::Flow;
use super::work::Work;
use crate::handler::Call;
use crate::trace::Processing;

/// Calls from one mark to the next: a mark costs a round trip, and a failure costs the calls since.
const CALLS_PER_MARK: usize = 8;

/// One call of a handler, with the places of the messages that it gets.
struct Turn<S: Store> {
    route: Route<S>,
    places: Vec<usize>,
}

/// Runs the handlers of what is fresh. Their fates are put into `judged`.
pub(super) async fn handle<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    mut tx: S::Tx,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
    judged: &mut Judged,
    marks: bool,
) -> Result<(S::Tx, Gathered), Stop<S>> {
    // Versions are applied in their order too, whatever the types of their messages.
    let in_order = engine.in_sequence() || engine.versioned.is_some();
    let mut waiting = VecDeque::from(turns(works, &judged.fresh, in_order));
    let mut left = Gathered::default();
    let mut since_mark: Option<Vec<Turn<S>>> = None;
    let mut at_mark = left.size();
    while let Some(turn) = waiting.pop_front() {
        if marks && since_mark.as_ref().is_none_or(|since| since.len() == CALLS_PER_MARK) {
            if let Err(error) = tx.mark().await {
                return Err(Stop::Store(tx, error, During::Engine));
            }
            since_mark = Some(Vec::new());
            at_mark = left.size();
        }
        let failed = match run(engine, tx, works, &turn).await {
            Ok((back, outcomes, added)) => {
                tx = back;
                left.add(added);
                for (&place, outcome) in turn.places.iter().zip(outcomes) {
                    judged.fates[place] = Some(Fate::Handled(outcome));
                }
                if let Some(since) = &mut since_mark {
                    since.push(turn);
                }
                continue;
            }
            Err(failed) => failed,
        };
        let (since, place, failure) = match (&mut since_mark, failed) {
            (Some(since), Stop::Message { tx: Some(back), doubt: None, place, failure }) => {
                tx = back;
                (since, place, failure)
            }
            (_, failed) => return Err(failed),
        };
        if let Blame::Store(error) = blame::assign(&engine.store, &engine.classify, failure) {
            return Err(Stop::Store(tx, error, During::Handler(place)));
        }
        if !planted::is("failure-not-undone")
            && let Err(error) = tx.back_to_mark().await
        {
            return Err(Stop::Store(tx, error, During::Handler(place)));
        }
        if !planted::is("events-not-undone") {
            left.cut(at_mark);
        }
        for turn in since.drain(..).rev() {
            waiting.push_front(turn);
        }
        judged.leave(place, Fate::Suspect, claims[place]);
        // Nothing overtakes it: neither what waits nor what failed before it did, or is to be parked for what it is.
        let is_behind = |other: usize| other > place && works[other].shares_order_with(&works[place]);
        waiting.retain_mut(|turn| {
            let (behind, free): (Vec<usize>, _) = turn.places.iter().partition(|&&other| is_behind(other));
            for place in behind {
                judged.leave(place, Fate::Later, claims[place]);
            }
            turn.places = free;
            !turn.places.is_empty()
        });
        for (other, fate) in judged.fates.iter_mut().enumerate() {
            if matches!(fate, Some(Fate::Suspect | Fate::Conflict(_) | Fate::Unclear(_))) && is_behind(other) {
                *fate = Some(Fate::Later);
            }
        }
    }
    Ok((tx, left))
}

async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: S::Tx,
    works: &[Work<S, Src::Receipt>],
    turn: &Turn<S>,
) -> Result<(S::Tx, Vec<Outcome>, Gathered), Stop<S>> {
    let places = &turn.places;
    let messages: Arc<[_]> = places.iter().map(|&place| Arc::clone(&works[place].delivery.message)).collect();
    let call = match prepare(&turn.route, &messages) {
        Ok(call) => call,
        Err((Some(n), failure)) => {
            return Err(Stop::Message { tx: Some(tx), doubt: None, place: places[n], failure });
        }
        Err((None, failure)) => return Err(batch_failed(tx, failure)),
    };
    let processing = match engine.flow {
        // It only stores; who handles it says so.
        Flow::Front => Processing::unseen(),
        _ => Processing::begin(&engine.place, messages.iter()),
    };
    let caller = Caller {
        consumer: engine.records.own,
        deadline: engine.bounds.handler_deadline,
        clock: &*engine.clock,
        claims: turn.route.claims,
        seconds: &engine.stats.sight.handler,
    };
    let began = engine.journal.as_ref().map(|_| Instant::now());
    let ran = call::run(tx, call, messages, caller, &processing).await;
    if let Some(began) = began {
        places.iter().for_each(|&place| works[place].took.set(began.elapsed()));
    }
    if let Ran::Failed { failure, .. } | Ran::Stopped { failure, .. } | Ran::Kept { failure } = &ran {
        processing.failed(failure);
    }
    match ran {
        Ran::Done { tx, outcomes, mut left } => {
            left.processing.extend(processing.if_seen());
            Ok((tx, outcomes, left))
        }
        Ran::Failed { tx, failure } if places.len() == 1 => {
            Err(Stop::Message { tx: Some(tx), doubt: None, place: places[0], failure })
        }
        // A batch handler fails as a whole; which message it was is found by halving.
        Ran::Failed { tx, failure } => match blame::assign(&engine.store, &engine.classify, failure) {
            Blame::Store(error) => Err(Stop::Store(tx, error, During::BatchHandler)),
            Blame::Message { failure, .. } => Err(batch_failed(tx, failure)),
        },
        Ran::Stopped { doubt, failure } if places.len() > 1 => Err(Stop::Turn { doubt: Some(doubt), failure }),
        Ran::Kept { failure } if places.len() > 1 => Err(Stop::Turn { doubt: None, failure }),
        Ran::Stopped { doubt, failure } => {
            Err(Stop::Message { tx: None, doubt: Some(doubt), place: places[0], failure })
        }
        Ran::Kept { failure } => Err(Stop::Message { tx: None, doubt: None, place: places[0], failure }),
    }
}

fn batch_failed<S: Store>(tx: S::Tx, failure: Failure) -> Stop<S> {
    let error = StoreError::new(StoreErrorKind::Refused, "run a batch handler", failure.reason());
    Stop::Store(tx, error, During::BatchHandler)
}

/// Decodes. Decoding is the user's code too: where it panics, the message is known if it is the only one.
fn prepare<S: Store>(route: &Route<S>, messages: &[Arc<Message>]) -> Result<Call<S>, (Option<usize>, Failure)> {
    let prepared = guard::call(|| route.handler.prepare(messages));
    match prepared {
        Ok(prepared) => prepared.map_err(|(place, failure)| (Some(place), failure)),
        Err(Panicked) => {
            let failure = Failure::permanent("decoding its payload panicked");
            Err(((messages.len() == 1).then_some(0), failure))
        }
    }
}

/// The calls to make.
///
/// Where order is kept, by key or by version, a batch handler gets consecutive runs of its type; otherwise all of its type at
/// once.
fn turns<S: Store, R>(works: &[Work<S, R>], fresh: &[usize], ordered: bool) -> Vec<Turn<S>> {
    let mut turns: Vec<Turn<S>> = Vec::new();
    for &place in fresh {
        let Ok(ready) = &works[place].ready else { continue };
        let route = &ready.route;
        let joins = match route.shape {
            Shape::Each => None,
            Shape::Batch if ordered => turns.last_mut().filter(|last| last.route.is(route)),
            Shape::Batch => turns.iter_mut().find(|earlier| earlier.route.is(route)),
        };
        match joins {
            Some(turn) => turn.places.push(place),
            None => turns.push(Turn { route: route.clone(), places: vec![place] }),
        }
    }
    turns
}
