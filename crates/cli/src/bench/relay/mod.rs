//! `bench relay`: what the way through outbox and relay costs, measured against the broker's client used by hand.
//!
//! | file | what it does |
//! | --- | --- |
//! | `broker` | the brokers, each with its client as people use it |
//! | `rows` | the messages |
//! | `throughput` | rows a second: by hand, sink, relay |
//! | `hand_relay` | an outbox and its poller, by hand |
//! | `latency` | from COMMIT to a subscriber |
//! | `child` | a relay in a process of its own |
//! | `report` | what was measured |
//!
//! Variants take turns in each round, so that a slow minute hits all of them, and the median of the rounds counts.

mod broker;
pub(crate) mod child;
mod hand_relay;
mod latency;
mod report;
mod rows;
mod throughput;

use std::path::PathBuf;

use anyhow::{Context, bail};

use oncebox::RelayBounds;

use self::broker::{Broker, Kafka, Nats, RabbitMq};
use self::latency::{Latencies, Where};
use self::report::{Measured, OfBroker, Report};
use self::rows::Shape;
use self::throughput::{Publishing, Variant};
use super::database::Database;
use super::load::Pace;
use super::report::progress;

/// Compare outbox and relay with the broker's client used by hand.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Where the outbox is: postgres://… gets a schema of its own, sqlite:PATH a new file, sqlite: a temporary one; all are
    /// removed at the end.
    #[arg(long, value_name = "URL")]
    pub(super) store: String,
    /// Where to publish: amqp://…, nats://…, or kafka://host:port; may be given several times. Queues, streams and topics
    /// are made and removed.
    #[arg(long = "broker", value_name = "URL", required = true)]
    brokers: Vec<String>,
    /// Rows per variant and round.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    rows: u32,
    /// Messages that each publisher, and each worker of the relay, publishes at a time. Default: the relay's own.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: Option<u32>,
    /// Publishers by hand, and workers of the relay. Default: the relay's own.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    publishers: Option<u32>,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=500_000))]
    payload: u32,
    /// How many order keys the rows share, each number measured by itself; 0: rows without a key.
    #[arg(long, value_delimiter = ',', default_value = "0,1000",
        value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    keys: Vec<u32>,
    /// Rounds; each runs every variant once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds for which latency is measured, for a relay in the process and for one apart; 0 leaves it out.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=600))]
    latency_seconds: u32,
    /// Rows per second meanwhile, each in a transaction of its own.
    #[arg(long, default_value_t = 500, value_name = "ROWS_PER_SECOND",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    latency_rate: u32,
    /// Also draw the throughput as bars into this file.
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// A kind of broker, by its URL.
#[derive(Clone, Copy, Debug)]
enum Kind {
    RabbitMq,
    Nats,
    Kafka,
}

fn broker_kind(url: &str) -> anyhow::Result<Kind> {
    match url.split(':').next() {
        Some("amqp" | "amqps") => Ok(Kind::RabbitMq),
        Some("nats" | "tls") => Ok(Kind::Nats),
        Some("kafka") => Ok(Kind::Kafka),
        _ => bail!("--broker must begin with amqp://, nats:// or kafka://"),
    }
}

pub(super) async fn run<D: Database>(db: &D, args: &Args) -> anyhow::Result<()> {
    let mut brokers = Vec::new();
    for url in &args.brokers {
        brokers.push(match broker_kind(url)? {
            Kind::RabbitMq => on::<D, RabbitMq>(db, url, args).await?,
            Kind::Nats => on::<D, Nats>(db, url, args).await?,
            Kind::Kafka => on::<D, Kafka>(db, url, args).await?,
        });
    }
    let report = Report::new(db.settings().await?, (args.rows, args.payload, args.rounds), brokers);
    if let Some(path) = &args.svg {
        std::fs::write(path, report.bars()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    report.print(args.json)
}

/// Everything on one broker.
async fn on<D: Database, B: Broker>(db: &D, url: &str, args: &Args) -> anyhow::Result<OfBroker> {
    let broker = B::connect(url).await?;
    let mut topics = Topics { broker: &broker, made: 0 };
    let mut shapes: Vec<(Shape, Vec<Measured>)> = Vec::new();
    for &keys in &args.keys {
        let shape = Shape { payload_bytes: args.payload, keys };
        shapes.push((shape, Variant::ALL.map(Measured::new).into()));
    }
    let bounds = RelayBounds::default();
    let publishing = Publishing {
        publishers: args.publishers.map_or(bounds.workers, |publishers| publishers as usize),
        batch: args.batch.map_or(bounds.batch_messages_max, |batch| batch as usize),
    };
    for round in 1..=args.rounds {
        for (shape, variants) in &mut shapes {
            // Each comes first, second and last in turn: what one leaves behind (a vacuum, a log to be flushed) would
            // otherwise always hit the same one.
            for place in 0..variants.len() {
                let at = (place + round as usize) % variants.len();
                let measured = &mut variants[at];
                let (shape, variant) = (*shape, measured.variant);
                let sizes = (shape, args.rows, publishing);
                let run = async |topic: &str| throughput::run(db, &broker, variant, sizes, topic).await;
                let rate = topics.with_one(run).await?;
                progress(&format!(
                    "round {round} of {}: {}, {}, {}: {rate:.0} rows/s",
                    args.rounds,
                    B::NAME,
                    shape.name(),
                    variant.name(),
                ));
                measured.add(rate);
            }
        }
    }
    let latency = if args.latency_seconds > 0 { Some(latencies(db, url, &mut topics, args).await?) } else { None };
    Ok(OfBroker::new::<B>(shapes, latency))
}

/// In the process and apart, with rows as the first throughput has them.
async fn latencies<D: Database, B: Broker>(
    db: &D,
    url: &str,
    topics: &mut Topics<'_, B>,
    args: &Args,
) -> anyhow::Result<Latencies> {
    let shape = Shape { payload_bytes: args.payload, keys: args.keys.first().copied().unwrap_or(0) };
    let pace = Pace::new(args.latency_rate.into(), args.latency_seconds.into(), u32::MAX);
    let broker = topics.broker;
    let mut measured = Vec::new();
    for (place, name) in [(Where::InProcess, "in the process"), (Where::Apart, "in a process of its own")] {
        let run = async |topic: &str| latency::run(db, broker, (url, topic), place, (shape, pace)).await;
        let latency = topics.with_one(run).await?;
        let (p50, p99) = (latency.p50_ms, latency.p99_ms);
        progress(&format!("{}, relay {name}: p50 {p50:.2} ms, p99 {p99:.2} ms", B::NAME));
        measured.push(latency);
    }
    match measured[..] {
        [in_process, apart] => Ok(Latencies { in_process, apart }),
        _ => bail!("a latency is missing"),
    }
}

/// Topics of our own, one for each run.
struct Topics<'b, B> {
    broker: &'b B,
    made: u32,
}

impl<B: Broker> Topics<'_, B> {
    /// Runs `work` on a new topic, which is gone afterwards.
    async fn with_one<T>(&mut self, work: impl AsyncFnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.made += 1;
        let topic = format!("oncebox-bench-{}-{}", std::process::id(), self.made);
        self.broker.make(&topic).await?;
        let done = work(&topic).await;
        let removed = self.broker.remove(&topic).await;
        let done = done?;
        removed.map(|()| done)
    }
}
