//! What brokers say about how long a message can come back from them.

use super::{Lasts, WayBack};
#[cfg(feature = "brokers")]
use crate::file::KafkaSettings;
use crate::file::{ConsumerSpec, Pipeline};
use crate::place::Origin;

/// What a consumer's broker told.
#[derive(Clone, Debug)]
pub(crate) enum Facts {
    /// There is none, or it was not asked.
    None,
    /// It could not be asked.
    #[cfg_attr(not(feature = "brokers"), allow(dead_code, reason = "then nobody is asked"))]
    Silent(String),
    /// A topic of Kafka.
    #[cfg(feature = "brokers")]
    Kafka(oncebox::kafka::TopicFacts),
    /// A stream of NATS.
    #[cfg(feature = "brokers")]
    Nats(oncebox::nats::StreamFacts),
}

impl Facts {
    /// Asks the broker of a consumer. One that does not answer is not an error: the consumer waits for it too.
    #[cfg(feature = "brokers")]
    pub(crate) async fn ask(spec: &ConsumerSpec, pipeline: &Pipeline) -> Self {
        let KafkaSettings(settings) = &pipeline.kafka;
        let told = match &spec.from {
            Origin::Queue(_) | Origin::RabbitMq { .. } => return Self::None,
            Origin::Kafka { servers, topic } => {
                oncebox::kafka::inspect(servers, topic, settings).await.map(Self::Kafka)
            }
            Origin::Nats { url, stream, durable } => {
                let durable = durable.as_deref().unwrap_or(&spec.name);
                oncebox::nats::inspect(url.as_str(), stream, durable, spec.order_by.is_some()).await.map(Self::Nats)
            }
        };
        told.unwrap_or_else(|error| Self::Silent(error.to_string()))
    }

    /// This build asks no broker.
    #[cfg(not(feature = "brokers"))]
    pub(crate) async fn ask(_: &ConsumerSpec, _: &Pipeline) -> Self {
        Self::None
    }

    /// The ways back through the broker. What the file states takes the place of what the broker says.
    pub(super) fn ways(&self, spec: &ConsumerSpec) -> Vec<WayBack> {
        let mut ways = Vec::new();
        let what = "the broker keeps it";
        if let Some(stated) = spec.retention.broker {
            ways.push(WayBack { what, lasts: Lasts::For(stated), says: "`broker_retention` of the file".to_owned() });
        } else if let Some((lasts, says)) = self.keeps(spec) {
            ways.push(WayBack { what, lasts, says });
        }
        #[cfg(feature = "brokers")]
        if let (Self::Nats(facts), Origin::Nats { .. }) = (self, &spec.from)
            && let Some(ack_wait) = facts.ack_wait
        {
            let says = "ack_wait of its consumer".to_owned();
            ways.push(WayBack { what: "a delivery is not settled in time", lasts: Lasts::For(ack_wait), says });
        }
        ways
    }

    fn keeps(&self, spec: &ConsumerSpec) -> Option<(Lasts, String)> {
        match (self, &spec.from) {
            (Self::Silent(reason), _) => Some((Lasts::Unknown, reason.clone())),
            // A queue lets go of what is acknowledged. How long the rest may wait there is not for a client to see.
            (Self::None, Origin::RabbitMq { .. }) => Some((
                Lasts::Unknown,
                "RabbitMQ does not tell the TTL of a queue; state it with `broker_retention`".to_owned(),
            )),
            (Self::None, _) => None,
            #[cfg(feature = "brokers")]
            (Self::Kafka(facts), Origin::Kafka { topic, .. }) => {
                Some((lasts(facts.retention), format!("retention.ms of topic {topic}")))
            }
            #[cfg(feature = "brokers")]
            (Self::Nats(facts), Origin::Nats { stream, .. }) => {
                Some((lasts(facts.max_age), format!("max_age of stream {stream}")))
            }
            #[cfg(feature = "brokers")]
            (Self::Kafka(_) | Self::Nats(_), _) => None,
        }
    }
}

#[cfg(feature = "brokers")]
fn lasts(time: Option<std::time::Duration>) -> Lasts {
    time.map_or(Lasts::Forever, Lasts::For)
}
