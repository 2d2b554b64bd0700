//! What becomes of each message of a batch, from its claims on.

use std::collections::HashSet;

use oncebox_core::claim::{Claim, ClaimRequest, Conflict, Earlier};
use oncebox_core::parked::Waits;
use oncebox_core::store::Inbox;
use oncebox_core::{ConsumerStore, Failure, Outcome, OutcomeKind, Store, StoreError, StoreErrorKind, planted};

use super::batch::Place;
use super::identity::{Claims, Former, id_hash};
use super::work::Work;

/// What became of a message in a transaction that committed.
#[derive(Debug)]
pub(super) enum Fate {
    /// Its handler ran.
    Handled(Outcome),
    /// It was handled before.
    Duplicate(Outcome, Kind),
    /// Its key belongs to another message. Not settled.
    Conflict(Conflict),
    /// It may have been handled before, and nobody knows. Not settled.
    Unclear(Failure),
    /// It is set aside in the same transaction: behind another of its order key, or for a missing version.
    Aside(Waits),
    /// As many of its order key are parked as may be: it goes back to its source. Not settled.
    HeldBack,
    /// It has to wait for a transaction of its own. Not settled.
    Later,
    /// It failed among others, and what it did was undone. It runs alone next. Not settled.
    Suspect,
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

/// What the claims of a batch came to.
pub(super) struct Judged {
    /// `None`: fresh, or not known before its leader's is.
    pub(super) fates: Vec<Option<Fate>>,
    /// The places whose handlers are to run.
    pub(super) fresh: Vec<usize>,
    /// Outcomes to keep beside the claims.
    pub(super) outcomes: Vec<(oncebox_core::ConsumerId, oncebox_core::Key, Outcome)>,
    /// Claims to take back: their message is not settled after all.
    pub(super) take_back: Vec<(oncebox_core::ConsumerId, oncebox_core::Key)>,
    /// Keys of before, in the way of a bridged change, that belong to other messages. With whose records they are in: in those
    /// of another scope the same bytes may be a message's own.
    pub(super) foreign: HashSet<(oncebox_core::ConsumerId, oncebox_core::Key)>,
    /// The places whose own parked records were made claims again.
    pub(super) reclaimed: HashSet<usize>,
}

impl Judged {
    /// Whether what is claimed for a message is its own, and not in the way of before another's.
    pub(super) fn is_ours(&self, claim: &ClaimRequest) -> bool {
        !self.foreign.contains(&(claim.consumer, claim.key.clone()))
    }

