//! Consumers and their horizons; how old records go.

use oncebox_core::error::StoreError;
use oncebox_core::horizon::{Consumers, Expired, KnownConsumer, check_age};
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

    async fn expire(
        &mut self,
        consumer: ConsumerId,
        older_than: Timestamp,
        limit: usize,
    ) -> Result<Expired, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        bounded(patience, expire(db, &queries.operators.horizon, now, consumer, older_than, limit)).await
    }
}

async fn expire(
    db: &mut impl Connection,
    queries: &HorizonQueries,
    now: Option<i64>,
    consumer: ConsumerId,
    older_than: Timestamp,
    limit: usize,
) -> Result<Expired, StoreError> {
    let attempted = "delete old records";
    let rows = Call::new(attempted, &queries.now).value(now).fetch(db).await?;
    check_age(older_than, rows.into_iter().next().ok_or_else(|| corrupt("no time"))?.time()?)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let call = Call::new(attempted, &queries.expire).value(consumer.0).value(older_than.as_microsecond()).value(limit);
    let deleted = call.fetch(db).await?;
    let times = deleted.into_iter().map(|mut row| row.int()).collect::<Result<Vec<i64>, _>>()?;
    // In the same transaction: no record goes without the horizon knowing.
    let newest = times.iter().max().copied();
    let rows = Call::new(attempted, &queries.advance).value(consumer.0).value(newest).fetch(db).await?;
    let horizon = rows.into_iter().next().map(|mut row| row.time_or_null()).transpose()?.flatten();
    Ok(Expired { deleted: times.len() as u64, horizon })
}
