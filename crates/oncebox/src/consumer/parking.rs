//! Setting a message aside, in a transaction of its own: the inbox record that says so, the parked row, and the
//! settlement in the source, together. The source is told afterwards.
//!
//! The record is the arbiter. Where it says that the message was applied in the meantime, or is parked already, there
//! is nothing to park and the message is settled as a duplicate.

use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::claim::{Claim, ClaimRequest};
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::parked::{Park, Parking, PutBack, Verdict, Waits};
use oncebox_core::store::{Ended, Inbox, Session, Transaction};
use oncebox_core::{
    ConsumerId, Content, Coordinate, Key, KeyError, KeyStrategy, Message, MessageId, Outcome, Source, Store,
    StoreError, StoreErrorKind, planted,
};

use super::Engine;
use super::guard::{Guarded, Panicked};
use super::identity::Claims;
use super::setup::Flow;
use super::work::Work;
use crate::queue_source::ORIGIN;

/// How it ended.
pub(super) enum SetAside<S: Store> {
    /// Durable: parked now, or found parked or applied.
    Done { session: S::Session, is_new: bool },
    /// Not now.
    Broken { session: Option<S::Session>, doubt: Option<S::Doubt>, error: StoreError },
}

/// Sets `work` aside and gives it back, to be acknowledged. Safe to repeat.
pub(super) async fn set_aside<S: ConsumerStore, Src: Source<S>>(
    engine: Arc<Engine<S, Src>>,
    session: Option<S::Session>,
    work: Work<S, Src::Receipt>,
    verdict: Verdict,
) -> (Work<S, Src::Receipt>, SetAside<S>) {
    let ended = match Guarded::new(Box::pin(run(&engine, session, &work, verdict))).await {
        Ok(ended) => ended,
        Err(Panicked) => {
            let attempted = format!("park message {}", work.delivery.message.label());
            let error = StoreError::new(StoreErrorKind::Refused, attempted, "something panicked");
            SetAside::Broken { session: None, doubt: None, error }
        }
    };
    (work, ended)
}

async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    session: Option<S::Session>,
    work: &Work<S, Src::Receipt>,
    verdict: Verdict,
) -> SetAside<S> {
    let broken = |error| SetAside::Broken { session: None, doubt: None, error };
    let session = match session {
        Some(session) => session,
        None => match engine.store.connect().await {
            Ok(session) => session,
            Err(error) => return broken(error),
        },
    };
    if planted::is("park-after-ack") {
        super::plants::acknowledge_now(engine, std::slice::from_ref(work)).await;
        // On a fast disk the gap is too short for a kill to find it in one run.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut tx = match session.begin(engine.bounds.lock_wait_alone).await {
        Ok(tx) => tx,
        Err(error) => return broken(error),
    };
    let done = match inside(engine, &mut tx, work, verdict).await {
        Ok(is_new) => crashpoint("parking").await.map(|()| is_new),
        Err(error) => Err(error),
    };
    let is_new = match done {
        Ok(is_new) => is_new,
        Err(error) => return SetAside::Broken { session: tx.rollback().await, doubt: None, error },
    };
    match engine.commit(tx).await {
        Ended::Committed(session) => SetAside::Done { session, is_new },
        Ended::RolledBack { session, error } => SetAside::Broken { session, doubt: None, error },
        Ended::Unknown { doubt, error } => SetAside::Broken { session: None, doubt: Some(doubt), error },
    }
}

/// Answers whether it was parked, and not found parked or applied.
async fn inside<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    work: &Work<S, Src::Receipt>,
    verdict: Verdict,
) -> Result<bool, StoreError> {
    if let Some(parked) = &work.delivery.parked {
        let order_key = order_key(engine, work, verdict.waits);
        return tx.put_back(&[PutBack::new(parked.receipt, verdict).under(order_key)]).await.map(|()| true);
    }
    if engine.by_offset && engine.source.done_in(tx, &[&**work.delivery.receipt()]).await?.contains(&true) {
        return Ok(false);
    }
    let standing = Standing::of(engine, work)?;
    let mut owns_record = false;
    let mut is_new = true;
    if !standing.claims.is_empty() {
        (owns_record, is_new) = standing.record(tx, work).await?;
    } else if standing.was_handled(tx, work).await? {
        is_new = false;
    }
    if is_new {
        let park = Park {
            consumer: engine.records.own,
            message: with_origin(engine, work),
            key: standing.key,
            fingerprint: standing.fingerprint,
            owns_record,
            order_key: order_key(engine, work, verdict.waits),
            verdict,
        };
        is_new = tx.park(&[park]).await? != [false];
    }
    engine.source.ack_in(tx, &[&**work.delivery.receipt()]).await?;
    Ok(is_new)
}

