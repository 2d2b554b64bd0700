//! `oncebox retention`: how old records go, and what stays.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use oncebox::Code;
use oncebox::quarantine::QuarantineStore;
use oncebox::retention::RetentionBounds;
use oncebox_admin::{Admin, Removal, RetentionDone, RetentionPlan};
use oncebox_pipeline::retention::{Kept, Span, held_against_ways_back};
use serde_json::json;

use super::table::Table;
use super::{At, By, To, confirm, count, on_store};
use crate::fault::fault;

/// How old records go, and what stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show what would go, and what is held back.
    Plan(Which),
    /// Remove it now, in small steps. `oncebox run` does the same all the time.
    Apply {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        by: By,
        /// The share of the time in which it works, in percent: 100 is as fast as the store goes.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=100))]
        share: u8,
        /// Archive the keys of what goes, also where no file says `archive_keys`.
        #[arg(long)]
        archive: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Forbid for good to replay what was made before a time, also by force. It never goes back.
    Checkpoint(super::checkpoint::Words),
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The consumers. Default: all of the file.
    consumers: Vec<String>,
    /// Keep records for so long, instead of what the file says: 12h, 30d.
    #[arg(long, value_parser = oncebox_pipeline::file::duration)]
    older_than: Option<Duration>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (which, to) = match &args.verb {
        Verb::Plan(which) => (which, To::Look),
        Verb::Apply { which, .. } => (which, To::Act),
        Verb::Checkpoint(words) => return super::checkpoint::run(&args.at, words).await,
    };
    let kept = kept(&args.at, which).await?;
    let store = args.at.open(to).await?;
    on_store!(store, |store| act(Admin::new(store), &args.at, kept, args.verb).await)
}

/// A consumer, and how long its records are kept.
struct Chosen {
    consumer: String,
    retention: Duration,
    /// What its retention is held against, where there is a file.
    kept: Option<Kept>,
}

async fn kept(at: &At, which: &Which) -> anyhow::Result<Vec<Chosen>> {
    let Some(pipeline) = at.pipeline()? else {
        let Some(retention) = which.older_than.filter(|_| !which.consumers.is_empty()) else {
            return Err(fault(
                Code::CommandLine,
                "with --store there is no file that says whose records are kept for how long; name the consumers, and add \
                 --older-than",
            ));
        };
        let chosen = |consumer: &String| Chosen { consumer: consumer.clone(), retention, kept: None };
        return Ok(which.consumers.iter().map(chosen).collect());
    };
    let all = held_against_ways_back(&pipeline).await;
    let names: Vec<&str> = all.iter().map(|kept| kept.consumer.as_str()).collect();
    if let Some(unknown) = which.consumers.iter().find(|name| !names.contains(&name.as_str())) {
        let says = format!("there is no consumer `{unknown}` in {}; it has {}", at.file().display(), names.join(", "));
        return Err(fault(Code::CommandLine, says));
    }
    let chosen = all.into_iter().filter(|kept| which.consumers.is_empty() || which.consumers.contains(&kept.consumer));
    let chosen: Vec<Chosen> = chosen
        .map(|mut kept| {
            if let Some(older_than) = which.older_than {
                // Who says a number needs nobody to ask for one.
                (kept.retention, kept.unasked) = (older_than, None);
            }
            Chosen { consumer: kept.consumer.clone(), retention: kept.retention, kept: Some(kept) }
        })
        .collect();
    if chosen.is_empty() {
        let says = format!("{} has no consumers, so there are no records", at.file().display());
        return Err(fault(Code::FileMistakes, says));
    }
    Ok(chosen)
}

