//! Consumers and their horizons; how old records go.

use oncebox_core::error::StoreError;
use oncebox_core::horizon::{Consumers, Expired, Expiry, HELD_MAX, KnownConsumer, OldRecords, Place, check_age};
use oncebox_core::store::{ConsumerId, ConsumerName};
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::operator_queries::HorizonQueries;
use crate::transaction::{SqlTx, bounded};

impl<D: Dialect> Consumers for SqlTx<D> {
    async fn consumers(&mut self) -> Result<Vec<KnownConsumer>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let rows = bounded(patience, Call::new("list consumers", &queries.operators.horizon.consumers).fetch(db));
        let read = |mut row: Row| {
            let id = ConsumerId(row.int()?);
            let name = ConsumerName::from_stored(&row.text()?).ok_or_else(|| corrupt("a name that is none"))?;
            Ok(KnownConsumer { id, name, horizon: row.time_or_null()? })
        };
        rows.await?.into_iter().map(read).collect()
    }

    async fn horizon(&mut self, consumer: ConsumerId) -> Result<Option<Timestamp>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("read a horizon", &queries.operators.horizon.read).value(consumer.0);
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().next().map(|mut row| row.time_or_null()).transpose().map(Option::flatten)
    }

    async fn store_time(&mut self) -> Result<Timestamp, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, store_time(db, &queries.operators.horizon, now)).await
    }

    async fn expire(&mut self, step: Expiry) -> Result<Expired, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, expire(db, &queries.operators.horizon, now, step)).await
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
}

async fn store_time(
    db: &mut impl Connection,
    queries: &HorizonQueries,
    now: Option<i64>,
) -> Result<Timestamp, StoreError> {
    let rows = Call::new("read the store's clock", &queries.now).value(now).fetch(db).await?;
    rows.into_iter().next().ok_or_else(|| corrupt("no time"))?.time()
}

async fn expire(
    db: &mut impl Connection,
    queries: &HorizonQueries,
    now: Option<i64>,
    step: Expiry,
) -> Result<Expired, StoreError> {
    let attempted = "delete old records";
    let Expiry { consumer, older_than, from, limit } = step;
    check_age(older_than, store_time(db, queries, now).await?)?;
    let call = Call::new(attempted, &queries.expire).value(consumer.0).value(older_than.as_microsecond());
    let deleted = call.value(i64::try_from(limit).unwrap_or(i64::MAX)).value(from.0).fetch(db).await?;
    let times = deleted.into_iter().map(|mut row| row.int()).collect::<Result<Vec<i64>, _>>()?;
    // In the same transaction: no record goes without the horizon knowing.
    let newest = times.iter().max().copied();
    let horizon = match newest {
        Some(newest) => Call::new(attempted, &queries.advance).value(consumer.0).value(newest),
        None => Call::new(attempted, &queries.read).value(consumer.0),
    };
    let rows = horizon.fetch(db).await?;
    let horizon = rows.into_iter().next().map(|mut row| row.time_or_null()).transpose()?.flatten();
    let stopped_by_limit = newest.filter(|_| times.len() >= limit);
    let rows = Call::new(attempted, &queries.next).value(from.0).value(stopped_by_limit).fetch(db).await?;
    let next = rows.into_iter().next().map(|mut row| row.int_or_null()).transpose()?.flatten();
    Ok(Expired { deleted: times.len() as u64, horizon, next: next.map(Place) })
}
