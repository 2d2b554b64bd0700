//! NATS JetStream: streams in files.

use std::future::IntoFuture as _;

use anyhow::Context as _;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, stream};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use oncebox::cloud_events::Spelling;
use oncebox::nats::{JetStreamSink, JetStreamSource, NewConsumer};
use oncebox::{Outgoing, Sink};

use super::{Broker, ByHand, SOURCE};

pub(in crate::bench) struct Nats {
    url: String,
    context: Context,
}

pub(in crate::bench) struct NatsByHand(Context);

impl Broker for Nats {
    const NAME: &'static str = "NATS JetStream";
    const DURABILITY: &'static str =
        "file stream, Nats-Msg-Id, publish ack; flushed as the server's sync_interval says";

    type Sink = JetStreamSink;
    type Source = JetStreamSource;
    type ByHand = NatsByHand;

    async fn connect(url: &str) -> anyhow::Result<Self> {
        // It says what is wrong with a URL or a server better than the client does, and repeats no secret.
        let probe = JetStreamSink::new(url);
        probe.open().await?;
        probe.close().await;
        let client = async_nats::connect(url).await.ok().context("cannot open a second connection to NATS")?;
        Ok(Self { url: url.to_owned(), context: jetstream::new(client) })
    }

    async fn make(&self, topic: &str) -> anyhow::Result<()> {
        let config =
            stream::Config { name: topic.to_owned(), subjects: vec![topic.to_owned()], ..stream::Config::default() };
        self.context.create_stream(config).await.context("cannot create a stream")?;
        Ok(())
    }

    async fn remove(&self, topic: &str) -> anyhow::Result<()> {
        self.context.delete_stream(topic).await.map(drop).context("cannot delete the stream")
    }

    async fn stored(&self, topic: &str) -> anyhow::Result<u64> {
        let stream = self.context.get_stream(topic).await.context("cannot count a stream")?;
        Ok(stream.cached_info().state.messages)
    }

    fn sink(&self, topic: &str) -> JetStreamSink {
        JetStreamSink::new(self.url.as_str()).stream(topic)
    }

    fn source(&self, topic: &str) -> JetStreamSource {
        JetStreamSource::new(self.url.as_str(), topic, "bench").create(NewConsumer::default())
    }

    async fn by_hand(&self, _topic: &str, publishers: usize) -> anyhow::Result<Vec<NatsByHand>> {
        Ok((0..publishers).map(|_| NatsByHand(self.context.clone())).collect())
    }
}

impl ByHand for NatsByHand {
    async fn publish(&mut self, batch: &[Outgoing]) -> anyhow::Result<()> {
        let mut confirms = Vec::with_capacity(batch.len());
        for Outgoing { topic, message } in batch {
            let mut headers = HeaderMap::new();
            for (name, value) in Spelling::NATS.write(message, Some(SOURCE)) {
                headers.insert(name.parse::<HeaderName>()?, std::str::from_utf8(&value)?.parse::<HeaderValue>()?);
            }
            let mut publish = PublishMessage::build().payload(message.payload.clone()).headers(headers);
            if let Some(id) = &message.id {
                publish = publish.message_id(id.as_str());
            }
            confirms.push(self.0.send_publish(topic.clone(), publish).await?);
        }
        for confirm in confirms {
            confirm.into_future().await?;
        }
        Ok(())
    }
}
