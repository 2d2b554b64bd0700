//! Sends messages to topic 1 by the adapter's own sink, and writes down what it did.
//!
//! A producer that wants order sends the next message of a key when the one before is confirmed, as the relay does: what is
//! not confirmed may or may not be there, and is sent again before anything follows it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use anyhow::Context;
use oncebox::{Outgoing, Sink};

use super::line::Line;
use super::row::BrokerKind;
use super::{kafka, nats, rabbitmq};
use crate::feed::{Feed, Order};
use crate::generator::Demand;
use crate::history::Writer;

/// Sends more when fewer than this many wait.
const LOW_WATER: u64 = 60;

/// Messages that are made at a time.
const CHUNK: usize = 20;

const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn generate(line: Line, feed: Feed, history: Writer, demand: Arc<Demand>) -> anyhow::Result<()> {
    match line.broker {
        BrokerKind::Nats => send_all(nats::sink(&line), &line.first, feed, history, demand).await,
        BrokerKind::RabbitMq => send_all(rabbitmq::sink(&line), &line.first, feed, history, demand).await,
        BrokerKind::Kafka => send_all(kafka::sink(&line), &line.first, feed, history, demand).await,
    }
}

async fn send_all(
    sink: impl Sink,
    topic: &str,
    mut feed: Feed,
    mut history: Writer,
    demand: Arc<Demand>,
) -> anyhow::Result<()> {
    sink.open().await.context("the generator cannot reach the broker")?;
    while !demand.enough.load(SeqCst) {
        if demand.backlog.load(SeqCst) >= LOW_WATER {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let chunk = feed.chunk(CHUNK);
        for (order, _) in chunk.iter().filter(|(_, fresh)| *fresh) {
            history.issued(order)?;
        }
        demand.backlog.fetch_add(chunk.len() as u64, SeqCst);
        send(&sink, topic, chunk.into_iter().map(|(order, _)| order).collect(), &mut history).await?;
        demand.made.store(feed.made(), SeqCst);
    }
    send(&sink, topic, feed.rest(), &mut history).await?;
    sink.close().await;
    history.close()
}

/// In rounds, each with one message of a key, and each until all of it is confirmed.
async fn send(sink: &impl Sink, topic: &str, mut orders: Vec<Order>, history: &mut Writer) -> anyhow::Result<()> {
    while !orders.is_empty() {
        let mut keys = HashSet::new();
        let (mut round, later): (Vec<Order>, Vec<Order>) = orders.into_iter().partition(|order| keys.insert(order.key));
        orders = later;
        while !round.is_empty() {
            let outgoing =
                |order: &Order| anyhow::Ok(Outgoing { topic: topic.to_owned(), message: order.message()?.into() });
            let batch = round.iter().map(outgoing).collect::<anyhow::Result<Vec<_>>>()?;
            let answers = sink.publish(&batch).await;
            let mut again = Vec::new();
            for (order, answer) in round.into_iter().zip(answers) {
                history.sent(std::slice::from_ref(&order), answer.is_ok())?;
                if answer.is_err() {
                    again.push(order);
                }
            }
            round = again;
            if !round.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}
