//! The queue role: messages in a table, leased with fences.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::planted;
use oncebox_core::queue::{
    Enqueue, Enqueued, HeldLane, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore,
    QueueTx, RowReceipt,
};
use oncebox_core::source::LaneNumber;
use uuid::Uuid;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::lanes;
use crate::queries::{Queries, QueueQueries};
use crate::store::{Shared, SqlStore};
use crate::transaction::{SHORT_WAIT, SqlTx, bounded, finish};
use crate::wire::{self, Packed, error_text, micros, order_hash};

/// A row that is neither inserted nor found has vanished in between.
const TRIES_MAX: usize = 3;

impl<D: Dialect> QueueStore for SqlStore<D> {
    async fn queue(&self, spec: &QueueSpec) -> Result<QueueId, StoreError> {
        let Shared { dialect, queries, .. } = &**self.shared();
        let mut open = dialect.begin(dialect.connect().await?, SHORT_WAIT).await?;
        let id = lanes::open_queue(D::db(&mut open), queries, spec).await;
        finish(dialect, open, id).await
    }

    async fn enqueued(&self) {
        self.shared().enqueued.notified().await;
    }

    fn announce(&self) {
        // All who wait now, and one who is just about to.
        self.shared().enqueued.notify_waiters();
        self.shared().enqueued.notify_one();
    }
}

impl<D: Dialect> QueueTx for SqlTx<D> {
    async fn enqueue(&mut self, queue: QueueId, messages: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, enqueue(db, &queries.queue, now, queue, messages)).await
    }

    async fn lease(&mut self, request: &LeaseRequest) -> Result<Vec<Leased>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, lease(db, &queries.queue, now, request)).await
    }

    async fn settle(&mut self, queue: QueueId, rows: &[RowReceipt], keep: Keep) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, settle(db, queries, now, queue, rows, keep)).await
    }

    async fn release(
        &mut self,
        queue: QueueId,
        rows: &[RowReceipt],
        delay: Duration,
        reason: Option<&str>,
    ) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let reason = reason.map(error_text);
        let (queries, now, db) = self.parts();
        let call = Call::new("release messages", &queries.queue.release).value(now).value(queue.0);
        let call = receipts(call.value(micros(delay)).value(reason.as_deref()), rows);
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn extend(&mut self, queue: QueueId, rows: &[RowReceipt], lease: Duration) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("extend leases", &queries.queue.extend).value(now).value(queue.0);
        let call = receipts(call.value(micros(lease)).value(None::<&str>), rows);
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn hold_lanes(&mut self, request: &LaneRequest) -> Result<HeldLanes, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, lanes::hold(db, &queries.lanes, now, request)).await
    }

    async fn leave_lanes(&mut self, queue: QueueId, owner: Uuid) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, lanes::leave(db, &queries.lanes, queue, owner)).await
    }
}

/// What receipts hold, in the order of `queue/release.sql`.
fn receipts<'v>(call: Call<'v>, rows: &'v [RowReceipt]) -> Call<'v> {
    call.column(rows.iter().map(|row| Some(row.row)))
        .column(rows.iter().map(|row| Some(row.fence)))
        .column(rows.iter().map(|row| row.lane.map(|held| held.lane.0)))
        .column(rows.iter().map(|row| row.lane.map(|held| held.epoch)))
}

async fn enqueue(
    db: &mut impl Connection,
    queries: &QueueQueries,
    now: Option<i64>,
    queue: QueueId,
    messages: &[Enqueue],
) -> Result<Vec<Enqueued>, StoreError> {
    // The same key twice in one call: the first is offered to the store, the others are judged by what it kept.
    let mut firsts: HashMap<&[u8], usize> = HashMap::new();
    let mut open: Vec<usize> = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let known = message.once.as_ref().is_some_and(|(key, _)| *firsts.entry(key.as_bytes()).or_insert(at) != at);
        if !known {
            open.push(at);
        }
    }
    let mut kept: HashMap<Bytes, Fingerprint> = HashMap::new();
    let mut added = vec![false; messages.len()];
    for _ in 0..TRIES_MAX {
        if open.is_empty() {
            break;
        }
        let rows = open.iter().map(|at| Packed::new(&messages[*at].message)).collect::<Result<Vec<_>, _>>()?;
        let call = Call::new("enqueue messages", &queries.enqueue).value(now).value(queue.0);
        let offered = || open.iter().map(|at| &messages[*at]);
        let call = call
            .column(offered().map(|message| message.lane.map(|lane| lane.0)))
            .column(offered().map(|message| message.message.order_key.as_deref().map(order_hash)))
            .column(offered().map(|message| message.once.as_ref().map(|(key, _)| key.as_bytes())))
            .column(offered().map(|message| message.once.as_ref().map(|(_, fingerprint)| fingerprint.hash())))
            .column(offered().map(|message| message.once.as_ref().map(|(_, fingerprint)| fingerprint.scheme())));
        let mut new = HashSet::new();
        for mut row in wire::bind(call, &rows).fetch(db).await? {
            new.extend(row.bytes_or_null()?);
        }
        open.retain(|at| {
            let Some((key, fingerprint)) = &messages[*at].once else {
                added[*at] = true;
                return false;
            };
            added[*at] = new.contains(key.as_bytes());
            if added[*at] {
                kept.insert(Bytes::copy_from_slice(key.as_bytes()), *fingerprint);
            }
            !added[*at]
        });
        if open.is_empty() {
            break;
        }
        // With a snapshot that is newer than the insert's: the winner of a race is seen now.
        let keys = open.iter().map(|at| messages[*at].once.as_ref().map(|(key, _)| key.as_bytes()));
        let found = Call::new("enqueue messages", &queries.read_keys).value(queue.0).column(keys).fetch(db).await?;
        for mut row in found {
            let (key, hash, scheme) = (row.bytes()?, row.int()?, row.int()?);
            kept.insert(key, Fingerprint::from_stored(scheme, hash));
        }
        open.retain(|at| messages[*at].once.as_ref().is_some_and(|(key, _)| !kept.contains_key(key.as_bytes())));
    }
    if !open.is_empty() {
        let why = "a message was neither added nor found; others add and remove it at the same time";
        return Err(StoreError::new(StoreErrorKind::Contended, "enqueue messages", why));
    }
    let answer = |(message, added): (&Enqueue, &bool)| match &message.once {
        _ if *added => Enqueued::Added,
        Some((key, fingerprint)) if kept.get(key.as_bytes()).is_some_and(|kept| fingerprint.agrees_with(*kept)) => {
            Enqueued::Duplicate
        }
        _ => Enqueued::Conflict,
    };
    Ok(messages.iter().zip(&added).map(answer).collect())
}

