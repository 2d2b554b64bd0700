//! What an operator sees and does of the parked messages.
//!
//! Rows and records are locked before they are changed, and what somebody holds is passed over: a runner locks the
//! record first and its row last, an operator the other way round, so that waiting could deadlock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::claim::{Claim, ClaimRequest};
use oncebox_core::error::StoreError;
use oncebox_core::failure::Class;
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::key::Key;
use oncebox_core::outcome::{Outcome, OutcomeKind};
use oncebox_core::parked::{Cause, LeasedPark, Park};
use oncebox_core::quarantine::{CauseCount, ParkedRow, ParkedState, Quarantine, Remembered, Superseded};
use oncebox_core::replay::ReplayId;
use oncebox_core::store::{ConsumerId, Inbox};

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::operator_queries::QuarantineQueries;
use crate::parked;
use crate::queries::ParkedQueries;
use crate::transaction::{SqlTx, bounded};
use crate::turns;
use crate::wire::{self, Packed, error_text};

impl<D: Dialect> Quarantine for SqlTx<D> {
    async fn page(&mut self, consumer: ConsumerId, after: i64, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("list parked messages", &queries.operators.quarantine.page).value(consumer.0);
        let rows = bounded(patience, call.value(after).value(limit).fetch(db)).await?;
        rows.into_iter().map(read).collect()
    }

    async fn parked(&mut self, row: i64) -> Result<Option<ParkedRow>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("read a parked message", &queries.operators.quarantine.read).value(row);
        bounded(patience, call.fetch(db)).await?.into_iter().next().map(read).transpose()
    }

    async fn causes(&mut self, consumer: ConsumerId) -> Result<Vec<CauseCount>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count parked messages", &queries.operators.quarantine.causes).value(consumer.0);
        let count = |mut row: Row| {
            Ok(CauseCount {
                cause: Cause::from_stored(row.text()?),
                messages: row.int()?,
                dead: row.int()?,
                first_at: row.time()?,
                last_at: row.time()?,
            })
        };
        bounded(patience, call.fetch(db)).await?.into_iter().map(count).collect()
    }

    async fn remembered(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Remembered>>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let found = bounded(patience, find_records(db, &queries.operators.quarantine, consumer, keys)).await?;
        Ok(found.into_iter().map(|found| found.map(|found| found.said)).collect())
    }

    async fn annotate(&mut self, rows: &[i64], note: Option<&str>) -> Result<Vec<bool>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let note = note.map(error_text);
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("annotate parked messages", &queries.operators.quarantine.annotate).value(note.as_deref());
        let done = bounded(patience, ids(call, rows).fetch(db)).await?;
        let done = done.into_iter().map(|mut row| row.int()).collect::<Result<HashSet<i64>, _>>()?;
        Ok(rows.iter().map(|row| done.contains(row)).collect())
    }

    async fn discard(&mut self, rows: &[i64], reason: &str) -> Result<Vec<bool>, StoreError> {
        let reason = error_text(reason);
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let done =
            bounded(patience, discard(db, &queries.operators.quarantine, &queries.parked, rows, &reason)).await?;
        Ok(rows.iter().map(|row| done.contains(row)).collect())
    }

    async fn revive(&mut self, rows: &[i64], replay: Option<ReplayId>) -> Result<Vec<bool>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let done = bounded(patience, revive(db, &queries.operators.quarantine, now, rows, replay)).await?;
        Ok(rows.iter().map(|row| done.contains(row)).collect())
    }

    async fn take_in_hand(&mut self, row: i64) -> Result<Option<LeasedPark>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let revived = bounded(patience, revive(db, &queries.operators.quarantine, now, &[row], None)).await?;
        if revived.is_empty() {
            return Ok(None);
        }
        let taken = bounded(patience, parked::take(db, &queries.parked, now, &[row], Duration::ZERO)).await?;
        Ok(taken.into_iter().next())
    }

    async fn supersede(&mut self, row: i64, with: &Park, link: i64, reason: &str) -> Result<Superseded, StoreError> {
        let reason = error_text(reason);
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let quarantine = &queries.operators.quarantine;
        let owner = match bounded(patience, free_the_way(db, quarantine, row, with, &reason)).await? {
            Way::Blocked(why) => return Ok(why),
            Way::SameKey => None,
            Way::Free(owner) => Some(owner),
        };
        if let Some(consumer) = owner {
            let (key, fingerprint) = (with.key.clone(), with.fingerprint);
            let request = ClaimRequest { consumer, key: key.clone(), fingerprint, id_hash: None };
            // It was free a moment ago. If it is not, somebody else was quicker, and this transaction has rejected the
            // old message already: it must not commit.
            if !matches!(self.claim(&[request]).await?[..], [Claim::Fresh]) {
                return Err(taken_meanwhile(&with.key));
            }
            self.record(&[(consumer, key, Outcome::parked_by(with.consumer, consumer))]).await?;
        }
        let (queries, _, db) = self.parts();
        bounded(patience, replace(db, &queries.operators.quarantine, row, with, link)).await?;
        Ok(Superseded::Done)
    }
}

