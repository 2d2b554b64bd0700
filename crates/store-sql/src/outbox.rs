//! The outbox role: rows to publish, written with the business, read by being unsent.
//!
//! ```text
//!                   ┌──── a fetch finds it behind one that is set aside ────┐
//!                   │                                                       ▼
//!  emit ──▶ 0: looked at by fetches ◀── what it waits behind goes ── 1: waits, no fetch looks at it
//!                   │        ▲
//!           refused ▼        │ retry
//!             2: set aside ──┴──skip──▶ gone
//! ```
//!
//! Whether a row may go is decided by looking, at each fetch; that it waits is only remembered, so that a hundred thousand
//! rows behind a refused one are not looked at again and again. What is remembered must not outlive its reason. Of one
//! topic and order key, the first row that waits always has one before it that is unsent or set aside; whoever takes that
//! one away wakes it. And no fetch notes that a row waits while somebody takes one of its lane away.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use oncebox_core::error::StoreError;
use oncebox_core::outbox::{
    AsideRow, Backlog, Fetch, Fetched, KeepSent, LANES, Outbox, OutboxStore, SentReceipt, Unsent, emit_key, id_taken,
    lane, lane_lost,
};
use oncebox_core::planted;
use oncebox_core::queue::{HeldLane, QueueId, QueueSpec, QueueStore};
use oncebox_core::sink::Outgoing;
use oncebox_core::source::LaneNumber;
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::outbox_queries::OutboxQueries;
use crate::queries::Query;
use crate::store::SqlStore;
use crate::transaction::{SqlTx, bounded};
use crate::wire::{self, Packed, error_text, order_hash, place_hash};

/// How often one fetch looks, again because what it found waits behind others.
const LOOKS_MAX: usize = 3;

/// How many rows are looked at, to note which of them wait, after a fetch has met one that does.
const NOTED_MAX: usize = 2_000;

/// How many rows of one topic and order key are woken when what they wait behind goes. The rest follows as these are sent,
/// so that no single statement has to change a hundred thousand rows.
const WOKEN_MAX: i64 = 200;

/// At least so many rows are looked at in each lane.
const PER_LANE_MIN: usize = 16;

impl<D: Dialect> OutboxStore for SqlStore<D> {
    async fn outbox(&self) -> Result<QueueId, StoreError> {
        self.queue(&QueueSpec::outbox()).await
    }

    async fn emitted(&self) {
        self.shared().emitted.notified().await;
    }

    fn announce_emitted(&self) {
        self.shared().announce_emitted();
    }
}

impl<D: Dialect> Outbox for SqlTx<D> {
    async fn emit(&mut self, rows: &[Outgoing]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.emits = true;
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, emit(db, &queries.outbox, now, rows)).await
    }

    async fn fetch_unsent(&mut self, wanted: Fetch<'_>) -> Result<Fetched, StoreError> {
        if wanted.lanes.is_empty() || wanted.max == 0 {
            return Ok(Fetched::default());
        }
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, fetch(db, &queries.outbox, now, wanted)).await
    }

    async fn end_sent(&mut self, rows: &[SentReceipt], keep: KeepSent) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let attempted = "end messages that were sent";
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, async {
            fence(db, &queries.outbox, attempted, rows.iter()).await?;
            let seqs: Vec<i64> = rows.iter().map(|receipt| receipt.row).collect();
            wake(db, &queries.outbox, attempted, &seqs).await?;
            let call = match keep {
                KeepSent::Nothing => Call::new(attempted, &queries.outbox.delete),
                KeepSent::Sent => Call::new(attempted, &queries.outbox.keep).value(now),
            };
            call.column(seqs.into_iter().map(Some)).execute(db).await.map(drop)
        })
        .await
    }

    async fn set_unsent_aside(&mut self, rows: &[(SentReceipt, String)]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let attempted = "set refused messages aside";
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, async {
            fence(db, &queries.outbox, attempted, rows.iter().map(|(receipt, _)| receipt)).await?;
            let reasons: Vec<String> = rows.iter().map(|(_, reason)| error_text(reason)).collect();
            let call = Call::new(attempted, &queries.outbox.set_aside).value(now);
            call.column(rows.iter().map(|(receipt, _)| Some(receipt.row)))
                .column(reasons.iter().map(|reason| Some(reason.as_bytes())))
                .execute(db)
                .await
                .map(drop)
        })
        .await
    }

    async fn page_aside(&mut self, after: i64, max: usize) -> Result<Vec<AsideRow>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("read what is set aside in the outbox", &queries.outbox.page)
            .value(after)
            .value(i64::try_from(max).unwrap_or(i64::MAX));
        bounded(patience, call.fetch(db)).await?.into_iter().map(read_aside).collect()
    }

    async fn retry_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        self.take_from_aside("retry what is set aside in the outbox", |outbox| &outbox.retry, rows).await
    }

    async fn skip_aside(&mut self, rows: &[i64]) -> Result<Vec<bool>, StoreError> {
        self.take_from_aside("skip what is set aside in the outbox", |outbox| &outbox.skip, rows).await
    }

    async fn sweep_sent(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("remove what was sent from the outbox", &queries.outbox.sweep)
            .value(before.as_microsecond())
            .value(i64::try_from(max).unwrap_or(i64::MAX));
        bounded(patience, call.execute(db)).await
    }

    async fn outbox_backlog(&mut self) -> Result<Backlog, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count the outbox", &queries.outbox.backlog)
            .value(i64::try_from(Backlog::COUNTED_MAX).unwrap_or(i64::MAX))
            .value(i32::from(LANES));
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no count of the outbox"))?;
        let (unsent, waiting, aside): (u64, u64, u64) = (row.int()?, row.int()?, row.int()?);
        Ok(Backlog { unsent: (unsent + waiting).min(Backlog::COUNTED_MAX), aside, oldest: row.time_or_null()? })
    }
}

