//! One sink for every broker, so that the engine is compiled once.

use oncebox::kafka::KafkaSink;
use oncebox::nats::JetStreamSink;
use oncebox::rabbitmq::{Rabbit, RabbitSink};
use oncebox::sink::SinkCapabilities;
use oncebox::{Outgoing, Sink, SinkError};

use crate::file::KafkaSettings;
use crate::place::Destination;

/// Where messages go.
pub(crate) enum Outlet {
    RabbitMq(Box<RabbitSink>),
    Nats(Box<JetStreamSink>),
    Kafka(Box<KafkaSink>),
}

impl Outlet {
    pub(crate) fn new(to: &Destination, kafka: &KafkaSettings) -> Self {
        match to {
            Destination::RabbitMq(url) => Self::RabbitMq(Box::new(Rabbit::new(url).sink())),
            Destination::Nats(url) => Self::Nats(Box::new(JetStreamSink::new(url.as_str()))),
            Destination::Kafka(servers) => {
                let sink = kafka.0.iter().fold(KafkaSink::new(servers), |sink, (name, value)| sink.setting(name, value));
                Self::Kafka(Box::new(sink))
            }
        }
    }
}

impl Sink for Outlet {
    fn capabilities(&self) -> SinkCapabilities {
        match self {
            Self::RabbitMq(sink) => sink.capabilities(),
            Self::Nats(sink) => sink.capabilities(),
            Self::Kafka(sink) => sink.capabilities(),
        }
    }

    async fn open(&self) -> Result<(), SinkError> {
        match self {
            Self::RabbitMq(sink) => sink.open().await,
            Self::Nats(sink) => sink.open().await,
            Self::Kafka(sink) => sink.open().await,
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        match self {
            Self::RabbitMq(sink) => sink.publish(batch).await,
            Self::Nats(sink) => sink.publish(batch).await,
            Self::Kafka(sink) => sink.publish(batch).await,
        }
    }

    async fn close(&self) {
        match self {
            Self::RabbitMq(sink) => sink.close().await,
            Self::Nats(sink) => sink.close().await,
            Self::Kafka(sink) => sink.close().await,
        }
    }
}
