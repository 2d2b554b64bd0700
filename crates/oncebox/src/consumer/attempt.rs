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

use std::collections::{BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::claim::{Claim, ClaimRequest, Conflict, Earlier};
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::parked::{Parking, Verdict, Waits};
use oncebox_core::store::{Ended, Inbox, Session, Transaction};
use oncebox_core::{Failure, Message, Outcome, OutcomeKind, Source, Store, StoreError, StoreErrorKind, planted};

use super::Engine;
use super::batch::{Place, collapse};
use super::blame::{self, Blame};
use super::call::{self, Ran};
use super::identity::{Claims, id_hash};
use super::parking;
use super::plants;
use super::routes::{Route, Shape};
use super::verdict;
use super::versioned::{self, Sorted, Versioned};
use super::work::Work;
use crate::context::Hook;
use crate::handler::Call;

/// What to do with messages that are fresh.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mode {
    /// Run their handlers.
    Handle,
    /// Record this instead: the effect was there already, or the business refuses it.
    Instead(Outcome),
}

/// What became of a message in a transaction that committed.
#[derive(Debug)]
pub(super) enum Fate {
    /// Its handler ran.
    Handled(Outcome),
    /// It was handled before.
    Duplicate(Outcome, Kind),
    /// Its key belongs to another message. Not settled.
    Conflict(Conflict),
    /// It is set aside in the same transaction: behind another of its order key, or for a missing version.
    Aside(Waits),
    /// It has to wait for a transaction of its own. Not settled.
    Later,
}

/// Which kind of duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The same message again.
    Transport,
    /// Another message with the same intent.
    Business,
    /// Our own earlier commit, whose answer was lost: it went through.
    Ours,
}

impl Fate {
    /// Whether the source may forget the message.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Handled(_) | Self::Duplicate(..) | Self::Aside(_))
    }
}

/// How an attempt ended.
pub(super) enum End<S: Store> {
    /// All durable.
    Committed { session: S::Session, fates: Vec<Fate>, hooks: Vec<Hook> },
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
    /// Nobody knows. The fates are what they will have been if it went through.
    Unknown { doubt: S::Doubt, error: StoreError, fates: Vec<Fate> },
}

/// What was under way when a transaction broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
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

/// Runs one transaction over `works` and gives them back with how it ended.
pub(super) async fn attempt<S: ConsumerStore, Src: Source<S>>(
    engine: Arc<Engine<S, Src>>,
    session: Option<S::Session>,
    works: Vec<Work<S, Src::Receipt>>,
    mode: Mode,
) -> (Vec<Work<S, Src::Receipt>>, End<S>) {
    let end = run(&engine, session, &works, mode).await;
    (works, end)
}

