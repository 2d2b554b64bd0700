//! The brokers to measure on: each with topics of its own, the adapter, and its client as people use it by hand.

mod kafka;
mod nats;
mod rabbitmq;

use std::future::Future;

use oncebox::memory::MemoryStore;
use oncebox::{Outgoing, Sink, Source};

pub(in crate::bench) use self::kafka::Kafka;
pub(in crate::bench) use self::nats::Nats;
pub(in crate::bench) use self::rabbitmq::RabbitMq;

/// A broker, and topics on it that are gone after [`remove`](Self::remove).
pub(in crate::bench) trait Broker: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// What a confirmation says about a message, and what a topic is.
    const DURABILITY: &'static str;

    type Sink: Sink;
    type Source: Source<MemoryStore>;
    type ByHand: ByHand;

    /// Whether it is there. What it says of a wrong URL shows no secret.
    fn connect(url: &str) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// An empty topic.
    fn make(&self, topic: &str) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Removes a topic and what is in it.
    fn remove(&self, topic: &str) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// How many messages the broker has in a topic.
    fn stored(&self, topic: &str) -> impl Future<Output = anyhow::Result<u64>> + Send;

    /// The adapter, outbound.
    fn sink(&self, topic: &str) -> Self::Sink;

    /// The adapter, inbound: reads the topic from its beginning.
    fn source(&self, topic: &str) -> Self::Source;

    /// The client, without any of ours. One for each of those who publish side by side.
    fn by_hand(&self, topic: &str, publishers: usize)
    -> impl Future<Output = anyhow::Result<Vec<Self::ByHand>>> + Send;
}

/// A broker's client, as people use it who want speed and a confirmation for each message.
pub(in crate::bench) trait ByHand: Send + 'static {
    /// Sends all of them, then waits until each is confirmed.
    fn publish(&mut self, batch: &[Outgoing]) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The CloudEvents `source` of what is published by hand: the same as the sinks'.
const SOURCE: &str = "oncebox";