async fn act<S: QuarantineStore>(
    admin: Admin<S>,
    at: &At,
    chosen: Vec<Chosen>,
    verb: Verb,
) -> anyhow::Result<ExitCode> {
    let known = admin.consumers().await?;
    let mut plans = Vec::new();
    for one in &chosen {
        // One that never ran has no records.
        let ran = known.iter().any(|known| known.name.as_str() == one.consumer);
        if ran || one.kept.is_none() {
            plans.push(admin.plan_retention(&one.consumer, one.retention).await?);
        }
    }
    let Verb::Apply { by, share, archive, yes, .. } = verb else {
        at.answer(&json!({ "consumers": shown(&plans, &chosen) }), || text(&plans, &chosen))?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(says) = chosen.iter().find_map(|one| one.kept.as_ref()?.nothing_goes()) {
        return Err(fault(Code::RetentionStopped, says));
    }
    for kept in chosen.iter().filter_map(|one| one.kept.as_ref()).filter(|kept| !kept.is_unsafe) {
        if let Some(complaint) = kept.complaint() {
            return Err(fault(Code::RetentionShort, format!("cannot remove records: {complaint}")));
        }
    }
    let actor = by.actor()?;
    let goes: u64 = plans.iter().map(RetentionPlan::goes).sum();
    let about = if plans.iter().all(|plan| plan.counted) { "" } else { "about " };
    let names: Vec<&str> = plans.iter().map(|plan| plan.consumer.as_str()).collect();
    // Always: what stored mode keeps is not counted, and may be much.
    let names = names.join(", ");
    let what = format!(
        "remove {about}{goes} records of {names}, and the processed messages that stored mode kept as long, for good"
    );
    confirm(yes, &what)?;
    let bar = bar(goes);
    let mut done: Vec<RetentionDone> = Vec::new();
    for plan in &plans {
        let mut bounds = RetentionBounds::default();
        bounds.share = share;
        let before: u64 = done.iter().map(|done| done.deleted).sum();
        let retention = Duration::from_secs(plan.retention_seconds);
        let kept = chosen.iter().find(|one| one.consumer == plan.consumer).and_then(|one| one.kept.as_ref());
        let archive = archive || kept.is_some_and(|kept| kept.archive.is_some());
        let removal = Removal { retention, archive, bounds };
        let tell = |deleted| bar.set_position(before + deleted);
        done.push(admin.apply_retention(&plan.consumer, removal, &actor, tell).await?);
    }
    bar.finish_and_clear();
    at.answer(&json!({ "consumers": done }), || told(&done))?;
    Ok(ExitCode::SUCCESS)
}

/// On stderr, and only where someone looks at it.
fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} records, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn shown(plans: &[RetentionPlan], chosen: &[Chosen]) -> Vec<serde_json::Value> {
    let one = |plan: &RetentionPlan| {
        let kept = chosen.iter().find(|one| one.consumer == plan.consumer).and_then(|one| one.kept.as_ref());
        let mut shown = json!(plan);
        shown["goes"] = json!(plan.goes());
        shown["needed_seconds"] = json!(kept.and_then(|kept| kept.needed).map(|needed| needed.as_secs()));
        shown["complaint"] = json!(kept.and_then(|kept| kept.complaint().or_else(|| kept.nothing_goes())));
        shown
    };
    plans.iter().map(one).collect()
}

fn text(plans: &[RetentionPlan], chosen: &[Chosen]) -> String {
    let mut table =
        Table::new(&["CONSUMER", "KEPT", "GOES", "STAYS", "OLDEST", "HORIZON"]).folding(&["HORIZON", "OLDEST"]);
    for plan in plans {
        let about = if plan.counted { "" } else { "~" };
        let time = |at: Option<oncebox::Timestamp>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.0}"));
        table.row(vec![
            plan.consumer.clone(),
            Span(Duration::from_secs(plan.retention_seconds)).to_string(),
            format!("{about}{}", plan.goes()),
            plan.held.to_string(),
            time(plan.oldest),
            time(plan.horizon),
        ]);
    }
    let mut text = table.text();
    for plan in plans.iter().filter(|plan| plan.held > 0 || plan.open_replays > 0) {
        let held = format!("{} stay because a message is parked under their key", plan.held);
        let open = format!("{} replays are open", plan.open_replays);
        text += &format!("{}: {held}; {open}\n", plan.consumer);
    }
    for plan in plans {
        if plan.archived_keys > 0 {
            let (keys, bytes) = (count(plan.archived_keys, "key"), plan.archived_bytes);
            text += &format!("{}: the archive has {keys} of records that are gone, in {bytes} bytes\n", plan.consumer);
        }
        if let Some(checkpoint) = plan.checkpoint {
            text += &format!("{}: nothing made before its checkpoint, {checkpoint:.0}, is replayed\n", plan.consumer);
        }
    }
    for one in chosen.iter().filter(|one| !plans.iter().any(|plan| plan.consumer == one.consumer)) {
        text += &format!("{}: it never ran on this store\n", one.consumer);
    }
    let kept = || chosen.iter().filter_map(|one| one.kept.as_ref());
    for complaint in kept().filter_map(Kept::complaint).chain(kept().filter_map(Kept::nothing_goes)) {
        text += &format!("{complaint}\n");
    }
    text
}

fn told(done: &[RetentionDone]) -> String {
    let mut text = String::new();
    for one in done {
        let horizon = one.horizon.map_or_else(String::new, |at| format!("; its horizon is {at:.0}"));
        let more = if one.cut_short { "; there may be more, run it again" } else { "" };
        let archived = if one.archived { ", keys archived" } else { "" };
        let removed = count(one.deleted, "record");
        text += &format!("{}: {removed} removed{archived}{horizon}{more}\n", one.consumer);
        if one.received > 0 {
            let removed = count(one.received, "processed message");
            text += &format!("{}: {removed} of stored mode removed\n", one.consumer);
        }
    }
    if done.is_empty() { "nothing to remove\n".to_owned() } else { text }
}
