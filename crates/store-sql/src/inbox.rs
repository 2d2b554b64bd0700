//! The inbox: claims, outcomes, and what is remembered of them.

use std::collections::HashMap;

use bytes::Bytes;
use oncebox_core::claim::{Claim, ClaimRequest, Earlier, judge};
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::key::Key;
use oncebox_core::outcome::{Outcome, OutcomeKind};
use oncebox_core::planted;
use oncebox_core::store::{ConsumerId, Inbox};

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::queries::InboxQueries;
use crate::transaction::{SqlTx, bounded};

/// A row that is neither inserted nor found has vanished in between. That is rare, and three times in a row rarer.
const TRIES_MAX: usize = 3;

/// Where a record lies.
type Place = (i16, Bytes);

impl<D: Dialect> Inbox for SqlTx<D> {
    async fn claim(&mut self, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let claims = bounded(patience, claim(db, &queries.inbox, requests)).await?;
        let fresh = requests.iter().zip(&claims).filter(|(_, claim)| matches!(claim, Claim::Fresh));
        self.claimed.extend(fresh.map(|(request, _)| (request.consumer, request.key.clone())));
        Ok(claims)
    }

    async fn record(&mut self, outcomes: &[(ConsumerId, Key, Outcome)]) -> Result<(), StoreError> {
        for (consumer, key, _) in outcomes {
            if !self.claimed.contains(&(*consumer, key.clone())) {
                return Err(not_claimed(format!("record the outcome of {key}")));
            }
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, record(db, &queries.inbox, outcomes)).await
    }

    async fn reclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<Vec<bool>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let before = bounded(patience, reclaim(db, &queries.inbox, keys)).await?;
        let done: Vec<bool> = before.iter().map(Option::is_some).collect();
        for (place, before) in keys.iter().zip(before) {
            let Some(before) = before else { continue };
            // A key that this transaction claimed itself was free before, whatever was recorded since.
            if self.claimed.insert(place.clone()) {
                self.reclaimed.insert(place.clone(), before);
            }
        }
        Ok(done)
    }

    async fn unclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        // A record that someone else committed stays, or its message would run again. One that was parked before is
        // parked again: deleted, its message would be taken for a new one.
        let mut free = Vec::new();
        let mut parked = Vec::new();
        for place in keys.iter().filter(|place| self.claimed.remove(place)) {
            match self.reclaimed.remove(place) {
                Some(before) => parked.push((place.0, place.1.clone(), before)),
                None => free.push(place.clone()),
            }
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, async {
            record(db, &queries.inbox, &parked).await?;
            unclaim(db, &queries.inbox, &free).await
        })
        .await
    }
}

/// Claims keys on any connection. Two statements: one that inserts and, if it fell short, one that reads the rest.
pub(crate) async fn claim(
    db: &mut impl Connection,
    queries: &InboxQueries,
    requests: &[ClaimRequest],
) -> Result<Vec<Claim>, StoreError> {
    let mut open: HashMap<Place, usize> = HashMap::with_capacity(requests.len());
    for (at, request) in requests.iter().enumerate() {
        if open.insert(place(request.consumer, &request.key), at).is_some() {
            // Its answer would be given twice, and both deliveries would run.
            let attempted = format!("claim key {}", request.key);
            return Err(StoreError::new(StoreErrorKind::Refused, attempted, "it is asked for twice in one batch"));
        }
    }
    let mut claims = vec![Claim::Undecided; requests.len()];
    for _ in 0..TRIES_MAX {
        for mut row in insert(db, queries, &open, requests).await? {
            claims[taken(&mut open, &mut row)?] = Claim::Fresh;
        }
        if open.is_empty() {
            break;
        }
        for mut row in find(db, queries, &open).await? {
            let at = taken(&mut open, &mut row)?;
            let (stored, earlier) = remembered(&mut row)?;
            claims[at] = judge(requests[at].fingerprint, stored, earlier);
        }
        if open.is_empty() {
            break;
        }
    }
    Ok(claims)
}

async fn insert(
    db: &mut impl Connection,
    queries: &InboxQueries,
    open: &HashMap<Place, usize>,
    requests: &[ClaimRequest],
) -> Result<Vec<Row>, StoreError> {
    let asked = sorted(open);
    let request = |place: &(&Place, usize)| &requests[place.1];
    Call::new("claim keys", &queries.claim)
        .column(asked.iter().map(|((consumer, _), _)| Some(*consumer)))
        .column(asked.iter().map(|((_, key), _)| Some(&key[..])))
        .column(asked.iter().map(|asked| Some(request(asked).fingerprint.hash())))
        .column(asked.iter().map(|asked| Some(request(asked).fingerprint.scheme())))
        .column(asked.iter().map(|asked| request(asked).id_hash))
        .fetch(db)
        .await
}

async fn find(
    db: &mut impl Connection,
    queries: &InboxQueries,
    open: &HashMap<Place, usize>,
) -> Result<Vec<Row>, StoreError> {
    let asked = sorted(open);
    Call::new("read records", &queries.read)
        .column(asked.iter().map(|((consumer, _), _)| Some(*consumer)))
        .column(asked.iter().map(|((_, key), _)| Some(&key[..])))
        .fetch(db)
        .await
}

