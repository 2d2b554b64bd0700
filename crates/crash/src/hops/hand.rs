//! One process of a row: a consumer of either topic, or a relay; someone will kill it or stop it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use oncebox::crashpoint::{self, Action};
use oncebox::outbox::OutboxStore;
use oncebox::{
    Clock, Consumer, Context, Event, Failure, OrderBy, Outcome, Relay, Retry, Sink, Source, SystemClock, Timestamp,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::line::Line;
use super::row::{BrokerKind, HopsRow, Trouble};
use super::tables::{self, Forwarded};
use super::{kafka, nats, rabbitmq};
use crate::feed::{BATCH, Order, Role as Part};
use crate::place::{self, Place};
use crate::process::JOB;
use crate::worker::{Business, parent_gone, plays, say, say_works};

/// What a process is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct HandJob {
    pub(super) role: Role,
    pub(super) row: HopsRow,
    pub(super) place: Place,
    pub(super) line: Line,
    /// For notes on which message has played its part how often.
    pub(super) folder: PathBuf,
    pub(super) number: u64,
    /// Its place among those of its role, which its successor takes.
    pub(super) slot: usize,
    pub(super) doom: Option<Doom>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Role {
    /// Reads topic 1, writes an effect, emits.
    First,
    /// Reads topic 2, writes an effect.
    Second,
    Relay,
}

/// What a process does to itself at one pass of one crash point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Doom {
    pub(super) point: String,
    pub(super) pass: u32,
    /// Stops itself, to be continued; otherwise it hangs, to be killed.
    pub(super) stops: bool,
}

/// Rows that a relay has under way at a time: few, so that faults find every stage of many.
const RELAY_BATCH: usize = 16;

/// How often a relay looks whether it lost lanes.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) async fn run() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let job: HandJob = serde_json::from_str(&std::env::var(JOB).context("a process is started by the matrix")?)?;
    let place = if job.role == Role::Relay { tables::as_relay(&job.place, job.number) } else { job.place.clone() };
    match place {
        Place::Sqlite { path } => serve(place::sqlite(&path).await?, job).await,
        // One that is stopped in the middle of a transaction keeps its lanes until the server ends that.
        Place::Postgres { url, schema } if job.row.trouble == Trouble::Stop => {
            serve(place::impatient_postgres(&url, &schema).await?, job).await
        }
        Place::Postgres { url, schema } => serve(place::postgres(&url, &schema).await?, job).await,
    }
}

async fn serve<S: Business + OutboxStore>(store: S, job: HandJob) -> anyhow::Result<()> {
    let line = job.line.clone();
    let topic = if job.role == Role::First { &line.first } else { &line.second };
    match (job.role, line.broker) {
        (Role::Relay, BrokerKind::Nats) => relay(store, nats::sink(&line), job).await,
        (Role::Relay, BrokerKind::RabbitMq) => relay(store, rabbitmq::sink(&line), job).await,
        (Role::Relay, BrokerKind::Kafka) => relay(store, kafka::sink(&line), job).await,
        (_, BrokerKind::Nats) => consume(store, nats::source(&line, topic), job).await,
        (_, BrokerKind::RabbitMq) => consume(store, rabbitmq::source(&line, topic), job).await,
        (_, BrokerKind::Kafka) => {
            let name = format!("slot-{}", job.slot);
            consume(store, kafka::source(&line, topic, &name), job).await
        }
    }
}

async fn relay<S: Business + OutboxStore, K: Sink>(store: S, sink: K, job: HandJob) -> anyhow::Result<()> {
    let lease = job.row.lease();
    let relay = Relay::new(store, sink).clock(Arc::new(Named(job.number))).bounds(|bounds| {
        bounds.lease = lease;
        bounds.batch_messages_max = RELAY_BATCH;
        bounds.pause = (Duration::from_millis(20), Duration::from_millis(300));
    });
    arm(job.doom, || {});
    let stats = relay.stats();
    let mut watch = JoinSet::new();
    watch.spawn(async move {
        while stats.snapshot().lanes_lost == 0 {
            tokio::time::sleep(LOOK).await;
        }
        say("lost lanes");
    });
    relay.run(parent_gone()).await?;
    Ok(())
}