async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    session: Option<S::Session>,
    works: &[Work<S, Src::Receipt>],
    mode: Mode,
) -> End<S> {
    plants::acknowledge_first(engine, works).await;
    let session = match session {
        Some(session) => Ok(session),
        None => engine.store.connect().await,
    };
    let lock_wait = if works.len() > 1 { engine.bounds.lock_wait_batch } else { engine.bounds.lock_wait_alone };
    let begun = match session {
        Ok(session) => session.begin(lock_wait).await,
        Err(error) => Err(error),
    };
    let tx = match begun {
        Ok(tx) => tx,
        Err(error) => return End::Broken { session: None, doubt: None, error, during: During::Engine },
    };
    match inside(engine, tx, works, mode).await {
        Ok((tx, fates, hooks)) => match commit(tx).await {
            Ended::Committed(session) => End::Committed { session, fates, hooks },
            Ended::RolledBack { session, error } => End::Broken { session, doubt: None, error, during: During::Engine },
            Ended::Unknown { doubt, error } => End::Unknown { doubt, error, fates },
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

/// Rolls back, unless there is nothing left to roll back: a handler that ended the transaction itself has committed
/// claims of messages that never ran, and whoever goes on takes them for duplicates.
pub(super) async fn undo<T: Transaction>(mut tx: T) -> Result<Option<T::Session>, StoreError> {
    match tx.verify().await {
        Err(error) if error.kind() == StoreErrorKind::Breached => Err(error),
        _ => Ok(tx.rollback().await),
    }
}

async fn commit<T: Transaction>(tx: T) -> Ended<T::Session, T::Doubt> {
    if let Err(error) = crashpoint("before-commit").await {
        return Ended::RolledBack { session: tx.rollback().await, error };
    }
    tx.commit().await
}

/// Everything between begin and commit.
pub(super) async fn inside<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    mut tx: S::Tx,
    works: &[Work<S, Src::Receipt>],
    mode: Mode,
) -> Result<(S::Tx, Vec<Fate>, Vec<Hook>), Stop<S>> {
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
    let places = collapse(claims.iter().copied());
    let mut judged = check!(tx, claim(&mut tx, works, &claims, &places).await);
    tx = plants::commit_claims::<S>(tx, engine.bounds.lock_wait_alone).await;
    check!(tx, crashpoint("claimed").await);
    if engine.order.is_kept() {
        hold_back(&mut judged, works, &claims);
    }

    let mut hooks = Vec::new();
    if engine.parks_behind() {
        check!(tx, park_behind(engine, &mut tx, &mut judged, works, &claims).await);
    }
    // Also for what is rejected or was applied already: that version is done, and the next one must not wait for it.
    let sorted = match &engine.versioned {
        Some(versioned) => check!(tx, by_version(engine, versioned, &mut tx, &mut judged, works, &claims).await),
        None => Sorted::default(),
    };
    if let Mode::Instead(outcome) = mode {
        for place in std::mem::take(&mut judged.fresh) {
            judged.fates[place] = Some(Fate::Handled(outcome.clone()));
        }
    }
    for (route, turn) in turns(works, &judged.fresh, engine.order.is_kept()) {
        let messages: Arc<[_]> = turn.iter().map(|&place| Arc::clone(&works[place].delivery.message)).collect();
        let call = match prepare(&route, &messages) {
            Ok(call) => call,
            Err((Some(n), failure)) => {
                return Err(Stop::Message { tx: Some(tx), doubt: None, place: turn[n], failure });
            }
            Err((None, failure)) => return Err(batch_failed(tx, failure)),
        };
        match call::run(tx, call, messages, engine.records.own, engine.bounds.handler_deadline).await {
            Ran::Done { tx: back, outcomes, hooks: added } => {
                tx = back;
                hooks.extend(added);
                for (&place, outcome) in turn.iter().zip(outcomes) {
                    judged.fates[place] = Some(Fate::Handled(outcome));
                }
            }
            Ran::Failed { tx, failure } if turn.len() == 1 => {
                return Err(Stop::Message { tx: Some(tx), doubt: None, place: turn[0], failure });
            }
            // A batch handler fails as a whole; which message it was is found by halving.
            Ran::Failed { tx, failure } => match blame::assign(&engine.store, &engine.classify, failure) {
                Blame::Store(error) => return Err(Stop::Store(tx, error, During::BatchHandler)),
                Blame::Message { failure, .. } => return Err(batch_failed(tx, failure)),
            },
            Ran::Stopped { doubt, failure } if turn.len() > 1 => {
                return Err(Stop::Turn { doubt: Some(doubt), failure });
            }
            Ran::Kept { failure } if turn.len() > 1 => return Err(Stop::Turn { doubt: None, failure }),
            Ran::Stopped { doubt, failure } => {
                return Err(Stop::Message { tx: None, doubt: Some(doubt), place: turn[0], failure });
            }
            Ran::Kept { failure } => return Err(Stop::Message { tx: None, doubt: None, place: turn[0], failure }),
        }
    }
    check!(tx, crashpoint("handled").await);

    let fates = conclude(&places, judged.fates);
    for (fate, claims) in fates.iter().zip(&claims) {
        if let (Fate::Handled(outcome), Some(claims)) = (fate, claims)
            && !outcome.is_plain()
        {
            judged.outcomes.extend(claims.all().map(|c| (c.consumer, c.key.clone(), outcome.clone())));
        }
    }
    if !judged.outcomes.is_empty() {
        check!(tx, tx.record(&judged.outcomes).await);
    }
    if !judged.take_back.is_empty() {
        check!(tx, tx.unclaim(&judged.take_back).await);
    }
    check!(tx, sorted.advance(engine, &mut tx).await);
    // A parked row that was put back is not ended.
    let stays =
        |work: &Work<S, Src::Receipt>, fate: &Fate| work.delivery.parked.is_some() && matches!(fate, Fate::Aside(_));
    // Our own commit that went through has settled its row already.
    let ours = |fate: &Fate| matches!(fate, Fate::Duplicate(_, Kind::Ours));
    let settled =
        works.iter().zip(&fates).filter(|(work, fate)| fate.is_settled() && !ours(fate) && !stays(work, fate));
    let receipts: Vec<&Src::Receipt> = settled.map(|(work, _)| &**work.delivery.receipt()).collect();
    if !planted::is("ack-before-commit") {
        check!(tx, engine.source.ack_in(&mut tx, &receipts).await);
    }
    let hooks = plants::run_hooks_early(hooks).await;
    check!(tx, crashpoint("flushed").await);
    Ok((tx, fates, hooks))
}

fn batch_failed<S: Store>(tx: S::Tx, failure: Failure) -> Stop<S> {
    let error = StoreError::new(StoreErrorKind::Refused, "run a batch handler", failure.reason());
    Stop::Store(tx, error, During::BatchHandler)
}

/// Decodes. Decoding is the user's code too: where it panics, the message is known if it is the only one.
fn prepare<S: Store>(route: &Route<S>, messages: &[Arc<Message>]) -> Result<Call<S>, (Option<usize>, Failure)> {
    let prepared = catch_unwind(AssertUnwindSafe(|| route.handler.prepare(messages)));
    match prepared {
        Ok(prepared) => prepared.map_err(|(place, failure)| (Some(place), failure)),
        Err(_) => {
            let failure = Failure::permanent("decoding its payload panicked");
            Err(((messages.len() == 1).then_some(0), failure))
        }
    }
}

/// Where order is kept, nothing overtakes a message that stays behind: what follows a conflict or a late one under
/// its order key waits as well.
fn hold_back<S: Store, R>(judged: &mut Judged, works: &[Work<S, R>], claims: &[Option<&Claims>]) {
    let mut behind: HashSet<&str> = HashSet::new();
    for (place, work) in works.iter().enumerate() {
        let Some(key) = work.order_key.as_deref() else { continue };
        if behind.contains(key) && matches!(judged.fates[place], Some(Fate::Conflict(_))) {
            // Parked now, it would be in the way of what is before it.
            judged.fates[place] = Some(Fate::Later);
        } else if matches!(judged.fates[place], Some(Fate::Conflict(_) | Fate::Later)) {
            behind.insert(key);
        } else if behind.contains(key) && judged.fresh.contains(&place) {
            judged.fresh.retain(|fresh| *fresh != place);
            judged.fates[place] = Some(Fate::Later);
            let claimed = claims[place].into_iter().flat_map(Claims::all);
            judged.take_back.extend(claimed.map(|claim| (claim.consumer, claim.key.clone())));
        }
    }
}

/// Where order is kept, nothing overtakes a message that is parked: what follows it under its order key is parked behind
/// it, in the same transaction.
async fn park_behind<S: ConsumerStore, Src: Source<S>>(
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
    let behind = judged.fresh.iter().copied().filter(|place| key(place).is_some_and(|key| blocked.contains(key)));
    let behind = behind.map(|place| (place, verdict::behind(&works[place].delivery.message))).collect();
    put_aside(engine, tx, judged, works, claims, behind).await
}

/// Takes out what versions say is not to be run.
async fn by_version<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    versioned: &Versioned,
    tx: &mut S::Tx,
    judged: &mut Judged,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
) -> Result<Sorted, StoreError> {
    let mut sorted = versioned::sort_out(engine, versioned, tx, works, &judged.fresh).await?;
    for (place, outcome) in std::mem::take(&mut sorted.ended) {
        judged.fresh.retain(|fresh| *fresh != place);
        judged.fates[place] = Some(Fate::Handled(outcome));
    }
    let aside = std::mem::take(&mut sorted.aside);
    put_aside(engine, tx, judged, works, claims, aside).await?;
    Ok(sorted)
}

/// Sets fresh messages aside in the transaction that claimed them: their records say so, and their rows are added, or
/// put back where they come from there.
async fn put_aside<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    tx: &mut S::Tx,
    judged: &mut Judged,
    works: &[Work<S, Src::Receipt>],
    claims: &[Option<&Claims>],
    aside: Vec<(usize, Verdict)>,
) -> Result<(), StoreError> {
    let (mut added, mut back) = (Vec::new(), Vec::new());
    for (place, verdict) in aside {
        judged.fresh.retain(|fresh| *fresh != place);
        judged.fates[place] = Some(Fate::Aside(verdict.waits));
        if let Some(claims) = claims[place] {
            let parked = Outcome::of(OutcomeKind::Parked);
            judged.outcomes.push((claims.first.consumer, claims.first.key.clone(), parked));
            judged.take_back.extend(claims.business.iter().map(|claim| (claim.consumer, claim.key.clone())));
        }
        match works[place].delivery.parked {
            Some(parked) => back.push((parked.receipt, verdict)),
            None => added.push(parking::claimed(engine, &works[place], verdict)?),
        }
    }
    if !added.is_empty() {
        tx.park(&added).await?;
    }
    if !back.is_empty() {
        tx.put_back(&back).await?;
    }
    Ok(())
}

