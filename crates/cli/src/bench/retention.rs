//! `bench retention`: what consumers lose while old records are removed beside them.
//!
//! Runs with retention and without take turns, and take turns in who goes first, on one inbox that is full of old
//! records.

use std::time::Duration;

use oncebox::ConsumerName;
use oncebox::retention::{RETENTION, Retention, RetentionBounds};
use oncebox::store::Store as _;
use serde::Serialize;
use tokio::time::Instant;

use super::database::{Database, Keys, Settings};
use super::ours::{self, Handlers};
use super::process;
use super::report::{self, conditions, median, progress};
use super::work::{Credit, Work};

/// How old the records are that are removed.
const DAYS_AGO: u32 = 30;

/// Run consumers while old records are removed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: super::On,
    /// How many old records the inbox holds at the beginning.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    rows: u64,
    /// Messages per run of `on_batch`; `on` runs a quarter of them.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(400..=10_000_000))]
    messages: u32,
    /// Runs of each kind, with and without.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    oncebox: &'static str,
    server: Settings,
    cores: usize,
    lanes: u16,
    rows: u64,
    /// The share of the time in which retention works, in percent.
    share: u8,
    handlers: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    handlers: &'static str,
    /// Medians of the rounds.
    messages_per_second: f64,
    with_retention: f64,
    /// The median of each round's own ratio.
    over_without: f64,
    slowest_round: f64,
    /// Old records that were removed meanwhile.
    removed_per_second: f64,
}

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    db.reset(Credit::ACCOUNTS).await?;
    let consumer = db.store().consumer(&ConsumerName::new("bench")?).await?;
    anyhow::ensure!(consumer.0 == 1, "the consumer of a new store is not the first");
    progress(&format!("filling the inbox with {} old records", args.rows));
    db.fill(args.rows, Keys::TimeOrdered, DAYS_AGO).await?;
    let mut handlers = Vec::new();
    for (kind, name, messages) in
        [(Handlers::Batch, "on_batch", args.messages), (Handlers::Each, "on", args.messages / 4)]
    {
        handlers.push(line(db, args, kind, name, messages).await?);
    }
    let report = Report {
        oncebox: env!("CARGO_PKG_VERSION"),
        server: db.settings().await?,
        cores: process::cores(),
        lanes: args.on.lanes,
        rows: args.rows,
        share: RetentionBounds::default().share,
        handlers,
    };
    print(&report, args.on.json)
}

async fn line<D: Database>(
    db: &D,
    args: &Args,
    kind: Handlers,
    name: &'static str,
    messages: u32,
) -> anyhow::Result<Line> {
    let (mut without, mut with, mut ratios, mut removed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let alone = async || {
        let took = ours::run::<D, Credit>(db, messages, args.on.lanes, kind, Keys::TimeOrdered).await?;
        anyhow::Ok(took.per_second())
    };
    for round in 1..=args.rounds {
        let (plain, beside) = if round % 2 == 1 {
            let plain = alone().await?;
            (plain, beside(db, alone).await?)
        } else {
            let beside = beside(db, alone).await?;
            (alone().await?, beside)
        };
        progress(&format!(
            "round {round} of {}: {name}: {plain:.0} msg/s, {:.0} while {:.0} records/s are removed",
            args.rounds, beside.messages_per_second, beside.removed_per_second
        ));
        without.push(plain);
        with.push(beside.messages_per_second);
        ratios.push(beside.messages_per_second / plain);
        removed.push(beside.removed_per_second);
    }
    Ok(Line {
        handlers: name,
        messages_per_second: median(&without),
        with_retention: median(&with),
        over_without: median(&ratios),
        slowest_round: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        removed_per_second: median(&removed),
    })
}

struct Beside {
    messages_per_second: f64,
    removed_per_second: f64,
}

/// A run with retention beside it from its beginning to its end.
async fn beside<D: Database>(db: &D, run: impl AsyncFn() -> anyhow::Result<f64>) -> anyhow::Result<Beside> {
    let retention = Retention::new(db.store().clone()).keep("bench", RETENTION)?;
    let stats = retention.stats();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let ended = async {
        // Dropped means the same.
        let _ = stopped.await;
    };
    let started = Instant::now();
    let ran = async {
        let rate = run().await;
        drop(stop);
        (rate, started.elapsed())
    };
    let (removing, (rate, took)) = tokio::join!(retention.run(ended), ran);
    removing?;
    let progress = stats.snapshot().remove("bench").unwrap_or_default();
    anyhow::ensure!(progress.deleted > 0, "nothing was removed meanwhile; give it more --messages");
    anyhow::ensure!(progress.failures == 0, "a step of retention failed, so there is nothing to measure");
    // A second pass would have nothing to do, and the figure would flatter us.
    let was_busy = progress.passes == 0 || took < Duration::from_secs(1);
    anyhow::ensure!(was_busy, "all old records were removed before the end; give it more --rows");
    let removed_per_second = progress.deleted as f64 / took.as_secs_f64();
    Ok(Beside { messages_per_second: rate?, removed_per_second })
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return report::print_json(report);
    }
    let mut text = format!("{}\n", conditions(&report.server));
    text += &format!("{} old records · retention works {} % of the time\n", report.rows, report.share);
    for line in &report.handlers {
        text += &format!(
            "  {:<9} {:>9.0} msg/s, {:>9.0} while {:>6.0} records/s are removed   {:.2} of without (slowest round {:.2})\n",
            line.handlers,
            line.messages_per_second,
            line.with_retention,
            line.removed_per_second,
            line.over_without,
            line.slowest_round
        );
    }
    report::print_text(&text);
    Ok(())
}
