//! The inbox: claims, outcomes, and what is remembered of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::claim::{Claim, ClaimRequest, Earlier, judge};
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::key::Key;
use oncebox_core::outcome::{Outcome, OutcomeKind};
use oncebox_core::planted;
use oncebox_core::store::{ConsumerId, Inbox};
use tokio::time::Instant;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::error::ours;
use crate::queries::{InboxQueries, Query};
use crate::transaction::{SqlTx, bounded};

/// A row that is neither inserted nor found has vanished in between. That is rare, and three times in a row rarer.
const TRIES_MAX: usize = 3;

/// Claims that take longer may have waited for other transactions.
const QUICK: Duration = Duration::from_millis(10);

impl<D: Dialect> Inbox for SqlTx<D> {
    async fn claim(&mut self, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        let patience = self.patience();
        let began = Instant::now();
        let answers = if self.is_untouched() && are_alike(requests) && self.hope.try_now(requests.len()) {
            let (queries, _, db) = self.parts();
            let answers = bounded(patience, claim_fresh(db, &queries.inbox, requests)).await?;
            self.hope.learn(answers.is_some());
            if answers.is_none() {
                self.restart().await?;
            }
            answers
        } else {
            None
        };
        let Answers { claims, unblocked } = match answers {
            Some(answers) => answers,
            None => {
                let (queries, _, db) = self.parts();
                bounded(patience, claim(db, &queries.inbox, requests)).await?
            }
        };
        // What is parked was looked up as the statement began. If it had to wait for others, they may have parked since:
        // then it is asked again. A key that was not free may have been waited for, and so may any, if that took time.
        let all_free = claims.iter().all(|claim| matches!(claim, Claim::Fresh));
        let is_fresh = all_free && began.elapsed() < QUICK || planted::is("stale-look-at-parked");
        self.unblocked = if is_fresh { unblocked } else { Vec::new() };
        let fresh = requests.iter().zip(&claims).filter(|(_, claim)| matches!(claim, Claim::Fresh));
        self.claimed.add(fresh.map(|(request, _)| (request.consumer, request.key.clone())));
        let is_parked = |claim: &Claim| matches!(claim, Claim::Duplicate(earlier) if earlier.is_parked());
        let parked = requests.iter().zip(&claims).filter(|(_, claim)| is_parked(claim));
        for (request, claim) in parked {
            let Claim::Duplicate(earlier) = claim else { continue };
            self.found_parked.add((request.consumer, request.key.clone()), Some(earlier.fingerprint));
        }
        Ok(claims)
    }