impl<D: Dialect> SqlTx<D> {
    /// Takes rows out of what is set aside, by `query`, and wakes what waits behind them. Answers for each whether it was.
    async fn take_from_aside(
        &mut self,
        attempted: &'static str,
        query: impl Fn(&OutboxQueries) -> &Query,
        rows: &[i64],
    ) -> Result<Vec<bool>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        // What can be sent now is as good as new.
        self.emits = true;
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let seqs = || rows.iter().copied().map(Some);
        let taken = bounded(patience, async {
            if let Some(keep_lanes) = &queries.outbox.keep_lanes {
                let name = QueueSpec::outbox().name;
                Call::new(attempted, keep_lanes).value(name.as_str()).column(seqs()).fetch(db).await?;
            }
            wake(db, &queries.outbox, attempted, rows).await?;
            Call::new(attempted, query(&queries.outbox)).column(seqs()).fetch(db).await
        });
        let taken = taken.await?.into_iter().map(|mut row| row.int()).collect::<Result<BTreeSet<i64>, _>>()?;
        Ok(rows.iter().map(|row| taken.contains(row)).collect())
    }
}

/// Adds rows, in order.
pub(crate) async fn emit(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    now: Option<i64>,
    rows: &[Outgoing],
) -> Result<(), StoreError> {
    let keys = rows.iter().map(emit_key).collect::<Result<Vec<_>, _>>()?;
    let packed = rows.iter().map(|row| Packed::new(&row.message)).collect::<Result<Vec<_>, _>>()?;
    let call = Call::new("add messages to the outbox", &queries.emit)
        .value(now)
        .column(rows.iter().map(|row| Some(lane(row).0)))
        .column(rows.iter().map(|row| Some(order_hash(&row.topic))))
        .column(rows.iter().map(|row| row.message.order_key.as_deref().map(|key| place_hash(&row.topic, key))))
        .column(keys.iter().map(|key| Some(key.as_bytes())))
        .column(rows.iter().map(|row| Some(row.topic.as_bytes())));
    let mut added: HashMap<Bytes, usize> = HashMap::with_capacity(rows.len());
    for mut row in wire::bind(call, &packed).fetch(db).await? {
        *added.entry(row.bytes()?).or_default() += 1;
    }
    for (row, key) in rows.iter().zip(&keys) {
        // Taken out as it is found: of two in one call with the same id, the first was added.
        if added.remove(key.as_bytes()).is_none() {
            return Err(id_taken(row));
        }
    }
    Ok(())
}

async fn fetch(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    now: Option<i64>,
    fetch: Fetch<'_>,
) -> Result<Fetched, StoreError> {
    let mut fetched = Fetched::default();
    for _ in 0..LOOKS_MAX {
        fetched.rows.clear();
        let picked = pick(db, queries, now, fetch).await?;
        if picked.is_empty() {
            break;
        }
        let seqs = picked.keys().copied().map(Some);
        let rows = Call::new(READ, &queries.read).column(seqs).fetch(db).await?;
        let looked_at = rows.len();
        for mut row in rows {
            let (seq, waits): (i64, i64) = (row.int()?, row.int()?);
            if waits == 0 {
                let lane = *picked.get(&seq).ok_or_else(|| corrupt("a row that was not asked for"))?;
                fetched.rows.push(read_unsent(row, SentReceipt { row: seq, lane })?);
            }
        }
        // With half of what was wanted in hand there is no hurry to look again.
        let enough = fetched.rows.len().saturating_mul(2) >= looked_at;
        let some_wait = fetched.rows.len() < looked_at;
        if !some_wait || !note_behind(db, queries, now, fetch).await? {
            break;
        }
        fetched.noted = true;
        if enough {
            break;
        }
    }
    Ok(fetched)
}

const READ: &str = "read the outbox";

