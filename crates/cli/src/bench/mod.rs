//! `oncebox bench`: what the inbox costs, measured against the same work written by hand, in one run on one server.
//!
//! Absolute figures belong to the machine; the ratios are what we hold ourselves to. Variants take turns in each round,
//! so that a slow minute hits all of them, and the median of the rounds counts.

mod hand;
mod ours;
mod report;
mod setting;

use std::process::ExitCode;

use clap::Subcommand;

use report::Report;
use setting::{Setting, Variant};

/// Measure what Oncebox costs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// The inbox against the same SQL written by hand, on PostgreSQL.
    Inbox(Inbox),
}

#[derive(Clone, Debug, clap::Args)]
struct Inbox {
    /// The PostgreSQL to measure on. It gets a schema of its own, which is dropped at the end.
    #[arg(long, value_name = "URL")]
    store: String,
    /// Messages per variant and round.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    messages: u32,
    /// Rounds; each runs every variant once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections, and lanes, of every variant but the one-transaction-per-message ones.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    lanes: u16,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Inbox(inbox) = args.what;
    let setting = Setting::open(&inbox.store, inbox.messages, inbox.lanes).await?;
    let measured = measure(&setting, inbox.rounds).await;
    let server = setting.server().await;
    setting.close().await;
    let report = Report::new(server?, inbox.messages, inbox.lanes, measured?);
    report.print(inbox.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Messages per second of each variant in each round.
async fn measure(setting: &Setting, rounds: u32) -> anyhow::Result<Vec<(Variant, Vec<f64>)>> {
    let mut measured: Vec<(Variant, Vec<f64>)> = Variant::ALL.iter().map(|variant| (*variant, Vec::new())).collect();
    for round in 1..=rounds {
        for (variant, rates) in &mut measured {
            setting.reset().await?;
            let seconds = match variant {
                Variant::Bare => hand::batched(setting, false).await?,
                Variant::HandBatched => hand::batched(setting, true).await?,
                Variant::Naive(connections) => hand::naive(setting, *connections).await?,
                Variant::Each => ours::each(setting).await?,
                Variant::Batch => ours::batch(setting).await?,
            };
            setting.check(*variant).await?;
            rates.push(f64::from(setting.messages) / seconds);
            report::progress(round, rounds, *variant, f64::from(setting.messages) / seconds);
        }
    }
    Ok(measured)
}
