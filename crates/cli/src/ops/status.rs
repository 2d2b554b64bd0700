//! `oncebox status`: how the pipeline is.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use oncebox::ConsumerStore;
use oncebox::counters::CounterStore;
use oncebox::depths::DepthStore;
use oncebox::quarantine::QuarantineStore;
use oncebox_admin::{Admin, ConsumerStatus, RelayStatus, Status};
use oncebox_pipeline::file::Pipeline;
use tokio::time::Instant;

use super::lines::broken;
use super::screen::cut;
use super::table::Table;
use super::{At, To, on_store, replay};
use crate::number::{at_least, grouped, time};

/// How the pipeline is: what was counted, what waits, who runs it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    /// Look again and again, with rates; with --json, one line for each look.
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two looks of --watch.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600), requires = "watch")]
    every: u64,
    /// End after so many looks of --watch.
    #[arg(long, requires = "watch")]
    looks: Option<u64>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = args.at.open(To::Look).await?;
    on_store!(store, |store| look(store, &args).await)
}

/// How the pipeline is, and which consumers of the file could not start.
async fn status<S>(admin: &Admin<S>, store: &S, pipeline: Option<&Pipeline>) -> anyhow::Result<Status>
where
    S: QuarantineStore + CounterStore + DepthStore + ConsumerStore,
{
    let mut status = admin.status().await?;
    let refused = match pipeline {
        Some(pipeline) => oncebox_pipeline::refused(pipeline, store).await?,
        None => Vec::new(),
    };
    for one in refused {
        if let Some(consumer) = status.consumers.iter_mut().find(|consumer| consumer.name == one.consumer) {
            consumer.identity_refused = Some(one.reason);
        }
    }
    Ok(status)
}

async fn look<S>(store: S, args: &Args) -> anyhow::Result<ExitCode>
where
    S: QuarantineStore + CounterStore + DepthStore + ConsumerStore,
{
    let (admin, pipeline) = (&Admin::new(store.clone()), args.at.pipeline()?);
    if !args.watch {
        let status = status(admin, &store, pipeline.as_ref()).await?;
        args.at.answer(&status, || text(&status, None))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut screen = Screen { is_live: std::io::stdout().is_terminal() && !args.at.json, drawn: 0 };
    let mut before: Option<(Instant, Status)> = None;
    let mut looks = 0;
    loop {
        let (now, status) = (Instant::now(), status(admin, &store, pipeline.as_ref()).await?);
        if args.at.json {
            args.at.answer(&status, String::new)?;
        } else {
            let since = before.as_ref().map(|(then, before)| (now - *then, before));
            screen.draw(&text(&status, since))?;
        }
        before = Some((now, status));
        looks += 1;
        if args.looks == Some(looks) {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
        }
    }
}

/// Draws over what was drawn before; elsewhere than on a terminal, below it.
struct Screen {
    is_live: bool,
    drawn: usize,
}

impl Screen {
    fn draw(&mut self, text: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if !self.is_live {
            writeln!(out, "{text}")?;
            return Ok(out.flush()?);
        }
        let up = if self.drawn > 0 { format!("\u{1b}[{}A", self.drawn) } else { String::new() };
        // A line that is broken in two would be drawn over in part.
        let width = terminal_size::terminal_size().map_or(usize::MAX, |(width, _)| width.0.into());
        let body: String = text.lines().map(|line| format!("\u{1b}[2K{}\n", cut(line, width))).collect();
        self.drawn = text.lines().count();
        // What the last picture had more is wiped.
        write!(out, "{up}{body}\u{1b}[J")?;
        Ok(out.flush()?)
    }
}

/// The look before, and how long ago it was.
type Since<'s> = Option<(Duration, &'s Status)>;

