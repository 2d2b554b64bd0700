//! `bench inbox`: what the inbox costs, measured against the same work written by hand.
//!
//! Variants take turns in each round, so that a slow minute hits all of them, and the median of the rounds counts.
//! Latency is measured afterwards, at half of what each variant managed: in a queue that only ever grows, a message's
//! time says how long the queue was and nothing else.

use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::database::{Database, Keys};
use super::hand::{self, Style, Took};
use super::load::{Latency, Pace};
use super::ours::{self, Handlers};
use super::report::{self, Line, Report};
use super::variant::Variant;
use super::work::{Credit, HotPair, Work};

/// Compare the inbox with the same SQL written by hand.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: super::On,
    /// Messages per variant and round; a tenth of it for variants that commit each message by itself.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    messages: u32,
    /// Rounds; each runs every variant once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for which each variant's latency is measured; 0 leaves it out.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=600))]
    latency_seconds: u32,
    /// Measure latency at this many messages per second instead of half of what the variant can.
    #[arg(long, value_name = "MESSAGES_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    latency_rate: Option<u32>,
    /// Also measure ours with a journal of every delivery.
    #[arg(long)]
    journal: bool,
    /// Only the variants whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also draw the throughput as bars into this file.
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
}

/// Lanes on hot rows: as many as the hand-written inbox has connections where it is near its best.
const HOT_LANES: u16 = 8;

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    let wanted = |variant: &Variant| args.only.as_ref().is_none_or(|only| variant.name().contains(only.as_str()));
    let journaled = Variant::journaled().into_iter().filter(|_| args.journal);
    let variants = Variant::all(D::NAIVE_CONNECTIONS, HOT_LANES).into_iter().chain(journaled);
    let variants: Vec<Variant> = variants.filter(wanted).collect();
    ensure!(!variants.is_empty(), "no variant has a name with {:?} in it", args.only.as_deref().unwrap_or_default());

    let mut lines: Vec<Line> = variants.into_iter().map(Line::new).collect();
    for round in 1..=args.rounds {
        for line in &mut lines {
            let (took, log_bytes) = measure(db, line.variant, args).await?;
            report::progress(&format!(
                "round {round} of {}: {} {:.0} msg/s",
                args.rounds,
                line.name,
                took.per_second()
            ));
            line.add(took, log_bytes);
        }
    }
    if args.latency_seconds > 0 {
        for line in &mut lines {
            let rate = args.latency_rate.map_or(line.messages_per_second() / 2.0, f64::from);
            let pace = Pace::new(rate, args.latency_seconds.into(), args.messages);
            line.latency = latency(db, line.variant, pace, args.on.lanes).await?;
            if let Some(latency) = &line.latency {
                report::progress(&format!("{} at {rate:.0} msg/s: p50 {:.2} ms", line.name, latency.p50_ms));
            }
        }
    }
    let report = Report::new(db.settings().await?, args.on.lanes, lines);
    if let Some(path) = &args.svg {
        std::fs::write(path, report.bars()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    report.print(args.on.json)
}

/// One run of one variant, and how many bytes of log each message made.
async fn measure<D: Database>(db: &D, variant: Variant, args: &Args) -> anyhow::Result<(Took, Option<f64>)> {
    let (count, lanes) = (variant.share(args.messages), args.on.lanes);
    let credits = async |handlers| ours::run::<D, Credit>(db, count, lanes, handlers, Keys::TimeOrdered).await;
    let expected = prepare(db, variant, count).await?;
    let before = db.log_position().await?;
    let took = match variant {
        Variant::Bare => hand::batched(db, count, lanes, Style::Bare).await?,
        Variant::HandBatched => hand::batched(db, count, lanes, Style::Batched).await?,
        Variant::Naive(connections) => hand::naive::<D, Credit>(db, count, connections).await?,
        Variant::HotNaive(connections) => hand::naive::<D, HotPair>(db, count, connections).await?,
        Variant::Each => credits(Handlers::Each).await?,
        Variant::Batch => credits(Handlers::Batch).await?,
        Variant::EachJournaled => credits(Handlers::EachJournaled).await?,
        Variant::BatchJournaled => credits(Handlers::BatchJournaled).await?,
        Variant::HotEach(lanes) => ours::run::<D, HotPair>(db, count, lanes, Handlers::Each, Keys::TimeOrdered).await?,
    };
    let after = db.log_position().await?;
    check(db, variant, expected).await?;
    let bytes = before.zip(after).map(|(before, after)| (after - before) as f64 / f64::from(count));
    Ok((took, bytes))
}

async fn latency<D: Database>(db: &D, variant: Variant, pace: Pace, lanes: u16) -> anyhow::Result<Option<Latency>> {
    let expected = prepare(db, variant, pace.messages).await?;
    let latency = match variant {
        Variant::Bare => hand::paced::<D, Credit>(db, pace, lanes, Style::Bare).await?,
        Variant::HandBatched => hand::paced::<D, Credit>(db, pace, lanes, Style::Batched).await?,
        Variant::Naive(connections) => hand::paced::<D, Credit>(db, pace, connections, Style::Single).await?,
        Variant::HotNaive(connections) => hand::paced::<D, HotPair>(db, pace, connections, Style::Single).await?,
        Variant::Each => ours::paced::<D, Credit>(db, pace, lanes, Handlers::Each).await?,
        Variant::Batch => ours::paced::<D, Credit>(db, pace, lanes, Handlers::Batch).await?,
        Variant::EachJournaled => ours::paced::<D, Credit>(db, pace, lanes, Handlers::EachJournaled).await?,
        Variant::BatchJournaled => ours::paced::<D, Credit>(db, pace, lanes, Handlers::BatchJournaled).await?,
        Variant::HotEach(lanes) => ours::paced::<D, HotPair>(db, pace, lanes, Handlers::Each).await?,
    };
    check(db, variant, expected).await?;
    Ok(latency)
}

/// Empty tables; what will lie on the accounts when `count` messages were applied once.
async fn prepare<D: Database>(db: &D, variant: Variant, count: u32) -> anyhow::Result<i64> {
    let (accounts, adds) = match variant {
        Variant::HotNaive(_) | Variant::HotEach(_) => (HotPair::ACCOUNTS, HotPair::ADDS),
        _ => (Credit::ACCOUNTS, Credit::ADDS),
    };
    db.reset(accounts).await?;
    Ok(i64::from(count) * adds)
}

/// Every message was applied once: a fast variant that is wrong is no variant.
async fn check<D: Database>(db: &D, variant: Variant, expected: i64) -> anyhow::Result<()> {
    let total = db.total().await?;
    ensure!(total == expected, "{} applied {total} of {expected} credits", variant.name());
    Ok(())
}
