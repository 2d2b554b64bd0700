//! The journal of deliveries.

use oncebox_core::error::StoreError;
use oncebox_core::journal::{DeliveryEnd, JournalEntry, JournalOf, Journaled, Journals, Told, bounded as cut, id_hash};
use oncebox_core::key::Key;
use oncebox_core::store::ConsumerId;
use oncebox_core::time::Timestamp;

use crate::connection::{Call, Row, corrupt};
use crate::dialect::Dialect;
use crate::transaction::{SqlTx, bounded};
use crate::wire::{micros, text_or_null};

impl<D: Dialect> Journals for SqlTx<D> {
    async fn add_to_journal(&mut self, process: &str, entries: &[JournalEntry]) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let told = || entries.iter().map(|entry| &entry.told);
        let call = Call::new("write the journal", &queries.operators.journal.add)
            .value(now)
            .value(cut(process).as_bytes())
            .column(entries.iter().map(|entry| Some(entry.consumer.0)))
            .column(entries.iter().map(|entry| Some(micros(entry.ago))))
            .column(entries.iter().map(|entry| Some(entry.key.as_bytes())))
            .column(entries.iter().map(|entry| entry.id_hash))
            .column(told().map(|told| Some(told.end.code())))
            .column(told().map(|told| told.attempt.map(number)))
            .column(told().map(|told| Some(i16::from(told.was_parked))))
            .column(told().map(|told| told.handler_millis.map(number)))
            .column(told().map(|told| told.coordinate.as_deref().map(|text| cut(text).as_bytes())))
            .column(told().map(|told| told.cause.as_deref().map(|text| cut(text).as_bytes())));
        bounded(patience, call.execute(db)).await.map(drop)
    }

    async fn read_journal(&mut self, sought: JournalOf<'_>, max: usize) -> Result<Vec<Journaled>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("read the journal", &queries.operators.journal.read)
            .value(i64::try_from(max).unwrap_or(i64::MAX))
            .value(sought.consumer.map(|consumer| i32::from(consumer.0)))
            .value(sought.id.map(id_hash))
            .column(sought.keys.iter().map(|key| Some(key.as_bytes())));
        bounded(patience, call.fetch(db)).await?.into_iter().map(read).collect()
    }

    async fn sweep_journal(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("remove old entries of the journal", &queries.operators.journal.sweep).value(consumer.0);
        let call = call.value(before.as_microsecond()).value(i64::try_from(max).unwrap_or(i64::MAX));
        bounded(patience, call.execute(db)).await
    }
}

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn read(mut row: Row) -> Result<Journaled, StoreError> {
    let (at, consumer) = (row.time()?, ConsumerId(row.int()?));
    let key = Key::from_stored(&row.bytes()?[..]).map_err(|_| corrupt("bytes that are no key"))?;
    let process = text_or_null(&mut row)?.unwrap_or_default();
    let end = DeliveryEnd::from_code(row.int()?).ok_or_else(|| corrupt("an end that this version does not know"))?;
    let cause = text_or_null(&mut row)?;
    let attempt = row.int_or_null()?;
    let was_parked = row.int::<i16>()? != 0;
    let (handler_millis, coordinate) = (row.int_or_null()?, text_or_null(&mut row)?);
    let told = Told { end, cause, attempt, was_parked, handler_millis, coordinate };
    Ok(Journaled { consumer, at, key, process, told })
}
