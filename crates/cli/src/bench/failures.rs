//! `bench failures`: what messages that fail cost those that don't.
//!
//! The same messages pass three times a round: all good, one in ten thousand failing, and 1.5 % failing (two of three in
//! a way that passes at the second try, one for good). What counts is the rate of the good ones; the clock stops when the
//! last of them is handled, so that it does not measure the waits of those that are tried again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox::{Consumer, Context, Failure, Message, OrderBy, Outcome, Retry, SystemClock};
use serde::Serialize;
use tokio::time::Instant;

use super::BATCH;
use super::database::{Database, Settings};
use super::ours::Clocked;
use super::report::{self, conditions, progress};
use super::work::{Credit, Work};

/// Measure what messages that fail cost the others.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) on: super::On,
    /// Messages per share of failures and round.
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    messages: u32,
    /// Rounds; each runs every share once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Failing messages in a million: ways that pass, and ways that don't.
const SHARES: [(&str, u32, u32); 3] =
    [("all good", 0, 0), ("0.01 % fail", 67, 33), ("1 % fail for a while, 0.5 % for good", 10_000, 5_000)];

#[derive(Debug, Serialize)]
struct Report {
    oncebox: &'static str,
    server: Settings,
    lanes: u16,
    messages: u32,
    shares: Vec<Line>,
    /// The rates over that of the run without failures.
    ratios: Ratios,
}

#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    /// Good messages a second, the median of the rounds.
    good_per_second: f64,
    slowest: f64,
    fastest: f64,
}

#[derive(Debug, Serialize)]
struct Ratios {
    rare_over_clean: f64,
    frequent_over_clean: f64,
}

/// How a message ends, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    AtTheSecondTry,
    Never,
}

fn ends(number: u32, transient: u32, permanent: u32) -> Ends {
    // Spread over the batches; any mixing of the bits will do.
    let dice = number.wrapping_mul(2_654_435_761) % 1_000_000;
    match dice {
        dice if dice < transient => Ends::AtTheSecondTry,
        dice if dice < transient + permanent => Ends::Never,
        _ => Ends::Well,
    }
}

/// What a message credits, if it is one that fails; good ones credit 1.
const FAILS_ONCE: i64 = 2;
const FAILS_ALWAYS: i64 = 3;

/// A message. One that fails has an account of its own, so that no good one has to wait behind it.
fn message(number: u32, transient: u32, permanent: u32) -> anyhow::Result<Message> {
    let account = Credit::ACCOUNTS + i64::from(number);
    let credit = match ends(number, transient, permanent) {
        Ends::Well => Credit::number(number),
        Ends::AtTheSecondTry => Credit { account, amount: FAILS_ONCE },
        Ends::Never => Credit { account, amount: FAILS_ALWAYS },
    };
    let mut message = Message::made_by(&SystemClock, "work").with_json(&credit)?;
    message.order_key = credit.order_key();
    Ok(message)
}

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); SHARES.len()];
    for round in 1..=args.rounds {
        for ((name, transient, permanent), rates) in SHARES.iter().zip(&mut rates) {
            db.reset(Credit::ACCOUNTS).await?;
            let rate = pass(db, args, *transient, *permanent).await?;
            progress(&format!("round {round} of {}: {name} {rate:.0} msg/s", args.rounds));
            rates.push(rate);
        }
    }
    let medians: Vec<f64> = rates.iter().map(|rates| report::median(rates)).collect();
    let mut shares = Vec::new();
    for (((name, ..), rates), median) in SHARES.into_iter().zip(&rates).zip(&medians) {
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        shares.push(Line { name, good_per_second: *median, slowest, fastest });
    }
    let report = Report {
        oncebox: env!("CARGO_PKG_VERSION"),
        server: db.settings().await?,
        lanes: args.on.lanes,
        messages: args.messages,
        ratios: Ratios { rare_over_clean: medians[1] / medians[0], frequent_over_clean: medians[2] / medians[0] },
        shares,
    };
    print(&report, args.on.json)
}

/// Good messages a second.
async fn pass<D: Database>(db: &D, args: &Args, transient: u32, permanent: u32) -> anyhow::Result<f64> {
    let count = args.messages;
    let good = (0..count).filter(|number| ends(*number, transient, permanent) == Ends::Well).count() as u64;
    let source = Clocked::default();
    source
        .memory
        .send_all((0..count).map(|number| message(number, transient, permanent)).collect::<Result<Vec<_>, _>>()?);
    // Those that have failed once.
    let failed: Arc<Mutex<HashSet<i64>>> = Arc::default();
    let lanes = usize::from(args.on.lanes);
    let consumer = Consumer::new("bench", db.store().clone(), source)
        .order_by(OrderBy::MessageKey)
        .retry(Retry::new().first(Duration::from_millis(50)))
        .lanes(lanes)
        .bounds(|bounds| {
            bounds.batch_messages_max = BATCH;
            bounds.in_flight_max = 4 * BATCH * lanes;
        })
        .on("work", move |mut ctx: Context<D::Store>, credit: Credit| {
            let failed = Arc::clone(&failed);
            async move {
                credit.apply(ctx.db()).await?;
                let first = || failed.lock().unwrap_or_else(PoisonError::into_inner).insert(credit.account);
                match credit.amount {
                    FAILS_ONCE if first() => Err(Failure::transient("it fails at the first try")),
                    FAILS_ALWAYS => Err(Failure::permanent("it fails at every try")),
                    _ => Ok(Outcome::applied()),
                }
            }
        });
    let stats = consumer.stats();
    let started = Instant::now();
    let mut seconds = 0.0;
    let done = async {
        while stats.snapshot().handled < good {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seconds = started.elapsed().as_secs_f64();
    };
    consumer.run(done).await?;
    Ok(good as f64 / seconds)
}

fn print(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return report::print_json(report);
    }
    let mut text = format!("{}\n", conditions(&report.server));
    for Line { name, good_per_second, slowest, fastest } in &report.shares {
        text += &format!("  {name:<38} {good_per_second:>9.0} good msg/s   ({slowest:.0} to {fastest:.0})\n");
    }
    text += &format!("  0.01 % failing / all good  {:>6.2}\n", report.ratios.rare_over_clean);
    text += &format!("  1.5 % failing / all good   {:>6.2}\n", report.ratios.frequent_over_clean);
    report::print_text(&text);
    Ok(())
}
