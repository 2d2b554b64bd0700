//! What is still known of one message.

use std::collections::BTreeSet;

use oncebox_core::error::StoreError;
use oncebox_core::key::Key;
use oncebox_core::outcome::OutcomeKind;
use oncebox_core::store::ConsumerId;
use oncebox_core::trail::{
    Beyond, LOOKED_AT_MAX, OutboxState, TrailOutbox, TrailQueued, TrailRecord, Trails, WhichOutbox, cause_in_headers,
};

use crate::connection::{Call, Row, corrupt};
use crate::dialect::Dialect;
use crate::transaction::{SqlTx, bounded};
use crate::wire::text_or_null;

const READ: &str = "read what is known of a message";

impl<D: Dialect> Trails for SqlTx<D> {
    async fn trail_records(&mut self, keys: &[Key]) -> Result<Vec<TrailRecord>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new(READ, &queries.operators.trail.records);
        let call = call.column(keys.iter().map(|key| Some(key.as_bytes())));
        bounded(patience, call.fetch(db)).await?.into_iter().map(read_record).collect()
    }

    async fn trail_parked(&mut self, keys: &[Key], id: Option<&str>, max: usize) -> Result<Vec<i64>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let mut found = Vec::new();
        if !keys.is_empty() {
            let call = Call::new(READ, &queries.operators.trail.parked_by_key).value(max);
            let call = call.column(keys.iter().map(|key| Some(key.as_bytes())));
            found.extend(bounded(patience, call.fetch(db)).await?);
        }
        if let Some(id) = id {
            let call = Call::new(READ, &queries.operators.trail.parked_by_id).value(max).value(id.as_bytes());
            found.extend(bounded(patience, call.value(LOOKED_AT_MAX).fetch(db)).await?);
        }
        let rows = found.into_iter().map(|mut row| row.int()).collect::<Result<BTreeSet<i64>, _>>()?;
        Ok(rows.into_iter().take(usize::try_from(max).unwrap_or(usize::MAX)).collect())
    }

    async fn trail_queued(&mut self, id: &str, max: usize) -> Result<Vec<TrailQueued>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new(READ, &queries.operators.trail.queued)
            .value(i64::try_from(max).unwrap_or(i64::MAX))
            .value(id.as_bytes())
            .value(LOOKED_AT_MAX);
        bounded(patience, call.fetch(db)).await?.into_iter().map(read_queued).collect()
    }

    async fn trail_outbox(&mut self, which: WhichOutbox<'_>, max: usize) -> Result<Vec<TrailOutbox>, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let trail = &queries.operators.trail;
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let (key, cause);
        let call = match which {
            WhichOutbox::Row(row) => Call::new(READ, &trail.outbox_row).value(max).value(row),
            WhichOutbox::NotSentAfter(row) => Call::new(READ, &trail.outbox_after).value(max).value(row),
            WhichOutbox::Id(id) => {
                let Ok(of_id) = Key::id(id) else { return Ok(Vec::new()) };
                key = of_id;
                let call = Call::new(READ, &trail.outbox_by_id).value(max).value(key.as_bytes());
                call.value(id.as_bytes()).value(LOOKED_AT_MAX)
            }
            WhichOutbox::CausedBy(id) => {
                cause = cause_in_headers(id);
                let call = Call::new(READ, &trail.outbox_by_cause).value(max).value(cause.as_bytes());
                call.value(LOOKED_AT_MAX)
            }
        };
        bounded(patience, call.fetch(db)).await?.into_iter().map(read_outbox).collect()
    }

    async fn trail_beyond(&mut self) -> Result<Beyond, StoreError> {
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new(READ, &queries.operators.trail.beyond).value(LOOKED_AT_MAX);
        let rows = bounded(patience, call.fetch(db)).await?;
        let mut row = rows.into_iter().next().ok_or_else(|| corrupt("no answer to how many rows there are"))?;
        let (queued, parked, outbox): (i64, i64, i64) = (row.int()?, row.int()?, row.int()?);
        Ok(Beyond { queued: queued != 0, parked: parked != 0, outbox: outbox != 0 })
    }
}

fn read_record(mut row: Row) -> Result<TrailRecord, StoreError> {
    let consumer = ConsumerId(row.int()?);
    let key = Key::from_stored(&row.bytes()?[..]).map_err(|_| corrupt("bytes that are no key"))?;
    let outcome = OutcomeKind::from_code(row.int()?).ok_or_else(|| corrupt("an outcome that is none"))?;
    let at = row.time()?;
    let reason = row.bytes_or_null()?.map(|reason| String::from_utf8_lossy(&reason).into_owned());
    Ok(TrailRecord { consumer, key, outcome, at, reason })
}

fn read_queued(mut row: Row) -> Result<TrailQueued, StoreError> {
    Ok(TrailQueued {
        queue: row.text()?,
        row: row.int()?,
        kind: text_or_null(&mut row)?.unwrap_or_default(),
        source: text_or_null(&mut row)?,
        received_at: row.time()?,
        visible_at: row.time_or_null()?,
        deliveries: row.int()?,
        error: row.text_or_null()?,
    })
}

fn read_outbox(mut row: Row) -> Result<TrailOutbox, StoreError> {
    Ok(TrailOutbox {
        row: row.int()?,
        state: OutboxState::from_code(row.int()?).ok_or_else(|| corrupt("a state that this version does not know"))?,
        topic: text_or_null(&mut row)?.unwrap_or_default(),
        id: text_or_null(&mut row)?.unwrap_or_default(),
        kind: text_or_null(&mut row)?.unwrap_or_default(),
        order_key: text_or_null(&mut row)?,
        emitted_at: row.time()?,
        settled_at: row.time_or_null()?,
        reason: row.text_or_null()?,
        payload_bytes: row.int()?,
    })
}