/// What the claims of a batch came to.
struct Judged {
    /// `None`: fresh, or not known before its leader's is.
    fates: Vec<Option<Fate>>,
    /// The places whose handlers are to run.
    fresh: Vec<usize>,
    /// Outcomes to keep beside the claims.
    outcomes: Vec<(oncebox_core::ConsumerId, oncebox_core::Key, Outcome)>,
    /// Claims to take back: their message is not settled after all.
    take_back: Vec<(oncebox_core::ConsumerId, oncebox_core::Key)>,
}

async fn claim<S: ConsumerStore, R>(
    tx: &mut S::Tx,
    works: &[Work<S, R>],
    claims: &[Option<&Claims>],
    places: &[Place],
) -> Result<Judged, StoreError> {
    let fates = places.iter().map(|place| (*place == Place::Later).then_some(Fate::Later)).collect();
    let mut judged = Judged { fates, fresh: Vec::new(), outcomes: Vec::new(), take_back: Vec::new() };
    judged.fresh.extend((0..works.len()).filter(|&place| claims[place].is_none()));
    let leaders: Vec<(usize, &Claims)> = (claims.iter().enumerate())
        .filter(|(place, _)| places[*place] == Place::Leader)
        .filter_map(|(place, claims)| Some((place, (*claims)?)))
        .collect();
    let requests: Vec<ClaimRequest> = leaders.iter().flat_map(|(_, claims)| claims.all().cloned()).collect();
    let answers = match requests.as_slice() {
        [] => Vec::new(),
        _ if planted::is("claim-skipped") => vec![Claim::Fresh; requests.len()],
        requests => tx.claim(requests).await?,
    };
    let answers = reclaim(tx, works, &leaders, answers).await?;
    let mut answers = answers.into_iter();
    let mut answer = || answers.next().unwrap_or(Claim::Undecided);
    for (place, claims) in leaders {
        let (first, business) = (answer(), claims.business.as_ref().map(|_| answer()));
        let own = || (claims.first.consumer, claims.first.key.clone());
        judged.fates[place] = match (first, business) {
            (Claim::Undecided, _) | (_, Some(Claim::Undecided)) => {
                let label = works[place].delivery.message.label().to_string();
                let why = "its record came and went; claim again";
                return Err(StoreError::new(StoreErrorKind::Contended, format!("claim message {label}"), why));
            }
            (Claim::Fresh, None | Some(Claim::Fresh)) => {
                judged.fresh.push(place);
                None
            }
            (Claim::Fresh, Some(Claim::Duplicate(earlier))) => {
                // Remember it under its own id too: its next redelivery is then a plain transport duplicate.
                let (consumer, key) = own();
                judged.outcomes.push((consumer, key, earlier.outcome.clone()));
                Some(Fate::Duplicate(earlier.outcome, Kind::Business))
            }
            (Claim::Fresh, Some(Claim::Conflict(conflict))) => {
                judged.take_back.push(own());
                Some(Fate::Conflict(conflict))
            }
            (first, business) => {
                // The first key decides. A business key that was free (its record had expired) must not stay ours.
                if business == Some(Claim::Fresh) {
                    judged.take_back.extend(claims.business.as_ref().map(|b| (b.consumer, b.key.clone())));
                }
                match first {
                    Claim::Duplicate(earlier) => {
                        let kind = kind(claims, &earlier, &works[place]);
                        Some(Fate::Duplicate(earlier.outcome, kind))
                    }
                    Claim::Conflict(conflict) => Some(Fate::Conflict(conflict)),
                    _ => Some(Fate::Later),
                }
            }
        };
    }
    judged.fresh.sort_unstable();
    Ok(judged)
}