/// A row that this transaction has locked.
struct Locked {
    row: i64,
    consumer: ConsumerId,
    key: Key,
    fingerprint: Fingerprint,
    owns_record: bool,
    is_dead: bool,
}

/// Whether another message can take the place of a row's.
enum Way {
    Blocked(Superseded),
    /// The record is there and carries the new fingerprint.
    SameKey,
    /// The new key is to be claimed in these records.
    Free(ConsumerId),
}

fn ids<'v>(call: Call<'v>, rows: &[i64]) -> Call<'v> {
    call.column(rows.iter().map(|row| Some(*row)))
}

fn read(mut row: Row) -> Result<ParkedRow, StoreError> {
    let (id, consumer) = (row.int()?, ConsumerId(row.int()?));
    let key = stored_key(&mut row)?;
    let (hash, scheme) = (row.int()?, row.int()?);
    let owns_record: i64 = row.int()?;
    let order_key = wire::text_or_null(&mut row)?;
    let stored = stored_state(&mut row)?;
    let due_at = row.time_or_null()?;
    let state = if due_at.is_none() { ParkedState::Dead } else { stored };
    let class = match row.int_or_null()? {
        Some(code) => Some(Class::from_code(code).ok_or_else(|| corrupt("a class that this version does not know"))?),
        None => None,
    };
    let (cause, reason) = (Cause::from_stored(row.text()?), row.text()?);
    let attempts = row.int()?;
    let at = (row.time()?, row.time()?);
    let note = row.text_or_null()?;
    let (replay, supersedes) = (row.int_or_null()?.map(ReplayId), row.int_or_null()?);
    let is_held_up: i64 = row.int()?;
    let message = wire::read(&mut row)?;
    let mut read = ParkedRow::new(id, consumer, key, Fingerprint::from_stored(scheme, hash), message, state, cause, at);
    read.owns_record = owns_record != 0;
    read.order_key = order_key;
    read.due_at = due_at;
    read.class = class;
    read.reason = reason;
    read.attempts = attempts;
    read.note = note;
    read.replay = replay;
    read.supersedes = supersedes;
    read.is_held_up = is_held_up != 0;
    read.is_gap = stored == ParkedState::Gap;
    Ok(read)
}

fn stored_key(row: &mut Row) -> Result<Key, StoreError> {
    Key::from_stored(&row.bytes()?[..]).map_err(|_| corrupt("bytes that are no key"))
}

fn stored_state(row: &mut Row) -> Result<ParkedState, StoreError> {
    ParkedState::from_code(row.int()?).ok_or_else(|| corrupt("a state that this version does not know"))
}

/// What is remembered under a key.
#[derive(Clone, Debug)]
struct Found {
    /// Whose records it is in.
    owner: ConsumerId,
    said: Remembered,
    /// The consumer whose row it stands for, if it names one.
    parker: Option<ConsumerId>,
}