/// Makes the id under which a relay holds lanes known beforehand.
#[derive(Debug)]
struct Named(u64);

impl Clock for Named {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn random(&self) -> u64 {
        SystemClock.random()
    }

    fn id(&self) -> Uuid {
        Uuid::from_u128(tables::owner(self.0))
    }
}

async fn consume<S: Business, Src: Source<S>>(store: S, source: Src, job: HandJob) -> anyhow::Result<()> {
    let desk = Arc::new(Desk {
        first: tables::first(&job.place),
        second: tables::second(&job.place),
        topic: job.line.second_topic(),
        folder: job.folder.clone(),
    });
    let consumer = match job.role {
        Role::First => Consumer::new("hop-first", store, source)
            .on("ordered", move |ctx, order| first::<S>(ctx, order, Arc::clone(&desk))),
        _ => Consumer::new("hop-second", store, source)
            .on("forwarded", move |ctx, forwarded| second::<S>(ctx, forwarded, Arc::clone(&desk))),
    };
    let retry = Retry::new().first(Duration::from_millis(20)).max(Duration::from_millis(100));
    let consumer = consumer.retry(retry).order_by(OrderBy::MessageKey).lanes(4).bounds(|bounds| {
        bounds.batch_messages_max = BATCH;
        bounds.in_flight_max = 24;
        bounds.suspect_wait = Duration::from_millis(300);
        bounds.parked_lease = job.row.lease();
    });
    let (stats, reported) = (consumer.stats(), AtomicU64::new(0));
    arm(job.doom, move || {
        let deliveries = stats.snapshot().deliveries;
        say(&format!("received {}", deliveries - reported.swap(deliveries, Relaxed)));
    });
    consumer.run(parent_gone()).await?;
    Ok(())
}

/// Calls `received` whenever something was, and does at one crash point what `doom` says.
fn arm(doom: Option<Doom>, received: impl Fn() + Send + Sync + 'static) {
    let left = AtomicU32::new(doom.as_ref().map_or(0, |doom| doom.pass));
    crashpoint::install(move |name| {
        say_works();
        if name == "received" {
            received();
        }
        let Some(doom) = doom.as_ref().filter(|doom| doom.point == name) else { return Action::Go };
        if left.fetch_sub(1, Relaxed) != 1 {
            return Action::Go;
        }
        if !doom.stops {
            say(&format!("at {name}"));
            return Action::Hang;
        }
        say(&format!("stopped {name}"));
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        Action::Go
    });
}

/// What handlers need beside the store.
struct Desk {
    first: String,
    second: String,
    topic: String,
    folder: PathBuf,
}

/// Some fail after they have emitted: what they emitted must never be seen.
async fn first<S: Business>(mut ctx: Context<S>, order: Order, desk: Arc<Desk>) -> oncebox::Result<Outcome> {
    let token = fastrand::i64(0..i64::MAX);
    S::run(ctx.db(), tables::insert(&desk.first, &order, token)).await?;
    let (key, fails) = (order.key.to_string(), order.role == Part::Failing && plays(&desk.folder, order.n));
    ctx.emit(Event::new("forwarded").topic(&desk.topic).key(key).json(&Forwarded { order, token })?);
    if fails { Err(Failure::transient("it fails the first times")) } else { Ok(Outcome::applied()) }
}

async fn second<S: Business>(mut ctx: Context<S>, forwarded: Forwarded, desk: Arc<Desk>) -> oncebox::Result<Outcome> {
    let Forwarded { order, token } = forwarded;
    S::run(ctx.db(), tables::insert(&desk.second, &order, token)).await?;
    Ok(Outcome::applied())
}
