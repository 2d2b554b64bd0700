//! What an operator sees and does of the parked messages of a memory store.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::db::{MemoryDb, State};
use super::inbox::{Record, set_record};
use super::operations::withdraw;
use super::parked::{Row, set_row, take};
use super::store::MemoryTx;
use crate::error::StoreError;
use crate::identity::Binding;
use crate::key::Key;
use crate::outcome::{Outcome, OutcomeKind};
use crate::parked::{Cause, LeasedPark, Park, ParkReceipt, Waits};
use crate::quarantine::{CauseCount, ParkedRow, ParkedState, Quarantine, Remembered, Superseded};
use crate::replay::ReplayId;
use crate::store::ConsumerId;
use crate::time::Timestamp;

impl Row {
    fn state(&self) -> ParkedState {
        match self.park.verdict.waits {
            Waits::Retry(_) => ParkedState::Retrying,
            Waits::Turn => ParkedState::Turn,
            Waits::Gap(_) => ParkedState::Gap,
            Waits::Person | Waits::Missing => ParkedState::Dead,
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state() == ParkedState::Dead
    }

    fn shown(&self, row: i64, is_held_up: bool) -> ParkedRow {
        let park = &self.park;
        let (message, cause) = ((*park.message).clone(), park.verdict.cause.clone());
        let at = (self.parked_at, self.last_at);
        let shown =
            ParkedRow::new(row, park.consumer, park.key.clone(), park.fingerprint, message, self.state(), cause, at);
        ParkedRow {
            owns_record: park.owns_record,
            order_key: park.order_key.clone(),
            due_at: self.due_at.and_then(|at| Timestamp::from_microsecond(at).ok()),
            class: park.verdict.class,
            reason: park.verdict.reason.clone(),
            attempts: park.verdict.attempts,
            note: self.note.clone(),
            replay: self.replay,
            supersedes: self.supersedes,
            is_held_up,
            is_gap: !self.blocks(),
            ..shown
        }
    }
}

/// The record under a key: the consumer's own, or one that consumers share.
pub(super) fn find_record<'s>(state: &'s State, consumer: ConsumerId, key: &Key) -> Option<(ConsumerId, &'s Record)> {
    let places = [Some(consumer), state.consumers.get("*").copied()];
    places.into_iter().flatten().find_map(|owner| Some((owner, state.inbox.get(&(owner, key.clone()))?)))
}

fn remembered(consumer: ConsumerId, (owner, record): (ConsumerId, &Record)) -> Remembered {
    let (fingerprint, outcome) = (record.fingerprint, record.outcome.kind());
    Remembered { fingerprint, outcome, is_shared: owner != consumer }
}

/// The records that say that this message is parked: the consumer's own, one that consumers share, or both while another
/// scope is bridged. Beside one of its own, a shared one may be that of another consumer's row.
fn find_parked(state: &State, park: &Park) -> Vec<(ConsumerId, Record)> {
    let has_own = state.inbox.contains_key(&(park.consumer, park.key.clone()));
    let of_parked = records(state, park).filter(|(owner, record)| {
        let said = remembered(park.consumer, (*owner, record));
        let may_be_elsewhere = has_own && is_parked_elsewhere(state, park) || !may_share(state, park.consumer);
        let is_elsewhere = record.outcome.parker().map_or(may_be_elsewhere, |parker| parker != park.consumer);
        let is_ours = said.is_of_parked(park.fingerprint, park.owns_record) && !(said.is_shared && is_elsewhere);
        is_ours && !is_of_other(state, park, &said)
    });
    of_parked.map(|(owner, record)| (owner, record.clone())).collect()
}

/// Whether a record that can't be compared with a row, because fingerprints were made otherwise meanwhile, is that of a
/// row with just its content.
fn is_of_other(state: &State, park: &Park, said: &Remembered) -> bool {
    let is_its_row = |other: &Park| {
        let may_be = said.is_shared || other.consumer == park.consumer;
        may_be && other.key == park.key && other.fingerprint == said.fingerprint
    };
    said.fingerprint != park.fingerprint && state.parked.rows.values().any(|row| is_its_row(&row.park))
}

/// The records under a message's key, its consumer's own first.
fn records<'s>(state: &'s State, park: &Park) -> impl Iterator<Item = (ConsumerId, &'s Record)> {
    let shared = state.consumers.get("*").copied().filter(|shared| *shared != park.consumer);
    let owners = [Some(park.consumer), shared].into_iter().flatten();
    owners.filter_map(|owner| Some((owner, state.inbox.get(&(owner, park.key.clone()))?)))
}