/// The records under these keys: the consumer's own before those that consumers share.
async fn find_records(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    consumer: ConsumerId,
    keys: &[Key],
) -> Result<Vec<Option<Found>>, StoreError> {
    let found = find_all(db, queries, consumer, keys).await?;
    Ok(found.into_iter().map(|(own, shared)| own.or(shared)).collect())
}

/// The records under these keys: the consumer's own, and the shared ones.
async fn find_all(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    consumer: ConsumerId,
    keys: &[Key],
) -> Result<Vec<(Option<Found>, Option<Found>)>, StoreError> {
    let mut found = vec![(None, None); keys.len()];
    if keys.is_empty() {
        return Ok(found);
    }
    let call = Call::new("read records", &queries.find_records).value(consumer.0);
    for mut row in call.column(keys.iter().map(|key| Some(key.as_bytes()))).fetch(db).await? {
        let at: usize = row.int()?;
        let owner = ConsumerId(row.int()?);
        let (hash, scheme) = (row.int()?, row.int()?);
        let outcome = OutcomeKind::from_code(row.int()?).ok_or_else(|| corrupt("an outcome that is none"))?;
        let (own, shared) = found.get_mut(at).ok_or_else(|| corrupt("a key that was not asked for"))?;
        let parker = Outcome::from_stored(outcome, row.bytes_or_null()?).parker();
        let (fingerprint, is_shared) = (Fingerprint::from_stored(scheme, hash), owner != consumer);
        let place = if is_shared { shared } else { own };
        *place = Some(Found { owner, said: Remembered { fingerprint, outcome, is_shared }, parker });
    }
    Ok(found)
}

/// In whose records it says of each of these rows of one consumer that it is parked: in its own, in the shared ones, or in both
/// while another scope is bridged.
async fn owners(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    consumer: ConsumerId,
    rows: &[Locked],
) -> Result<Vec<Vec<ConsumerId>>, StoreError> {
    let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
    let found = find_all(db, queries, consumer, &keys).await?;
    let shared: Vec<i64> =
        rows.iter().zip(&found).filter(|(_, (_, shared))| shared.is_some()).map(|(row, _)| row.row).collect();
    let mut elsewhere: HashMap<i64, i64> = HashMap::new();
    if !shared.is_empty() {
        let asked = ids(Call::new("read records", &queries.elsewhere), &shared).fetch(db).await?;
        let asked = asked.into_iter().map(|mut row| Ok((row.int()?, row.int()?)));
        elsewhere = asked.collect::<Result<_, StoreError>>()?;
    }
    let mut all = Vec::with_capacity(rows.len());
    for (row, (own, shared)) in rows.iter().zip(found) {
        // Where a shared record names no consumer: beside one of its own, it may be that of another consumer's row; it is,
        // where this one shares nothing.
        let may_be = elsewhere.get(&row.row).is_none_or(|never_shares| *never_shares == 0 && own.is_none());
        let is_ours = |found: &Found| found.parker.map_or(may_be, |parker| parker == consumer);
        let mut owners = Vec::new();
        for Found { owner, said, .. } in own.into_iter().chain(shared.filter(is_ours)) {
            if said.is_of_parked(row.fingerprint, row.owns_record)
                && !is_of_other(db, queries, row, owner, &said).await?
            {
                owners.push(owner);
            }
        }
        all.push(owners);
    }
    Ok(all)
}

/// Whether a record that can't be compared with a row, because fingerprints were made otherwise meanwhile, is that of a
/// row with just its content.
async fn is_of_other(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    row: &Locked,
    owner: ConsumerId,
    said: &Remembered,
) -> Result<bool, StoreError> {
    if said.fingerprint == row.fingerprint {
        return Ok(false);
    }
    Ok(!with_content(db, queries, owner, &row.key, said.fingerprint).await?.is_empty())
}

