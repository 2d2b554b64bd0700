//! The parked messages of a memory store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::db::MemoryDb;
use super::quarantine::{find_record, settle};
use super::queue::micros;
use super::store::{MemoryStore, MemoryTx};
use crate::error::{StoreError, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::OutcomeKind;
use crate::parked::{
    GapBefore, LeasedPark, Park, ParkLease, ParkReceipt, Parking, PutBack, Waiting, Waits, still_parked,
};
use crate::planted;
use crate::replay::ReplayId;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// Everything that is set aside, and what was started and not finished.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// By their number, which is the order in which they were parked.
    pub(super) rows: BTreeMap<i64, Row>,
    starts: HashMap<(ConsumerId, Key), Waiting>,
    next_row: i64,
    /// Rows that were ended, if anyone asked for them to be kept.
    departures: Option<Vec<Departure>>,
}

/// A parked row that was ended as done, and what the inbox said under its key when it was.
#[derive(Clone, Debug)]
pub struct Departure {
    /// The row, as it was last parked.
    pub park: Park,
    /// The fingerprint and the outcome of the record under its key; `None`: there was none.
    pub record: Option<(Fingerprint, OutcomeKind)>,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// As it was parked, with the newest verdict.
    pub(super) park: Park,
    /// Microseconds since 1970 from which it can be leased; `None` while it is dead.
    pub(super) due_at: Option<i64>,
    pub(super) fence: i32,
    pub(super) parked_at: Timestamp,
    /// When it got its verdict.
    pub(super) last_at: Timestamp,
    /// What operators wrote: a remark, the replay that revived it, the entry of its edit in the audit log.
    pub(super) note: Option<String>,
    pub(super) replay: Option<ReplayId>,
    pub(super) supersedes: Option<i64>,
    /// While it waits for a version: it had no order key before.
    pub(super) apart: bool,
}

impl Row {
    /// Whether later messages of its order key wait for it.
    pub(super) fn blocks(&self) -> bool {
        !matches!(self.park.verdict.waits, Waits::Gap(_) | Waits::Missing)
    }
}

impl Parked {
    /// A row that is still in hand under this receipt.
    fn in_hand(&self, receipt: ParkReceipt) -> Option<&Row> {
        self.rows.get(&receipt.row).filter(|row| row.fence == receipt.fence && row.due_at.is_some())
    }

    /// The row of the same message.
    fn find(&self, park: &Park) -> Option<(&i64, &Row)> {
        let same = |row: &Row| {
            let known = &row.park;
            known.consumer == park.consumer && known.key == park.key && known.fingerprint == park.fingerprint
        };
        self.rows.iter().find(|(_, row)| same(row))
    }

    /// The rows that can be leased now, the longest due first.
    fn due(&self, consumer: ConsumerId, now: i64) -> Vec<(i64, i64)> {
        let mut held_up = HashSet::new();
        let mut due = Vec::new();
        for (id, row) in self.rows.iter().filter(|(_, row)| row.park.consumer == consumer) {
            // The first row of an order key that blocks is the only one of those that can be leased.
            let order_key = row.park.order_key.as_deref().filter(|_| row.blocks());
            if order_key.is_none_or(|key| held_up.insert(key)) {
                due.extend(row.due_at.filter(|at| *at <= now).map(|at| (at, *id)));
            }
        }
        due.sort_unstable();
        due
    }
}

impl MemoryStore {
    /// Everything that is set aside and committed, in the order in which it was parked, each with its newest verdict.
    pub async fn parked(&self) -> Vec<Park> {
        self.state().await.parked.rows.values().map(|row| row.park.clone()).collect()
    }

    /// From now on every parked row that is ended is kept, for [`departures`](Self::departures). For audits: nothing ever
    /// forgets them.
    pub async fn keep_departures(&self) {
        self.state().await.parked.departures.get_or_insert_default();
    }