/// The oldest unsent rows of each lane, each with its lane.
async fn pick(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    now: Option<i64>,
    Fetch { lanes, max, without, after }: Fetch<'_>,
) -> Result<BTreeMap<i64, HeldLane>, StoreError> {
    let held: HashMap<LaneNumber, HeldLane> = lanes.iter().map(|held| (held.lane, *held)).collect();
    let name = QueueSpec::outbox().name;
    // A fair share of each lane is enough, unless most rows lie in few lanes.
    let fair = if queries.picks_by_lane { max.div_ceil(lanes.len()) } else { max };
    let mut per_lane = fair.max(PER_LANE_MIN).min(max);
    let length = lanes.len().max(without.len());
    loop {
        let query = if without.is_empty() { &queries.pick } else { &queries.pick_without };
        let call = Call::new(READ, query)
            .value(now)
            .value(name.as_str())
            .value(i64::try_from(max).unwrap_or(i64::MAX))
            .value(i64::try_from(per_lane).unwrap_or(i64::MAX))
            // The columns of a call have one length; what is missing is null and matches nothing.
            .column((0..length).map(|at| lanes.get(at).map(|held| held.lane.0)))
            .column((0..length).map(|at| lanes.get(at).map(|held| held.epoch)))
            .column((0..length).map(|at| lanes.get(at).map(|held| after.get(&held.lane).copied().unwrap_or(0))));
        let topics = (0..length).map(|at| without.get(at).map(|topic| order_hash(topic)));
        let call = if without.is_empty() { call } else { call.column(topics) };
        let mut picked = BTreeMap::new();
        for mut row in call.fetch(db).await? {
            let (seq, lane): (i64, i32) = (row.int()?, row.int()?);
            let lane = held.get(&LaneNumber(lane)).ok_or_else(|| corrupt("a row of a lane that was not asked for"))?;
            picked.insert(seq, *lane);
        }
        // With most of what is wanted in hand, another look is not worth its price.
        if picked.len() >= max - max / 4 || picked.len() < per_lane || per_lane >= max {
            return Ok(picked);
        }
        per_lane = per_lane.saturating_mul(8).min(max);
    }
}

/// Notes of the oldest unsent rows which of them wait behind others. Answers whether it noted any.
async fn note_behind(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    now: Option<i64>,
    fetch: Fetch<'_>,
) -> Result<bool, StoreError> {
    let mut oldest = pick(db, queries, now, Fetch { max: NOTED_MAX, ..fetch }).await?;
    if let Some(keep_out) = &queries.keep_out {
        let name = QueueSpec::outbox().name;
        let asked: BTreeSet<LaneNumber> = oldest.values().map(|held| held.lane).collect();
        let call = Call::new(READ, keep_out).value(name.as_str()).column(asked.iter().map(|lane| Some(lane.0)));
        let kept = call.fetch(db).await?;
        let kept = kept.into_iter().map(|mut row| row.int().map(LaneNumber)).collect::<Result<BTreeSet<_>, _>>()?;
        oldest.retain(|_, held| kept.contains(&held.lane));
    }
    let seqs: Vec<i64> = oldest.into_keys().collect();
    if seqs.is_empty() {
        return Ok(false);
    }
    // A statement of its own: what was taken away before their lanes were kept is seen to be gone.
    let set = Call::new(READ, &queries.set_behind).column(seqs.into_iter().map(Some));
    Ok(set.execute(db).await? > 0)
}

/// Fails if a lane of these rows has a new owner. None changes hands before this transaction ends.
async fn fence(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    attempted: &'static str,
    rows: impl Iterator<Item = &SentReceipt>,
) -> Result<(), StoreError> {
    let held: BTreeSet<HeldLane> = rows.map(|receipt| receipt.lane).collect();
    let name = QueueSpec::outbox().name;
    let call = Call::new(attempted, &queries.fence)
        .value(name.as_str())
        .column(held.iter().map(|held| Some(held.lane.0)))
        .column(held.iter().map(|held| Some(held.epoch)));
    let ours = call.fetch(db).await?.len() == held.len();
    let unchecked = planted::is("no-fence") || planted::is("relay-settles-without-epoch");
    if ours || unchecked { Ok(()) } else { Err(lane_lost(attempted)) }
}

/// Wakes what waits behind rows that are about to go. Their lanes are kept: nobody notes that more wait behind them.
async fn wake(
    db: &mut impl Connection,
    queries: &OutboxQueries,
    attempted: &'static str,
    rows: &[i64],
) -> Result<(), StoreError> {
    let call = Call::new(attempted, &queries.wake_behind).value(WOKEN_MAX).column(rows.iter().copied().map(Some));
    call.execute(db).await.map(drop)
}

fn read_unsent(mut row: Row, receipt: SentReceipt) -> Result<Unsent, StoreError> {
    let topic = read_topic(&mut row)?;
    let message = wire::read(&mut row)?.into();
    Ok(Unsent { receipt, outgoing: Outgoing { topic, message } })
}

fn read_aside(mut row: Row) -> Result<AsideRow, StoreError> {
    let (seq, topic) = (row.int()?, read_topic(&mut row)?);
    let (reason, since) = (row.text()?, row.time()?);
    Ok(AsideRow { row: seq, topic, reason, since, message: wire::read(&mut row)?.into() })
}

fn read_topic(row: &mut Row) -> Result<String, StoreError> {
    wire::text_or_null(row)?.ok_or_else(|| corrupt("a message without a topic"))
}
