//! `bench growth`: how throughput changes as the inbox grows.
//!
//! At each size, runs on the grown inbox and on an empty one take turns, so that the ratio compares the same minute.

use serde::Serialize;

use super::database::{Database, Keys, Settings};
use super::ours::{self, Handlers};
use super::process;
use super::report::{self, conditions, median, progress};
use super::work::{Credit, Work};

/// Run `on_batch` on an inbox that holds ever more records.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: super::On,
    /// How many records the inbox holds, in ascending order.
    #[arg(long, value_delimiter = ',', default_value = "0,1000000,5000000,20000000",
        value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    rows: Vec<u64>,
    /// Messages per run.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    messages: u32,
    /// Runs at each size.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    oncebox: &'static str,
    server: Settings,
    cores: usize,
    lanes: u16,
    messages: u32,
    curves: Vec<Curve>,
}

#[derive(Debug, Serialize)]
struct Curve {
    keys: &'static str,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    rows: u64,
    /// The median of the rounds.
    messages_per_second: f64,
    slowest: f64,
    fastest: f64,
    /// On an empty inbox, in turns with the above.
    empty_messages_per_second: f64,
    over_empty: f64,
}

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(args.rows.is_sorted(), "--rows must ascend: records are added, never taken away");
    let empty = D::open(&args.on.store).await?;
    let curves = tokio::select! {
        curves = curves(db, &empty, args) => curves,
        // Whoever called us is told too, and ends; here only the second place is cleaned up.
        () = oncebox::shutdown::signal() => Ok(Vec::new()),
    };
    empty.close().await;
    let report = Report {
        oncebox: env!("CARGO_PKG_VERSION"),
        server: db.settings().await?,
        cores: process::cores(),
        lanes: args.on.lanes,
        messages: args.messages,
        curves: curves?,
    };
    print(&report, args.on.json)
}

async fn curves<D: Database>(db: &D, empty: &D, args: &Args) -> anyhow::Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for keys in [Keys::TimeOrdered, Keys::Random] {
        db.reset(Credit::ACCOUNTS).await?;
        let (mut points, mut filled) = (Vec::new(), 0);
        for &rows in &args.rows {
            if rows > filled {
                progress(&format!("filling the inbox to {rows} records with {} keys", keys.name()));
                db.fill(rows - filled, keys, 0).await?;
                filled = rows;
            }
            points.push(point(db, empty, args, keys, rows).await?);
        }
        curves.push(Curve { keys: keys.name(), points });
    }
    Ok(curves)
}

async fn point<D: Database>(db: &D, empty: &D, args: &Args, keys: Keys, rows: u64) -> anyhow::Result<Point> {
    let (mut grown_rates, mut empty_rates) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        empty.reset(Credit::ACCOUNTS).await?;
        for (db, rates) in [(empty, &mut empty_rates), (db, &mut grown_rates)] {
            let took = ours::run::<D, Credit>(db, args.messages, args.on.lanes, Handlers::Batch, keys).await?;
            rates.push(took.per_second());
        }
        let (grown, empty) = (grown_rates[grown_rates.len() - 1], empty_rates[empty_rates.len() - 1]);
        progress(&format!(
            "round {round} of {}: {rows} records, {} keys: {grown:.0} msg/s, empty {empty:.0}",
            args.rounds,
            keys.name()
        ));
    }
    let (grown, empty) = (median(&grown_rates), median(&empty_rates));
    Ok(Point {
        rows,
        messages_per_second: grown,
        slowest: grown_rates.iter().copied().fold(f64::INFINITY, f64::min),
        fastest: grown_rates.iter().copied().fold(0.0, f64::max),
        empty_messages_per_second: empty,
        over_empty: grown / empty,
    })
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return report::print_json(report);
    }
    let mut text = format!("{}\n", conditions(&report.server));
    for curve in &report.curves {
        text += &format!("{} keys\n", curve.keys);
        for point in &curve.points {
            text += &format!(
                "  {:>11} records {:>9.0} msg/s   ({:.0} to {:.0})   {:.2} of an empty inbox\n",
                point.rows, point.messages_per_second, point.slowest, point.fastest, point.over_empty
            );
        }
    }
    report::print_text(&text);
    Ok(())
}
