//! Replays and the audit log of a memory store.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::db::{MemoryDb, State};
use super::queue::micros;
use super::store::MemoryTx;
use crate::audit::{Action, AuditEntry, Audits};
use crate::error::{StoreError, StoreErrorKind};
use crate::replay::{Counts, Hold, OnTheirWay, Replay, ReplayId, ReplaySpec, Replays};
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// What operators do.
#[derive(Debug, Default)]
pub(super) struct Operations {
    replays: BTreeMap<ReplayId, Replay>,
    audit: Vec<AuditEntry>,
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

    async fn open_replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        let replays = self.usable("list replays that are not over")?.state().operations.replays.values().rev();
        let asked = replays.filter(|replay| consumer.is_none_or(|consumer| replay.spec.consumer == consumer));
        Ok(asked.filter(|replay| !replay.state.is_final()).take(limit).cloned().collect())
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
