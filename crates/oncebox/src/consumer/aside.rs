//! Setting messages aside in the transaction that claimed them: behind another of their order key, or for a version that
//! is missing.

use std::collections::{BTreeSet, HashMap, HashSet};

use oncebox_core::claim::ClaimRequest;
use oncebox_core::parked::{Park, Parking, PutBack, Verdict};
use oncebox_core::store::Inbox;
use oncebox_core::{ConsumerStore, Outcome, OutcomeKind, Source, StoreError};

use super::Engine;
use super::fate::{Fate, Judged, Kind};
use super::identity::Claims;
use super::parking;
use super::verdict;
use super::versioned::{self, Sorted, Versioned};
use super::work::Work;

/// Where order is kept, nothing overtakes a message that is parked: what follows it under its order key is parked behind
/// it, in the same transaction. Where enough of a key are parked, the rest stays with its source.
pub(super) async fn park_behind<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    judged: &mut Judged,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
) -> Result<(), StoreError> {
    let key = |place: &usize| works[*place].order_key.as_deref();
    let keys: BTreeSet<&str> = judged.fresh.iter().filter_map(key).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = keys.into_iter().collect();
    let is_blocked = tx.is_blocked(engine.records.own, &keys).await?;
    let blocked: HashSet<&str> =
        keys.into_iter().zip(is_blocked).filter(|(_, blocked)| *blocked).map(|(key, _)| key).collect();
    if blocked.is_empty() {
        return Ok(());
    }
    let max = engine.bounds.parked_per_key_max;
    let blocked: Vec<&str> = blocked.into_iter().collect();
    let parked = tx.count_blocking(engine.records.own, &blocked, max).await?;
    let mut room: HashMap<&str, u64> =
        blocked.into_iter().zip(parked).map(|(key, parked)| (key, max.saturating_sub(parked))).collect();
    let mut behind = Vec::new();
    let mut held_back: HashSet<&str> = HashSet::new();
    for place in 0..works.len() {
        let Some(key) = key(&place) else { continue };
        if !judged.fresh.contains(&place) {
            if held_back.contains(key) && matches!(judged.fates[place], Some(Fate::Conflict(_) | Fate::Unclear(_))) {
                // Parked now, it would be before what goes back.
                judged.fates[place] = Some(Fate::Later);
            }
            continue;
        }
        match room.get_mut(key) {
            None => {}
            Some(0) => {
                held_back.insert(key);
                judged.leave(place, Fate::HeldBack, claims[place]);
            }
            Some(room) => {
                *room -= 1;
                behind.push((place, verdict::behind(&works[place].delivery.message)));
            }
        }
    }
    put_aside(engine, tx, judged, works, claims, behind).await
}

/// Takes out what versions say is not to be run, and learns what duplicates tell about versions.
pub(super) async fn by_version<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    versioned: &Versioned,
    tx: &mut S::Tx,
    judged: &mut Judged,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
) -> Result<Sorted, StoreError> {
    let mut sorted = versioned::sort_out(engine, versioned, tx, works, judged).await?;
    for (place, outcome) in std::mem::take(&mut sorted.ended) {
        judged.fresh.retain(|fresh| *fresh != place);
        judged.fates[place] = Some(Fate::Handled(outcome));
    }
    let aside = std::mem::take(&mut sorted.aside);
    put_aside(engine, tx, judged, works, claims, aside).await?;
    Ok(sorted)
}

/// Sets fresh messages aside in the transaction that claimed them: their records say so, and their rows are added, or
/// put back where they come from there. The records first: the rows learn from them that they have one.
async fn put_aside<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    judged: &mut Judged,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
    aside: Vec<(usize, Verdict)>,
) -> Result<(), StoreError> {
    let (mut added, mut back, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for (place, verdict) in aside {
        judged.fresh.retain(|fresh| *fresh != place);
        judged.fates[place] = Some(Fate::Aside(verdict.waits));
        if let Some(claims) = claims[place] {
            let place_of = |claim: &ClaimRequest| (claim.consumer, claim.key.clone());
            if judged.reclaimed.contains(&place) {
                // Taken back, the records that said so before say again that it is parked.
                judged.take_back.extend(claims.all().map(place_of));
            } else {
                // Under its keys of before too: another deployment must not take it for a new one.
                let keys = claims.parked().filter(|claim| judged.is_ours(claim)).map(place_of);
                let own = engine.records.own;
                records.extend(keys.map(|(owner, key)| (owner, key, Outcome::parked_by(own, owner))));
                let business: Vec<_> = claims.business().filter(|claim| judged.is_ours(claim)).map(place_of).collect();
                judged.take_back.extend(business);
            }
        }
        match &works[place].delivery.parked {
            Some(parked) => {
                let order_key = parking::order_key(engine, &works[place], verdict.waits);
                back.push(PutBack::new(parked.receipt, verdict).under(order_key));
            }
            None => added.push((place, parking::claimed(engine, &works[place], verdict)?)),
        }
    }
    if !records.is_empty() {
        tx.record(&records).await?;
    }
    if !added.is_empty() {
        let (places, parks): (Vec<usize>, Vec<Park>) = added.into_iter().unzip();
        for (place, is_new) in places.into_iter().zip(tx.park(&parks).await?) {
            // It was parked before it had a record, and is found in its place. Offsets are settled all the same.
            if !is_new && !engine.by_offset {
                judged.fates[place] = Some(Fate::Duplicate(Outcome::of(OutcomeKind::Parked), Kind::Transport));
            }
        }
    }
    if !back.is_empty() {
        tx.put_back(&back).await?;
    }
    Ok(())
}