/// Whether shared records may be of a consumer's rows: not if it is bound to keys that it shares with nobody, and was before.
fn may_share(state: &State, consumer: ConsumerId) -> bool {
    let is_global = |binding: &Binding| {
        binding.scheme.is_global() || binding.was.as_ref().is_some_and(|before| before.scheme.is_global())
    };
    state.bindings.get(&consumer).is_none_or(is_global)
}

/// Whether another consumer whose rows shared records may be of has parked the same message.
fn is_parked_elsewhere(state: &State, park: &Park) -> bool {
    let is_same = |other: &Park| other.key == park.key && other.fingerprint == park.fingerprint;
    let others = state.parked.rows.values().map(|row| &row.park).filter(|other| other.consumer != park.consumer);
    others.filter(|other| is_same(other)).any(|other| may_share(state, other.consumer))
}

/// Turns what still says that a row is parked into claims, as the row goes: a deployment with other keys, or another scope,
/// parked it, and this one knew nothing of those.
pub(super) fn settle(db: &mut MemoryDb, id: i64, now: Timestamp) {
    let Some(Row { park, .. }) = row(db, id) else { return };
    let state = db.state();
    let is_ours = |(owner, record): &(ConsumerId, &Record)| {
        let is_parked = record.outcome.kind() == OutcomeKind::Parked && record.fingerprint == park.fingerprint;
        let may_be_ours = || may_share(state, park.consumer) && !is_parked_elsewhere(state, &park);
        let is_shared_ours = || record.outcome.parker().map_or_else(may_be_ours, |parker| parker == park.consumer);
        is_parked && (*owner == park.consumer || is_shared_ours())
    };
    let found: Vec<_> = records(state, &park).filter(is_ours).map(|(owner, record)| (owner, record.clone())).collect();
    for (owner, record) in found {
        let settled = Record { outcome: Outcome::of(OutcomeKind::Applied), processed_at: now, ..record };
        set_record(db, (owner, park.key.clone()), Some(settled));
    }
}

/// The order keys of a consumer that dead rows up to this one hold up.
fn dead_keys(state: &State, consumer: ConsumerId, until: i64) -> HashSet<&str> {
    let dead = state.parked.rows.range(..=until).map(|(_, row)| row);
    let dead = dead.filter(|row| row.park.consumer == consumer && row.is_dead() && row.blocks());
    dead.filter_map(|row| row.park.order_key.as_deref()).collect()
}

fn row(db: &MemoryDb, id: i64) -> Option<Row> {
    db.state().parked.rows.get(&id).cloned()
}

impl Quarantine for MemoryTx {
    async fn page(&mut self, consumer: ConsumerId, after: i64, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        let state = self.usable("list parked messages")?.state();
        let held_up = dead_keys(state, consumer, after);
        let rows = state.parked.rows.range(after.saturating_add(1)..);
        let rows = rows.filter(|(_, row)| row.park.consumer == consumer).take(limit);
        let is_held_up = |row: &Row| row.blocks() && row.park.order_key.as_deref().is_some_and(|k| held_up.contains(k));
        Ok(rows.map(|(id, row)| row.shown(*id, is_held_up(row))).collect())
    }

    async fn parked(&mut self, id: i64) -> Result<Option<ParkedRow>, StoreError> {
        let state = self.usable("read a parked message")?.state();
        let Some(row) = state.parked.rows.get(&id) else { return Ok(None) };
        let held_up = dead_keys(state, row.park.consumer, id - 1);
        let is_held_up = row.blocks() && row.park.order_key.as_deref().is_some_and(|key| held_up.contains(key));
        Ok(Some(row.shown(id, is_held_up)))
    }

    async fn causes(&mut self, consumer: ConsumerId) -> Result<Vec<CauseCount>, StoreError> {
        let state = self.usable("count parked messages")?.state();
        let mut counts: BTreeMap<&Cause, CauseCount> = BTreeMap::new();
        for row in state.parked.rows.values().filter(|row| row.park.consumer == consumer) {
            let cause = &row.park.verdict.cause;
            let count = counts.entry(cause).or_insert_with(|| CauseCount {
                cause: cause.clone(),
                messages: 0,
                dead: 0,
                first_at: row.parked_at,
                last_at: row.last_at,
            });
            count.messages += 1;
            count.dead += u64::from(row.is_dead());
            count.first_at = count.first_at.min(row.parked_at);
            count.last_at = count.last_at.max(row.last_at);
        }
        let mut counts: Vec<CauseCount> = counts.into_values().collect();
        counts.sort_by_key(|count| std::cmp::Reverse(count.messages));
        Ok(counts)
    }