    /// The parked rows that were ended since [`keep_departures`](Self::keep_departures), and committed so, in order. What
    /// an operator discarded is not among them.
    pub async fn departures(&self) -> Vec<Departure> {
        self.state().await.parked.departures.clone().unwrap_or_default()
    }
}

/// Keeps what is about to be ended, undoably.
fn note_departure(db: &mut MemoryDb, id: i64) {
    let state = db.state();
    if state.parked.departures.is_none() {
        return;
    }
    let Some(row) = state.parked.rows.get(&id) else { return };
    let record = find_record(state, row.park.consumer, &row.park.key)
        .map(|(_, record)| (record.fingerprint, record.outcome.kind()));
    let departure = Departure { park: row.park.clone(), record };
    db.change(move |state| {
        state.parked.departures.get_or_insert_default().push(departure);
        Box::new(|state| {
            let _ = state.parked.departures.as_mut().and_then(Vec::pop);
        })
    });
}

/// Replaces a row, undoably.
pub(super) fn set_row(db: &mut MemoryDb, id: i64, after: Option<Row>) {
    db.change(move |state| {
        let rows = &mut state.parked.rows;
        let before = match after {
            Some(after) => rows.insert(id, after),
            None => rows.remove(&id),
        };
        Box::new(move |state| {
            match before {
                Some(before) => state.parked.rows.insert(id, before),
                None => state.parked.rows.remove(&id),
            };
        })
    });
}

/// Takes a row in hand until then.
pub(super) fn take(db: &mut MemoryDb, id: i64, mut row: Row, until: i64) -> LeasedPark {
    row.fence = ParkReceipt::after(row.fence);
    row.due_at = Some(until);
    let leased = LeasedPark {
        receipt: ParkReceipt { row: id, fence: row.fence },
        message: (*row.park.message).clone(),
        fingerprint: row.park.fingerprint,
        owns_record: row.park.owns_record,
        attempts: row.park.verdict.attempts,
        parked_at: row.parked_at,
        gap: (!row.blocks()).then(|| GapBefore {
            class: row.park.verdict.class,
            reason: row.park.verdict.reason.clone(),
            since: row.last_at,
        }),
    };
    set_row(db, id, Some(row));
    leased
}

/// Replaces a count of starts, undoably.
fn set_starts(db: &mut MemoryDb, place: (ConsumerId, Key), after: Option<Waiting>) {
    db.change(move |state| {
        let starts = &mut state.parked.starts;
        let before = match after {
            Some(after) => starts.insert(place.clone(), after),
            None => starts.remove(&place),
        };
        Box::new(move |state| {
            match before {
                Some(before) => state.parked.starts.insert(place, before),
                None => state.parked.starts.remove(&place),
            };
        })
    });
}

fn due_at(now: i64, waits: Waits) -> Option<i64> {
    waits.delay().map(|delay| now.saturating_add(micros(delay)))
}

fn fenced(attempted: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Fenced, attempted, "its lease ran out and it has a new owner")
}

impl Parking for MemoryTx {
    async fn park(&mut self, parks: &[Park]) -> Result<Vec<bool>, StoreError> {
        let now = self.store().clock().now();
        let db = self.usable("park messages")?;
        let mut added = Vec::with_capacity(parks.len());
        for park in parks {
            let there = db.state().parked.find(park).map(|(id, row)| (*id, row.clone()));
            added.push(there.is_none());
            if let Some((id, mut row)) = there {
                if park.owns_record && !row.park.owns_record {
                    row.park.owns_record = true;
                    set_row(db, id, Some(row));
                }
                continue;
            }
            let due_at = due_at(now.as_microsecond(), park.verdict.waits);
            let row = Row {
                park: park.clone(),
                due_at,
                fence: 0,
                parked_at: now,
                last_at: now,
                note: None,
                replay: None,
                supersedes: None,
                apart: false,
            };
            // From one on, as identity columns do: zero is before the first.
            let id = db.state().parked.next_row + 1;
            db.change(move |state| {
                // Like an identity column, the counter does not go back.
                state.parked.next_row += 1;
                Box::new(|_| {})
            });
            set_row(db, id, Some(row));
        }
        Ok(added)
    }

