//! How much waits in the tables, counted up to a bound by an index.

use oncebox_core::counters::Depth;
use oncebox_core::depths::{Depths, LaneDepth, ParkedDepth};
use oncebox_core::error::StoreError;
use oncebox_core::queue::QueueSpec;
use oncebox_core::source::LaneNumber;
use oncebox_core::store::ConsumerId;

use crate::connection::{Call, Row, corrupt};
use crate::dialect::Dialect;
use crate::transaction::{SqlTx, bounded};
use crate::wire::micros;

/// One more than is counted, to know whether there are more.
const LOOK_MAX: i64 = Depth::COUNTED_MAX as i64 + 1;

/// Rows that are counted in one lane.
const LANE_MAX: i64 = 1_000;

impl<D: Dialect> Depths for SqlTx<D> {
    async fn queue_depth(&mut self, queue: &str) -> Result<Option<Depth>, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("count what waits in a queue", &queries.depths.queue);
        let call = call.value(now).value(queue).value(LOOK_MAX).value(micros(Depth::ARRIVED_WITHIN));
        let rows = bounded(patience, call.fetch(db)).await?;
        let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
        Ok(Some(Depth::counted(row.int()?, row.int_or_null()?).with_arrived(row.int()?)))
    }

    async fn parked_depth(&mut self, consumer: ConsumerId) -> Result<ParkedDepth, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count what is parked", &queries.depths.parked).value(consumer.0).value(LOOK_MAX);
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no count of what is parked"))?;
        let (due, behind, dead): (u64, u64, u64) = (row.int()?, row.int()?, row.int()?);
        Ok(ParkedDepth::counted(due + behind, dead))
    }

    async fn lane_depths(&mut self) -> Result<Vec<LaneDepth>, StoreError> {
        let (patience, name) = (self.patience(), QueueSpec::outbox().name);
        let (queries, now, db) = self.parts();
        let call = Call::new("count what waits in the outbox", &queries.depths.lanes).value(now).value(LANE_MAX);
        let call = call.value(i32::from(QueueSpec::LANES)).value(name.as_str());
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().map(read_lane).collect()
    }
}

fn read_lane(mut row: Row) -> Result<LaneDepth, StoreError> {
    let (lane, unsent) = (LaneNumber(row.int()?), row.int()?);
    let (is_more, lag_seconds, is_held): (i64, u64, i64) = (row.int()?, row.int()?, row.int()?);
    Ok(LaneDepth { lane, unsent, is_more: is_more != 0, lag_seconds, is_held: is_held != 0 })
}
