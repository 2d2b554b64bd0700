//! Carrying a replay on while somebody watches.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use oncebox::quarantine::QuarantineStore;
use oncebox::replay::ReplayState;
use oncebox_admin::{Actor, Admin, DriveOptions, ReplayView};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(500);

/// When nothing has moved for so long, the watcher is told what may be missing.
const STILL: Duration = Duration::from_secs(10);

/// Carries a replay on until it ends, with a bar on a terminal.
#[allow(clippy::print_stderr, reason = "this is where the command talks")]
pub(super) async fn follow<S: QuarantineStore>(
    admin: &Admin<S>,
    replay: &ReplayView,
    messages: u64,
    actor: &Actor,
) -> anyhow::Result<ReplayView> {
    // Nothing is drawn where stderr is no terminal.
    let bar = ProgressBar::new(messages);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (driver, id, by) = (admin.clone(), replay.id, actor.clone());
    // A task of its own: a look must not wait for a transaction that waits for the look.
    let mut driving = JoinSet::new();
    driving.spawn(async move { driver.drive(id, &by, &DriveOptions::default()).await });
    let (mut last, mut since, mut said) = (0, Instant::now(), false);
    loop {
        tokio::select! {
            biased;
            Some(ended) = driving.join_next() => {
                bar.finish_and_clear();
                return Ok(ended??);
            }
            () = tokio::time::sleep(LOOK) => {}
        }
        // A look that fails is no reason to stop: the driver says so itself if the store is away.
        let Ok(view) = admin.show_replay(id).await else { continue };
        let ended = view.done + view.failed + view.withdrawn;
        bar.set_position(ended);
        bar.set_message(format!("{} done, {} failed, {} under way", view.done, view.failed, view.live + view.waiting));
        if ended != last {
            (last, since) = (ended, Instant::now());
        }
        if !said && view.live > 0 && since.elapsed() >= STILL {
            said = true;
            bar.suspend(|| {
                eprintln!(
                    "{} wait for their consumer: does `oncebox run` run? Leave with Ctrl-C; `oncebox replay drive {}` goes on.",
                    view.live, id.0
                );
            });
        }
    }
}

/// How to exit after a replay that was carried on: 0 if it came to its end and nothing failed.
pub(super) fn exit(view: &ReplayView) -> ExitCode {
    if view.state == ReplayState::Done && view.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
