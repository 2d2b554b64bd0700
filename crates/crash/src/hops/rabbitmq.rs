//! RabbitMQ: a quorum queue with a single active consumer for each topic; the second hangs behind an exchange, and so does
//! a queue of the auditor's own.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt as _;
use lapin::options::{BasicConsumeOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use oncebox::rabbitmq::{QueueKind, Rabbit, RabbitSink, RabbitSource};

use super::line::{Line, Seen};

/// Each lost connection counts as a return; beyond this many the broker drops a message without a word.
const DELIVERIES_MAX: i32 = 100_000;

/// How long the broker may take to give the next message that it says it has.
const ANSWER: Duration = Duration::from_secs(20);

async fn open(line: &Line) -> anyhow::Result<(Connection, Channel)> {
    let connection = Connection::connect(&line.url, ConnectionProperties::default()).await;
    // Its own words may quote the URL.
    let connection = connection.ok().context("cannot reach RabbitMQ")?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

fn tap_queue(line: &Line) -> String {
    format!("{}-tap", line.second)
}

pub(super) async fn set_up(line: &Line) -> anyhow::Result<()> {
    let (_connection, channel) = open(line).await?;
    for (queue, single) in [(line.first.clone(), true), (line.second.clone(), true), (tap_queue(line), false)] {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERIES_MAX));
        if single {
            arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(queue.as_str().into(), options, arguments).await?;
    }
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let exchange = line.second.as_str();
    channel.exchange_declare(exchange.into(), ExchangeKind::Fanout, options, FieldTable::default()).await?;
    for queue in [line.second.clone(), tap_queue(line)] {
        let options = QueueBindOptions::default();
        channel.queue_bind(queue.as_str().into(), exchange.into(), "".into(), options, FieldTable::default()).await?;
    }
    Ok(())
}

fn rabbit(line: &Line) -> Rabbit {
    Rabbit::new(line.url.as_str())
        .connect_timeout(Duration::from_secs(5))
        .reconnect_pause_max(Duration::from_millis(500))
}

pub(super) fn source(line: &Line, topic: &str) -> RabbitSource {
    rabbit(line).source(topic).kind(QueueKind::Quorum).single_active().prefetch(24)
}

pub(super) fn sink(line: &Line) -> RabbitSink {
    rabbit(line).sink().confirm_timeout(Duration::from_secs(5))
}

/// What is with a consumer is not counted; AMQP does not tell.
pub(super) async fn lag(line: &Line) -> anyhow::Result<u64> {
    let (_connection, channel) = open(line).await?;
    let mut lag = 0;
    for queue in [&line.first, &line.second] {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await?;
        lag += u64::from(queue.message_count());
    }
    Ok(lag)
}

/// What is in the auditor's queue, and then what nobody has read of the topic's own: a broker that was killed may come back
/// without one of the bindings, and what a relay published is there if either queue has it.
pub(super) async fn tap(line: &Line) -> anyhow::Result<Vec<Seen>> {
    let (_connection, channel) = open(line).await?;
    let mut seen: Vec<Seen> = Vec::new();
    for queue in [tap_queue(line), line.second.clone()] {
        let known: HashSet<String> = seen.iter().map(|one| one.id.clone()).collect();
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let there = channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await?;
        let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
        let name = format!("{queue}-read");
        let mut read =
            channel.basic_consume(queue.as_str().into(), name.as_str().into(), options, FieldTable::default()).await?;
        for _ in 0..there.message_count() {
            let next = tokio::time::timeout(ANSWER, read.next()).await.context("RabbitMQ gives less than it has")?;
            let delivery = next.context("RabbitMQ ended a consumer")??;
            let id = delivery.properties.message_id().as_ref().context("a message without an id")?.to_string();
            if !known.contains(&id) {
                seen.push(Seen { id, payload: delivery.data });
            }
        }
    }
    Ok(seen)
}
