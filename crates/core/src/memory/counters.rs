//! The counters of a memory store, and how much waits in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::db::{MemoryDb, State};
use super::parked::Row;
use super::queue::micros;
use super::store::MemoryTx;
use crate::counters::{Counted, CountedRow, Counters, Depth, Part, Process, Tally, TallyBody};
use crate::depths::{Depths, LaneDepth, ParkedDepth};
use crate::error::StoreError;
use crate::parked::Waits;
use crate::queue::QueueSpec;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// By process and part.
pub(super) type CounterRows = BTreeMap<(Uuid, Part), CountedRow>;

/// Replaces a row, undoably.
fn set(db: &mut MemoryDb, key: (Uuid, Part), row: Option<CountedRow>) {
    db.change(move |state| {
        let before = match row {
            Some(row) => state.counters.insert(key.clone(), row),
            None => state.counters.remove(&key),
        };
        Box::new(move |state: &mut State| {
            match before {
                Some(before) => state.counters.insert(key, before),
                None => state.counters.remove(&key),
            };
        })
    });
}

impl Counters for MemoryTx {
    async fn begin_counters(&mut self, process: &Process, tallies: &[Tally]) -> Result<(), StoreError> {
        let now = self.store().clock().now();
        let db = self.usable("begin to count")?;
        for tally in tallies {
            let row = CountedRow { process: process.clone(), began_at: now, seen_at: now, tally: tally.clone() };
            set(db, (process.id, tally.part.clone()), Some(row));
        }
        Ok(())
    }

    async fn write_counters(&mut self, process: Uuid, tallies: &[Tally]) -> Result<bool, StoreError> {
        let now = self.store().clock().now();
        let db = self.usable("write counters")?;
        for tally in tallies {
            let key = (process, tally.part.clone());
            let Some(row) = db.state().counters.get(&key).cloned() else { return Ok(false) };
            set(db, key, Some(CountedRow { seen_at: now, tally: tally.clone(), ..row }));
        }
        Ok(true)
    }

    async fn fold_counters(&mut self, unseen: Duration, max: usize) -> Result<u64, StoreError> {
        let before = self.now().saturating_sub(micros(unseen));
        let db = self.usable("add up counters")?;
        let is_gone = |row: &&CountedRow| row.process.id != Process::GONE && row.seen_at.as_microsecond() < before;
        let processes = db.state().counters.values().filter(is_gone).map(|row| row.process.id);
        let processes: BTreeSet<Uuid> = processes.collect::<BTreeSet<_>>().into_iter().take(max).collect();
        Ok(fold(db, &processes))
    }

    async fn end_counters(&mut self, process: Uuid) -> Result<(), StoreError> {
        fold(self.usable("add up counters")?, &BTreeSet::from([process]));
        Ok(())
    }

    async fn read_counters(&mut self) -> Result<Counted, StoreError> {
        let now = self.store().clock().now();
        Ok(Counted { now, rows: self.usable("read counters")?.state().counters.values().cloned().collect() })
    }
}

/// Adds up the rows of these processes; answers how many.
fn fold(db: &mut MemoryDb, processes: &BTreeSet<Uuid>) -> u64 {
    let gone = db.state().counters.iter().filter(|((process, _), _)| processes.contains(process));
    let gone: Vec<_> = gone.map(|(key, row)| (key.clone(), row.clone())).collect();
    let folded = gone.len() as u64;
    for (key, row) in gone {
        let sum_key = (Process::GONE, key.1.clone());
        let mut sum = db.state().counters.get(&sum_key).cloned().unwrap_or_else(|| CountedRow {
            process: Process { id: Process::GONE, label: String::new() },
            began_at: row.began_at,
            seen_at: row.seen_at,
            tally: Tally { part: row.tally.part.clone(), body: TallyBody::default() },
        });
        sum.seen_at = sum.seen_at.max(row.seen_at);
        sum.tally.body.add(&row.tally.body);
        set(db, sum_key, Some(sum));
        set(db, key, None);
    }
    folded
}

/// How long ago a time was, in whole seconds.
fn seconds(now: i64, then: i64) -> u64 {
    u64::try_from(now.saturating_sub(then)).unwrap_or(0) / 1_000_000
}

impl Depths for MemoryTx {
    async fn queue_depth(&mut self, queue: &str) -> Result<Option<Depth>, StoreError> {
        let now = self.now();
        let state = self.usable("count what waits in a queue")?.state();
        let lately = now.saturating_sub(micros(Depth::ARRIVED_WITHIN));
        let Some((rows, oldest, arrived)) = state.queues.depth(queue, now, lately) else { return Ok(None) };
        let depth = Depth::counted(rows, oldest.map(|oldest| seconds(now, oldest)));
        Ok(Some(depth.with_arrived(arrived.min(Depth::COUNTED_MAX + 1))))
    }

    async fn parked_depth(&mut self, consumer: ConsumerId) -> Result<ParkedDepth, StoreError> {
        let state = self.usable("count what is parked")?.state();
        let rows = || state.parked.rows.values().filter(|row| row.park.consumer == consumer);
        let is_dead = |row: &&Row| matches!(row.park.verdict.waits, Waits::Person | Waits::Missing);
        let dead = rows().filter(is_dead).count() as u64;
        Ok(ParkedDepth::counted(rows().count() as u64 - dead, dead))
    }

    async fn lane_depths(&mut self) -> Result<Vec<LaneDepth>, StoreError> {
        let now = self.now();
        let state = self.usable("count what waits in the outbox")?.state();
        let lanes = state.outbox.depths();
        let lag = |oldest: Timestamp| seconds(now, oldest.as_microsecond());
        Ok(lanes
            .into_iter()
            .map(|(lane, (unsent, oldest))| LaneDepth {
                lane,
                unsent: unsent.min(Depth::COUNTED_MAX),
                is_more: unsent > Depth::COUNTED_MAX,
                lag_seconds: lag(oldest),
                is_held: state.queues.is_held(QueueSpec::outbox().name.as_str(), lane, now),
            })
            .collect())
    }
}
