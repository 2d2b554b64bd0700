//! Dry runs: the handler runs, and what it wrote is rolled back.

use std::collections::BTreeMap;

use oncebox_core::Class;
use oncebox_core::dry_run::{DryRan, DryRun};
use oncebox_core::parked::{Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, QuarantineStore};
use serde::Serialize;

use crate::admin::Admin;
use crate::error::Error;
use crate::forecast::{Forecast, Limits};
use crate::meant::Meant;

/// What a dry run found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DryRunReport {
    /// Their handlers finished.
    pub applied: u64,
    /// The business refused them, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// There is nothing left to do for them: handled before, their effect there already, or their version not newer.
    pub put_away: u64,
    /// They would wait for a version that is missing.
    pub waits: u64,
    /// They would fail, by cause.
    pub failed: BTreeMap<String, FailedFor>,
    /// Their handlers were not asked, because a replay would not run them; by forecast.
    pub not_run: BTreeMap<Forecast, u64>,
}

/// Messages that would fail for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailedFor {
    /// How many.
    pub messages: u64,
    /// The class of the failure.
    pub class: &'static str,
    /// What the first of them said.
    pub reason: String,
}

/// What a dry run found of one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DryRunStep {
    /// Its number.
    pub row: i64,
    /// What its producer called it.
    pub id: Option<String>,
    /// What it says it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What would become of it.
    pub result: DryRunResult,
    /// The same as a sentence.
    pub sentence: String,
}

/// What would become of a message whose handler was asked, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DryRunResult {
    /// Its handler finished.
    Applied,
    /// The business refused it.
    Rejected,
    /// There is nothing left to do for it.
    PutAway,
    /// It would wait for a version that is missing.
    Waits,
    /// It would fail.
    Failed,
    /// Its handler was not asked: a replay would not run it.
    NotRun,
}

impl<S: QuarantineStore> Admin<S> {
    /// Runs the handler over up to `max` of the dead messages that are meant, one after another, and keeps nothing.
    /// Each runs on the state as it is now: it does not see what those before it would have written. Effects outside the
    /// store are the handler's to hold back.
    pub async fn dry_run(
        &self,
        meant: &Meant,
        force: bool,
        handler: &dyn DryRun,
        max: usize,
    ) -> Result<DryRunReport, Error> {
        self.dry_run_each(meant, force, handler, max, |_| {}).await
    }

    /// The same, and tells of each message.
    pub async fn dry_run_each(
        &self,
        meant: &Meant,
        force: bool,
        handler: &dyn DryRun,
        max: usize,
        mut each: impl FnMut(DryRunStep) + Send,
    ) -> Result<DryRunReport, Error> {
        let mut report = DryRunReport::default();
        let consumer = meant.consumer.name.as_str();
        let mut judge = self.judge(Limits::default(), force);
        let (mut after, mut ran) = (0, 0);
        while let Some(page) = self.page_to_judge(meant, &mut after, &mut judge).await? {
            for (row, said) in page {
                let is_meant = meant.includes(&row);
                let forecast = judge.next(&row, is_meant, said);
                if !is_meant {
                    continue;
                }
                if ran == max {
                    return Ok(report);
                }
                let found = if forecast.runs() {
                    ran += 1;
                    handler.dry_run(&row).await?
                } else {
                    DryRan::Moving
                };
                // A failure is for good, or what is behind it would only wait.
                if matches!(&found, DryRan::SetAside(verdict) if verdict.waits == Waits::Person) {
                    judge.stays(&row);
                }
                let (result, sentence) = match found {
                    DryRan::Moving => {
                        let forecast = if forecast.runs() { Forecast::Moving } else { forecast };
                        *report.not_run.entry(forecast).or_default() += 1;
                        (DryRunResult::NotRun, judge.sentence(&row, forecast, said, consumer))
                    }
                    found => report.add(&row, found),
                };
                let id = row.message.id.as_ref().map(|id| id.as_str().to_owned());
                each(DryRunStep { row: row.row, id, kind: row.message.kind.clone(), result, sentence });
            }
        }
        Ok(report)
    }
}

impl DryRunReport {
    fn add(&mut self, row: &ParkedRow, found: DryRan) -> (DryRunResult, String) {
        let message = row.message.label();
        match found {
            DryRan::Applied => {
                self.applied += 1;
                (DryRunResult::Applied, format!("message {message} would be applied"))
            }
            DryRan::Rejected(reason) => {
                let sentence = format!("message {message} would be rejected: {reason}");
                *self.rejected.entry(reason).or_default() += 1;
                (DryRunResult::Rejected, sentence)
            }
            DryRan::PutAway(_) => {
                self.put_away += 1;
                (DryRunResult::PutAway, format!("message {message} would be put away: there is nothing left to do"))
            }
            DryRan::SetAside(Verdict { class: None, reason, .. }) => {
                self.waits += 1;
                (DryRunResult::Waits, format!("message {message} would wait: {reason}"))
            }
            DryRan::SetAside(Verdict { class: Some(class), cause, reason, .. }) => {
                let class = Class::name(class);
                let sentence = format!("message {message} would fail ({class}): {reason}");
                let failed = self.failed.entry(cause.as_str().to_owned());
                failed.or_insert(FailedFor { messages: 0, class, reason }).messages += 1;
                (DryRunResult::Failed, sentence)
            }
            // What a newer consumer says and this program does not know.
            _ => {
                *self.not_run.entry(Forecast::Moving).or_default() += 1;
                (DryRunResult::NotRun, format!("nobody can tell what would become of message {message}"))
            }
        }
    }
}
