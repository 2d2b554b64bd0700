//! The versions role: one record per aggregate, locked before it is compared.

use std::collections::HashMap;

use bytes::Bytes;
use oncebox_core::error::StoreError;
use oncebox_core::key::Key;
use oncebox_core::store::ConsumerId;
use oncebox_core::versions::Versions;

use crate::connection::{Call, Connection, corrupt};
use crate::dialect::Dialect;
use crate::queries::VersionQueries;
use crate::transaction::{SqlTx, bounded};

impl<D: Dialect> Versions for SqlTx<D> {
    async fn lock_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        if aggregates.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        bounded(patience, lock(db, &queries.versions, consumer, aggregates)).await
    }

    async fn read_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        if aggregates.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let keys = aggregates.iter().map(|aggregate| Some(aggregate.as_bytes()));
        let call = Call::new("read versions", &queries.versions.read).value(consumer.0).column(keys);
        let mut versions = vec![None; aggregates.len()];
        for mut row in bounded(patience, call.fetch(db)).await? {
            let at: usize = row.int()?;
            let version: Option<i64> = row.int_or_null()?;
            let place = versions.get_mut(at).ok_or_else(|| corrupt("an aggregate that was not asked for"))?;
            *place = version.map(i64::cast_unsigned);
        }
        Ok(versions)
    }

    async fn advance_versions(&mut self, consumer: ConsumerId, versions: &[(Key, u64)]) -> Result<(), StoreError> {
        if versions.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("advance versions", &queries.versions.advance)
            .value(consumer.0)
            .column(versions.iter().map(|(aggregate, _)| Some(aggregate.as_bytes())))
            .column(versions.iter().map(|(_, version)| Some(version.cast_signed())));
        let advanced = bounded(patience, call.execute(db)).await?;
        if advanced == versions.len() as u64 { Ok(()) } else { Err(corrupt("fewer versions than were locked")) }
    }
}

/// Most aggregates are known: they are only locked. The others get a record, which locks them too.
async fn lock(
    db: &mut impl Connection,
    queries: &VersionQueries,
    consumer: ConsumerId,
    aggregates: &[Key],
) -> Result<Vec<Option<u64>>, StoreError> {
    // In one order for all: two batches wait for each other instead of deadlocking.
    let mut order: Vec<usize> = (0..aggregates.len()).collect();
    order.sort_unstable_by_key(|at| aggregates[*at].as_bytes());
    let asked = Call::new("lock versions", &queries.lock)
        .value(consumer.0)
        .column(order.iter().map(|at| Some(aggregates[*at].as_bytes())));
    let mut known: Vec<Option<Option<u64>>> = vec![None; aggregates.len()];
    for mut row in asked.fetch(db).await? {
        let at: usize = row.int()?;
        let version: Option<i64> = row.int_or_null()?;
        let at = *order.get(at).ok_or_else(|| corrupt("an aggregate that was not asked for"))?;
        known[at] = Some(version.map(i64::cast_unsigned));
    }
    let missing: Vec<usize> = order.into_iter().filter(|at| known[*at].is_none()).collect();
    if missing.is_empty() {
        return Ok(known.into_iter().map(Option::flatten).collect());
    }
    let added = Call::new("lock versions", &queries.add)
        .value(consumer.0)
        .column(missing.iter().map(|at| Some(aggregates[*at].as_bytes())));
    let mut found: HashMap<Bytes, Option<u64>> = HashMap::new();
    for mut row in added.fetch(db).await? {
        let (aggregate, version): (Bytes, Option<i64>) = (row.bytes()?, row.int_or_null()?);
        found.insert(aggregate, version.map(i64::cast_unsigned));
    }
    for at in missing {
        let version = found.get(aggregates[at].as_bytes()).ok_or_else(|| corrupt("no record of an aggregate"))?;
        known[at] = Some(*version);
    }
    Ok(known.into_iter().map(Option::flatten).collect())
}