    async fn remembered(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Remembered>>, StoreError> {
        let state = self.usable("read records")?.state();
        let said = |key: &Key| find_record(state, consumer, key).map(|found| remembered(consumer, found));
        Ok(keys.iter().map(said).collect())
    }

    async fn annotate(&mut self, rows: &[i64], note: Option<&str>) -> Result<Vec<bool>, StoreError> {
        let db = self.usable("annotate parked messages")?;
        let mut done = Vec::with_capacity(rows.len());
        for id in rows {
            let found = row(db, *id);
            done.push(found.is_some());
            if let Some(row) = found {
                set_row(db, *id, Some(Row { note: note.map(str::to_owned), ..row }));
            }
        }
        Ok(done)
    }

    async fn discard(&mut self, rows: &[i64], reason: &str) -> Result<Vec<bool>, StoreError> {
        let db = self.usable("discard parked messages")?;
        let mut done = Vec::with_capacity(rows.len());
        for id in rows {
            let found = row(db, *id);
            done.push(found.is_some());
            let Some(Row { park, replay, .. }) = found else { continue };
            reject(db, &park, reason);
            withdraw(db, replay);
            set_row(db, *id, None);
        }
        Ok(done)
    }

    async fn revive(&mut self, rows: &[i64], replay: Option<ReplayId>) -> Result<Vec<bool>, StoreError> {
        let now = self.now();
        let db = self.usable("revive parked messages")?;
        let mut done = Vec::with_capacity(rows.len());
        for id in rows {
            let found = row(db, *id).filter(Row::is_dead);
            done.push(found.is_some());
            let Some(mut row) = found else { continue };
            withdraw(db, row.replay);
            row.park.verdict.waits = match row.blocks() {
                true => Waits::Retry(Duration::ZERO),
                false => Waits::Gap(Duration::ZERO),
            };
            row.due_at = Some(now);
            row.fence = ParkReceipt::round_after(row.fence);
            row.replay = replay;
            set_row(db, *id, Some(row));
        }
        Ok(done)
    }

    async fn take_in_hand(&mut self, id: i64) -> Result<Option<LeasedPark>, StoreError> {
        if self.revive(&[id], None).await? != [true] {
            return Ok(None);
        }
        let now = self.now();
        let db = self.usable("take a parked message in hand")?;
        Ok(row(db, id).map(|row| take(db, id, row, now)))
    }

    async fn supersede(&mut self, id: i64, with: &Park, link: i64, reason: &str) -> Result<Superseded, StoreError> {
        let processed_at = self.store().clock().now();
        let db = self.usable("replace a parked message")?;
        let Some(mut row) = row(db, id).filter(Row::is_dead) else { return Ok(Superseded::Refused) };
        let old = row.park.clone();
        let records = find_parked(db.state(), &old);
        let same_key = (old.owns_record || !records.is_empty()) && old.key == with.key;
        let twin = |(other, row): (&i64, &Row)| {
            let park = &row.park;
            let place = (park.consumer, &park.key, park.fingerprint);
            *other != id && place == (with.consumer, &with.key, with.fingerprint)
        };
        if db.state().parked.rows.iter().any(twin) {
            return Ok(Superseded::Taken);
        }
        let owner = records.first().map_or(with.consumer, |(owner, _)| *owner);
        if !same_key && find_record(db.state(), with.consumer, &with.key).is_some() {
            return Ok(Superseded::Taken);
        }
        if same_key {
            if records.is_empty() {
                return Ok(Superseded::Refused);
            }
            for (owner, record) in records {
                set_record(db, (owner, old.key.clone()), Some(Record { fingerprint: with.fingerprint, ..record }));
            }
        } else {
            reject(db, &old, reason);
            let (fingerprint, outcome) = (with.fingerprint, Outcome::parked_by(with.consumer, owner));
            let record = Record { fingerprint, outcome, id_hash: None, processed_at };
            set_record(db, (owner, with.key.clone()), Some(record));
        }
        withdraw(db, row.replay);
        // Its place and its past stay; only what it says is new.
        row.park.message = with.message.clone();
        row.park.key = with.key.clone();
        row.park.fingerprint = with.fingerprint;
        row.park.owns_record = true;
        row.fence = ParkReceipt::round_after(row.fence);
        row.replay = None;
        row.supersedes = Some(link);
        set_row(db, id, Some(row));
        Ok(Superseded::Done)
    }
}

/// Turns the records that say that this message is parked into ones that say that it was rejected.
fn reject(db: &mut MemoryDb, park: &Park, reason: &str) {
    for (owner, record) in find_parked(db.state(), park) {
        let rejected = Record { outcome: Outcome::rejected(reason), ..record };
        set_record(db, (owner, park.key.clone()), Some(rejected));
    }
}