fn came_and_went<S: Store, R>(work: &Work<S, R>) -> StoreError {
    let attempted = format!("park message {}", work.delivery.message.label());
    StoreError::new(StoreErrorKind::Contended, attempted, "its record came and went")
}

/// What later messages wait behind it by; for what waits for a missing version, the aggregate, by which it is woken. What
/// stored mode can't store waits apart: earlier messages of its key may still be in the table, and would wait behind it.
pub(super) fn order_key<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    work: &Work<S, Src::Receipt>,
    waits: Waits,
) -> Option<String> {
    if let Waits::Gap(_) | Waits::Missing = waits {
        let version = work.ready.as_ref().ok().and_then(|ready| ready.version.as_ref());
        return version.map(|place| place.aggregate.clone());
    }
    let key = work.order_key.as_deref().filter(|_| engine.order.is_kept() && engine.flow != Flow::Front);
    key.map(str::to_owned)
}

/// A message whose claim is in hand, to be parked in the same transaction.
pub(super) fn claimed<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    work: &Work<S, Src::Receipt>,
    verdict: Verdict,
) -> Result<Park, StoreError> {
    let standing = Standing::of(engine, work)?;
    Ok(Park {
        consumer: engine.records.own,
        message: with_origin(engine, work),
        key: standing.key,
        fingerprint: standing.fingerprint,
        owns_record: work.ready.as_ref().is_ok_and(|ready| ready.claims.is_some()),
        order_key: order_key(engine, work, verdict.waits),
        verdict,
    })
}

/// What a message is parked under.
pub(super) fn key<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    work: &Work<S, Src::Receipt>,
) -> Result<Key, StoreError> {
    Standing::of(engine, work).map(|standing| standing.key)
}

/// Under what a message is parked.
struct Standing {
    key: Key,
    fingerprint: Fingerprint,
    /// The claims that stand for it in the inbox: under its key, and under those of before.
    claims: Vec<ClaimRequest>,
    /// Where it could not be tried and so has no claim: what it would claim.
    untried: Option<Claims>,
    /// Whose row it is.
    consumer: ConsumerId,
}

impl Standing {
    fn of<S: ConsumerStore, Src: Source<S>>(
        engine: &Engine<S, Src>,
        work: &Work<S, Src::Receipt>,
    ) -> Result<Self, StoreError> {
        let consumer = engine.records.own;
        if let Ok(ready) = &work.ready
            && let Some(claims) = &ready.claims
        {
            let (key, fingerprint) = (claims.first.key.clone(), claims.first.fingerprint);
            let claims = claims.parked().cloned().collect();
            return Ok(Self { key, fingerprint, claims, untried: None, consumer });
        }
        let message = &*work.delivery.message;
        let named = engine.identity.claims(engine.records, message, work.delivery.coordinate.as_ref());
        if let Ok(claims) = named {
            // Offsets stand for what is done; what is set aside is not, and needs a record of its own.
            let is_claimed = work.ready.as_ref().is_ok_and(|ready| engine.by_offset && ready.route.claims);
            let own = is_claimed.then(|| claims.first.clone()).into_iter().collect();
            let (key, fingerprint) = (claims.first.key.clone(), claims.first.fingerprint);
            let untried = work.ready.is_err().then_some(claims);
            return Ok(Self { key, fingerprint, claims: own, untried, consumer });
        }
        let key = stand_in(message, work.delivery.coordinate.as_ref()).map_err(|error| {
            let attempted = format!("park message {}", message.label());
            StoreError::new(StoreErrorKind::Refused, attempted, error.to_string())
        })?;
        let fingerprint = engine.identity.fingerprinter.fingerprint(message);
        Ok(Self { key, fingerprint, claims: Vec::new(), untried: None, consumer })
    }

