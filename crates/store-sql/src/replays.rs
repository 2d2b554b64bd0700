//! Replays: durable operations that one process at a time carries on.

use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::replay::{Base, Counts, Hold, OnTheirWay, Replay, ReplayId, ReplaySpec, ReplayState, Replays};
use oncebox_core::store::ConsumerId;
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::operator_queries::ReplayQueries;
use crate::transaction::{SqlTx, bounded};
use crate::wire::micros;

impl<D: Dialect> Replays for SqlTx<D> {
    async fn create_replay(&mut self, spec: &ReplaySpec) -> Result<ReplayId, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("create a replay", &queries.operators.replays.create)
            .value(now)
            .value(spec.consumer.0)
            .value(spec.filter.as_str())
            .value(spec.as_of.as_microsecond())
            .value(spec.until)
            .value(number(spec.canary))
            .value(spec.rate.map(number))
            .value(number(spec.in_flight_max))
            .value(i16::try_from(spec.stop_permille).unwrap_or(i16::MAX))
            .value(i16::from(spec.force))
            .value(i16::from(spec.canary == 0))
            .value(spec.who.as_str())
            .value(spec.why.as_str());
        let rows = bounded(patience, call.fetch(db)).await?;
        Ok(ReplayId(rows.into_iter().next().ok_or_else(|| corrupt("no number of a replay"))?.int()?))
    }

    async fn replay(&mut self, id: ReplayId) -> Result<Option<Replay>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let found = bounded(patience, lock(db, &queries.operators.replays, now, id)).await?;
        Ok(found.map(|(_, replay)| replay))
    }

    async fn replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("list replays", &queries.operators.replays.list);
        bounded(patience, list(db, call, consumer, limit)).await
    }

    async fn open_replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("list replays that are not over", &queries.operators.replays.open);
        bounded(patience, list(db, call, consumer, limit)).await
    }

    async fn hold_replay(&mut self, id: ReplayId, fence: Option<i32>, lease: Duration) -> Result<Hold, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, hold(db, &queries.operators.replays, now, (id, fence), lease)).await
    }

    async fn let_go_replay(&mut self, id: ReplayId, fence: i32) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("let go of a replay", &queries.operators.replays.let_go).value(id.0).value(fence);
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn save_replay(&mut self, replay: &Replay) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let Replay { counts, base, .. } = replay;
        let call = Call::new("save a replay", &queries.operators.replays.save)
            .value(now)
            .value(replay.id.0)
            .value(replay.state.code())
            .value(replay.stop_reason.as_deref())
            .value(replay.cursor)
            .value(count(counts.revived))
            .value(count(counts.refused))
            .value(count(counts.held_up))
            .value(count(counts.moving))
            .value(i16::from(replay.canary_passed))
            .value(count(base.revived))
            .value(count(base.done))
            .value(count(base.failed));
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn on_their_way(&mut self, consumer: ConsumerId, id: ReplayId) -> Result<OnTheirWay, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("look after a replay", &queries.operators.replays.on_their_way);
        let rows = bounded(patience, call.value(consumer.0).value(id.0).fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no counts of a replay"))?;
        Ok(OnTheirWay { live: row.int()?, held_up: row.int()?, failed: row.int()? })
    }

    async fn sweep_replays(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("remove old replays", &queries.operators.replays.sweep);
        let call = call.value(before.as_microsecond()).value(i64::try_from(max).unwrap_or(i64::MAX));
        bounded(patience, call.execute(db)).await
    }
}

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

async fn list(
    db: &mut impl Connection,
    call: Call<'_>,
    consumer: Option<ConsumerId>,
    limit: usize,
) -> Result<Vec<Replay>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = call.value(consumer.map(|consumer| i32::from(consumer.0))).value(limit).fetch(db).await?;
    rows.into_iter().map(|row| read(row).map(|(_, replay)| replay)).collect()
}

/// A replay, locked, and the store's time.
async fn lock(
    db: &mut impl Connection,
    queries: &ReplayQueries,
    now: Option<i64>,
    id: ReplayId,
) -> Result<Option<(i64, Replay)>, StoreError> {
    let rows = Call::new("read a replay", &queries.read).value(now).value(id.0).fetch(db).await?;
    rows.into_iter().next().map(read).transpose()
}

async fn hold(
    db: &mut impl Connection,
    queries: &ReplayQueries,
    now: Option<i64>,
    (id, fence): (ReplayId, Option<i32>),
    lease: Duration,
) -> Result<Hold, StoreError> {
    let attempted = "hold a replay";
    let Some((now, mut replay)) = lock(db, queries, now, id).await? else { return Ok(Hold::Absent) };
    match fence {
        Some(fence) if fence != replay.fence => {
            return Err(StoreError::new(StoreErrorKind::Fenced, attempted, "somebody else holds it now"));
        }
        Some(_) => {}
        None => {
            if let Some(until) = replay.held_until.filter(|until| until.as_microsecond() > now) {
                return Ok(Hold::Busy(until));
            }
            replay.fence += 1;
        }
    }
    let until = now.saturating_add(micros(lease));
    Call::new(attempted, &queries.hold).value(id.0).value(replay.fence).value(until).execute(db).await?;
    replay.held_until = Timestamp::from_microsecond(until).ok();
    Ok(Hold::Held(Box::new(replay)))
}

/// Reads the time and a replay, in the order of `replays/read.sql`.
fn read(mut row: Row) -> Result<(i64, Replay), StoreError> {
    let now = row.int()?;
    let (id, consumer) = (ReplayId(row.int()?), ConsumerId(row.int()?));
    let state = ReplayState::from_code(row.int()?).ok_or_else(|| corrupt("a state that this version does not know"))?;
    let (filter, as_of, until) = (row.text()?, row.time()?, row.int()?);
    let (canary, rate, in_flight_max, stop_permille) = (row.int()?, row.int_or_null()?, row.int()?, row.int()?);
    let (force, cursor): (i64, i64) = (row.int()?, row.int()?);
    let counts = Counts {
        revived: row.int()?,
        refused: row.int()?,
        held_up: row.int()?,
        moving: row.int()?,
        withdrawn: row.int()?,
    };
    let canary_passed: i64 = row.int()?;
    let base = Base { revived: row.int()?, done: row.int()?, failed: row.int()? };
    let (fence, held_until) = (row.int()?, row.time_or_null()?);
    let (created_at, changed_at) = (row.time()?, row.time()?);
    let stop_reason = row.text_or_null()?;
    let (who, why) = (row.text()?, row.text()?);
    let force = force != 0;
    let spec =
        ReplaySpec { consumer, filter, as_of, until, canary, rate, in_flight_max, stop_permille, force, who, why };
    let mut replay = Replay::new(id, spec, created_at);
    replay.state = state;
    replay.stop_reason = stop_reason;
    replay.cursor = cursor;
    replay.counts = counts;
    replay.canary_passed = canary_passed != 0;
    replay.base = base;
    replay.fence = fence;
    replay.held_until = held_until;
    replay.changed_at = changed_at;
    Ok((now, replay))
}
