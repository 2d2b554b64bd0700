//! Consumers and their horizons; how old records go.

use oncebox_core::error::StoreError;
use oncebox_core::horizon::{
    Consumers, Expired, Expiry, HELD_MAX, KnownConsumer, OldRecords, Place, SweepReceived, check_age, check_checkpoint,
};
use oncebox_core::identity::Binding;
use oncebox_core::queue::QueueSpec;
use oncebox_core::store::{ConsumerId, ConsumerName};
use oncebox_core::time::Timestamp;

use crate::archive;
use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::operator_queries::{HorizonQueries, OperatorQueries};
use crate::queries::NameQueries;
use crate::transaction::{SqlTx, bounded};

impl<D: Dialect> Consumers for SqlTx<D> {
    async fn consumers(&mut self) -> Result<Vec<KnownConsumer>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let rows = bounded(patience, Call::new("list consumers", &queries.operators.horizon.consumers).fetch(db));
        let read = |mut row: Row| {
            let id = ConsumerId(row.int()?);
            let name = ConsumerName::from_stored(&row.text()?).ok_or_else(|| corrupt("a name that is none"))?;
            let (horizon, checkpoint) = (row.time_or_null()?, row.time_or_null()?);
            Ok(KnownConsumer { id, name, horizon, checkpoint, binding: read_binding(&mut row)? })
        };
        rows.await?.into_iter().map(read).collect()
    }

    async fn horizon(&mut self, consumer: ConsumerId) -> Result<Option<Timestamp>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, read(db, &queries.operators.horizon, consumer)).await
    }

    async fn raise_horizon(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("raise a horizon", &queries.operators.horizon.advance);
        bounded(patience, call.value(consumer.0).value(at.as_microsecond()).fetch(db)).await.map(drop)
    }

    async fn binding(&mut self, consumer: ConsumerId, to_change: bool) -> Result<Option<Binding>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, binding(db, &queries.names, consumer, to_change)).await
    }

    async fn set_binding(&mut self, consumer: ConsumerId, binding: &Binding) -> Result<(), StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, set_binding(db, &queries.names, consumer, binding)).await
    }

    async fn store_time(&mut self) -> Result<Timestamp, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, store_time(db, &queries.operators.horizon, now)).await
    }

    async fn expire(&mut self, step: Expiry) -> Result<Expired, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, expire(db, &queries.operators, now, step)).await
    }

    async fn old_records(&mut self, consumer: ConsumerId, older_than: Timestamp) -> Result<OldRecords, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("count old records", &queries.operators.horizon.old);
        let held_max = i64::try_from(HELD_MAX).unwrap_or(i64::MAX);
        let call = call.value(consumer.0).value(older_than.as_microsecond()).value(held_max);
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no count"))?;
        Ok(OldRecords {
            records: row.int()?,
            counted: row.int::<i64>()? == 1,
            oldest: row.time_or_null()?,
            held: row.int()?,
        })
    }

    async fn has_records(&mut self, consumer: ConsumerId) -> Result<bool, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("look for records", &queries.operators.horizon.any).value(consumer.0);
        Ok(!bounded(patience, call.fetch(db)).await?.is_empty())
    }

    async fn sweep_received(&mut self, sweep: SweepReceived<'_>) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let horizon = &queries.operators.horizon;
        let SweepReceived { consumer, name, older_than, limit } = sweep;
        check_age(older_than, bounded(patience, store_time(db, horizon, now)).await?)?;
        let queue = QueueSpec::received(name, false).name;
        let call = Call::new("remove processed messages", &horizon.sweep_received);
        let call = call.value(consumer.0).value(queue.as_str()).value(older_than.as_microsecond());
        bounded(patience, call.value(i64::try_from(limit).unwrap_or(i64::MAX)).execute(db)).await
    }

    async fn set_checkpoint(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<bool, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let horizon = &queries.operators.horizon;
        check_checkpoint(at, bounded(patience, store_time(db, horizon, now)).await?)?;
        let call = Call::new("set a checkpoint", &horizon.checkpoint).value(consumer.0).value(at.as_microsecond());
        Ok(!bounded(patience, call.fetch(db)).await?.is_empty())
    }
}

