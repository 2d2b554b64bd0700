//! `oncebox retention checkpoint`: a time from before which nothing is replayed.

use std::process::ExitCode;

use oncebox::Timestamp;
use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, Checkpoint};

use super::{At, By, To, clock, confirm, count, on_store};

#[derive(Debug, clap::Args)]
pub(crate) struct Words {
    /// The consumer.
    consumer: String,
    /// What was made before this is not replayed: 2026-01-31T00:00:00Z. An hour ago at the latest.
    #[arg(long)]
    before: Timestamp,
    #[command(flatten)]
    by: By,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(at: &At, words: &Words) -> anyhow::Result<ExitCode> {
    let store = at.open(To::Act).await?;
    on_store!(store, |store| set(&Admin::new(store), at, words).await)
}

async fn set<S: QuarantineStore>(admin: &Admin<S>, at: &At, words: &Words) -> anyhow::Result<ExitCode> {
    let actor = words.by.actor()?;
    let plan = admin.plan_checkpoint(&words.consumer, words.before).await?;
    let left = match plan.dead {
        0 => String::new(),
        dead => format!(", so that {} can only be discarded", count(dead, "parked message")),
    };
    let before = clock(plan.checkpoint);
    confirm(
        words.yes,
        &format!("forbid for good to replay what was made for {} before {before}{left}", plan.consumer),
    )?;
    let done = admin.set_checkpoint(&plan, &actor).await?;
    at.answer(&done, || told(&done))?;
    Ok(ExitCode::SUCCESS)
}

fn told(done: &Checkpoint) -> String {
    let was = done.was.map(|was| format!("; it was at {}", clock(was))).unwrap_or_default();
    let mut text = format!("{}: its checkpoint is at {}{was}\n", done.consumer, clock(done.checkpoint));
    if done.dead > 0 {
        text += &format!("{} made before it can only be discarded\n", count(done.dead, "parked message"));
    }
    text
}
