//! From the return of COMMIT to the arrival at a subscriber of the broker, at a moderate load.
//!
//! Both ends are in this process, so one clock measures. The subscriber is the adapter's own source: what is measured
//! includes the broker's delivery to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use oncebox::memory::MemoryStore;
use oncebox::{Relay, Source};
use serde::Serialize;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::broker::Broker;
use super::child::Child;
use super::rows::{Shape, Writer};
use crate::bench::database::Database;
use crate::bench::load::{Latency, Pace};

/// Where the relay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// In the process that commits, which wakes it.
    InProcess,
    /// In one of its own, which polls.
    Apart,
}

/// From COMMIT to a subscriber.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latencies {
    /// With the relay in the process that commits.
    pub(super) in_process: Latency,
    /// With the relay in a process of its own.
    pub(super) apart: Latency,
}

/// When messages were committed or seen, by id.
type Times = Arc<Mutex<HashMap<String, Instant>>>;

/// Connections that commit.
const WRITERS: usize = 4;

/// How long a message may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Messages that the subscriber takes at once.
const RECEIVE_MAX: usize = 500;

/// Emits at the rate of `pace`, each row in a transaction of its own, and answers how long they took.
pub(super) async fn run<D: Database, B: Broker>(
    db: &D,
    broker: &B,
    (url, topic): (&str, &str),
    place: Where,
    (shape, pace): (Shape, Pace),
) -> anyhow::Result<Latency> {
    db.empty_outbox().await?;
    let source = broker.source(topic);
    source.open(&MemoryStore::new()).await?;
    let (seen, stop) = (Times::default(), Arc::new(Notify::new()));
    let mut subscriber = JoinSet::new();
    subscriber.spawn(watch(source, Arc::clone(&seen), Arc::clone(&stop)));
    let measured = async {
        let done = emit_and_wait(db, topic, shape, pace, &seen);
        match place {
            Where::InProcess => {
                let mut latency = None;
                Relay::new(db.store().clone(), broker.sink(topic)).run(async { latency = Some(done.await) }).await?;
                latency.context("the relay ended by itself")?
            }
            Where::Apart => {
                let child = Child::start(&db.address(), url, topic).await?;
                let latency = done.await;
                child.end().await?;
                latency
            }
        }
    };
    let latency = measured.await;
    stop.notify_one();
    while let Some(ended) = subscriber.join_next().await {
        ended??;
    }
    latency
}

/// Notes when each message is seen for the first time.
async fn watch<K: Source<MemoryStore>>(source: K, seen: Times, stop: Arc<Notify>) -> anyhow::Result<()> {
    let mut stopped = std::pin::pin!(stop.notified());
    loop {
        // Awaited to its end: what it has taken from the broker would be lost for a while.
        let received = source.receive(RECEIVE_MAX, Duration::from_millis(200)).await?;
        let now = Instant::now();
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            for id in received.iter().filter_map(|delivery| delivery.message.id.as_ref()) {
                seen.entry(id.as_str().to_owned()).or_insert(now);
            }
        }
        if !received.is_empty() {
            source.ack(received).await?;
        }
        if timeout(Duration::ZERO, stopped.as_mut()).await.is_ok() {
            source.close().await;
            return Ok(());
        }
    }
}

async fn emit_and_wait<D: Database>(
    db: &D,
    topic: &str,
    shape: Shape,
    pace: Pace,
    seen: &Times,
) -> anyhow::Result<Latency> {
    let rows = Arc::new(shape.rows(topic, pace.messages + 1));
    // One by itself, so that everybody has connected and subscribed.
    let (committed, last) = (Times::default(), pace.messages as usize);
    Writer::new(db.store()).emit(&rows[last..]).await?;
    all_seen(seen, 1).await?;

    let mut writers = JoinSet::new();
    let (sender, due) = mpsc::channel::<u32>(pace.messages as usize);
    let due = Arc::new(tokio::sync::Mutex::new(due));
    for _ in 0..WRITERS {
        let (rows, due, committed) = (Arc::clone(&rows), Arc::clone(&due), Arc::clone(&committed));
        let mut writer = Writer::new(db.store());
        writers.spawn(async move {
            loop {
                let Some(n) = due.lock().await.recv().await else { return anyhow::Ok(()) };
                let row = &rows[n as usize];
                writer.emit(std::slice::from_ref(row)).await?;
                let now = Instant::now();
                if let Some(id) = &row.message.id {
                    committed.lock().unwrap_or_else(PoisonError::into_inner).insert(id.as_str().to_owned(), now);
                }
            }
        });
    }
    // There is room for all of them.
    let send = |n| {
        let _ = sender.try_send(n);
    };
    pace.run(|numbers| numbers.for_each(send)).await;
    drop(sender);
    while let Some(done) = writers.join_next().await {
        done??;
    }
    all_seen(seen, rows.len()).await?;

    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let committed = committed.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(committed.len() == last, "{} of {last} rows were committed", committed.len());
    // One that is seen before its commit has returned took no time.
    let micros = committed.iter().filter_map(|(id, at)| Some(seen.get(id)?.saturating_duration_since(*at)));
    Latency::of(micros.map(|took| took.as_micros() as u64).collect(), pace.per_second).context("nothing was measured")
}

async fn all_seen(seen: &Times, count: usize) -> anyhow::Result<()> {
    let number = || seen.lock().unwrap_or_else(PoisonError::into_inner).len();
    let started = Instant::now();
    while number() < count {
        ensure!(started.elapsed() < PATIENCE, "{} of {count} messages were seen after {PATIENCE:?}", number());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