/// The rows under a key with this content: of the consumer, or of all where it stands for the shared records.
async fn with_content(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    consumer: ConsumerId,
    key: &Key,
    content: Fingerprint,
) -> Result<Vec<i64>, StoreError> {
    let call = Call::new("read parked messages", &queries.is_parked).value(consumer.0).value(key.as_bytes());
    let rows = call.value(content.hash()).value(content.scheme()).fetch(db).await?;
    rows.into_iter().map(|mut row| row.int()).collect()
}

async fn lock_rows(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    attempted: &'static str,
    rows: &[i64],
) -> Result<Vec<Locked>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let locked = ids(Call::new(attempted, &queries.lock_rows), rows).fetch(db).await?;
    let read = |mut row: Row| {
        let (id, consumer, key) = (row.int()?, ConsumerId(row.int()?), stored_key(&mut row)?);
        let (hash, scheme) = (row.int()?, row.int()?);
        let (owns_record, state): (i64, _) = (row.int()?, stored_state(&mut row)?);
        let fingerprint = Fingerprint::from_stored(scheme, hash);
        let (owns_record, is_dead) = (owns_record != 0, state == ParkedState::Dead);
        Ok(Locked { row: id, consumer, key, fingerprint, owns_record, is_dead })
    };
    locked.into_iter().map(read).collect()
}

async fn withdraw(db: &mut impl Connection, queries: &QuarantineQueries, rows: &[i64]) -> Result<(), StoreError> {
    ids(Call::new("note what left a replay", &queries.withdraw), rows).execute(db).await.map(drop)
}

/// Rejects the records that say that these rows are parked. Answers with the rows whose records nobody else holds; for the others
/// nothing was changed.
async fn reject(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    rows: Vec<Locked>,
    reason: &str,
) -> Result<HashSet<i64>, StoreError> {
    let attempted = "reject parked messages";
    let mut free: HashSet<i64> = rows.iter().map(|row| row.row).collect();
    let mut records: HashMap<(i16, Bytes), i64> = HashMap::new();
    let mut by_consumer: HashMap<ConsumerId, Vec<Locked>> = HashMap::new();
    for row in rows {
        by_consumer.entry(row.consumer).or_default().push(row);
    }
    for (consumer, rows) in by_consumer {
        let owners = owners(db, queries, consumer, &rows).await?;
        // None: handled meanwhile, or forgotten; there is nothing to answer a redelivery with but what is there.
        for (row, owners) in rows.into_iter().zip(owners) {
            let place = |owner: ConsumerId| (owner.0, Bytes::copy_from_slice(row.key.as_bytes()));
            records.extend(owners.into_iter().map(|owner| (place(owner), row.row)));
        }
    }
    if records.is_empty() {
        return Ok(free);
    }
    let asked: Vec<&(i16, Bytes)> = records.keys().collect();
    let call = Call::new(attempted, &queries.lock_records);
    let locked = call
        .column(asked.iter().map(|(owner, _)| Some(*owner)))
        .column(asked.iter().map(|(_, key)| Some(&key[..])))
        .fetch(db)
        .await?;
    let places = locked.into_iter().map(|mut row| Ok((row.int()?, row.bytes()?)));
    let locked: HashSet<(i16, Bytes)> = places.collect::<Result<_, StoreError>>()?;
    for (_, row) in records.iter().filter(|(place, _)| !locked.contains(*place)) {
        free.remove(row);
    }
    let is_free = |place: &&(i16, Bytes)| records.get(*place).is_some_and(|row| free.contains(row));
    let places: Vec<&(i16, Bytes)> = locked.iter().filter(is_free).collect();
    if places.is_empty() {
        return Ok(free);
    }
    Call::new(attempted, &queries.reject)
        .value(reason.as_bytes())
        .column(places.iter().map(|(owner, _)| Some(*owner)))
        .column(places.iter().map(|(_, key)| Some(&key[..])))
        .execute(db)
        .await?;
    Ok(free)
}

