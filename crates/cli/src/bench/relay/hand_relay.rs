//! An outbox and its poller as they are written by hand, to tell what any relay costs on a machine from what ours does.

use std::sync::Arc;

use anyhow::{Context, ensure};
use oncebox::{Message, MessageId, Outgoing, SystemClock};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::broker::{Broker, ByHand};
use super::throughput::Publishing;
use crate::bench::database::{Database, HandOutbox, HandRow};

/// All rows lie in the table. The clock starts when the first few are through, and ends when it is empty. Answers how many
/// seconds the rows after the warm-up take.
pub(super) async fn run<D: Database, B: Broker>(
    db: &D,
    broker: &B,
    topic: &str,
    rows: &[Outgoing],
    (warm_up, publishing): (u32, Publishing),
) -> anyhow::Result<f64> {
    let batch = i64::try_from(publishing.batch)?;
    let mut pollers = Vec::new();
    for publisher in broker.by_hand(topic, publishing.publishers).await? {
        pollers.push(Poller { connection: db.connect().await?, publisher, topic: topic.to_owned(), batch });
    }
    let first = pollers.first_mut().context("there is no publisher")?;
    first.connection.fill_by_hand(rows).await?;
    let mut before = 0;
    while before < warm_up as usize {
        before += first.step().await?;
    }
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut poller in pollers {
        tasks.spawn(async move {
            let mut published = 0;
            loop {
                match poller.step().await? {
                    0 => return anyhow::Ok(published),
                    more => published += more,
                }
            }
        });
    }
    let mut published = 0;
    while let Some(done) = tasks.join_next().await {
        published += done??;
    }
    let seconds = started.elapsed().as_secs_f64();
    ensure!(before + published == rows.len(), "{} of {} rows were published", before + published, rows.len());
    // Batches do not end where the warm-up does.
    Ok(seconds * (rows.len() - warm_up as usize) as f64 / published as f64)
}

struct Poller<C, P> {
    connection: C,
    publisher: P,
    topic: String,
    batch: i64,
}

impl<C: HandOutbox, P: ByHand> Poller<C, P> {
    /// One transaction: take, publish, commit. Answers how many.
    async fn step(&mut self) -> anyhow::Result<usize> {
        self.connection.begin().await?;
        let rows = self.connection.take_by_hand(self.batch).await?;
        let outgoing = rows.into_iter().map(|row| message(row, &self.topic)).collect::<anyhow::Result<Vec<_>>>()?;
        if !outgoing.is_empty() {
            self.publisher.publish(&outgoing).await?;
        }
        self.connection.commit().await?;
        Ok(outgoing.len())
    }
}

fn message((id, order_key, payload): HandRow, topic: &str) -> anyhow::Result<Outgoing> {
    let mut message = Message::made_by(&SystemClock, "bench.row").with_id(MessageId::new(id)?).with_payload(payload);
    message.order_key = order_key;
    Ok(Outgoing { topic: topic.to_owned(), message: Arc::new(message) })
}
