//! Messages from before their consumer's horizon: a record that was deleted can't tell whether they were handled, so a
//! person has to.
//!
//! Looked at in the transaction that claimed them, after the claim: if the key was free because its record was just
//! deleted, that deletion has moved the horizon. Messages that are young enough cost nothing.

use std::collections::BTreeSet;

use oncebox_core::ConsumerStore;
use oncebox_core::horizon::{self, Consumers};
use oncebox_core::{ConsumerId, Failure, Source, StoreError, planted};

use super::Engine;
use super::identity::Claims;
use super::work::Work;

/// Those of the fresh messages that may have been handled before, each with what to tell about it.
pub(super) async fn find<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    works: &[Work<S, Src::Receipt>],
    fresh: &[usize],
) -> Result<Vec<(usize, Failure)>, StoreError> {
    let now = engine.clock.now();
    let old = fresh.iter().copied().filter(|place| horizon::needs_a_look(works[*place].delivery.message.time, now));
    let old: Vec<(usize, &Claims)> = old.filter_map(|place| Some((place, in_question(&works[place])?))).collect();
    // They are all in the records of one consumer, its own or those that consumers share; of both while another scope is bridged.
    let Some((_, claims)) = old.first() else { return Ok(Vec::new()) };
    let mut consumers: BTreeSet<ConsumerId> = claims.all().map(|claim| claim.consumer).collect();
    // A consumer that shares its records now may have had its own before, and forgotten what they said.
    consumers.insert(engine.records.own);
    if planted::is("horizon-ignored") {
        return Ok(Vec::new());
    }
    let mut horizon = None;
    for consumer in consumers {
        horizon = horizon.max(tx.horizon(consumer).await?);
    }
    let made_at = |place: usize| works[place].delivery.message.time;
    let forgotten =
        old.into_iter().map(|(place, _)| place).filter(|place| horizon::is_forgotten(made_at(*place), horizon));
    let horizon = horizon.map_or_else(String::new, |horizon| horizon.to_string());
    let failure = |place: usize| {
        let (made_at, name) = (made_at(place), &engine.name);
        let why = format!(
            "it was made at {made_at}, and {name} looks back no further than {horizon}, so nobody can tell whether it \
             was applied; replay it by force if you know that it was not"
        );
        (place, Failure::permanent(why).code("too-old"))
    };
    Ok(forgotten.map(failure).collect())
}

/// The claims of a message about which only its record knows whether it was handled. Not one that was set aside: whoever
/// replays it has answered that. Not one with a version: the version of its aggregate is never deleted.
fn in_question<S: ConsumerStore, R>(work: &Work<S, R>) -> Option<&Claims> {
    let ready = work.ready.as_ref().ok().filter(|ready| ready.version.is_none() && work.delivery.parked.is_none())?;
    ready.claims.as_ref()
}
