//! The queues of a memory store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::db::MemoryDb;
use super::store::{MemoryStore, MemoryTx};
use crate::error::{StoreError, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::message::Message;
use crate::planted;
use crate::queue::{
    Enqueue, Enqueued, HeldLane, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore,
    QueueTx, RowReceipt,
};
use crate::source::LaneNumber;

#[derive(Debug, Default)]
pub(super) struct Queues {
    specs: Vec<QueueSpec>,
    rows: BTreeMap<i64, Row>,
    once: HashMap<(QueueId, Key), Fingerprint>,
    lanes: BTreeMap<(QueueId, LaneNumber), Lane>,
    members: HashMap<(QueueId, Uuid), i64>,
    next_row: i64,
}

#[derive(Clone, Debug)]
struct Row {
    queue: QueueId,
    message: Message,
    /// Under which it was added once.
    key: Option<Key>,
    lane: Option<LaneNumber>,
    deliveries: i32,
    /// Microseconds since 1970 from which it can be leased; `None` once it is processed.
    visible_at: Option<i64>,
    processed_at: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    owner: Option<Uuid>,
    epoch: i64,
    expires_at: i64,
}

impl Queues {
    fn find_by_name(&self, name: &str) -> Option<QueueId> {
        let index = self.specs.iter().position(|known| known.name.as_str() == name)?;
        i16::try_from(index).ok().map(QueueId)
    }

    /// How many rows wait in a queue, since when the one does that was due first, and how many became due after `lately`.
    pub(super) fn depth(&self, name: &str, now: i64, lately: i64) -> Option<(u64, Option<i64>, u64)> {
        let id = self.find_by_name(name)?;
        let waiting = || self.rows.values().filter(move |row| row.queue == id).filter_map(|row| row.visible_at);
        let due = || waiting().filter(|at| *at <= now);
        Some((waiting().count() as u64, due().min(), due().filter(|at| *at > lately).count() as u64))
    }

    /// Rows of a queue that were processed before `before`, up to `max`, without those under these keys.
    pub(super) fn processed(&self, name: &str, before: i64, kept: &HashSet<&Key>, max: usize) -> Vec<i64> {
        let Some(id) = self.find_by_name(name) else { return Vec::new() };
        let is_old = |row: &Row| row.queue == id && row.processed_at.is_some_and(|at| at < before);
        let may_go = |row: &Row| row.key.as_ref().is_none_or(|key| !kept.contains(key));
        let old = self.rows.iter().filter(|(_, row)| is_old(row) && may_go(row));
        old.map(|(id, _)| *id).take(max).collect()
    }

    /// Whether somebody holds a lane.
    pub(super) fn is_held(&self, name: &str, lane: LaneNumber, now: i64) -> bool {
        let lane = self.find_by_name(name).and_then(|id| self.lanes.get(&(id, lane)));
        lane.is_some_and(|lane| lane.owner.is_some() && lane.expires_at > now)
    }
}

impl QueueStore for MemoryStore {
    async fn queue(&self, spec: &QueueSpec) -> Result<QueueId, StoreError> {
        let mut state = self.state().await;
        let queues = &mut state.queues;
        let known = queues.specs.iter().position(|known| known.name == spec.name);
        let index = known.unwrap_or(queues.specs.len());
        let id = QueueId(i16::try_from(index).unwrap_or(i16::MAX));
        if known.is_none() {
            queues.specs.push(spec.clone());
        } else if queues.specs[index].lanes != spec.lanes {
            if queues.rows.values().any(|row| row.queue == id && row.visible_at.is_some()) {
                return Err(lanes_changed(spec, queues.specs[index].lanes));
            }
            queues.specs[index] = spec.clone();
            // The lanes stay known, so that their epochs go on: an owner from before the change holds nothing after it.
            for (_, lane) in queues.lanes.iter_mut().filter(|((queue, _), _)| *queue == id) {
                *lane = Lane { owner: None, expires_at: 0, ..*lane };
            }
        }
        for lane in 0..spec.lanes.unwrap_or(0) {
            queues.lanes.entry((id, LaneNumber(lane.into()))).or_default();
        }
        Ok(id)
    }

    async fn enqueued(&self) {
        self.enqueued_signal().notified().await;
    }

    fn announce(&self) {
        self.enqueued_signal().notify_one();
    }
}

fn lanes_changed(spec: &QueueSpec, known: Option<u16>) -> StoreError {
    let lanes = |lanes: Option<u16>| lanes.map_or("no lanes".to_owned(), |n| format!("{n} lanes"));
    StoreError::new(
        StoreErrorKind::Configuration,
        format!("open {spec} with {}", lanes(spec.lanes)),
        format!("it holds messages and has {}; drain it first, or open it as it is", lanes(known)),
    )
}

impl MemoryTx {
    pub(super) fn now(&self) -> i64 {
        self.store().clock().now().as_microsecond()
    }
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// Replaces a row, undoably.
fn set_row(db: &mut MemoryDb, id: i64, after: Option<Row>) {
    db.change(move |state| {
        let rows = &mut state.queues.rows;
        let before = match after {
            Some(after) => rows.insert(id, after),
            None => rows.remove(&id),
        };
        Box::new(move |state| {
            match before {
                Some(before) => state.queues.rows.insert(id, before),
                None => state.queues.rows.remove(&id),
            };
        })
    });
}

/// Removes a row, and its key is free again.
pub(super) fn forget(db: &mut MemoryDb, id: i64) {
    let Some(row) = db.state().queues.rows.get(&id) else { return };
    let place = row.key.clone().map(|key| (row.queue, key));
    set_row(db, id, None);
    if let Some(place) = place {
        db.change(move |state| {
            let before = state.queues.once.remove(&place);
            Box::new(move |state| state.queues.once.extend(before.map(|before| (place, before))))
        });
    }
}

fn set_lane(db: &mut MemoryDb, place: (QueueId, LaneNumber), after: Lane) {
    db.change(move |state| {
        let before = state.queues.lanes.insert(place, after).unwrap_or_default();
        Box::new(move |state| {
            state.queues.lanes.insert(place, before);
        })
    });
}

fn set_member(db: &mut MemoryDb, member: (QueueId, Uuid), after: Option<i64>) {
    db.change(move |state| {
        let members = &mut state.queues.members;
        let before = match after {
            Some(expires_at) => members.insert(member, expires_at),
            None => members.remove(&member),
        };
        Box::new(move |state| {
            match before {
                Some(before) => state.queues.members.insert(member, before),
                None => state.queues.members.remove(&member),
            };
        })
    });
}

impl Queues {
    fn lane_count(&self, queue: QueueId) -> i32 {
        let spec = usize::try_from(queue.0).ok().and_then(|index| self.specs.get(index));
        spec.and_then(|spec| spec.lanes).unwrap_or(0).into()
    }

    /// The queue of this name, if it was ever opened.
    pub(super) fn find(&self, spec: &QueueSpec) -> Option<QueueId> {
        let index = self.specs.iter().position(|known| known.name == spec.name)?;
        i16::try_from(index).ok().map(QueueId)
    }

    /// Whether nobody has taken this lane since.
    pub(super) fn is_under(&self, queue: QueueId, held: &HeldLane) -> bool {
        self.lanes.get(&(queue, held.lane)).is_some_and(|lane| lane.epoch == held.epoch)
    }

    pub(super) fn holds(&self, queue: QueueId, held: &HeldLane, now: i64) -> bool {
        self.lanes.get(&(queue, held.lane)).is_some_and(|lane| lane.epoch == held.epoch && lane.expires_at > now)
    }

    /// A row that is still leased under this receipt.
    fn leased(&self, queue: QueueId, receipt: &RowReceipt) -> Option<&Row> {
        let row = self.rows.get(&receipt.row)?;
        let epoch = |held: &HeldLane| self.is_under(queue, held);
        let fenced = !planted::is("no-fence");
        let ours = !fenced || (row.deliveries == receipt.fence && receipt.lane.as_ref().is_none_or(epoch));
        (ours && row.queue == queue && row.visible_at.is_some()).then_some(row)
    }
}

impl QueueTx for MemoryTx {
    async fn enqueue(&mut self, queue: QueueId, messages: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        let now = self.now();
        let db = self.usable("enqueue messages")?;
        let mut answers = Vec::with_capacity(messages.len());
        for Enqueue { message, lane, once } in messages {
            if let Some((key, fingerprint)) = once.clone() {
                let place = (queue, key);
                if let Some(stored) = db.state().queues.once.get(&place) {
                    let same = fingerprint.agrees_with(*stored);
                    answers.push(if same { Enqueued::Duplicate } else { Enqueued::Conflict });
                    continue;
                }
                db.change(move |state| {
                    state.queues.once.insert(place.clone(), fingerprint);
                    Box::new(move |state| {
                        state.queues.once.remove(&place);
                    })
                });
            }
            let row = Row {
                queue,
                message: message.clone(),
                key: once.as_ref().map(|(key, _)| key.clone()),
                lane: *lane,
                deliveries: 0,
                visible_at: Some(now),
                processed_at: None,
            };
            let id = db.state().queues.next_row;
            db.change(move |state| {
                // Like an identity column, the counter does not go back.
                state.queues.next_row += 1;
                Box::new(|_| {})
            });
            set_row(db, id, Some(row));
            answers.push(Enqueued::Added);
        }
        Ok(answers)
    }

    async fn lease(&mut self, request: &LeaseRequest) -> Result<Vec<Leased>, StoreError> {
        let now = self.now();
        let db = self.usable("lease messages")?;
        let queues = &db.state().queues;
        let held: Option<HashMap<LaneNumber, HeldLane>> = request.lanes.as_ref().map(|lanes| {
            let ours = lanes.iter().filter(|held| queues.holds(request.queue, held, now));
            ours.map(|held| (held.lane, *held)).collect()
        });
        let mut blocked = HashSet::new();
        let mut chosen = Vec::new();
        for (id, row) in queues.rows.iter().filter(|(_, row)| row.queue == request.queue) {
            let Some(visible_at) = row.visible_at else { continue };
            let receipt_lane = match (&held, row.lane) {
                (None, _) | (_, None) => None,
                (Some(held), Some(lane)) => match held.get(&lane) {
                    Some(held) => Some(*held),
                    None => continue,
                },
            };
            let order_key = receipt_lane.and(row.message.order_key.as_deref());
            if visible_at > now {
                blocked.extend(order_key);
            } else if order_key.is_none_or(|key| !blocked.contains(key)) && chosen.len() < request.max {
                chosen.push((*id, row.clone(), receipt_lane));
            }
        }
        let lease = micros(request.lease);
        let leased = chosen.into_iter().map(|(id, mut row, lane)| {
            row.deliveries += 1;
            row.visible_at = Some(now + lease);
            let receipt = RowReceipt { row: id, fence: row.deliveries, lane };
            let message = row.message.clone();
            set_row(db, id, Some(row));
            Leased { message, receipt }
        });
        Ok(leased.collect())
    }

    async fn settle(&mut self, queue: QueueId, rows: &[RowReceipt], keep: Keep) -> Result<(), StoreError> {
        let now = self.now();
        let db = self.usable("settle messages")?;
        for receipt in rows {
            let Some(row) = db.state().queues.leased(queue, receipt).cloned() else {
                let why = "its lease ran out and it has a new owner";
                return Err(StoreError::new(StoreErrorKind::Fenced, "settle a queued message", why));
            };
            match keep {
                Keep::Nothing => forget(db, receipt.row),
                Keep::Processed => {
                    let processed = Row { visible_at: None, processed_at: Some(now), ..row };
                    set_row(db, receipt.row, Some(processed));
                }
            }
        }
        Ok(())
    }

    async fn release(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        delay: Duration,
        _reason: Option<&str>,
    ) -> Result<(), StoreError> {
        self.extend(queue, rows, delay).await
    }

    async fn extend(&mut self, queue: QueueId, rows: &[RowReceipt], lease: Duration) -> Result<(), StoreError> {
        let visible_at = Some(self.now() + micros(lease));
        let db = self.usable("extend leases")?;
        for receipt in rows {
            if let Some(row) = db.state().queues.leased(queue, receipt).cloned() {
                set_row(db, receipt.row, Some(Row { visible_at, ..row }));
            }
        }
        Ok(())
    }

    async fn hold_lanes(&mut self, request: &LaneRequest) -> Result<HeldLanes, StoreError> {
        let now = self.now();
        let expires_at = now + micros(request.lease);
        let LaneRequest { queue, owner, .. } = *request;
        let db = self.usable("hold lanes")?;
        let gone: Vec<_> = (db.state().queues.members.iter())
            .filter_map(|(member, expires_at)| (*expires_at <= now).then_some(*member))
            .collect();
        for member in gone {
            set_member(db, member, None);
        }
        set_member(db, (queue, owner), Some(expires_at));
        let members = db.state().queues.members.keys().filter(|(member_of, _)| *member_of == queue).count();
        let lane_count = db.state().queues.lane_count(queue);
        let lanes: Vec<(LaneNumber, Lane)> = db
            .state()
            .queues
            .lanes
            .range((queue, LaneNumber(0))..(queue, LaneNumber(lane_count)))
            .map(|((_, number), lane)| (*number, *lane))
            .collect();
        let share = lanes.len().div_ceil(members.max(1));
        let mut held = Vec::new();
        let mut free = Vec::new();
        for (number, lane) in lanes {
            if lane.owner == Some(owner) && lane.expires_at > now {
                if request.give_back.contains(&number) {
                    set_lane(db, (queue, number), Lane { owner: None, expires_at: 0, ..lane });
                } else {
                    set_lane(db, (queue, number), Lane { expires_at, ..lane });
                    held.push(HeldLane { lane: number, epoch: lane.epoch });
                }
            } else if lane.owner.is_none() || lane.expires_at <= now {
                free.push((number, lane));
            }
        }
        for (number, lane) in free.into_iter().take(share.saturating_sub(held.len())) {
            let epoch = lane.epoch + 1;
            set_lane(db, (queue, number), Lane { owner: Some(owner), epoch, expires_at });
            held.push(HeldLane { lane: number, epoch });
        }
        Ok(HeldLanes { lanes: held, share })
    }

    async fn leave_lanes(&mut self, queue: QueueId, owner: Uuid) -> Result<(), StoreError> {
        let db = self.usable("leave lanes")?;
        let held: Vec<_> = (db.state().queues.lanes.iter())
            .filter(|((of, _), lane)| *of == queue && lane.owner == Some(owner))
            .map(|(place, lane)| (*place, *lane))
            .collect();
        for (place, lane) in held {
            set_lane(db, place, Lane { owner: None, expires_at: 0, ..lane });
        }
        set_member(db, (queue, owner), None);
        Ok(())
    }
}