    /// Records that it is parked, unless a record says that it is already, or was handled. Answers whether it has a record
    /// now, and whether it is to be parked.
    async fn record<S: ConsumerStore, R>(&self, tx: &mut S::Tx, work: &Work<S, R>) -> Result<(bool, bool), StoreError> {
        let answers = tx.claim(&self.claims).await?;
        let place = |claim: &ClaimRequest| (claim.consumer, claim.key.clone());
        let is_fresh = |claim: &&Claim| **claim == Claim::Fresh;
        let fresh: Vec<_> = self.claims.iter().zip(&answers).filter(|(_, claim)| is_fresh(claim)).collect();
        let (mut is_known, mut is_conflict) = (false, false);
        for (at, (request, claim)) in self.claims.iter().zip(&answers).enumerate() {
            match claim {
                Claim::Fresh => {}
                Claim::Duplicate(_) => is_known = true,
                // Under a key of before that reads otherwise, another message is no matter of this one.
                Claim::Conflict(_) => is_conflict |= at == 0 || request.key == self.key,
                _ => return Err(came_and_went(work)),
            }
        }
        if is_known || is_conflict {
            let fresh: Vec<_> = fresh.into_iter().map(|(request, _)| place(request)).collect();
            if !fresh.is_empty() {
                tx.unclaim(&fresh).await?;
            }
            return Ok((false, is_conflict));
        }
        let parked = |(request, _): (&ClaimRequest, _)| {
            (request.consumer, request.key.clone(), Outcome::parked_by(self.consumer, request.consumer))
        };
        tx.record(&fresh.into_iter().map(parked).collect::<Vec<_>>()).await?;
        Ok((true, true))
    }

    /// Whether a message that can't be tried here was handled all the same, by a process that could. Parked, its copy would
    /// be in the way of everything behind it. Leaves no record.
    async fn was_handled<S: ConsumerStore, R>(&self, tx: &mut S::Tx, work: &Work<S, R>) -> Result<bool, StoreError> {
        let Some(claims) = self.untried.as_ref().filter(|_| !planted::is("copy-of-handled-parked")) else {
            return Ok(false);
        };
        let requests: Vec<ClaimRequest> = claims.all().cloned().collect();
        let now = 1 + usize::from(claims.business.is_some());
        let former = std::iter::repeat_n(None, now).chain(claims.was.iter().map(Some));
        let mut fresh = Vec::new();
        let mut was_handled = false;
        for ((request, former), claim) in requests.iter().zip(former).zip(tx.claim(&requests).await?) {
            match claim {
                Claim::Fresh => fresh.push((request.consumer, request.key.clone())),
                Claim::Duplicate(earlier) if former.is_some_and(|former| claims.cannot_compare(former, &earlier)) => {}
                Claim::Duplicate(earlier) => was_handled |= !earlier.is_parked(),
                Claim::Conflict(_) => {}
                _ => return Err(came_and_went(work)),
            }
        }
        if !fresh.is_empty() {
            tx.unclaim(&fresh).await?;
        }
        Ok(was_handled)
    }
}

/// What a message without a key is found under again: its place in the broker, or else who it is and all that it says. Of two
/// that differ in any of that none may go for the other; two that do not, without ids, can't be told from one that came
/// twice. What it says is hashed: keys are shown, payloads and headers are not.
pub(super) fn stand_in(message: &Message, coordinate: Option<&Coordinate>) -> Result<Key, KeyError> {
    match coordinate {
        Some(coordinate) => Key::parts([&b"unreadable at"[..], coordinate.as_str().as_bytes()]),
        None => {
            let says = KeyStrategy::ContentHashV1(Content::raw()).key(&all_of(message), None)?;
            let id = message.id.as_ref().map(MessageId::as_str);
            // A part may not be empty.
            let [source, id] = [message.source.as_deref(), id].map(|part| format!("={}", part.unwrap_or_default()));
            Key::parts([&b"unreadable"[..], source.as_bytes(), id.as_bytes(), says.as_bytes()])
        }
    }
}

/// A message whose payload is everything that another one says, piece by piece.
fn all_of(message: &Message) -> Message {
    let order_key = message.order_key.as_deref().unwrap_or_default();
    let headers = message.headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let mut all = Vec::new();
    for piece in [&message.payload[..], order_key.as_bytes()].into_iter().chain(headers) {
        all.extend_from_slice(&(piece.len() as u64).to_be_bytes());
        all.extend_from_slice(piece);
    }
    Message::received(message.kind.as_str(), all.into(), message.time)
}

/// The message as it came; where its key is its coordinate, with that written on it, or it would be lost.
fn with_origin<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    work: &Work<S, Src::Receipt>,
) -> Arc<Message> {
    let message = &work.delivery.message;
    let coordinate = work.delivery.coordinate.as_ref().filter(|_| engine.identity.needs_coordinate());
    let Some(coordinate) = coordinate.filter(|_| message.headers.get(ORIGIN).is_none()) else {
        return Arc::clone(message);
    };
    let mut message = Message::clone(message);
    // A coordinate that is no header text leaves it without one, and so without a key: it stays dead.
    let _ = message.headers.add(ORIGIN, coordinate.as_str());
    Arc::new(message)
}
