//! The outbox of a memory store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::db::MemoryDb;
use super::store::{MemoryStore, MemoryTx};
use crate::error::StoreError;
use crate::key::Key;
use crate::outbox::{
    AsideRow, Backlog, Fetch, Fetched, KeepSent, Outbox, OutboxStore, SentReceipt, Unsent, emit_key, id_taken, lane,
    lane_lost,
};
use crate::planted;
use crate::queue::{HeldLane, QueueId, QueueSpec, QueueStore};
use crate::sink::Outgoing;
use crate::source::LaneNumber;
use crate::time::Timestamp;

/// What is to be published. Whether a row waits behind one that is set aside is found by looking, each time.
#[derive(Debug, Default)]
pub(super) struct OutboxRows {
    /// In the order in which they were added.
    rows: BTreeMap<i64, OutboxRow>,
    /// Kept after they were sent, each with when that was.
    sent: BTreeMap<(Timestamp, i64), OutboxRow>,
    /// The keys of `rows`.
    keys: HashSet<Key>,
    next: i64,
}

#[derive(Clone, Debug)]
struct OutboxRow {
    key: Key,
    lane: LaneNumber,
    outgoing: Outgoing,
    emitted_at: Timestamp,
    aside: Option<(String, Timestamp)>,
}

impl OutboxRow {
    /// What it holds up once it is set aside: what follows under its topic and order key.
    fn place(&self) -> Option<(&str, &str)> {
        let order_key = self.outgoing.message.order_key.as_deref()?;
        Some((&self.outgoing.topic, order_key))
    }
}

impl OutboxRows {
    /// How many rows wait in each lane, and since when the oldest does.
    pub(super) fn depths(&self) -> BTreeMap<LaneNumber, (u64, Timestamp)> {
        let mut lanes = BTreeMap::new();
        for row in self.rows.values().filter(|row| row.aside.is_none()) {
            let (rows, oldest) = lanes.entry(row.lane).or_insert((0, row.emitted_at));
            *rows += 1;
            *oldest = row.emitted_at.min(*oldest);
        }
        lanes
    }
}

impl OutboxStore for MemoryStore {
    async fn outbox(&self) -> Result<QueueId, StoreError> {
        self.queue(&QueueSpec::outbox()).await
    }

    async fn emitted(&self) {
        self.emitted_signal().notified().await;
    }

    fn announce_emitted(&self) {
        // All who wait now, and one who is just about to.
        self.emitted_signal().notify_waiters();
        self.emitted_signal().notify_one();
    }
}

/// Replaces a row, undoably.
fn set(db: &mut MemoryDb, id: i64, after: Option<OutboxRow>) {
    fn replace(outbox: &mut OutboxRows, id: i64, after: Option<OutboxRow>) -> Option<OutboxRow> {
        let before = outbox.rows.remove(&id);
        if let Some(before) = &before {
            outbox.keys.remove(&before.key);
        }
        if let Some(after) = after {
            outbox.keys.insert(after.key.clone());
            outbox.rows.insert(id, after);
        }
        before
    }
    db.change(move |state| {
        let before = replace(&mut state.outbox, id, after);
        Box::new(move |state| drop(replace(&mut state.outbox, id, before)))
    });
}

fn keep_sent(db: &mut MemoryDb, place: (Timestamp, i64), row: OutboxRow) {
    db.change(move |state| {
        state.outbox.sent.insert(place, row);
        Box::new(move |state| drop(state.outbox.sent.remove(&place)))
    });
}

impl MemoryTx {
    /// Fails, and lets nothing commit, if a lane of these rows has a new owner.
    fn fence(
        &mut self,
        attempted: &'static str,
        rows: impl Iterator<Item = SentReceipt>,
    ) -> Result<&mut MemoryDb, StoreError> {
        let db = self.usable(attempted)?;
        let queues = &db.state().queues;
        let queue = queues.find(&QueueSpec::outbox());
        let mut held = rows.map(|receipt| receipt.lane);
        let ours = held.all(|lane| queue.is_some_and(|queue| queues.is_under(queue, &lane)));
        let unchecked = planted::is("no-fence") || planted::is("relay-settles-without-epoch");
        if !ours && !unchecked {
            db.set_aborted();
            return Err(lane_lost(attempted));
        }
        Ok(db)
    }
}

impl OutboxRows {
    /// A row that is still to be published, under this receipt.
    fn unsent(&self, receipt: &SentReceipt) -> Option<&OutboxRow> {
        self.rows.get(&receipt.row).filter(|row| row.lane == receipt.lane.lane && row.aside.is_none())
    }
}

impl Outbox for MemoryTx {
    async fn emit(&mut self, rows: &[Outgoing]) -> Result<(), StoreError> {
        let emitted_at = self.store().clock().now();
        let db = self.usable("add messages to the outbox")?;
        for outgoing in rows {
            let added = emit_key(outgoing).and_then(|key| {
                let is_free = !db.state().outbox.keys.contains(&key);
                if is_free { Ok(key) } else { Err(id_taken(outgoing)) }
            });
            let key = added.inspect_err(|_| db.set_aborted())?;
            let id = db.state().outbox.next + 1;
            db.change(move |state| {
                // Like an identity column, the counter does not go back.
                state.outbox.next = id;
                Box::new(|_| {})
            });
            let row = OutboxRow { key, lane: lane(outgoing), outgoing: outgoing.clone(), emitted_at, aside: None };
            set(db, id, Some(row));
        }
        self.emits |= !rows.is_empty();
        Ok(())
    }