/// A message that was parked and is tried again finds its own record: that becomes a claim again, once.
async fn reclaim<S: ConsumerStore, R>(
    tx: &mut S::Tx,
    works: &[Work<S, R>],
    leaders: &[(usize, &Claims)],
    mut answers: Vec<Claim>,
) -> Result<Vec<Claim>, StoreError> {
    let mut asked = Vec::new();
    let mut at = 0;
    for (place, claims) in leaders {
        let own = works[*place].delivery.parked.is_some_and(|parked| parked.owns_record);
        let is_parked = matches!(&answers.get(at), Some(Claim::Duplicate(earlier)) if earlier.is_parked());
        if own && is_parked {
            asked.push((at, (claims.first.consumer, claims.first.key.clone())));
        }
        at += claims.all().count();
    }
    if asked.is_empty() {
        return Ok(answers);
    }
    let (at, keys): (Vec<usize>, Vec<_>) = asked.into_iter().unzip();
    for (at, ours) in at.into_iter().zip(tx.reclaim(&keys).await?) {
        // Not ours: someone ran it meanwhile. Asked again, the record says how it ended.
        answers[at] = if ours { Claim::Fresh } else { Claim::Undecided };
    }
    Ok(answers)
}

/// A key that is not the message's id catches both kinds; the hash of the id tells which.
fn kind<S: Store, R>(claims: &Claims, earlier: &Earlier, work: &Work<S, R>) -> Kind {
    match (claims.first_is_id, earlier.id_hash, id_hash(&work.delivery.message)) {
        (false, Some(first), Some(now)) if first != now => Kind::Business,
        _ if !earlier.is_parked() && work.ready.as_ref().is_ok_and(|ready| ready.in_doubt) => Kind::Ours,
        _ => Kind::Transport,
    }
}