async fn lease(
    db: &mut impl Connection,
    queries: &QueueQueries,
    now: Option<i64>,
    request: &LeaseRequest,
) -> Result<Vec<Leased>, StoreError> {
    let attempted = "lease messages";
    let (queue, max) = (request.queue.0, i64::try_from(request.max).unwrap_or(i64::MAX));
    let held = request.lanes.as_deref().unwrap_or_default();
    let rows = if request.lanes.is_none() {
        let call = Call::new(attempted, &queries.lease).value(now).value(queue).value(max);
        call.value(micros(request.lease)).fetch(db).await?
    } else {
        let picked = Call::new(attempted, &queries.pick_in_lanes)
            .value(now)
            .value(queue)
            .value(max)
            .column(held.iter().map(|held| Some(held.lane.0)))
            .column(held.iter().map(|held| Some(held.epoch)))
            .fetch(db)
            .await?;
        let picked = picked.into_iter().map(|mut row| row.int()).collect::<Result<Vec<i64>, _>>()?;
        if picked.is_empty() {
            return Ok(Vec::new());
        }
        let call = Call::new(attempted, &queries.take_picked).value(now).value(queue).value(micros(request.lease));
        call.column(picked.into_iter().map(Some)).fetch(db).await?
    };
    let mut leased = rows.into_iter().map(|row| read(row, held)).collect::<Result<Vec<_>, _>>()?;
    // A statement that changes rows returns them in any order.
    leased.sort_unstable_by_key(|leased| leased.receipt.row);
    Ok(leased)
}

fn read(mut row: Row, held: &[HeldLane]) -> Result<Leased, StoreError> {
    let (id, fence, lane): (i64, i32, Option<i32>) = (row.int()?, row.int()?, row.int_or_null()?);
    let lane = match lane {
        Some(lane) if !held.is_empty() => {
            let ours = held.iter().find(|held| held.lane == LaneNumber(lane)).copied();
            Some(ours.ok_or_else(|| corrupt("a row of a lane that was not asked for"))?)
        }
        _ => None,
    };
    Ok(Leased { message: wire::read(&mut row)?, receipt: RowReceipt { row: id, fence, lane } })
}

async fn settle(
    db: &mut impl Connection,
    queries: &Queries,
    now: Option<i64>,
    queue: QueueId,
    rows: &[RowReceipt],
    keep: Keep,
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let attempted = "settle queued messages";
    let lanes: BTreeSet<HeldLane> = rows.iter().filter_map(|row| row.lane).collect();
    let lost_lanes = !lanes.is_empty() && lanes::check(db, &queries.lanes, queue, &lanes).await? != lanes.len();
    let call = match keep {
        Keep::Nothing => Call::new(attempted, &queries.queue.delete).value(queue.0),
        Keep::Processed => Call::new(attempted, &queries.queue.keep).value(now).value(queue.0),
    };
    let call = call.column(rows.iter().map(|row| Some(row.row))).column(rows.iter().map(|row| Some(row.fence)));
    let settled = call.execute(db).await?;
    let fenced = lost_lanes || settled != rows.len() as u64;
    if fenced && !planted::is("no-fence") {
        let why = "a lease ran out and its message or lane has a new owner";
        return Err(StoreError::new(StoreErrorKind::Fenced, attempted, why));
    }
    Ok(())
}
