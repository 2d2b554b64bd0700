//! The audit log of a store: who did what, when and why. Entries are added and never changed.

use std::future::Future;

use crate::error::StoreError;
use crate::replay::ReplayId;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// The audit log on a transaction.
pub trait Audits {
    /// Adds an entry, in the transaction of the action that it tells of: both are there or neither. Answers with its
    /// number.
    fn audit(&mut self, action: &Action) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// The newest entries before `before`, the newest first.
    fn audit_log(
        &mut self,
        before: Option<i64>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<AuditEntry>, StoreError>> + Send;
}

/// What an operator did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Who.
    pub who: String,
    /// Why, in their words.
    pub why: String,
    /// What: the name of the operation, such as `parked.discard`.
    pub verb: String,
    /// To whose messages.
    pub consumer: Option<ConsumerId>,
    /// By which replay.
    pub replay: Option<ReplayId>,
    /// To how many messages.
    pub messages: u64,
    /// Everything else, as JSON: the filter, the rows, the difference that an edit made.
    pub detail: String,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number.
    pub id: i64,
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub action: Action,
}
