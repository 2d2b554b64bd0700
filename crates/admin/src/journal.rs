//! The audit log, read.

use oncebox_core::Timestamp;
use oncebox_core::audit::{AuditEntry, Audits};
use oncebox_core::quarantine::QuarantineStore;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::admin::Admin;
use crate::error::Error;
use crate::view::time;

/// An entry of the audit log. `Debug` leaves out the detail: an edit's tells payloads.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct AuditView {
    /// Its number.
    pub id: i64,
    /// When.
    #[serde(serialize_with = "time")]
    pub at: Timestamp,
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// What: `parked.discard`, `replay.start` and so on.
    pub verb: String,
    /// To whose messages.
    pub consumer: Option<String>,
    /// By which replay.
    pub replay: Option<i64>,
    /// To how many messages.
    pub messages: u64,
    /// Everything else.
    pub detail: Box<RawValue>,
}

impl std::fmt::Debug for AuditView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditView")
            .field("id", &self.id)
            .field("at", &self.at)
            .field("who", &self.who)
            .field("verb", &self.verb)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// The newest entries of the audit log before the entry `before`, the newest first.
    pub async fn audit(&self, before: Option<i64>, limit: usize) -> Result<Vec<AuditView>, Error> {
        let mut tx = self.begin().await?;
        let entries = tx.audit_log(before, limit).await?;
        self.end(tx).await;
        let consumers = self.consumers().await?;
        let view = |entry: AuditEntry| {
            let AuditEntry { id, at, action } = entry;
            let consumer = action.consumer.and_then(|id| consumers.iter().find(|known| known.id == id));
            let consumer = consumer.map(|known| known.name.as_str().to_owned());
            let detail = RawValue::from_string(action.detail).unwrap_or_else(|_| RawValue::NULL.to_owned());
            let (replay, messages) = (action.replay.map(|replay| replay.0), action.messages);
            AuditView {
                id,
                at,
                who: action.who,
                why: action.why,
                verb: action.verb,
                consumer,
                replay,
                messages,
                detail,
            }
        };
        Ok(entries.into_iter().map(view).collect())
    }
}
