//! Dry runs: the handler runs, and what it wrote is rolled back.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use oncebox_core::Message;
use oncebox_core::quarantine::QuarantineStore;
use serde::Serialize;

use crate::admin::Admin;
use crate::error::Error;
use crate::meant::Meant;

/// Who has the handler of a consumer and can run it without effect: claim, handle, roll back.
pub trait DryRun: Send + Sync {
    /// Runs the handler over a message in a transaction that is rolled back.
    fn run<'m>(&'m self, message: &'m Message) -> Pin<Box<dyn Future<Output = DryRan> + Send + 'm>>;
}

/// What a handler made of a message when nothing was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DryRan {
    /// It finished.
    Finished,
    /// The business refused the message.
    Rejected,
    /// It failed, for this cause (no payload, no secrets).
    Failed(String),
}

/// What a dry run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DryRunReport {
    /// The handler finished.
    pub finished: u64,
    /// The business refused.
    pub rejected: u64,
    /// It failed, by cause.
    pub failed: BTreeMap<String, u64>,
}

impl<S: QuarantineStore> Admin<S> {
    /// Runs the handler over up to `max` of the dead messages that are meant, one after another, and keeps nothing.
    /// Effects outside the store are the handler's to hold back.
    pub async fn dry_run(&self, meant: &Meant, handler: &dyn DryRun, max: usize) -> Result<DryRunReport, Error> {
        let mut report = DryRunReport::default();
        let (mut after, mut ran) = (0, 0);
        while ran < max {
            let page = self.page(meant.consumer.id, after).await?;
            let Some(last) = page.last() else { break };
            after = last.row;
            for row in page.iter().filter(|row| row.is_dead() && meant.includes(row)).take(max - ran) {
                ran += 1;
                match handler.run(&row.message).await {
                    DryRan::Finished => report.finished += 1,
                    DryRan::Rejected => report.rejected += 1,
                    DryRan::Failed(cause) => *report.failed.entry(cause).or_default() += 1,
                }
            }
        }
        Ok(report)
    }
}
