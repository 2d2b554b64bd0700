//! Changing what is parked. Each shows the count first, and wants to know why.

use std::path::PathBuf;
use std::process::ExitCode;

use oncebox::Code;
use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, AfterEdit, ReplayOptions};
use oncebox_pipeline::file::Pipeline;

use super::Which;
use crate::fault::fault;
use crate::ops::{At, By, confirm, count, follow, replay as replays};

/// How to replay.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct How {
    /// So many go first, and the others only if none of them failed.
    #[arg(long, default_value_t = 10)]
    canary: u32,
    /// So many a second; 0: as fast as the store goes.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Stop when more than this share failed.
    #[arg(long, default_value_t = 0.1, value_parser = crate::send::ratio)]
    stop_ratio: f64,
    /// Also what is older than the horizon, or has an effect that may have happened.
    #[arg(long)]
    force: bool,
    /// Start it and do not carry it on: `oncebox replay drive` does.
    #[arg(long)]
    detach: bool,
}

pub(super) async fn replay<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    which: &Which,
    by: &By,
    how: &How,
    yes: bool,
) -> anyhow::Result<ExitCode> {
    let actor = by.actor()?;
    let meant = which.meant(admin).await?;
    let plan = admin.plan(&meant, how.force).await?;
    let (will_run, stay) = (plan.will_run(), meant.messages.saturating_sub(plan.will_run()));
    let rest = if stay > 0 { format!(", and leave {stay} that match where they are") } else { String::new() };
    confirm(yes, &format!("replay {} of {}{rest}", count(will_run, "message"), which.consumer))?;
    let rate = (how.rate > 0).then_some(how.rate);
    let stop_permille = (how.stop_ratio * 1000.0).round() as u16;
    let options =
        ReplayOptions { canary: how.canary, rate, stop_permille, force: how.force, ..ReplayOptions::default() };
    let mut replay = admin.start_replay(&meant, &options, &actor).await?;
    let mut exit = ExitCode::SUCCESS;
    if !how.detach {
        replay = follow::follow(admin, &replay, will_run, &actor).await?;
        exit = follow::exit(&replay);
    }
    at.answer(&replay, || replays::told(&replay))?;
    Ok(exit)
}

/// What to edit, and how.
pub(super) struct Edit {
    pub(super) row: i64,
    pub(super) payload: PathBuf,
    pub(super) keep: bool,
}

pub(super) async fn edit<S: QuarantineStore>(
    admin: Admin<S>,
    at: &At,
    pipeline: Option<&Pipeline>,
    edit: &Edit,
    by: &By,
    yes: bool,
) -> anyhow::Result<()> {
    let Edit { row, payload, keep } = edit;
    let actor = by.actor()?;
    let unread = |error| fault(Code::FileUnusable, format!("cannot read {}: {error}", payload.display()));
    let text = std::fs::read(payload).map_err(unread)?;
    let old = admin.show(*row).await?;
    let then = if *keep { AfterEdit::Stay } else { AfterEdit::Replay };
    let what = if *keep { "" } else { " and have it tried again" };
    confirm(yes, &format!("supersede 1 message, the one in row {row} of {}{what}", old.consumer))?;
    let edited = super::as_consumer(admin, pipeline, Some(&old.consumer)).edit(*row, &text, then, &actor).await?;
    at.answer(&edited, || {
        let changed = if edited.changed.is_empty() { "nothing".to_owned() } else { edited.changed.join(", ") };
        format!("row {} is now message {}; changed: {changed}", edited.row, edited.id)
    })
}

pub(super) async fn discard<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    which: &Which,
    by: &By,
    yes: bool,
) -> anyhow::Result<()> {
    let actor = by.actor()?;
    let meant = which.meant(admin).await?;
    confirm(yes, &format!("give up {} of {} for good", count(meant.messages, "message"), which.consumer))?;
    let acted = admin.discard(&meant, &actor).await?;
    at.answer(&acted, || format!("{} discarded{}", acted.done, passed_over(acted.passed_over)))
}

pub(super) async fn note<S: QuarantineStore>(
    admin: &Admin<S>,
    at: &At,
    which: &Which,
    note: Option<&str>,
    by: &By,
) -> anyhow::Result<()> {
    let actor = by.actor()?;
    let acted = admin.note(&which.meant(admin).await?, note, &actor).await?;
    let did = if note.is_some() { "noted" } else { "without a note now" };
    at.answer(&acted, || format!("{} {did}{}", acted.done, passed_over(acted.passed_over)))
}

/// What was not done, if anything.
pub(crate) fn passed_over(number: u64) -> String {
    if number == 0 { String::new() } else { format!("; {number} passed over, because they are in hand or gone") }
}
