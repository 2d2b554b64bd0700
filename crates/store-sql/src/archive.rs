//! What is archived of records that are gone.

use bytes::Bytes;
use oncebox_core::archive::{ArchiveSize, Archived, Archives, BLOCKS_READ, HASH_BYTES, KeyHash, SCHEME, block, look};
use oncebox_core::error::StoreError;
use oncebox_core::key::Key;
use oncebox_core::store::ConsumerId;
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Connection, Row, corrupt};
use crate::dialect::Dialect;
use crate::operator_queries::ArchiveQueries;
use crate::transaction::{SqlTx, bounded};

/// Where the records are that consumers with global keys share.
const SHARED: ConsumerId = ConsumerId(0);

/// A record that was deleted.
pub(crate) struct Gone {
    /// When it was handled.
    pub(crate) at: i64,
    key: Bytes,
}

impl Gone {
    pub(crate) fn read(mut row: Row) -> Result<Self, StoreError> {
        Ok(Self { at: row.int()?, key: row.bytes()? })
    }
}

/// Archives what a step deleted, in the step's own transaction.
pub(crate) async fn add(
    db: &mut impl Connection,
    queries: &ArchiveQueries,
    consumer: ConsumerId,
    gone: &[Gone],
) -> Result<(), StoreError> {
    let times = || gone.iter().map(|gone| gone.at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(()) };
    let hashes = block(gone.iter().map(|gone| KeyHash::of_stored(&gone.key)).collect());
    let keys = i32::try_from(hashes.len() / HASH_BYTES).unwrap_or(i32::MAX);
    let call = Call::new("archive the keys of old records", &queries.add).value(consumer.0).value(first).value(last);
    call.value(keys).value(SCHEME).value(&hashes[..]).execute(db).await.map(drop)
}

impl<D: Dialect> Archives for SqlTx<D> {
    async fn archived(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Archived>>, StoreError> {
        let patience = self.patience();
        let hashes: Vec<KeyHash> = keys.iter().map(KeyHash::of).collect();
        let mut found = vec![None; keys.len()];
        let (queries, _, db) = self.parts();
        let whose = if consumer == SHARED { &[consumer][..] } else { &[consumer, SHARED] };
        for owner in whose {
            let mut after = 0;
            while !found.iter().all(Option::is_some) {
                let call = Call::new("look into the archive", &queries.operators.archive.read).value(owner.0);
                let call = call.value(after).value(BLOCKS_READ as i64);
                let blocks = bounded(patience, call.fetch(db)).await?;
                let is_last = blocks.len() < BLOCKS_READ;
                for row in blocks {
                    let (id, at, block) = read(row, *owner)?;
                    after = id;
                    look(&mut found, &hashes, &block, at)?;
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }

    async fn archive_size(&mut self, consumer: ConsumerId) -> Result<ArchiveSize, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("measure the archive", &queries.operators.archive.size).value(consumer.0);
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no count"))?;
        let keys: u64 = row.int()?;
        Ok(ArchiveSize { keys, bytes: keys * HASH_BYTES as u64, oldest: row.time_or_null()? })
    }

    async fn sweep_archive(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("shorten the archive", &queries.operators.archive.sweep).value(consumer.0);
        let call = call.value(before.as_microsecond()).value(i64::try_from(max).unwrap_or(i64::MAX));
        bounded(patience, call.execute(db)).await
    }
}

fn read(mut row: Row, consumer: ConsumerId) -> Result<(i64, Archived, Bytes), StoreError> {
    let (id, first_at, last_at) = (row.int()?, row.time()?, row.time()?);
    if row.int::<i16>()? != SCHEME {
        return Err(corrupt("a block of the archive that this version does not know how to read"));
    }
    Ok((id, Archived { consumer, first_at, last_at }, row.bytes()?))
}