    async fn is_blocked(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<Vec<bool>, StoreError> {
        let db = self.usable("look for parked messages")?;
        let rows = db.state().parked.rows.values().filter(|row| row.park.consumer == consumer && row.blocks());
        let blocked: HashSet<&str> = rows.filter_map(|row| row.park.order_key.as_deref()).collect();
        Ok(order_keys.iter().map(|key| blocked.contains(key)).collect())
    }

    async fn count_blocking(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
        max: u64,
    ) -> Result<Vec<u64>, StoreError> {
        let rows = &self.usable("count parked messages")?.state().parked.rows;
        let count = |key: &&str| {
            let counts = |row: &&Row| row.park.consumer == consumer && row.park.order_key.as_deref() == Some(*key);
            (rows.values().filter(|row| row.blocks()).filter(counts).count() as u64).min(max)
        };
        Ok(order_keys.iter().map(count).collect())
    }

    async fn lease_parked(&mut self, request: &ParkLease) -> Result<Vec<LeasedPark>, StoreError> {
        let now = self.now();
        let db = self.usable("lease parked messages")?;
        let mut due = db.state().parked.due(request.consumer, now);
        due.truncate(request.max);
        let mut leased = Vec::with_capacity(due.len());
        for (_, id) in due {
            let Some(row) = db.state().parked.rows.get(&id).cloned() else { continue };
            leased.push(take(db, id, row, now.saturating_add(micros(request.lease))));
        }
        Ok(leased)
    }

    async fn extend_parked(&mut self, rows: &[ParkReceipt], lease: Duration) -> Result<(), StoreError> {
        let due_at = Some(self.now().saturating_add(micros(lease)));
        let db = self.usable("extend leases of parked messages")?;
        for receipt in rows {
            if let Some(row) = db.state().parked.in_hand(*receipt).cloned() {
                set_row(db, receipt.row, Some(Row { due_at, ..row }));
            }
        }
        Ok(())
    }

    async fn end_parked(&mut self, rows: &[ParkReceipt]) -> Result<(), StoreError> {
        let attempted = "end parked messages";
        let now = self.store().clock().now();
        let db = self.usable(attempted)?;
        // First look, then act: a row that is not ours leaves all of them as they were.
        if rows.iter().any(|receipt| db.state().parked.in_hand(*receipt).is_none()) {
            return Err(fenced(attempted));
        }
        let is_undone = |receipt: &ParkReceipt| {
            let park = db.state().parked.in_hand(*receipt).map(|row| &row.park);
            park.is_some_and(|park| db.found_parked.says_so_of(park.key.as_bytes(), park.fingerprint))
        };
        if !planted::is("parked-duplicate-of-itself") && rows.iter().any(is_undone) {
            return Err(still_parked(attempted));
        }
        for receipt in rows {
            // Gone already if it is named twice.
            if db.state().parked.in_hand(*receipt).is_none() {
                return Err(fenced(attempted));
            }
            note_departure(db, receipt.row);
            settle(db, receipt.row, now);
            set_row(db, receipt.row, None);
        }
        Ok(())
    }

    async fn put_back(&mut self, rows: &[PutBack]) -> Result<(), StoreError> {
        let attempted = "put back parked messages";
        let time = self.store().clock().now();
        let now = time.as_microsecond();
        let db = self.usable(attempted)?;
        if rows.iter().any(|row| db.state().parked.in_hand(row.receipt).is_none()) {
            return Err(fenced(attempted));
        }
        for PutBack { receipt, verdict, order_key } in rows {
            let Some(mut row) = db.state().parked.in_hand(*receipt).cloned() else { return Err(fenced(attempted)) };
            let record = db.state().inbox.get(&(row.park.consumer, row.park.key.clone()));
            row.park.owns_record |= record.is_some_and(|record| {
                record.outcome.kind() == OutcomeKind::Parked && record.fingerprint == row.park.fingerprint
            });
            row.fence = receipt.given_back();
            row.due_at = due_at(now, verdict.waits);
            let waited = !row.blocks();
            let before = std::mem::replace(&mut row.park.verdict, verdict.clone());
            let says_the_same = before.class == verdict.class && before.reason == verdict.reason;
            if !(waited && !row.blocks() && says_the_same) {
                row.last_at = time;
            }
            match (waited, !row.blocks()) {
                (false, false) => {}
                (false, true) => {
                    row.apart = row.park.order_key.is_none();
                    row.park.order_key.clone_from(order_key);
                }
                (true, true) => row.park.order_key.clone_from(order_key),
                (true, false) => {
                    row.park.order_key = order_key.clone().filter(|_| !row.apart);
                    row.apart = false;
                }
            }
            set_row(db, receipt.row, Some(row));
        }
        Ok(())
    }

    async fn release_parked(&mut self, rows: &[ParkReceipt], delay: Duration) -> Result<(), StoreError> {
        let due_at = Some(self.now().saturating_add(micros(delay)));
        let db = self.usable("release parked messages")?;
        for receipt in rows {
            if let Some(row) = db.state().parked.in_hand(*receipt).cloned() {
                set_row(db, receipt.row, Some(Row { due_at, fence: receipt.given_back(), ..row }));
            }
        }
        Ok(())
    }

    async fn count_gaps(&mut self, consumer: ConsumerId, order_key: &str) -> Result<u64, StoreError> {
        let db = self.usable("count gaps")?;
        let waits = |row: &&Row| {
            let is_gap = matches!(row.park.verdict.waits, Waits::Gap(_));
            row.park.consumer == consumer && is_gap && row.park.order_key.as_deref() == Some(order_key)
        };
        Ok(db.state().parked.rows.values().filter(waits).count() as u64)
    }

    async fn wake_gaps(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<(), StoreError> {
        let now = self.store().clock().now().as_microsecond();
        let db = self.usable("wake what waits for a gap")?;
        let waits = |row: &Row| {
            let key = row.park.order_key.as_deref();
            row.park.consumer == consumer && !row.blocks() && key.is_some_and(|key| order_keys.contains(&key))
        };
        let woken: Vec<(i64, Row)> = db
            .state()
            .parked
            .rows
            .iter()
            // One that is in hand is looked at anyway.
            .filter(|(_, row)| waits(row) && row.fence % ParkReceipt::ROUND == 0)
            .filter(|(_, row)| row.due_at.is_none_or(|at| at > now))
            .map(|(id, row)| (*id, Row { due_at: Some(now), ..row.clone() }))
            .collect();
        for (id, mut row) in woken {
            row.park.verdict.waits = Waits::Gap(Duration::ZERO);
            set_row(db, id, Some(row));
        }
        Ok(())
    }

    async fn note_wait(&mut self, consumer: ConsumerId, key: &Key) -> Result<Waiting, StoreError> {
        let db = self.usable("note a wait")?;
        let place = (consumer, key.clone());
        let before = db.state().parked.starts.get(&place).copied().unwrap_or_default();
        let waiting = Waiting { waits: before.waits.saturating_add(1), ..before };
        set_starts(db, place, Some(waiting));
        Ok(waiting)
    }

    async fn note_start(&mut self, consumer: ConsumerId, key: &Key, waited: Waiting) -> Result<u32, StoreError> {
        let db = self.usable("note a start")?;
        let place = (consumer, key.clone());
        let before = db.state().parked.starts.get(&place).copied().unwrap_or_default();
        let cleared = waited.waits > 1 && before.waits == waited.waits;
        let starts = if cleared { 1 } else { before.starts.saturating_add(1) };
        set_starts(db, place, Some(Waiting { starts, waits: 0 }));
        Ok(starts)
    }

    async fn forget_starts(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        let db = self.usable("forget starts")?;
        for place in keys {
            set_starts(db, place.clone(), None);
        }
        Ok(())
    }
}
