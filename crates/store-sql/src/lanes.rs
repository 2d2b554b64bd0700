//! Lanes: who owns which, under which epoch.

use std::collections::BTreeSet;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::queue::{HeldLane, HeldLanes, LaneRequest, QueueId, QueueSpec};
use oncebox_core::source::LaneNumber;
use uuid::Uuid;

use crate::connection::{Call, Connection, Row};
use crate::names::find_or_add;
use crate::queries::{LaneQueries, Queries};
use crate::wire::micros;

/// Makes a queue and its lanes known. Their number changes only while the queue is empty: rows carry their lane.
pub(crate) async fn open_queue(
    db: &mut impl Connection,
    queries: &Queries,
    spec: &QueueSpec,
) -> Result<QueueId, StoreError> {
    let attempted = "open a queue";
    let mut row = find_or_add(db, attempted, &queries.names.find_queue, &queries.names.add_queue, &spec.name).await?;
    let (id, known): (i16, Option<i32>) = (row.int()?, row.int_or_null()?);
    let wanted = spec.lanes.map(i32::from);
    if known != wanted {
        if !Call::new(attempted, &queries.queue.is_used).value(id).fetch(db).await?.is_empty() {
            return Err(lanes_changed(spec, known));
        }
        Call::new(attempted, &queries.names.set_queue_lanes).value(id).value(wanted).execute(db).await?;
        Call::new(attempted, &queries.lanes.clear).value(id).execute(db).await?;
    }
    if let Some(lanes) = wanted {
        Call::new(attempted, &queries.lanes.create).value(id).column((0..lanes).map(Some)).execute(db).await?;
    }
    Ok(QueueId(id))
}

fn lanes_changed(spec: &QueueSpec, known: Option<i32>) -> StoreError {
    let lanes = |lanes: Option<i32>| lanes.map_or("no lanes".to_owned(), |n| format!("{n} lanes"));
    StoreError::new(
        StoreErrorKind::Configuration,
        format!("open {spec} with {}", lanes(spec.lanes.map(i32::from))),
        format!("it holds messages and has {}; drain it first, or open it as it is", lanes(known)),
    )
}

/// How many of these lanes are still held under their epochs. They can't change hands before this transaction ends.
pub(crate) async fn check(
    db: &mut impl Connection,
    queries: &LaneQueries,
    queue: QueueId,
    lanes: &BTreeSet<HeldLane>,
) -> Result<usize, StoreError> {
    let call = Call::new("check the owner of lanes", &queries.check)
        .value(queue.0)
        .column(lanes.iter().map(|held| Some(held.lane.0)))
        .column(lanes.iter().map(|held| Some(held.epoch)));
    Ok(call.fetch(db).await?.len())
}

/// Renews the lanes that we hold, gives back others, and takes free ones up to a fair share.
pub(crate) async fn hold(
    db: &mut impl Connection,
    queries: &LaneQueries,
    now: Option<i64>,
    request: &LaneRequest,
) -> Result<HeldLanes, StoreError> {
    let attempted = "hold lanes";
    let (queue, owner, lease) = (request.queue.0, &request.owner.as_bytes()[..], micros(request.lease));
    let back = || request.give_back.iter().map(|lane| Some(lane.0));

    Call::new(attempted, &queries.join).value(now).value(queue).value(owner).value(lease).execute(db).await?;
    Call::new(attempted, &queries.forget).value(now).value(queue).execute(db).await?;
    let share = share(Call::new(attempted, &queries.count).value(now).value(queue).fetch(db).await?)?;

    if !request.give_back.is_empty() {
        Call::new(attempted, &queries.give_back).value(queue).value(owner).column(back()).execute(db).await?;
    }
    let renew = Call::new(attempted, &queries.renew).value(now).value(queue).value(owner).value(lease);
    let mut lanes = held(renew.fetch(db).await?)?;
    let missing = share.saturating_sub(lanes.len());
    if missing > 0 {
        let take = Call::new(attempted, &queries.take).value(now).value(queue).value(owner).value(lease);
        let take = take.value(i64::try_from(missing).unwrap_or(i64::MAX)).column(back());
        lanes.extend(held(take.fetch(db).await?)?);
    }
    lanes.sort_unstable();
    Ok(HeldLanes { lanes, share })
}

fn share(count: Vec<Row>) -> Result<usize, StoreError> {
    let Some(mut row) = count.into_iter().next() else { return Ok(0) };
    let (lanes, members): (usize, usize) = (row.int()?, row.int()?);
    Ok(lanes.div_ceil(members.max(1)))
}

fn held(rows: Vec<Row>) -> Result<Vec<HeldLane>, StoreError> {
    rows.into_iter().map(|mut row| Ok(HeldLane { lane: LaneNumber(row.int()?), epoch: row.int()? })).collect()
}

/// Gives back all lanes and leaves the members.
pub(crate) async fn leave(
    db: &mut impl Connection,
    queries: &LaneQueries,
    queue: QueueId,
    owner: Uuid,
) -> Result<(), StoreError> {
    let owner = &owner.as_bytes()[..];
    for query in [&queries.leave, &queries.resign] {
        Call::new("leave lanes", query).value(queue.0).value(owner).execute(db).await?;
    }
    Ok(())
}