    async fn fetch_unsent(&mut self, fetch: Fetch<'_>) -> Result<Fetched, StoreError> {
        let Fetch { lanes, max, without, after } = fetch;
        let now = self.now();
        let db = self.usable("read the outbox")?;
        let queues = &db.state().queues;
        let Some(queue) = queues.find(&QueueSpec::outbox()) else { return Ok(Fetched::default()) };
        let held = lanes.iter().filter(|held| queues.holds(queue, held, now));
        let held: HashMap<LaneNumber, HeldLane> = held.map(|held| (held.lane, *held)).collect();
        let mut blocked = HashSet::new();
        let mut fetched = Vec::new();
        for (id, row) in &db.state().outbox.rows {
            if fetched.len() >= max {
                break;
            }
            if row.aside.is_some() {
                blocked.extend(row.place());
            } else if let Some(lane) = held.get(&row.lane)
                && !without.contains(&row.outgoing.topic)
                && after.get(&row.lane).is_none_or(|after| id > after)
                && row.place().is_none_or(|place| !blocked.contains(&place))
            {
                let receipt = SentReceipt { row: *id, lane: *lane };
                fetched.push(Unsent { receipt, outgoing: row.outgoing.clone() });
            }
        }
        Ok(Fetched { rows: fetched, noted: false })
    }

    async fn end_sent(&mut self, rows: &[SentReceipt], keep: KeepSent) -> Result<(), StoreError> {
        let now = self.store().clock().now();
        let db = self.fence("end messages that were sent", rows.iter().copied())?;
        for receipt in rows {
            let Some(row) = db.state().outbox.unsent(receipt).cloned() else { continue };
            set(db, receipt.row, None);
            if keep == KeepSent::Sent {
                keep_sent(db, (now, receipt.row), row);
            }
        }
        Ok(())
    }

    async fn set_unsent_aside(&mut self, rows: &[(SentReceipt, String)]) -> Result<(), StoreError> {
        let now = self.store().clock().now();
        let db = self.fence("set refused messages aside", rows.iter().map(|(receipt, _)| *receipt))?;
        for (receipt, reason) in rows {
            if let Some(row) = db.state().outbox.unsent(receipt).cloned() {
                set(db, receipt.row, Some(OutboxRow { aside: Some((reason.clone(), now)), ..row }));
            }
        }
        Ok(())
    }

    async fn page_aside(&mut self, after: i64, max: usize) -> Result<Vec<AsideRow>, StoreError> {
        let db = self.usable("read what is set aside in the outbox")?;
        let rows = db.state().outbox.rows.range(after.saturating_add(1)..).filter_map(|(id, row)| {
            let (reason, since) = row.aside.clone()?;
            let Outgoing { topic, message } = &row.outgoing;
            Some(AsideRow { row: *id, topic: topic.clone(), message: Arc::clone(message), reason, since })
        });
        Ok(rows.take(max).collect())
    }

    async fn retry_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        self.take_from_aside("retry what is set aside in the outbox", rows, |row| {
            Some(OutboxRow { aside: None, ..row })
        })
    }

    async fn skip_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        self.take_from_aside("skip what is set aside in the outbox", rows, |_| None)
    }

    async fn sweep_sent(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let db = self.usable("remove what was sent from the outbox")?;
        let old: Vec<(Timestamp, i64)> =
            db.state().outbox.sent.range(..(before, i64::MIN)).take(max).map(|(place, _)| *place).collect();
        for place in &old {
            let place = *place;
            db.change(move |state| {
                let row = state.outbox.sent.remove(&place);
                Box::new(move |state| state.outbox.sent.extend(row.map(|row| (place, row))))
            });
        }
        Ok(old.len() as u64)
    }

    async fn outbox_backlog(&mut self) -> Result<Backlog, StoreError> {
        let db = self.usable("count the outbox")?;
        let mut backlog = Backlog::default();
        for row in db.state().outbox.rows.values() {
            if row.aside.is_some() {
                backlog.aside += 1;
            } else {
                backlog.unsent += 1;
                backlog.oldest = backlog.oldest.or(Some(row.emitted_at));
            }
        }
        backlog.unsent = backlog.unsent.min(Backlog::COUNTED_MAX);
        backlog.aside = backlog.aside.min(Backlog::COUNTED_MAX);
        Ok(backlog)
    }
}

impl MemoryTx {
    fn take_from_aside(
        &mut self,
        attempted: &'static str,
        rows: &[i64],
        after: impl Fn(OutboxRow) -> Option<OutboxRow>,
    ) -> Result<Vec<bool>, StoreError> {
        let db = self.usable(attempted)?;
        let take = |id: &i64| {
            let row = db.state().outbox.rows.get(id).filter(|row| row.aside.is_some()).cloned();
            let is_aside = row.is_some();
            if let Some(row) = row {
                set(db, *id, after(row));
            }
            is_aside
        };
        let taken = rows.iter().map(take).collect();
        // A row that is to be sent again is as good as a new one.
        self.emits = true;
        Ok(taken)
    }
}