/// How a consumer tells messages apart, on any connection.
pub(crate) async fn binding(
    db: &mut impl Connection,
    queries: &NameQueries,
    consumer: ConsumerId,
    to_change: bool,
) -> Result<Option<Binding>, StoreError> {
    let query = if to_change { &queries.lock_identity } else { &queries.read_identity };
    let rows = Call::new("read how a consumer tells messages apart", query).value(consumer.0).fetch(db).await?;
    rows.into_iter().next().map(|mut row| read_binding(&mut row)).transpose().map(Option::flatten)
}

/// Keeps how a consumer tells messages apart, on any connection.
pub(crate) async fn set_binding(
    db: &mut impl Connection,
    queries: &NameQueries,
    consumer: ConsumerId,
    binding: &Binding,
) -> Result<(), StoreError> {
    let attempted = "keep how a consumer tells messages apart";
    let stored = binding.to_stored()?;
    let call = Call::new(attempted, &queries.set_identity).value(consumer.0).value(stored.as_str());
    match call.execute(db).await? {
        1 => Ok(()),
        _ => Err(corrupt("no consumer under its id")),
    }
}

/// How far back a consumer looks, on any connection.
pub(crate) async fn read(
    db: &mut impl Connection,
    queries: &HorizonQueries,
    consumer: ConsumerId,
) -> Result<Option<Timestamp>, StoreError> {
    let rows = Call::new("read a horizon", &queries.read).value(consumer.0).fetch(db).await?;
    rows.into_iter().next().map(|mut row| row.time_or_null()).transpose().map(Option::flatten)
}

fn read_binding(row: &mut Row) -> Result<Option<Binding>, StoreError> {
    row.text_or_null()?.map(|text| Binding::from_stored(&text)).transpose()
}

pub(crate) async fn store_time(
    db: &mut impl Connection,
    queries: &HorizonQueries,
    now: Option<i64>,
) -> Result<Timestamp, StoreError> {
    let rows = Call::new("read the store's clock", &queries.now).value(now).fetch(db).await?;
    rows.into_iter().next().ok_or_else(|| corrupt("no time"))?.time()
}

async fn expire(
    db: &mut impl Connection,
    operators: &OperatorQueries,
    now: Option<i64>,
    step: Expiry,
) -> Result<Expired, StoreError> {
    let attempted = "delete old records";
    let queries = &operators.horizon;
    let Expiry { consumer, older_than, from, limit, archive } = step;
    check_age(older_than, store_time(db, queries, now).await?)?;
    let call = Call::new(attempted, &queries.expire).value(consumer.0).value(older_than.as_microsecond());
    let deleted = call.value(i64::try_from(limit).unwrap_or(i64::MAX)).value(from.0).fetch(db).await?;
    let deleted = deleted.into_iter().map(archive::Gone::read).collect::<Result<Vec<_>, _>>()?;
    let times = || deleted.iter().map(|gone| gone.at);
    if archive {
        archive::add(db, &operators.archive, consumer, &deleted).await?;
    }
    // In the same transaction: no record goes without the horizon knowing.
    let newest = times().max();
    let horizon = match newest {
        Some(newest) => Call::new(attempted, &queries.advance).value(consumer.0).value(newest),
        None => Call::new(attempted, &queries.newest_deleted).value(consumer.0),
    };
    let rows = horizon.fetch(db).await?;
    let horizon = rows.into_iter().next().map(|mut row| row.time_or_null()).transpose()?.flatten();
    let stopped_by_limit = newest.filter(|_| deleted.len() >= limit);
    let rows = Call::new(attempted, &queries.next).value(from.0).value(stopped_by_limit).fetch(db).await?;
    let next = rows.into_iter().next().map(|mut row| row.int_or_null()).transpose()?.flatten();
    Ok(Expired { deleted: deleted.len() as u64, horizon, next: next.map(Place) })
}
