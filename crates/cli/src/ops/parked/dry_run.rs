//! `oncebox parked plan --dry-run`: today's statements run over what is parked, and nothing of it is kept.

use oncebox::Code;
use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, DryRunReport, DryRunResult, DryRunStep};
use oncebox_pipeline::dry_runner;
use oncebox_pipeline::file::{ConsumerSpec, Pipeline};
use serde::Serialize;

use super::Which;
use crate::fault::fault;
use crate::ops::At;
use crate::ops::table::{SENTENCE, Table};

/// What is answered with --json.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    report: DryRunReport,
    /// Those that ran by themselves, and the first of those that did not.
    messages: Vec<DryRunStep>,
    /// How many match that it did not come to.
    not_reached: u64,
}

pub(super) async fn plan<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    pipeline: Option<&Pipeline>,
    which: &Which,
    force: bool,
    limit: usize,
) -> anyhow::Result<()> {
    let (pipeline, spec) = handlers(at, pipeline, &which.consumer)?;
    let meant = which.meant(admin).await?;
    let runner = dry_runner(&at.file().display().to_string(), pipeline, spec).await?;
    let (mut messages, mut looked_at, mut not_run) = (Vec::new(), 0, 0);
    // All that ran, which `limit` bounds, and as many of those that did not.
    let each = |step: DryRunStep| {
        looked_at += 1;
        not_run += usize::from(step.result == DryRunResult::NotRun);
        if step.result != DryRunResult::NotRun || not_run <= limit {
            messages.push(step);
        }
    };
    let report = admin.dry_run_each(&meant, force, runner.as_ref(), limit, each).await?;
    let not_reached = meant.messages.saturating_sub(looked_at);
    let answer = Answer { report, messages, not_reached };
    at.answer(&answer, || told(&answer, which))
}

/// The file and its part that has the statements.
fn handlers<'p>(
    at: &At,
    pipeline: Option<&'p Pipeline>,
    consumer: &str,
) -> anyhow::Result<(&'p Pipeline, &'p ConsumerSpec)> {
    let refused = |why: String| fault(Code::CommandLine, format!("cannot dry-run messages of {consumer}: {why}"));
    let pipeline = pipeline.ok_or_else(|| {
        refused("--store names no file, and the file has the statements to run; name it with --file".to_owned())
    })?;
    let spec = pipeline.consumers.iter().find(|spec| spec.name == consumer);
    let spec = spec.ok_or_else(|| refused(format!("{} has no such consumer", at.file().display())))?;
    Ok((pipeline, spec))
}

fn told(answer: &Answer, which: &Which) -> String {
    let Answer { report, messages, not_reached } = answer;
    if messages.is_empty() {
        return format!("nothing of {} is parked that matches", which.consumer);
    }
    let failed = report.failed.values().map(|one| one.messages).sum();
    let mut table = Table::new(&["MESSAGES", "WOULD"]);
    for (count, would) in [
        (report.applied, "be applied"),
        (report.rejected.values().sum(), "be rejected"),
        (report.put_away, "be put away"),
        (report.waits, "wait"),
        (failed, "fail"),
        (report.not_run.values().sum(), "not run"),
    ] {
        if count > 0 {
            table.row(vec![count.to_string(), would.to_owned()]);
        }
    }
    let mut each = Table::new(&["ROW", "TYPE", "RESULT", SENTENCE]).folding(&[SENTENCE]);
    for one in messages {
        each.row(vec![one.row.to_string(), one.kind.clone(), result(one.result).to_owned(), one.sentence.clone()]);
    }
    let mut text = table.text() + "\n" + &each.text() + "\nall of it was rolled back: nothing was changed\n";
    if *not_reached > 0 {
        text += &format!("{not_reached} more match; --limit runs more of them\n");
    }
    text
}

fn result(result: DryRunResult) -> &'static str {
    match result {
        DryRunResult::Applied => "applied",
        DryRunResult::Rejected => "rejected",
        DryRunResult::PutAway => "put away",
        DryRunResult::Waits => "waits",
        DryRunResult::Failed => "failed",
        _ => "not run",
    }
}