    /// A fresh message is not settled after all; its claims are taken back.
    pub(super) fn leave(&mut self, place: usize, fate: Fate, claims: Option<&Claims>) {
        self.fresh.retain(|fresh| *fresh != place);
        self.fates[place] = Some(fate);
        let claimed = claims.into_iter().flat_map(Claims::all);
        self.take_back.extend(claimed.map(|claim| (claim.consumer, claim.key.clone())));
    }
}

/// Claims the keys of the leaders.
pub(super) async fn claim<S: ConsumerStore, R>(
    tx: &mut S::Tx,
    works: &[Work<S, R>],
    claims: &[Option<&Claims>],
    places: &[Place],
) -> Result<Judged, StoreError> {
    let fates = places.iter().map(|place| (*place == Place::Later).then_some(Fate::Later)).collect();
    let mut judged = Judged {
        fates,
        fresh: Vec::new(),
        outcomes: Vec::new(),
        take_back: Vec::new(),
        foreign: HashSet::new(),
        reclaimed: HashSet::new(),
    };
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
    let answers = reclaim(tx, works, &leaders, answers, &mut judged.reclaimed).await?;
    let mut answers = answers.into_iter();
    let mut answer = || answers.next().unwrap_or(Claim::Undecided);
    for (place, claims) in leaders {
        let (first, business) = (answer(), claims.business.as_ref().map(|_| answer()));
        let was: Vec<(&Former, Claim)> = claims.was.iter().map(|former| (former, answer())).collect();
        let was = without_strangers(&mut judged, claims, works[place].delivery.parked.is_some(), was);
        let own = || (claims.first.consumer, claims.first.key.clone());
        let (first, business) = match bridged(&mut judged, place, claims, (first, business), was) {
            Bridged::Alike(first, business) => (first, business),
            Bridged::Before(earlier) => {
                let kind = kind(claims, &earlier, &works[place]);
                judged.fates[place] = Some(Fate::Duplicate(earlier.outcome, kind));
                continue;
            }
            Bridged::Unclear(failure) => {
                judged.leave(place, Fate::Unclear(failure), Some(claims));
                continue;
            }
        };
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

/// What the keys of before say of a message, while a change is bridged.
enum Bridged {
    /// Nothing that its own keys do not.
    Alike(Claim, Option<Claim>),
    /// It was handled, or is parked, in the way of before.
    Before(Earlier),
    /// It may have been, or another message was.
    Unclear(Failure),
}

/// A message that was parked and comes back was told from others before, or a person has answered for it: what is not known
/// to be its own under a key of before is another's.
fn without_strangers<'c>(
    judged: &mut Judged,
    claims: &Claims,
    was_parked: bool,
    mut was: Vec<(&'c Former, Claim)>,
) -> Vec<(&'c Former, Claim)> {
    if was_parked {
        was.retain(|(former, answer)| {
            let is_strange = matches!(answer, Claim::Duplicate(earlier) if claims.cannot_compare(former, earlier));
            if is_strange {
                judged.foreign.insert((former.request.consumer, former.request.key.clone()));
            }
            !is_strange
        });
    }
    was
}

fn bridged(
    judged: &mut Judged,
    at: usize,
    claims: &Claims,
    (first, business): (Claim, Option<Claim>),
    was: Vec<(&Former, Claim)>,
) -> Bridged {
    let place = |claim: &ClaimRequest| (claim.consumer, claim.key.clone());
    let mut before = None;
    let mut conflict = None;
    let mut unclear = None;
    let mut ours: Vec<&ClaimRequest> = Vec::new();
    for (former, answer) in was {
        let claim = &former.request;
        match answer {
            Claim::Fresh => ours.push(claim),
            Claim::Duplicate(earlier) if claims.cannot_compare(former, &earlier) => unclear = Some(unclear_failure()),
            Claim::Duplicate(earlier) => before = before.or(Some(earlier)),
            // Where only the scope is another, so is the message: its key reads as it does now.
            Claim::Conflict(found) if claim.key == claims.first.key => conflict = Some(found),
            // Another message was handled under that key. Why keys were changed, perhaps; this one's own key is free.
            Claim::Conflict(_) => drop(judged.foreign.insert(place(claim))),
            _ => return Bridged::Alike(Claim::Undecided, business),
        }
    }
    let is_fresh = |claim: &Option<Claim>| matches!(claim, None | Some(Claim::Fresh));
    if first != Claim::Fresh || !is_fresh(&business) {
        // Its own keys decide. What was free of the others must not stay ours.
        match [Some(&first), business.as_ref()].into_iter().flatten().find(|claim| **claim != Claim::Fresh) {
            // Parked in the way of before, and handled since in the way of now: both say that it is done with.
            Some(Claim::Duplicate(earlier)) if judged.reclaimed.contains(&at) && !earlier.is_parked() => {
                let outcome = |claim: &ClaimRequest| (claim.consumer, claim.key.clone(), earlier.outcome.clone());
                judged.outcomes.extend(ours.into_iter().map(outcome));
            }
            _ => judged.take_back.extend(ours.into_iter().map(place)),
        }
        return Bridged::Alike(first, business);
    }
    if let Some(conflict) = conflict {
        judged.take_back.extend(ours.into_iter().chain([&claims.first]).map(place));
        return Bridged::Alike(Claim::Conflict(conflict), business);
    }
    let Some(earlier) = before else {
        return match unclear {
            None => Bridged::Alike(first, business),
            Some(failure) => Bridged::Unclear(failure),
        };
    };
    ours.push(&claims.first);
    ours.extend(&claims.business);
    if earlier.is_parked() {
        // Its record is the one that its parked row owns, and no other says so.
        judged.take_back.extend(ours.into_iter().map(place));
    } else {
        // Remembered under its own keys too: they find it once the others have expired.
        let outcome = |claim: &ClaimRequest| (claim.consumer, claim.key.clone(), earlier.outcome.clone());
        judged.outcomes.extend(ours.into_iter().map(outcome));
    }
    Bridged::Before(earlier)
}

fn unclear_failure() -> Failure {
    let why = "a message was handled, or is parked, under its former key, and the fingerprints of then and now cannot be \
               compared; replay it if it is another message, discard it if it is the same";
    Failure::permanent(why).code("former-key")
}

/// A message that was parked and is tried again finds its own records: they become claims again, once. There may be one under
/// its key of now and one of before, if both deployments parked it; `reclaimed` gets the places that have any.
///
/// A record that says parked is its own if it is of the same content: a row may be there before its record, if the
/// message could not be tried when it came first, so no note on the row can say whose the record is. What was known to be
/// another message when it was parked stays a conflict, also where today's fingerprints can't tell.
async fn reclaim<S: ConsumerStore, R>(
    tx: &mut S::Tx,
    works: &[Work<S, R>],
    leaders: &[(usize, &Claims)],
    mut answers: Vec<Claim>,
    reclaimed: &mut HashSet<usize>,
) -> Result<Vec<Claim>, StoreError> {
    let mut asked = Vec::new();
    let mut next = 0;
    for (place, claims) in leaders {
        let at = next;
        next += claims.all().count();
        let Some(parked) = &works[*place].delivery.parked else { continue };
        for answer in &mut answers[at..next] {
            if let Claim::Duplicate(earlier) = answer
                && !parked.fingerprint.agrees_with(earlier.fingerprint)
            {
                *answer = Claim::Conflict(Conflict { stored: earlier.fingerprint, offered: parked.fingerprint });
            }
        }
        if let Some(Claim::Conflict(_)) = answers.get(at) {
            continue;
        }
        let is_own = |at: usize| matches!(answers.get(at), Some(Claim::Duplicate(earlier)) if earlier.is_parked());
        let was_at = at + 1 + claims.business.iter().count();
        let was = claims.was.iter().map(|former| &former.request);
        let own = std::iter::once(&claims.first).zip(at..).chain(was.zip(was_at..));
        let own = own.filter(|(_, at)| is_own(*at)).map(|(claim, at)| (at, (claim.consumer, claim.key.clone())));
        if planted::is("parked-duplicate-of-itself") {
            continue;
        }
        let before = asked.len();
        asked.extend(own);
        if asked.len() > before {
            reclaimed.insert(*place);
        }
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

/// Where order is kept, nothing overtakes a message that stays behind: what follows a conflict or a late one under
/// its order key waits as well.
pub(super) fn hold_back<S: Store, R>(judged: &mut Judged, works: &[Work<S, R>], claims: &[Option<&Claims>]) {
    let mut behind: HashSet<&str> = HashSet::new();
    for (place, work) in works.iter().enumerate() {
        let Some(key) = work.order_key.as_deref() else { continue };
        if behind.contains(key) && matches!(judged.fates[place], Some(Fate::Conflict(_) | Fate::Unclear(_))) {
            // Parked now, it would be in the way of what is before it.
            judged.fates[place] = Some(Fate::Later);
        } else if matches!(judged.fates[place], Some(Fate::Conflict(_) | Fate::Unclear(_) | Fate::Later)) {
            behind.insert(key);
        } else if behind.contains(key) && judged.fresh.contains(&place) {
            judged.leave(place, Fate::Later, claims[place]);
        }
    }
}

/// Gives followers what their leader got. A message that nothing decided waits.
pub(super) fn conclude<S: Store, R>(works: &[Work<S, R>], places: &[Place], mut fates: Vec<Option<Fate>>) -> Vec<Fate> {
    for (place, found) in places.iter().enumerate() {
        if let Place::Follower(leader) = found {
            fates[place] = match &fates[*leader] {
                // A row of its own does not go while its message is not done.
                Some(Fate::Aside(_)) if works[place].delivery.parked.is_some() => None,
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