/// In one order for all: two batches that hold the same keys wait for each other instead of deadlocking.
fn sorted(open: &HashMap<Place, usize>) -> Vec<(&Place, usize)> {
    let mut asked: Vec<(&Place, usize)> = open.iter().map(|(place, at)| (place, *at)).collect();
    if planted::is("unsorted-batch") {
        asked.sort_unstable_by_key(|(_, at)| *at);
    } else {
        asked.sort_unstable();
    }
    asked
}

/// Which request a row answers.
fn taken(open: &mut HashMap<Place, usize>, row: &mut Row) -> Result<usize, StoreError> {
    let place = (row.int()?, row.bytes()?);
    open.remove(&place).ok_or_else(|| corrupt("a key that was not asked for"))
}

fn remembered(row: &mut Row) -> Result<(Fingerprint, Earlier), StoreError> {
    let (hash, scheme) = (row.int()?, row.int()?);
    let kind =
        OutcomeKind::from_code(row.int()?).ok_or_else(|| corrupt("an outcome that this version does not know"))?;
    let outcome = Outcome::from_stored(kind, row.bytes_or_null()?);
    Ok((Fingerprint::from_stored(scheme, hash), Earlier { outcome, id_hash: row.int_or_null()? }))
}

/// Replaces the outcomes of claimed keys.
pub(crate) async fn record(
    db: &mut impl Connection,
    queries: &InboxQueries,
    outcomes: &[(ConsumerId, Key, Outcome)],
) -> Result<(), StoreError> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let keys: Vec<Place> = outcomes.iter().map(|(consumer, key, _)| place(*consumer, key)).collect();
    let changed = Call::new("record outcomes", &queries.record)
        .column(keys.iter().map(|(consumer, _)| Some(*consumer)))
        .column(keys.iter().map(|(_, key)| Some(&key[..])))
        .column(outcomes.iter().map(|(_, _, outcome)| Some(outcome.kind().code())))
        .column(outcomes.iter().map(|(_, _, outcome)| outcome.result().map(|result| &result[..])))
        .execute(db)
        .await?;
    if changed == outcomes.len() as u64 {
        return Ok(());
    }
    Err(not_claimed("record outcomes".to_owned()))
}

/// Turns records of parked messages into claims. Answers with what each said before; `None`: it is not one.
async fn reclaim(
    db: &mut impl Connection,
    queries: &InboxQueries,
    keys: &[(ConsumerId, Key)],
) -> Result<Vec<Option<Outcome>>, StoreError> {
    let attempted = "reclaim keys";
    let mut before = vec![None; keys.len()];
    // The same key twice: it is the first one's.
    let mut open: HashMap<Place, usize> = HashMap::with_capacity(keys.len());
    for (at, (consumer, key)) in keys.iter().enumerate() {
        open.entry(place(*consumer, key)).or_insert(at);
    }
    if open.is_empty() {
        return Ok(before);
    }
    let asked = sorted(&open);
    let found = Call::new(attempted, &queries.find_parked)
        .column(asked.iter().map(|((consumer, _), _)| Some(*consumer)))
        .column(asked.iter().map(|((_, key), _)| Some(&key[..])))
        .fetch(db)
        .await?;
    let mut parked: Vec<Place> = Vec::with_capacity(found.len());
    for mut row in found {
        let place = (row.int()?, row.bytes()?);
        let at = open.get(&place).ok_or_else(|| corrupt("a key that was not asked for"))?;
        before[*at] = Some(Outcome::from_stored(OutcomeKind::Parked, row.bytes_or_null()?));
        parked.push(place);
    }
    if parked.is_empty() {
        return Ok(before);
    }
    let changed = Call::new(attempted, &queries.reclaim)
        .column(parked.iter().map(|(consumer, _)| Some(*consumer)))
        .column(parked.iter().map(|(_, key)| Some(&key[..])))
        .execute(db)
        .await?;
    if changed == parked.len() as u64 { Ok(before) } else { Err(corrupt("other records than those that were locked")) }
}

fn not_claimed(attempted: String) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, attempted, "the key was not claimed in this transaction")
}

/// Takes back claimed keys.
pub(crate) async fn unclaim(
    db: &mut impl Connection,
    queries: &InboxQueries,
    keys: &[(ConsumerId, Key)],
) -> Result<(), StoreError> {
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<Place> = keys.iter().map(|(consumer, key)| place(*consumer, key)).collect();
    Call::new("take back claims", &queries.unclaim)
        .column(keys.iter().map(|(consumer, _)| Some(*consumer)))
        .column(keys.iter().map(|(_, key)| Some(&key[..])))
        .execute(db)
        .await?;
    Ok(())
}

fn place(consumer: ConsumerId, key: &Key) -> Place {
    let key = key.as_bytes();
    let stored = if planted::is("key-cut-short") {
        Bytes::copy_from_slice(&key[..key.len().min(8)])
    } else if planted::is("key-without-case") {
        Bytes::from(key.to_ascii_lowercase())
    } else {
        Bytes::copy_from_slice(key)
    };
    (consumer.0, stored)
}
