//! `bench memory`: what the process takes while many messages pass.

use std::time::Duration;

use serde::Serialize;

use super::database::{Database, Keys, Settings};
use super::ours::{Clocked, Handlers, consumer};
use super::process;
use super::report::{self, conditions, progress};
use super::work::{Credit, Work, messages};

/// Watch the memory of this process while messages pass.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: super::On,
    /// Messages to pass.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    messages: u32,
}

/// Messages that wait in the source at a time. They are made as they are needed, or they would be what is measured.
const BACKLOG: u32 = 5_000;
/// How often memory is looked at.
const SAMPLES: u32 = 20;

#[derive(Debug, Serialize)]
struct Report {
    oncebox: &'static str,
    server: Settings,
    lanes: u16,
    messages: u32,
    samples: Vec<Sample>,
    /// The last sample over the one after a tenth of the messages, when caches and statements are warm.
    last_over_warm: Option<f64>,
    peak_kib: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    messages: u64,
    resident_kib: Option<u64>,
}

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    db.reset(Credit::ACCOUNTS).await?;
    let source = Clocked::default();
    let consumer = consumer::<D, Credit>(db, source.clone(), args.on.lanes, Handlers::Batch);
    let stats = consumer.stats();
    let mut samples = Vec::new();
    let feed = async {
        let (mut sent, step) = (0, args.messages.div_ceil(SAMPLES));
        loop {
            let handled = stats.snapshot().handled;
            if handled >= u64::from(step) * samples.len() as u64 {
                let sample = Sample { messages: handled, resident_kib: process::resident_kib() };
                progress(&format!("{handled} messages: {} KiB", sample.resident_kib.unwrap_or(0)));
                samples.push(sample);
            }
            if handled >= args.messages.into() || stats.snapshot().failures > 0 {
                return anyhow::Ok(());
            }
            if sent < args.messages && source.memory.backlog() < BACKLOG as usize {
                let until = (sent + BACKLOG).min(args.messages);
                source.memory.send_all(messages::<Credit>(sent..until, Keys::TimeOrdered)?);
                sent = until;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut fed = Ok(());
    consumer.run(async { fed = feed.await }).await?;
    fed?;
    let total = db.total().await?;
    anyhow::ensure!(total == i64::from(args.messages), "applied {total} of {} messages", args.messages);
    let warm = samples.get(SAMPLES as usize / 10).and_then(|sample| sample.resident_kib);
    let last = samples.last().and_then(|sample| sample.resident_kib);
    let report = Report {
        oncebox: env!("CARGO_PKG_VERSION"),
        server: db.settings().await?,
        lanes: args.on.lanes,
        messages: args.messages,
        last_over_warm: warm.zip(last).map(|(warm, last)| last as f64 / warm as f64),
        peak_kib: process::peak_kib(),
        samples,
    };
    print(&report, args.on.json)
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return report::print_json(report);
    }
    let mut text = format!("{}\n", conditions(&report.server));
    for sample in &report.samples {
        text += &format!("  {:>9} messages {:>9} KiB\n", sample.messages, sample.resident_kib.unwrap_or(0));
    }
    if let Some(ratio) = report.last_over_warm {
        text += &format!("  at the end / after a tenth {ratio:>6.2}\n");
    }
    report::print_text(&text);
    Ok(())
}
