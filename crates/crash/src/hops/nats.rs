//! JetStream: a stream for each topic, read in order by one durable consumer, and again by sequence numbers.

use std::time::Duration;

use anyhow::Context;
use async_nats::jetstream::{self, stream};
use oncebox::nats::{JetStreamSink, JetStreamSource, NewConsumer};

use super::line::{Line, Seen};

const DURABLE: &str = "hop";

/// The shortest that the adapter takes: what a killed process held comes again after it.
const ACK_WAIT: Duration = Duration::from_secs(1);

async fn context(line: &Line) -> anyhow::Result<jetstream::Context> {
    Ok(jetstream::new(async_nats::connect(&line.url).await.context("cannot reach NATS")?))
}

pub(super) async fn set_up(line: &Line) -> anyhow::Result<()> {
    let context = context(line).await?;
    for name in [&line.first, &line.second] {
        let config = stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
        context.create_stream(config).await?;
    }
    Ok(())
}

/// One message under way at a time, over all processes: that is how JetStream keeps order.
pub(super) fn source(line: &Line, topic: &str) -> JetStreamSource {
    JetStreamSource::new(line.url.as_str(), topic, DURABLE).ordered().create(NewConsumer::default().ack_wait(ACK_WAIT))
}

/// Without the stream's own deduplication: whatever is published twice is there twice.
pub(super) fn sink(line: &Line) -> JetStreamSink {
    JetStreamSink::new(line.url.as_str()).without_message_id().timeout(Duration::from_secs(5))
}

pub(super) async fn lag(line: &Line) -> anyhow::Result<u64> {
    let context = context(line).await?;
    let mut lag = 0;
    for name in [&line.first, &line.second] {
        let stream = context.get_stream(name).await?;
        lag += match stream.consumer_info(DURABLE).await {
            Ok(info) => info.num_pending + info.num_ack_pending as u64,
            Err(_) => stream.cached_info().state.messages,
        };
    }
    Ok(lag)
}

pub(super) async fn tap(line: &Line) -> anyhow::Result<Vec<Seen>> {
    let stream = context(line).await?.get_stream(&line.second).await?;
    let mut seen = Vec::new();
    for sequence in 1..=stream.cached_info().state.last_sequence {
        let message = stream.get_raw_message(sequence).await?;
        let id = message.headers.get("ce-id").context("a message without an id")?.to_string();
        seen.push(Seen { id, payload: message.payload.to_vec() });
    }
    Ok(seen)
}