/// The calls to make: each handler with the places of the messages that it gets.
///
/// Where order is kept, a batch handler gets consecutive runs of its type; otherwise all of its type at once.
fn turns<S: Store, R>(works: &[Work<S, R>], fresh: &[usize], ordered: bool) -> Vec<(Route<S>, Vec<usize>)> {
    let mut turns: Vec<(Route<S>, Vec<usize>)> = Vec::new();
    for &place in fresh {
        let Ok(ready) = &works[place].ready else { continue };
        let route = &ready.route;
        let joins = match route.shape {
            Shape::Each => None,
            Shape::Batch if ordered => turns.last_mut().filter(|(last, _)| last.is(route)),
            Shape::Batch => turns.iter_mut().find(|(earlier, _)| earlier.is(route)),
        };
        match joins {
            Some((_, turn)) => turn.push(place),
            None => turns.push((route.clone(), vec![place])),
        }
    }
    turns
}

/// Gives followers what their leader got. A message that nothing decided waits.
fn conclude(places: &[Place], mut fates: Vec<Option<Fate>>) -> Vec<Fate> {
    for (place, found) in places.iter().enumerate() {
        if let Place::Follower(leader) = found {
            fates[place] = match &fates[*leader] {
                Some(Fate::Handled(outcome)) => Some(Fate::Duplicate(outcome.clone().replayed(), Kind::Transport)),
                Some(Fate::Duplicate(outcome, Kind::Business)) => {
                    Some(Fate::Duplicate(outcome.clone(), Kind::Business))
                }
                Some(Fate::Duplicate(outcome, _)) => Some(Fate::Duplicate(outcome.clone(), Kind::Transport)),
                Some(Fate::Aside(_)) => Some(Fate::Duplicate(Outcome::of(OutcomeKind::Parked), Kind::Transport)),
                _ => None,
            };
        }
    }
    fates.into_iter().map(|fate| fate.unwrap_or(Fate::Later)).collect()
}
