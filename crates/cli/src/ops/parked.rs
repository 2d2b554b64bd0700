//! `oncebox parked`: messages that are set aside.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use oncebox_admin::{Admin, AfterEdit, DriveOptions, Filter, ReplayOptions};
use serde_json::json;

use super::table::Table;
use super::{At, By, confirm, on_store};

/// Messages that are set aside.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

/// Which messages: all that match, not a page of them.
#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// The consumer.
    consumer: String,
    /// Which of its messages: `class = permanent and type = payment.* and age > 2h`.
    #[arg(default_value = "all")]
    filter: String,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Count them by cause, the largest group first.
    Groups(Which),
    /// List them, oldest first.
    List {
        #[command(flatten)]
        which: Which,
        /// After this row.
        #[arg(long, default_value_t = 0)]
        after: i64,
        /// So many at most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one, with its payload.
    Show {
        /// Its number.
        row: i64,
    },
    /// Say what a replay would do with each.
    Plan {
        #[command(flatten)]
        which: Which,
        /// As with `replay --force`.
        #[arg(long)]
        force: bool,
    },
    /// Make them due again, through the same claim as any other delivery.
    Replay {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        by: By,
        /// So many go first, and the others only if none of them failed.
        #[arg(long, default_value_t = 10)]
        canary: u32,
        /// So many a second; 0: as fast as the store goes.
        #[arg(long, default_value_t = 100)]
        rate: u32,
        /// Stop when more than this share failed.
        #[arg(long, default_value_t = 0.1, value_parser = crate::send::ratio)]
        stop_ratio: f64,
        /// Also what is older than the horizon.
        #[arg(long)]
        force: bool,
        /// Start it and do not carry it on: `oncebox replay drive` does.
        #[arg(long)]
        detach: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Replace the payload of one and replay it; the old one is superseded.
    Edit {
        /// Its number.
        row: i64,
        /// A file with the new payload.
        payload: PathBuf,
        #[command(flatten)]
        by: By,
        /// Leave it set aside.
        #[arg(long)]
        keep: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Give them up, for good.
    Discard {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        by: By,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Write a note on them.
    Note {
        /// The consumer.
        consumer: String,
        /// Which of its messages.
        filter: String,
        /// The note; absent, it is removed.
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        by: By,
    },
    /// Write them out as JSON Lines, payloads included.
    Export(Which),
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = args.at.open().await?;
    on_store!(store, |store| act(Admin::new(store), &args.at, args.verb).await)
}

async fn act<S: oncebox::quarantine::QuarantineStore>(
    admin: Admin<S>,
    at: &At,
    verb: Verb,
) -> anyhow::Result<ExitCode> {
    let meant = async |which: &Which| {
        let filter =
            Filter::parse(&which.filter).with_context(|| format!("cannot read the filter `{}`", which.filter))?;
        anyhow::Ok(admin.meant(&which.consumer, filter).await?)
    };
    match verb {
        Verb::Groups(which) => {
            let groups = admin.groups(&meant(&which).await?).await?;
            at.answer(&groups, || {
                let mut table = Table::new(&["MESSAGES", "DEAD", "LAST", "CAUSE"]);
                for group in &groups {
                    let (messages, dead) = (group.messages.to_string(), group.dead.to_string());
                    table.row(vec![messages, dead, group.last_at.to_string(), group.cause.clone()]);
                }
                table.text()
            })?;
        }
        Verb::List { which, after, limit } => {
            let listed = admin.list(&meant(&which).await?, after, limit).await?;
            at.answer(&listed, || {
                let mut table = Table::new(&["ROW", "STATE", "TYPE", "ID", "TRIES", "SINCE", "REASON"]);
                for one in &listed {
                    let id = one.id.clone().unwrap_or_default();
                    let (row, tries, since) = (one.row.to_string(), one.attempts.to_string(), one.first_at.to_string());
                    table.row(vec![row, one.state.to_owned(), one.kind.clone(), id, tries, since, one.reason.clone()]);
                }
                table.text()
            })?;
        }
        Verb::Show { row } => {
            let one = admin.show(row).await?;
            at.answer(&one, || serde_json::to_string_pretty(&one).unwrap_or_default())?;
        }
        Verb::Plan { which, force } => {
            let plan = admin.plan(&meant(&which).await?, force).await?;
            let counts: serde_json::Map<String, serde_json::Value> =
                plan.forecasts.iter().map(|(forecast, count)| (forecast.name().to_owned(), json!(count))).collect();
            at.answer(&json!({ "will_run": plan.will_run(), "forecasts": counts }), || {
                let mut table = Table::new(&["MESSAGES", "FORECAST"]);
                for (forecast, count) in &plan.forecasts {
                    table.row(vec![count.to_string(), forecast.name().replace('_', " ")]);
                }
                table.text()
            })?;
        }
        Verb::Replay { which, by, canary, rate, stop_ratio, force, detach, yes } => {
            let actor = by.actor()?;
            let meant = meant(&which).await?;
            confirm(yes, &format!("replay {} messages of {}", meant.dead, which.consumer))?;
            let rate = (rate > 0).then_some(rate);
            let stop_permille = (stop_ratio * 1000.0).round() as u16;
            let options = ReplayOptions { canary, rate, stop_permille, force, ..ReplayOptions::default() };
            let mut replay = admin.start_replay(&meant, &options, &actor).await?;
            if !detach {
                replay = admin.drive(replay.id, &actor, &DriveOptions::default()).await?;
            }
            at.answer(&replay, || super::replay::told(&replay))?;
        }
        Verb::Edit { row, payload, by, keep, yes } => {
            let actor = by.actor()?;
            let text = std::fs::read(&payload).with_context(|| format!("cannot read {}", payload.display()))?;
            confirm(yes, &format!("supersede the message in row {row}"))?;
            let then = if keep { AfterEdit::Stay } else { AfterEdit::Replay };
            let edited = admin.edit(row, &text, then, &actor).await?;
            at.answer(&json!({ "row": edited.row, "id": edited.id }), || {
                format!("row {} is now message {}", edited.row, edited.id)
            })?;
        }
        Verb::Discard { which, by, yes } => {
            let actor = by.actor()?;
            let meant = meant(&which).await?;
            confirm(yes, &format!("give up {} messages of {} for good", meant.messages, which.consumer))?;
            let acted = admin.discard(&meant, &actor).await?;
            at.answer(&json!({ "done": acted.done }), || format!("{} discarded", acted.done))?;
        }
        Verb::Note { consumer, filter, note, by } => {
            let actor = by.actor()?;
            let meant = meant(&Which { consumer, filter }).await?;
            let acted = admin.note(&meant, note.as_deref(), &actor).await?;
            at.answer(&json!({ "done": acted.done }), || format!("{} noted", acted.done))?;
        }
        Verb::Export(which) => {
            let mut out = std::io::BufWriter::new(std::io::stdout());
            admin.export(&meant(&which).await?, &mut out).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