/// What is shown to people.
fn text(status: &Status, since: Since<'_>) -> String {
    let mut parts = vec![consumers(status, since), broken(&relay(&status.relay, since)), processes(status)];
    parts.extend(status.replays.iter().map(|view| broken(&replay::told(view))));
    if status.replays_is_more {
        parts.push("more replays are not over; `oncebox replay list` tells the newest\n".to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn consumers(status: &Status, since: Since<'_>) -> String {
    if status.consumers.is_empty() {
        return "no consumer has run here yet\n".to_owned();
    }
    let mut heads = vec!["CONSUMER", "APPLIED", "DUPLICATES", "CONFLICTS", "PARKED", "DEAD", "BACKLOG", "OLDEST"];
    if since.is_some() {
        heads.push("APPLIED/s");
    }
    heads.extend(["RUNS IN", "GUARANTEE"]);
    let mut table = Table::new(&heads).folding(&[
        "GUARANTEE",
        "RUNS IN",
        "CONFLICTS",
        "OLDEST",
        "DUPLICATES",
        "PARKED",
        "APPLIED/s",
    ]);
    for one in &status.consumers {
        let mut row = vec![one.name.clone()];
        row.extend([one.applied, one.duplicates, one.conflicts].map(grouped));
        row.push(at_least(one.parked, one.parked_is_more));
        row.push(at_least(one.dead, one.dead_is_more));
        row.push(one.backlog.map_or("?".to_owned(), |backlog| at_least(backlog, one.backlog_is_more)));
        row.push(one.oldest_seconds.map_or("?".to_owned(), time));
        if let Some((passed, before)) = since {
            let earlier = before.consumers.iter().find(|earlier| earlier.name == one.name);
            row.push(rate(earlier.map_or(0, |earlier| earlier.applied), one.applied, passed));
        }
        row.push(runs_in(one));
        row.push(one.guarantee.clone().unwrap_or_else(|| "?".to_owned()));
        table.row(row);
    }
    let mut told = String::new();
    for one in &status.consumers {
        for what in &one.waiting_for {
            told += &format!("{} waits: {what}\n", one.name);
        }
        if let Some(why) = &one.identity_refused {
            told += &format!("{} cannot start as the file has it: {why}\n", one.name);
        }
        if let (Some(now), Some(was)) = (&one.identity, &one.identity_was) {
            told += &format!("{} is being changed: from {was} to {now}; both are claimed\n", one.name);
        }
        if one.dead > 0 {
            told += &format!("{} has dead messages; `oncebox parked groups {}` tells why\n", one.name, one.name);
        }
    }
    table.text() + &broken(&told)
}

fn runs_in(one: &ConsumerStatus) -> String {
    match (one.processes, one.seen_seconds_ago) {
        (0, None) => "nobody".to_owned(),
        (0, Some(ago)) => format!("nobody for {}", time(ago)),
        (1, _) => "1 process".to_owned(),
        (processes, _) => format!("{processes} processes"),
    }
}

fn rate(before: u64, now: u64, passed: Duration) -> String {
    let rate = now.saturating_sub(before) as f64 / passed.as_secs_f64().max(0.001);
    grouped(rate.round() as u64)
}

/// Nothing, where nothing was ever published.
fn relay(relay: &RelayStatus, since: Since<'_>) -> String {
    if relay.backlog == 0 && relay.refused == 0 && relay.published == 0 && relay.processes == 0 {
        return String::new();
    }
    let wait =
        if relay.backlog > 0 { format!(", the oldest waits {}", time(relay.lag_seconds)) } else { String::new() };
    let runs = match relay.processes {
        0 => "no relay runs".to_owned(),
        1 => "1 relay runs".to_owned(),
        relays => format!("{relays} relays run"),
    };
    let rate = since.map_or(String::new(), |(passed, before)| {
        format!(" ({}/s)", rate(before.relay.published, relay.published, passed))
    });
    let mut text = format!(
        "outbox: {} to be published{wait}; {} refused; {} published{rate}; {runs}\n",
        at_least(relay.backlog, relay.backlog_is_more),
        grouped(relay.refused),
        grouped(relay.published),
    );
    for what in &relay.waiting_for {
        text += &format!("the relay waits: {what}\n");
    }
    if relay.refused > 0 {
        text += "a broker refused messages; `oncebox outbox list` tells why\n";
    }
    let mut lanes: Vec<_> = relay.lanes.iter().collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse((lane.lag_seconds, lane.backlog)));
    if let Some(worst) = lanes.first().filter(|_| relay.backlog > 0) {
        let unheld = lanes.iter().filter(|lane| !lane.held).count();
        let held = if unheld == 0 { String::new() } else { format!("; nobody holds {unheld} of them") };
        text += &format!("it waits in {} lanes, longest in lane {}{held}\n", lanes.len(), worst.lane);
    }
    text
}

fn processes(status: &Status) -> String {
    let mut table = Table::new(&["PROCESS", "UP", "SEEN", "RUNS"]).folding(&["RUNS"]);
    for one in &status.processes {
        let seen = format!("{} ago", time(one.seen_seconds_ago));
        table.row(vec![one.process.clone(), time(one.up_seconds), seen, one.parts.join(", ")]);
    }
    if status.processes.is_empty() { "no process was seen in the last minute\n".to_owned() } else { table.text() }
}
