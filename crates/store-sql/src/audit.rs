//! The audit log: entries are added, in the transaction of what they tell of, and never changed.

use oncebox_core::audit::{Action, AuditEntry, Audits};
use oncebox_core::error::StoreError;
use oncebox_core::replay::ReplayId;
use oncebox_core::store::ConsumerId;

use crate::connection::{Call, Row, corrupt};
use crate::dialect::Dialect;
use crate::transaction::{SqlTx, bounded};

impl<D: Dialect> Audits for SqlTx<D> {
    async fn audit(&mut self, action: &Action) -> Result<i64, StoreError> {
        let patience = self.patience();
        let (queries, now, db) = self.parts();
        let call = Call::new("write the audit log", &queries.operators.audit.add)
            .value(now)
            .value(action.consumer.map(|consumer| i32::from(consumer.0)))
            .value(action.replay.map(|replay| replay.0))
            .value(i64::try_from(action.messages).unwrap_or(i64::MAX))
            .value(action.verb.as_str())
            .value(action.who.as_str())
            .value(action.why.as_str())
            .value(action.detail.as_str());
        let rows = bounded(patience, call.fetch(db)).await?;
        rows.into_iter().next().ok_or_else(|| corrupt("no number of an entry"))?.int()
    }

    async fn audit_log(&mut self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let patience = self.patience();
        let (queries, _, db) = self.parts();
        let call = Call::new("read the audit log", &queries.operators.audit.list);
        let rows = bounded(patience, call.value(before.unwrap_or(i64::MAX)).value(limit).fetch(db)).await?;
        rows.into_iter().map(read).collect()
    }
}

fn read(mut row: Row) -> Result<AuditEntry, StoreError> {
    let (id, at) = (row.int()?, row.time()?);
    let (consumer, replay) = (row.int_or_null()?.map(ConsumerId), row.int_or_null()?.map(ReplayId));
    let messages = row.int()?;
    let (verb, who, why, detail) = (row.text()?, row.text()?, row.text()?, row.text()?);
    Ok(AuditEntry { id, at, action: Action { who, why, verb, consumer, replay, messages, detail } })
}
