//! `oncebox replay`: replays that were started.

use std::process::ExitCode;

use oncebox::replay::ReplayId;
use oncebox_admin::{Admin, ReplayView};
use oncebox_pipeline::file::Pipeline;

use super::parked::as_consumer;
use super::table::Table;
use super::{At, By, To, clock, follow, on_store};

/// Replays that were started.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List them, newest first.
    List {
        /// Of this consumer only.
        consumer: Option<String>,
        /// So many at most.
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show one.
    Show {
        /// Its number.
        id: i64,
    },
    /// Carry one on until it ends, is paused or stops itself.
    Drive(Steer),
    /// Hold one.
    Pause(Steer),
    /// Let one go on.
    Resume(Steer),
    /// End one; what was revived stays so.
    Cancel(Steer),
}

#[derive(Debug, clap::Args)]
struct Steer {
    /// Its number.
    id: i64,
    #[command(flatten)]
    by: By,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to = match args.verb {
        Verb::List { .. } | Verb::Show { .. } => To::Look,
        Verb::Drive(_) | Verb::Pause(_) | Verb::Resume(_) | Verb::Cancel(_) => To::Act,
    };
    let pipeline = args.at.pipeline()?;
    let store = args.at.open(to).await?;
    on_store!(store, |store| act(Admin::new(store), &args.at, pipeline.as_ref(), args.verb).await)
}

async fn act<S: oncebox::quarantine::QuarantineStore>(
    admin: Admin<S>,
    at: &At,
    pipeline: Option<&Pipeline>,
    verb: Verb,
) -> anyhow::Result<ExitCode> {
    let view = match verb {
        Verb::List { consumer, limit } => {
            let replays = admin.list_replays(consumer.as_deref(), limit).await?;
            at.answer(&replays, || {
                if replays.is_empty() {
                    return "there are no replays".to_owned();
                }
                let heads = ["ID", "CONSUMER", "STATE", "REVIVED", "DONE", "FAILED", "LIVE", "WHO", "FILTER"];
                let mut table = Table::new(&heads).folding(&["FILTER", "WHO"]);
                for one in &replays {
                    let counts = [one.revived, one.done, one.failed, one.live].map(|count| count.to_string());
                    let mut row = vec![one.id.0.to_string(), one.consumer.clone(), one.state.name().to_owned()];
                    row.extend(counts);
                    row.extend([one.who.clone(), one.filter.clone()]);
                    table.row(row);
                }
                table.text()
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        Verb::Show { id } => admin.show_replay(ReplayId(id)).await?,
        Verb::Drive(steer) => {
            let (replay, actor) = (admin.show_replay(ReplayId(steer.id)).await?, steer.by.actor()?);
            // It judges as the plan did: what today's file can't read is refused, whoever carries the replay on.
            let admin = as_consumer(admin, pipeline, Some(&replay.consumer));
            let length = admin.replay_length(replay.id).await?;
            let replay = follow::follow(&admin, &replay, length, &actor).await?;
            at.answer(&replay, || told(&replay))?;
            return Ok(follow::exit(&replay));
        }
        Verb::Pause(steer) => admin.pause_replay(ReplayId(steer.id), &steer.by.actor()?).await?,
        Verb::Resume(steer) => admin.resume_replay(ReplayId(steer.id), &steer.by.actor()?).await?,
        Verb::Cancel(steer) => admin.cancel_replay(ReplayId(steer.id), &steer.by.actor()?).await?,
    };
    at.answer(&view, || told(&view))?;
    Ok(ExitCode::SUCCESS)
}

/// A replay in a few lines.
pub(super) fn told(view: &ReplayView) -> String {
    let mut text = format!(
        "replay {} of {} is {}: {} revived, {} done, {} failed, {} under way, {} refused\n",
        view.id.0,
        view.consumer,
        view.state.name(),
        view.revived,
        view.done,
        view.failed,
        view.live + view.waiting,
        view.refused
    );
    if let Some(reason) = &view.stop_reason {
        text += &format!("it stopped itself: {reason}\n");
    }
    text += &format!("filter: {}\nstarted by {} at {}: {}\n", view.filter, view.who, clock(view.created_at), view.why);
    text
}
