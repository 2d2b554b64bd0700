//! Asking the archive of keys at intake, for a consumer that is told to: whether a message without a record was handled so
//! long ago that its record has expired.
//!
//! Two questions. Of a message that is too old to be known by its record: whether its own key is archived; then it is a
//! duplicate, and no person has to look. Of every message with a business key: whether that one is; a producer that sends
//! the same intent again makes a young message of it, which nothing else tells from a new one.
//!
//! While a change is bridged, the business key of before counts as well. The first key of before does not: other messages may
//! have had it, which is perhaps why it was changed, and the archive knows no fingerprints to tell them apart. What is
//! too old then waits for a person.
//!
//! Asked after the claim, in its transaction, for the same reason as the horizon: a record and its place in the archive
//! change together, so that a key is always in one of them.

use std::collections::BTreeSet;

use oncebox_core::archive::{Archived, Archives};
use oncebox_core::claim::ClaimRequest;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{ConsumerId, ConsumerStore, Key, Source, Store, StoreError, horizon};

use super::Engine;
use super::fate::Kind;
use super::work::Work;
use crate::context::BorrowedFuture;

/// Looks keys up in the archive. How is known where the store is known to have one.
pub(super) type Look<S> = for<'t> fn(
    &'t mut <S as Store>::Tx,
    ConsumerId,
    Vec<Key>,
) -> BorrowedFuture<'t, Result<Vec<Option<Archived>>, StoreError>>;

/// The look-up of a store that has an archive.
pub(super) fn look<S: QuarantineStore>() -> Look<S> {
    |tx, consumer, keys| Box::pin(async move { tx.archived(consumer, &keys).await })
}

/// Those of the fresh messages that the archive knows.
pub(super) async fn find<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    works: &[Work<S, Src::Receipt>],
    fresh: &[usize],
) -> Result<Vec<(usize, Kind)>, StoreError> {
    let Some(look) = engine.archive else { return Ok(Vec::new()) };
    let now = engine.clock.now();
    let mut asked: Vec<(usize, Kind)> = Vec::new();
    let mut keys: Vec<(ConsumerId, Key)> = Vec::new();
    for &place in fresh {
        let work = &works[place];
        // What was set aside was asked about when it came; whoever replays it has answered for it.
        let ready = work.ready.as_ref().ok().filter(|_| work.delivery.parked.is_none());
        let Some(claims) = ready.and_then(|ready| ready.claims.as_ref()) else { continue };
        let is_old = horizon::needs_a_look(work.delivery.message.time, now);
        let mut ask = |claim: &ClaimRequest, kind| {
            asked.push((place, kind));
            keys.push((claim.consumer, claim.key.clone()));
        };
        if is_old {
            ask(&claims.first, Kind::Transport);
        }
        claims.business.iter().for_each(|business| ask(business, Kind::Business));
        let was = claims.was.iter().filter(|former| former.is_business && !former.is_broader);
        was.for_each(|former| ask(&former.request, Kind::Business));
    }
    let mut known: Vec<(usize, Kind)> = Vec::new();
    let consumers: BTreeSet<ConsumerId> = keys.iter().map(|(consumer, _)| *consumer).collect();
    for consumer in consumers {
        let (places, keys): (Vec<(usize, Kind)>, Vec<Key>) = (asked.iter().zip(&keys))
            .filter(|(_, (of, _))| *of == consumer)
            .map(|(asked, (_, key))| (*asked, key.clone()))
            .unzip();
        let found = look(tx, consumer, keys).await?;
        // It is also told what consumers share, which is nothing to one that keeps its own.
        let is_ours = |found: &Option<Archived>| found.as_ref().is_some_and(|found| found.consumer == consumer);
        known.extend(places.into_iter().zip(found).filter(|(_, found)| is_ours(found)).map(|(asked, _)| asked));
    }
    known.sort_by_key(|(place, _)| *place);
    known.dedup_by_key(|(place, _)| *place);
    Ok(known)
}