async fn discard(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    parked: &ParkedQueries,
    rows: &[i64],
    reason: &str,
) -> Result<HashSet<i64>, StoreError> {
    let attempted = "discard parked messages";
    let locked = lock_rows(db, queries, attempted, rows).await?;
    let done = reject(db, queries, locked, reason).await?;
    if !done.is_empty() {
        let rows: Vec<i64> = done.iter().copied().collect();
        withdraw(db, queries, &rows).await?;
        let gone = ids(Call::new(attempted, &queries.delete), &rows).fetch(db).await?;
        turns::wake(db, parked, attempted, gone).await?;
    }
    Ok(done)
}

async fn revive(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    now: Option<i64>,
    rows: &[i64],
    replay: Option<ReplayId>,
) -> Result<HashSet<i64>, StoreError> {
    let attempted = "revive parked messages";
    let locked = lock_rows(db, queries, attempted, rows).await?;
    let dead: Vec<i64> = locked.iter().filter(|row| row.is_dead).map(|row| row.row).collect();
    if !dead.is_empty() {
        withdraw(db, queries, &dead).await?;
        let call = Call::new(attempted, &queries.revive).value(now).value(replay.map(|replay| replay.0));
        ids(call, &dead).execute(db).await?;
    }
    Ok(dead.into_iter().collect())
}

/// Makes sure that a row can take another message, and settles the record of the one that it has.
async fn free_the_way(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    row: i64,
    with: &Park,
    reason: &str,
) -> Result<Way, StoreError> {
    let attempted = "replace a parked message";
    let refused = Ok(Way::Blocked(Superseded::Refused));
    let locked = lock_rows(db, queries, attempted, &[row]).await?;
    let Some(old) = locked.into_iter().next().filter(|row| row.is_dead) else { return refused };
    let (hash, scheme) = (with.fingerprint.hash(), with.fingerprint.scheme());
    if with_content(db, queries, with.consumer, &with.key, with.fingerprint).await?.iter().any(|same| *same != row) {
        return Ok(Way::Blocked(Superseded::Taken));
    }
    let old = [old];
    let owners = owners(db, queries, old[0].consumer, &old).await?.concat();
    let [old] = old;
    if (old.owns_record || !owners.is_empty()) && old.key == with.key {
        let mut changed = 0;
        for owner in &owners {
            let call = Call::new(attempted, &queries.refingerprint).value(owner.0).value(with.key.as_bytes());
            changed += call.value(hash).value(scheme).execute(db).await?;
        }
        return match changed {
            0 => refused,
            _ if changed == owners.len() as u64 => Ok(Way::SameKey),
            // One of two is changed already, so this transaction must not commit.
            _ => Err(taken_meanwhile(&with.key)),
        };
    }
    let owner = owners.first().copied().unwrap_or(with.consumer);
    let of_new = find_records(db, queries, old.consumer, std::slice::from_ref(&with.key)).await?;
    if of_new.iter().any(Option::is_some) {
        return Ok(Way::Blocked(Superseded::Taken));
    }
    if reject(db, queries, vec![old], reason).await?.is_empty() {
        return refused;
    }
    Ok(Way::Free(owner))
}

async fn replace(
    db: &mut impl Connection,
    queries: &QuarantineQueries,
    row: i64,
    with: &Park,
    link: i64,
) -> Result<(), StoreError> {
    withdraw(db, queries, &[row]).await?;
    let packed = [Packed::new(&with.message)?];
    let call = Call::new("replace a parked message", &queries.supersede).value(row).value(link);
    let call = call.value(with.key.as_bytes()).value(with.fingerprint.hash()).value(with.fingerprint.scheme());
    wire::bind(call, &packed).execute(db).await.map(drop)
}

fn taken_meanwhile(key: &Key) -> StoreError {
    use oncebox_core::error::StoreErrorKind::Contended;
    let why = "another message took that key at this moment";
    StoreError::new(Contended, format!("claim key {key} for an edited message"), why)
}
