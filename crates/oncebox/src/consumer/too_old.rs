//! Messages from before their consumer's horizon: a record that was deleted can't tell whether they were handled, so a
//! person has to.
//!
//! Looked at in the transaction that claimed them, after the claim: if the key was free because its record was just
//! deleted, that deletion has moved the horizon. Messages that are young enough cost nothing.

use std::collections::BTreeMap;

use oncebox_core::ConsumerStore;
use oncebox_core::horizon::{self, Consumers};
use oncebox_core::{ConsumerId, Failure, Source, StoreError, Timestamp, planted};

use super::Engine;
use super::identity::Claims;
use super::work::Work;

/// What such a failure is called.
pub(super) const TOO_OLD: &str = "too-old";

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
    if old.is_empty() || planted::is("horizon-ignored") {
        return Ok(Vec::new());
    }
    // A message may have been handled under any of its keys; which it has, and in whose records, differs from message to
    // message while another key or scope is bridged. A consumer that shares its records now may have had its own before,
    // and forgotten what they said.
    let consumers = |claims: &Claims| claims.all().map(|claim| claim.consumer).chain([engine.records.own]).collect();
    let old: Vec<(usize, Vec<ConsumerId>)> =
        old.into_iter().map(|(place, claims)| (place, consumers(claims))).collect();
    let mut horizons: BTreeMap<ConsumerId, Option<Timestamp>> = BTreeMap::new();
    for consumer in old.iter().flat_map(|(_, consumers)| consumers) {
        if !horizons.contains_key(consumer) {
            horizons.insert(*consumer, tx.horizon(*consumer).await?);
        }
    }
    let failure = |(place, consumers): (usize, Vec<ConsumerId>)| {
        let (made_at, name) = (works[place].delivery.message.time, &engine.name);
        let horizon = consumers.iter().filter_map(|consumer| horizons.get(consumer).copied().flatten()).max();
        let horizon = horizon.filter(|horizon| horizon::is_forgotten(made_at, Some(*horizon)))?;
        let why = format!(
            "it was made at {made_at}, and {name} looks back no further than {horizon}, so nobody can tell whether it \
             was applied; replay it by force if you know that it was not"
        );
        Some((place, Failure::permanent(why).code(TOO_OLD)))
    };
    Ok(old.into_iter().filter_map(failure).collect())
}

/// The claims of a message about which only its record knows whether it was handled. Not one that was set aside: whoever
/// replays it has answered that. Not one with a version: the version of its aggregate is never deleted.
fn in_question<S: ConsumerStore, R>(work: &Work<S, R>) -> Option<&Claims> {
    let ready = work.ready.as_ref().ok().filter(|ready| ready.version.is_none() && work.delivery.parked.is_none())?;
    ready.claims.as_ref()
}
