//! One sink for every broker, so that the engine is compiled once.

use std::collections::HashMap;

#[cfg(feature = "brokers")]
use oncebox::kafka::KafkaSink;
#[cfg(feature = "brokers")]
use oncebox::nats::JetStreamSink;
use oncebox::queue::QueueStore;
#[cfg(feature = "brokers")]
use oncebox::rabbitmq::{Rabbit, RabbitSink};
use oncebox::sink::SinkCapabilities;
use oncebox::{Outgoing, Queue, Sink, SinkError, SinkErrorKind, StoreErrorKind};

use crate::file::{KafkaSettings, Pipeline};
use crate::place::{Destination, Origin};

/// Where messages go.
pub(crate) enum Outlet<S> {
    #[cfg(feature = "brokers")]
    RabbitMq(Box<RabbitSink>),
    #[cfg(feature = "brokers")]
    Nats(Box<JetStreamSink>),
    #[cfg(feature = "brokers")]
    Kafka(Box<KafkaSink>),
    /// Queues of the store, those that keep order by name.
    Queues { store: S, ordered: Vec<String> },
}

impl<S: QueueStore> Outlet<S> {
    /// The sink of a broker, which needs no store; `None`: messages go to queues of the store.
    #[cfg(feature = "brokers")]
    pub(crate) fn broker(to: &Destination, kafka: &KafkaSettings) -> Result<Option<Self>, String> {
        Ok(match to {
            Destination::RabbitMq(url) => Some(Self::RabbitMq(Box::new(Rabbit::new(url).sink()))),
            Destination::Nats(url) => Some(Self::Nats(Box::new(JetStreamSink::new(url.as_str())))),
            Destination::Kafka(servers) => {
                let set = |sink: KafkaSink, (name, value): &(String, String)| sink.setting(name, value);
                Some(Self::Kafka(Box::new(kafka.0.iter().fold(KafkaSink::new(servers), set))))
            }
            Destination::Queue => None,
        })
    }

    /// This build publishes to no broker.
    #[cfg(not(feature = "brokers"))]
    pub(crate) fn broker(to: &Destination, _: &KafkaSettings) -> Result<Option<Self>, String> {
        match to {
            Destination::RabbitMq(_) | Destination::Nats(_) | Destination::Kafka(_) => {
                Err(crate::feed::NO_BROKERS.to_owned())
            }
            Destination::Queue => Ok(None),
        }
    }

    pub(crate) fn new(to: &Destination, store: &S, pipeline: &Pipeline) -> Result<Self, String> {
        if let Some(broker) = Self::broker(to, &pipeline.kafka)? {
            return Ok(broker);
        }
        let ordered = pipeline.consumers.iter().filter(|consumer| consumer.order_by.is_some());
        let ordered = ordered.filter_map(|consumer| match &consumer.from {
            Origin::Queue(name) => Some(name.clone()),
            _ => None,
        });
        Ok(Self::Queues { store: store.clone(), ordered: ordered.collect() })
    }
}

impl<S: QueueStore> Sink for Outlet<S> {
    fn capabilities(&self) -> SinkCapabilities {
        match self {
            #[cfg(feature = "brokers")]
            Self::RabbitMq(sink) => sink.capabilities(),
            #[cfg(feature = "brokers")]
            Self::Nats(sink) => sink.capabilities(),
            #[cfg(feature = "brokers")]
            Self::Kafka(sink) => sink.capabilities(),
            Self::Queues { .. } => SinkCapabilities::none("queue"),
        }
    }

    async fn open(&self) -> Result<(), SinkError> {
        match self {
            #[cfg(feature = "brokers")]
            Self::RabbitMq(sink) => sink.open().await,
            #[cfg(feature = "brokers")]
            Self::Nats(sink) => sink.open().await,
            #[cfg(feature = "brokers")]
            Self::Kafka(sink) => sink.open().await,
            Self::Queues { .. } => Ok(()),
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        match self {
            #[cfg(feature = "brokers")]
            Self::RabbitMq(sink) => sink.publish(batch).await,
            #[cfg(feature = "brokers")]
            Self::Nats(sink) => sink.publish(batch).await,
            #[cfg(feature = "brokers")]
            Self::Kafka(sink) => sink.publish(batch).await,
            Self::Queues { store, ordered } => enqueue(store, ordered, batch).await,
        }
    }

    async fn close(&self) {
        match self {
            #[cfg(feature = "brokers")]
            Self::RabbitMq(sink) => sink.close().await,
            #[cfg(feature = "brokers")]
            Self::Nats(sink) => sink.close().await,
            #[cfg(feature = "brokers")]
            Self::Kafka(sink) => sink.close().await,
            Self::Queues { .. } => {}
        }
    }
}

/// One transaction for each queue: all of its messages are there, or none.
async fn enqueue<S: QueueStore>(store: &S, ordered: &[String], batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
    let mut by_topic: HashMap<&str, Vec<&Outgoing>> = HashMap::new();
    for outgoing in batch {
        by_topic.entry(&outgoing.topic).or_default().push(outgoing);
    }
    let mut ended: HashMap<&str, Result<(), SinkError>> = HashMap::new();
    for (topic, messages) in by_topic {
        let attempted = || format!("publish to queue {topic}");
        let is_ordered = ordered.iter().any(|name| name == topic);
        let queue = if is_ordered { Queue::ordered(store.clone(), topic) } else { Queue::new(store.clone(), topic) };
        let sent = match queue {
            Err(error) => Err(SinkError::new(SinkErrorKind::Refused, attempted(), error.to_string())),
            Ok(queue) => {
                let sent = queue.send(messages.iter().map(|outgoing| (*outgoing.message).clone())).await;
                sent.map_err(|error| {
                    let kind = match error.kind() {
                        StoreErrorKind::Configuration => SinkErrorKind::Configuration,
                        StoreErrorKind::Refused => SinkErrorKind::Refused,
                        _ => SinkErrorKind::Unavailable,
                    };
                    SinkError::new(kind, attempted(), error.to_string())
                })
            }
        };
        ended.insert(topic, sent);
    }
    let lost = || Err(SinkError::new(SinkErrorKind::Unavailable, "publish", "no answer"));
    batch.iter().map(|outgoing| ended.get(outgoing.topic.as_str()).cloned().unwrap_or_else(lost)).collect()
}