    async fn record(&mut self, outcomes: &[(ConsumerId, Key, Outcome)]) -> Result<(), StoreError> {
        for (consumer, key, _) in outcomes {
            if !self.claimed.contains(*consumer, key) {
                return Err(not_claimed(format!("record the outcome of {key}")));
            }
        }
        let parked = outcomes.iter().filter(|(.., outcome)| outcome.kind() == OutcomeKind::Parked);
        for (consumer, key, _) in parked {
            self.found_parked.add((*consumer, key.clone()), None);
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
            self.found_parked.remove(place);
            // A key that this transaction claimed itself was free before, whatever was recorded since.
            if !self.claimed.contains(place.0, &place.1) {
                self.claimed.add([place.clone()]);
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
        for place in keys {
            if !self.claimed.remove(place.0, &place.1) {
                continue;
            }
            match self.reclaimed.remove(place) {
                Some(before) => {
                    self.found_parked.add(place.clone(), None);
                    parked.push((place.0, place.1.clone(), before));
                }
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

/// What the claims of some keys came to.
pub(crate) struct Answers {
    pub(crate) claims: Vec<Claim>,
    /// Consumers of which nothing was parked that may block an order key, as far as the claims of their keys saw.
    unblocked: Vec<ConsumerId>,
}

/// A key that is not decided yet.
struct Asked<'r> {
    request: &'r ClaimRequest,
    /// Its place among the requests.
    at: usize,
    /// As it lies in the table.
    key: Cow<'r, [u8]>,
}

/// Claims keys on any connection. Two statements: one that inserts and, if it fell short, one that reads the rest.
pub(crate) async fn claim(
    db: &mut impl Connection,
    queries: &InboxQueries,
    requests: &[ClaimRequest],
) -> Result<Answers, StoreError> {
    let mut open = sorted(requests)?;
    let mut claims = vec![Claim::Undecided; requests.len()];
    let mut unblocked = Vec::new();
    for _ in 0..TRIES_MAX {
        for run in open.chunk_by(|a, b| likeness(a.request) == likeness(b.request)) {
            if !insert(db, queries, run, &mut claims).await? {
                unblocked.push(run[0].request.consumer);
            }
        }
        open.retain(|asked| claims[asked.at] == Claim::Undecided);
        if open.is_empty() {
            break;
        }
        for mut row in find(db, queries, &open).await? {
            let at = answered(&open, row.int()?, &row.bytes()?)?;
            claims[at] = judge(requests[at].fingerprint, remembered(&mut row)?);
        }
        open.retain(|asked| claims[asked.at] == Claim::Undecided);
        if open.is_empty() {
            break;
        }
    }
    Ok(Answers { claims, unblocked })
}

/// What keys have in common that are inserted by one statement. Mostly all of a batch: one consumer, one way to make
/// fingerprints.
fn likeness(request: &ClaimRequest) -> (ConsumerId, i16) {
    (request.consumer, request.fingerprint.scheme())
}

/// Answers whether something of their consumer may be parked that blocks an order key.
async fn insert(
    db: &mut impl Connection,
    queries: &InboxQueries,
    run: &[Asked<'_>],
    claims: &mut [Claim],
) -> Result<bool, StoreError> {
    let call = match run {
        [asked] => {
            let ClaimRequest { consumer, fingerprint, id_hash, .. } = asked.request;
            Call::new("claim keys", &queries.claim_one)
                .value(consumer.0)
                .value(fingerprint.scheme())
                .value(&asked.key[..])
                .value(fingerprint.hash())
                .value(*id_hash)
        }
        run => insertion(&queries.claim, run),
    };
    let rows = call.fetch(db).await?;
    let mut may_block = rows.is_empty();
    for mut row in rows {
        claims[answered(run, run[0].request.consumer.0, &row.bytes()?)?] = Claim::Fresh;
        may_block |= row.int::<i64>()? != 0;
    }
    Ok(may_block)
}

/// A call that inserts keys which have everything in common that must be.
fn insertion<'a>(query: &'a Query, run: &'a [Asked<'_>]) -> Call<'a> {
    let (consumer, scheme) = likeness(run[0].request);
    Call::new("claim keys", query)
        .value(consumer.0)
        .value(scheme)
        .column(run.iter().map(|asked| Some(&asked.key[..])))
        .column(run.iter().map(|asked| Some(asked.request.fingerprint.hash())))
        .column(run.iter().map(|asked| asked.request.id_hash))
}

/// Whether one statement inserts them all. Of several, those before the one that fails would have done their work, and
/// where a failed statement undoes only itself, that would pass for somebody else's.
fn are_alike(requests: &[ClaimRequest]) -> bool {
    requests.windows(2).all(|pair| likeness(&pair[0]) == likeness(&pair[1]))
}

/// Claims keys that are alike and all expected to be free. `None`: one was not, and in some databases the transaction
/// is lost.
async fn claim_fresh(
    db: &mut impl Connection,
    queries: &InboxQueries,
    requests: &[ClaimRequest],
) -> Result<Option<Answers>, StoreError> {
    match db.fetch(insertion(&queries.claim_fresh, &sorted(requests)?)).await {
        Ok(mut rows) => {
            // Where the statement does not tell, something may be parked.
            let may_block = rows.first_mut().map_or(Ok(1), Row::int::<i64>)? != 0;
            let unblocked = if may_block { Vec::new() } else { vec![requests[0].consumer] };
            Ok(Some(Answers { claims: vec![Claim::Fresh; requests.len()], unblocked }))
        }
        Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => Ok(None),
        Err(error) => Err(ours("claim keys", error)),
    }
}

async fn find(db: &mut impl Connection, queries: &InboxQueries, open: &[Asked<'_>]) -> Result<Vec<Row>, StoreError> {
    Call::new("read records", &queries.read)
        .column(open.iter().map(|asked| Some(asked.request.consumer.0)))
        .column(open.iter().map(|asked| Some(&asked.key[..])))
        .fetch(db)
        .await
}

/// In one order for all: two batches that hold the same keys wait for each other instead of deadlocking.
fn sorted(requests: &[ClaimRequest]) -> Result<Vec<Asked<'_>>, StoreError> {
    let asked = |(at, request)| Asked { request, at, key: stored(&request.key) };
    let mut open: Vec<Asked<'_>> = requests.iter().enumerate().map(asked).collect();
    open.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
    if let Some([first, _]) = open.array_windows().find(|[a, b]| place(a) == place(b)) {
        // Its answer would be given twice, and both deliveries would run.
        let attempted = format!("claim key {}", first.request.key);
        return Err(StoreError::new(StoreErrorKind::Refused, attempted, "it is asked for twice in one batch"));
    }
    if planted::is("unsorted-batch") {
        open.sort_unstable_by_key(|asked| asked.at);
    }
    Ok(open)
}

/// Where its record lies.
fn place<'a>(asked: &'a Asked<'_>) -> (i16, &'a [u8]) {
    (asked.request.consumer.0, &asked.key)
}

/// Which request a row answers.
fn answered(open: &[Asked<'_>], consumer: i16, key: &[u8]) -> Result<usize, StoreError> {
    let found = if planted::is("unsorted-batch") {
        open.iter().position(|asked| place(asked) == (consumer, key))
    } else {
        open.binary_search_by(|asked| place(asked).cmp(&(consumer, key))).ok()
    };
    found.map(|found| open[found].at).ok_or_else(|| corrupt("a key that was not asked for"))
}

fn remembered(row: &mut Row) -> Result<Earlier, StoreError> {
    let (hash, scheme) = (row.int()?, row.int()?);
    let kind =
        OutcomeKind::from_code(row.int()?).ok_or_else(|| corrupt("an outcome that this version does not know"))?;
    let outcome = Outcome::from_stored(kind, row.bytes_or_null()?);
    Ok(Earlier { outcome, id_hash: row.int_or_null()?, fingerprint: Fingerprint::from_stored(scheme, hash) })
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
    let keys: Vec<Cow<'_, [u8]>> = outcomes.iter().map(|(_, key, _)| stored(key)).collect();
    let changed = Call::new("record outcomes", &queries.record)
        .column(outcomes.iter().map(|(consumer, _, _)| Some(consumer.0)))
        .column(keys.iter().map(|key| Some(&key[..])))
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
    // In one order for all, as claims are. The same key twice: it is the first one's.
    let mut open: BTreeMap<(i16, Cow<'_, [u8]>), usize> = BTreeMap::new();
    for (at, (consumer, key)) in keys.iter().enumerate() {
        open.entry((consumer.0, stored(key))).or_insert(at);
    }
    if open.is_empty() {
        return Ok(before);
    }
    let found = Call::new(attempted, &queries.find_parked)
        .column(open.keys().map(|(consumer, _)| Some(*consumer)))
        .column(open.keys().map(|(_, key)| Some(&key[..])))
        .fetch(db)
        .await?;
    let mut parked: Vec<(i16, Bytes)> = Vec::with_capacity(found.len());
    for mut row in found {
        let (consumer, key): (i16, Bytes) = (row.int()?, row.bytes()?);
        let at =
            open.get(&(consumer, Cow::Borrowed(&key[..]))).ok_or_else(|| corrupt("a key that was not asked for"))?;
        before[*at] = Some(Outcome::from_stored(OutcomeKind::Parked, row.bytes_or_null()?));
        parked.push((consumer, key));
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
    let stored: Vec<Cow<'_, [u8]>> = keys.iter().map(|(_, key)| stored(key)).collect();
    Call::new("take back claims", &queries.unclaim)
        .column(keys.iter().map(|(consumer, _)| Some(consumer.0)))
        .column(stored.iter().map(|key| Some(&key[..])))
        .execute(db)
        .await?;
    Ok(())
}

/// A key as it lies in the table.
fn stored(key: &Key) -> Cow<'_, [u8]> {
    let key = key.as_bytes();
    if planted::is("key-cut-short") {
        Cow::Borrowed(&key[..key.len().min(8)])
    } else if planted::is("key-without-case") {
        Cow::Owned(key.to_ascii_lowercase())
    } else {
        Cow::Borrowed(key)
    }
}
