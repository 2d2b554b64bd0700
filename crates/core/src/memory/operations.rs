//! Replays, the audit log and the horizons of a memory store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::db::{MemoryDb, State};
use super::inbox::set_record;
use super::queue::micros;
use super::store::MemoryTx;
use crate::audit::{Action, AuditEntry, Audits};
use crate::error::{StoreError, StoreErrorKind};
use crate::horizon::{Consumers, Expired, Expiry, HELD_MAX, KnownConsumer, OldRecords, Place, check_age};
use crate::key::Key;
use crate::outcome::OutcomeKind;
use crate::replay::{Counts, Hold, OnTheirWay, Replay, ReplayId, ReplaySpec, Replays};
use crate::store::{ConsumerId, ConsumerName};
use crate::time::Timestamp;

/// What operators do, and how far back consumers remember.
#[derive(Debug, Default)]
pub(super) struct Operations {
    replays: BTreeMap<ReplayId, Replay>,
    audit: Vec<AuditEntry>,
    horizons: HashMap<ConsumerId, Timestamp>,
    /// Like an identity column, it does not go back.
    last_replay: i64,
}

/// Changes a replay, undoably.
fn set_replay(db: &mut MemoryDb, replay: Replay) {
    db.change(move |state| {
        let id = replay.id;
        let before = state.operations.replays.insert(id, replay);
        Box::new(move |state: &mut State| {
            match before {
                Some(before) => state.operations.replays.insert(id, before),
                None => state.operations.replays.remove(&id),
            };
        })
    });
}

/// Removes a replay, undoably.
fn remove_replay(db: &mut MemoryDb, id: ReplayId) {
    db.change(move |state| {
        let before = state.operations.replays.remove(&id);
        Box::new(move |state: &mut State| state.operations.replays.extend(before.map(|before| (id, before))))
    });
}

/// Notes that a message left the replay that had revived it.
pub(super) fn withdraw(db: &mut MemoryDb, replay: Option<ReplayId>) {
    let found = replay.and_then(|id| db.state().operations.replays.get(&id)).cloned();
    if let Some(mut replay) = found {
        replay.counts.withdrawn += 1;
        set_replay(db, replay);
    }
}

impl Replays for MemoryTx {
    async fn create_replay(&mut self, spec: &ReplaySpec) -> Result<ReplayId, StoreError> {
        let now = self.store().clock().now();
        let db = self.usable("create a replay")?;
        let id = ReplayId(db.state().operations.last_replay + 1);
        db.change(move |state| {
            state.operations.last_replay = id.0;
            Box::new(|_| {})
        });
        set_replay(db, Replay::new(id, spec.clone(), now));
        Ok(id)
    }

    async fn replay(&mut self, id: ReplayId) -> Result<Option<Replay>, StoreError> {
        Ok(self.usable("read a replay")?.state().operations.replays.get(&id).cloned())
    }

    async fn replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        let replays = self.usable("list replays")?.state().operations.replays.values().rev();
        let asked = replays.filter(|replay| consumer.is_none_or(|consumer| replay.spec.consumer == consumer));
        Ok(asked.take(limit).cloned().collect())
    }

    async fn hold_replay(&mut self, id: ReplayId, fence: Option<i32>, lease: Duration) -> Result<Hold, StoreError> {
        let attempted = "hold a replay";
        let now = self.now();
        let db = self.usable(attempted)?;
        let Some(mut replay) = db.state().operations.replays.get(&id).cloned() else { return Ok(Hold::Absent) };
        match fence {
            Some(fence) if fence != replay.fence => {
                let why = "somebody else holds it now";
                return Err(StoreError::new(StoreErrorKind::Fenced, attempted, why));
            }
            Some(_) => {}
            None => {
                if let Some(until) = replay.held_until.filter(|until| until.as_microsecond() > now) {
                    return Ok(Hold::Busy(until));
                }
                replay.fence += 1;
            }
        }
        replay.held_until = Timestamp::from_microsecond(now.saturating_add(micros(lease))).ok();
        set_replay(db, replay.clone());
        Ok(Hold::Held(Box::new(replay)))
    }

    async fn let_go_replay(&mut self, id: ReplayId, fence: i32) -> Result<(), StoreError> {
        let db = self.usable("let go of a replay")?;
        let found = db.state().operations.replays.get(&id).filter(|replay| replay.fence == fence).cloned();
        if let Some(replay) = found {
            set_replay(db, Replay { held_until: None, ..replay });
        }
        Ok(())
    }

    async fn save_replay(&mut self, replay: &Replay) -> Result<(), StoreError> {
        let changed_at = self.store().clock().now();
        let db = self.usable("save a replay")?;
        let Some(before) = db.state().operations.replays.get(&replay.id).cloned() else { return Ok(()) };
        let counts = Counts { withdrawn: before.counts.withdrawn, ..replay.counts };
        let (fence, held_until) = (before.fence, before.held_until);
        set_replay(db, Replay { counts, fence, held_until, changed_at, spec: before.spec, ..replay.clone() });
        Ok(())
    }

    async fn on_their_way(&mut self, consumer: ConsumerId, id: ReplayId) -> Result<OnTheirWay, StoreError> {
        let state = self.usable("look after a replay")?.state();
        let mut dead: HashSet<&str> = HashSet::new();
        let mut found = OnTheirWay::default();
        for row in state.parked.rows.values().filter(|row| row.park.consumer == consumer) {
            let order_key = row.park.order_key.as_deref().filter(|_| row.blocks());
            let is_held_up = order_key.is_some_and(|key| dead.contains(key));
            if row.is_dead() {
                dead.extend(order_key);
            }
            match (row.replay == Some(id), row.is_dead(), is_held_up) {
                (false, ..) => {}
                (true, true, _) => found.failed += 1,
                (true, false, true) => found.held_up += 1,
                (true, false, false) => found.live += 1,
            }
        }
        Ok(found)
    }

    async fn sweep_replays(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let db = self.usable("remove old replays")?;
        let state = db.state();
        let used: HashSet<ReplayId> = state.parked.rows.values().filter_map(|row| row.replay).collect();
        let old = state
            .operations
            .replays
            .values()
            .filter(|replay| replay.state.is_final() && replay.changed_at < before && !used.contains(&replay.id));
        let old: Vec<ReplayId> = old.take(max).map(|replay| replay.id).collect();
        for id in &old {
            remove_replay(db, *id);
        }
        Ok(old.len() as u64)
    }
}

