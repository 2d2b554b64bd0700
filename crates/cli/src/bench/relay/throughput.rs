//! Rows a second: by hand, through the adapter's sink, and through outbox and relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, ensure};
use oncebox::{Outgoing, Relay, Sink};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::broker::{Broker, ByHand};
use super::hand_relay;
use super::rows::{Shape, Writer, backlog};
use crate::bench::database::Database;

/// A way to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// The broker's client.
    ByHand,
    /// The adapter.
    Sink,
    /// An outbox and a poller that are written by hand, and the client.
    HandRelay,
    /// Outbox, relay, adapter.
    Relay,
}

impl Variant {
    pub(super) const ALL: [Self; 4] = [Self::ByHand, Self::Sink, Self::HandRelay, Self::Relay];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ByHand => "client, by hand",
            Self::Sink => "oncebox sink",
            Self::HandRelay => "outbox, by hand",
            Self::Relay => "oncebox outbox and relay",
        }
    }
}

/// Rows that are emitted in one transaction when an outbox is filled.
const FILL: usize = 1_000;

/// Rows that pass before the clock starts: connections, statements, the producer's id.
const WARM_UP_MAX: u32 = 2_000;

/// How the rows are published, in every variant alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publishing {
    /// Publishers by hand, and workers of the relay.
    pub(super) publishers: usize,
    /// Messages that each of them publishes at a time.
    pub(super) batch: usize,
}

/// One run of one variant: rows a second. All of them are on the broker at the end, or it is an error.
pub(super) async fn run<D: Database, B: Broker>(
    db: &D,
    broker: &B,
    variant: Variant,
    (shape, count, publishing): (Shape, u32, Publishing),
    topic: &str,
) -> anyhow::Result<f64> {
    let warm_up = count.div_ceil(10).min(WARM_UP_MAX);
    let rows = shape.rows(topic, warm_up + count);
    let seconds = match variant {
        Variant::ByHand => by_hand(broker, topic, rows, (warm_up, publishing)).await?,
        Variant::Sink => sink(broker, topic, rows, (warm_up, publishing)).await?,
        Variant::HandRelay => hand_relay::run(db, broker, topic, &rows, (warm_up, publishing)).await?,
        Variant::Relay => relay(db, broker, topic, &rows, (warm_up, publishing)).await?,
    };
    let (stored, expected) = (broker.stored(topic).await?, u64::from(warm_up + count));
    ensure!(stored == expected, "{} has {stored} of {expected} messages after {}", B::NAME, variant.name());
    Ok(f64::from(count) / seconds)
}

/// The client itself.
async fn by_hand<B: Broker>(
    broker: &B,
    topic: &str,
    rows: Vec<Outgoing>,
    sizes: (u32, Publishing),
) -> anyhow::Result<f64> {
    side_by_side(broker.by_hand(topic, sizes.1.publishers).await?, rows, sizes).await
}

/// The same through the adapter.
async fn sink<B: Broker>(
    broker: &B,
    topic: &str,
    rows: Vec<Outgoing>,
    sizes: (u32, Publishing),
) -> anyhow::Result<f64> {
    let sink = Arc::new(broker.sink(topic));
    sink.open().await?;
    let sinks = (0..sizes.1.publishers).map(|_| ThroughSink(Arc::clone(&sink))).collect();
    let seconds = side_by_side(sinks, rows, sizes).await;
    sink.close().await;
    seconds
}

struct ThroughSink<K>(Arc<K>);

impl<K: Sink> ByHand for ThroughSink<K> {
    async fn publish(&mut self, batch: &[Outgoing]) -> anyhow::Result<()> {
        for answer in self.0.publish(batch).await {
            answer?;
        }
        Ok(())
    }
}

/// Publishes all rows, each publisher with a batch at a time. Answers how many seconds those after the warm-up took.
async fn side_by_side<P: ByHand>(
    mut publishers: Vec<P>,
    rows: Vec<Outgoing>,
    (warm_up, Publishing { batch, .. }): (u32, Publishing),
) -> anyhow::Result<f64> {
    let (warm_up, rows) = rows.split_at(warm_up as usize);
    let share = warm_up.len().div_ceil(publishers.len()).max(1);
    for (publisher, share) in publishers.iter_mut().zip(warm_up.chunks(share)) {
        for batch in share.chunks(batch) {
            publisher.publish(batch).await?;
        }
    }
    let (rows, next) = (Arc::new(rows.to_vec()), Arc::new(AtomicUsize::new(0)));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut publisher in publishers {
        let (rows, next) = (Arc::clone(&rows), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(batch) = rows.chunks(batch).nth(next.fetch_add(1, Relaxed)) {
                publisher.publish(batch).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed().as_secs_f64())
}

/// All rows lie in the outbox. The clock starts when the first few are through, and ends when the outbox is empty.
async fn relay<D: Database, B: Broker>(
    db: &D,
    broker: &B,
    topic: &str,
    rows: &[Outgoing],
    (warm_up, publishing): (u32, Publishing),
) -> anyhow::Result<f64> {
    db.empty_outbox().await?;
    let mut writer = Writer::new(db.store());
    for rows in rows.chunks(FILL) {
        writer.emit(rows).await?;
    }
    db.settle_outbox().await?;
    let relay = Relay::new(db.store().clone(), broker.sink(topic)).bounds(|bounds| {
        bounds.workers = publishing.publishers;
        bounds.batch_messages_max = publishing.batch;
    });
    let stats = relay.stats();
    let reach = async |published: u64| {
        while stats.snapshot().published < published {
            let failed = stats.snapshot().waiting_for;
            ensure!(failed.is_none(), "the relay waits: {}", failed.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        anyhow::Ok(())
    };
    let mut seconds = Ok(0.0);
    let measured = async {
        seconds = async {
            reach(warm_up.into()).await?;
            let started = Instant::now();
            let before = stats.snapshot().published;
            reach(rows.len() as u64).await?;
            while backlog(db.store()).await?.unsent > 0 {}
            // Batches do not end where the warm-up does.
            let share = (rows.len() as u64 - before) as f64 / (rows.len() as u64 - u64::from(warm_up)) as f64;
            Ok(started.elapsed().as_secs_f64() / share)
        }
        .await;
    };
    relay.run(measured).await.context("the relay did not run")?;
    seconds
}
