//! The offsets role: one record per log, under the epoch of its owner.

use std::collections::HashMap;

use bytes::Bytes;
use oncebox_core::error::StoreError;
use oncebox_core::offsets::{HeldLog, OffsetStep, Offsets, TakenOffset, log_elsewhere, log_lost};
use oncebox_core::planted;
use oncebox_core::store::ConsumerId;

use crate::connection::{Call, Connection, corrupt};
use crate::dialect::Dialect;
use crate::offset_queries::OffsetQueries;
use crate::transaction::{SqlTx, bounded};

impl<D: Dialect> Offsets for SqlTx<D> {
    async fn take_offsets(&mut self, consumer: ConsumerId, logs: &[String]) -> Result<Vec<TakenOffset>, StoreError> {
        if logs.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        // In one order for all: two who take the same logs wait for each other instead of deadlocking.
        let mut sorted: Vec<&String> = logs.iter().collect();
        sorted.sort_unstable();
        let call = Call::new("take offsets over", &queries.offsets.take).value(consumer.0);
        let rows = bounded(patience, call.column(sorted.iter().map(|log| Some(log.as_bytes()))).fetch(db)).await?;
        let mut taken: HashMap<Bytes, TakenOffset> = HashMap::with_capacity(logs.len());
        for mut row in rows {
            let log = row.bytes()?;
            let (epoch, next, witness) = (row.int()?, row.int_or_null()?, row.int_or_null()?);
            taken.insert(log, TakenOffset { epoch, next, witness });
        }
        let find = |log: &String| taken.get(log.as_bytes()).copied().ok_or_else(|| corrupt("no record of a log"));
        logs.iter().map(find).collect()
    }

    async fn begin_offsets(&mut self, consumer: ConsumerId, starts: &[(HeldLog, i64)]) -> Result<(), StoreError> {
        if starts.is_empty() {
            return Ok(());
        }
        let attempted = "begin with offsets";
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new(attempted, &queries.offsets.begin).value(consumer.0);
        let call = named(call, starts.iter().map(|(held, _)| held)).column(starts.iter().map(|(_, next)| Some(*next)));
        let begun = bounded(patience, call.execute(db)).await?;
        if begun == starts.len() as u64 { Ok(()) } else { Err(log_lost(attempted)) }
    }

    async fn lock_offsets(&mut self, consumer: ConsumerId, held: &[HeldLog]) -> Result<Vec<i64>, StoreError> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, lock(db, &queries.offsets, consumer, held)).await
    }

    async fn advance_offsets(&mut self, consumer: ConsumerId, steps: &[OffsetStep]) -> Result<(), StoreError> {
        if steps.is_empty() || planted::is("offset-not-advanced") {
            return Ok(());
        }
        let attempted = "advance offsets";
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, async {
            let call = Call::new(attempted, &queries.offsets.advance).value(consumer.0);
            let call = named(call, steps.iter().map(|step| &step.held))
                .column(steps.iter().map(|step| Some(step.from)))
                .column(steps.iter().map(|step| Some(step.to)))
                .column(steps.iter().map(|step| Some(step.witness)));
            if call.execute(db).await? == steps.len() as u64 {
                return Ok(());
            }
            let held: Vec<HeldLog> = steps.iter().map(|step| step.held.clone()).collect();
            lock(db, &queries.offsets, consumer, &held).await?;
            Err(log_elsewhere(attempted))
        })
        .await
    }
}

/// What names logs, in the order of `offsets/lock.sql`.
fn named<'v>(call: Call<'v>, held: impl Iterator<Item = &'v HeldLog> + Clone) -> Call<'v> {
    call.column(held.clone().map(|held| Some(held.log.as_bytes()))).column(held.map(|held| Some(held.epoch)))
}

async fn lock(
    db: &mut impl Connection,
    queries: &OffsetQueries,
    consumer: ConsumerId,
    held: &[HeldLog],
) -> Result<Vec<i64>, StoreError> {
    let attempted = "look at offsets";
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_unstable_by_key(|at| &held[*at].log);
    let call = named(Call::new(attempted, &queries.lock).value(consumer.0), order.iter().map(|at| &held[*at]));
    let mut found: Vec<Option<i64>> = vec![None; held.len()];
    for mut row in call.fetch(db).await? {
        let at: usize = row.int()?;
        let at = *order.get(at).ok_or_else(|| corrupt("a log that was not asked for"))?;
        found[at] = row.int_or_null()?;
    }
    // One without an offset has not begun: nothing of it can be in hand.
    found.into_iter().collect::<Option<Vec<i64>>>().ok_or_else(|| log_lost(attempted))
}