impl Audits for MemoryTx {
    async fn audit(&mut self, action: &Action) -> Result<i64, StoreError> {
        let at = self.store().clock().now();
        let db = self.usable("write the audit log")?;
        let id = db.state().operations.audit.last().map_or(1, |entry| entry.id + 1);
        let entry = AuditEntry { id, at, action: action.clone() };
        db.change(move |state| {
            state.operations.audit.push(entry);
            Box::new(|state| drop(state.operations.audit.pop()))
        });
        Ok(id)
    }

    async fn audit_log(&mut self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let entries = self.usable("read the audit log")?.state().operations.audit.iter().rev();
        Ok(entries.filter(|entry| before.is_none_or(|before| entry.id < before)).take(limit).cloned().collect())
    }
}

impl Consumers for MemoryTx {
    async fn consumers(&mut self) -> Result<Vec<KnownConsumer>, StoreError> {
        let state = self.usable("list consumers")?.state();
        let known = |(name, id): (&String, &ConsumerId)| {
            let horizon = state.operations.horizons.get(id).copied();
            Some(KnownConsumer { id: *id, name: ConsumerName::from_stored(name)?, horizon })
        };
        let mut consumers: Vec<KnownConsumer> = state.consumers.iter().filter_map(known).collect();
        consumers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(consumers)
    }

    async fn horizon(&mut self, consumer: ConsumerId) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.usable("read a horizon")?.state().operations.horizons.get(&consumer).copied())
    }

    async fn store_time(&mut self) -> Result<Timestamp, StoreError> {
        Ok(self.store().clock().now())
    }

    async fn expire(&mut self, step: Expiry) -> Result<Expired, StoreError> {
        let Expiry { consumer, older_than, limit, .. } = step;
        check_age(older_than, self.store().clock().now())?;
        let db = self.usable("delete old records")?;
        let state = db.state();
        let kept = parked_keys(state);
        let old = state.inbox.iter().filter(|((owner, key), record)| {
            let done = record.outcome.kind() != OutcomeKind::Parked;
            *owner == consumer && done && record.processed_at < older_than && !kept.contains(key)
        });
        let old: Vec<_> = old.take(limit).map(|(place, record)| (place.clone(), record.processed_at)).collect();
        let before = state.operations.horizons.get(&consumer).copied();
        let horizon = old.iter().map(|(_, at)| *at).chain(before).max();
        let deleted = old.len() as u64;
        for (place, _) in old {
            set_record(db, place, None);
        }
        if let Some(horizon) = horizon {
            db.change(move |state| {
                let before = state.operations.horizons.insert(consumer, horizon);
                Box::new(move |state: &mut State| {
                    match before {
                        Some(before) => state.operations.horizons.insert(consumer, before),
                        None => state.operations.horizons.remove(&consumer),
                    };
                })
            });
        }
        let next = (deleted == limit as u64).then(Place::default);
        Ok(Expired { deleted, horizon, next })
    }

    async fn old_records(&mut self, consumer: ConsumerId, older_than: Timestamp) -> Result<OldRecords, StoreError> {
        let state = self.usable("count old records")?.state();
        let kept = parked_keys(state);
        let mut found = OldRecords { counted: true, ..OldRecords::default() };
        for ((owner, key), record) in &state.inbox {
            if *owner != consumer || record.processed_at >= older_than {
                continue;
            }
            found.records += 1;
            found.held += u64::from(kept.contains(key) || record.outcome.kind() == OutcomeKind::Parked);
            let oldest = found.oldest.map_or(record.processed_at, |oldest| oldest.min(record.processed_at));
            found.oldest = Some(oldest);
        }
        found.held = found.held.min(HELD_MAX);
        Ok(found)
    }
}

/// A shared record may be that of any consumer's parked message.
fn parked_keys(state: &State) -> HashSet<&Key> {
    state.parked.rows.values().map(|row| &row.park.key).collect()
}
