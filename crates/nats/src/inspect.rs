//! What a stream is like, for those who check a set-up.

use std::time::Duration;

use async_nats::jetstream::stream::StorageType;
use oncebox_core::SourceError;

use crate::error;
use crate::link::Link;
use crate::server::Server;

/// What the server says of a stream and of a consumer on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamFacts {
    /// How long messages stay; `None`: until something else removes them.
    pub max_age: Option<Duration>,
    /// How many servers keep it.
    pub replicas: usize,
    /// It is kept in memory, and is gone with the server.
    pub in_memory: bool,
    /// How long a delivery stays with whoever received it; `None`: the consumer is not there yet.
    pub ack_wait: Option<Duration>,
    /// How many deliveries may be unsettled at a time; `None`: the consumer is not there yet, or no number is set.
    pub ack_pending_max: Option<u64>,
}

/// Asks the server about a stream, and about a durable consumer if there is one of this name.
pub async fn inspect(server: impl Into<Server>, stream: &str, durable: &str) -> Result<StreamFacts, SourceError> {
    let server = server.into();
    let attempted = || format!("look at the stream {stream} on NATS at {server}");
    let link = Link::open(&server).await.map_err(|trouble| trouble.in_source(attempted()))?;
    let found = link.context.get_stream(stream).await;
    let found = found.map_err(|error| error::stream(&error.kind()).in_source(attempted()))?;
    let config = &found.cached_info().config;
    let mut facts = StreamFacts {
        max_age: (!config.max_age.is_zero()).then_some(config.max_age),
        replicas: config.num_replicas,
        in_memory: config.storage == StorageType::Memory,
        ..StreamFacts::default()
    };
    if let Ok(consumer) = found.consumer_info(durable).await {
        facts.ack_wait = Some(consumer.config.ack_wait);
        facts.ack_pending_max = u64::try_from(consumer.config.max_ack_pending).ok().filter(|max| *max > 0);
    }
    link.close().await;
    Ok(facts)
}
