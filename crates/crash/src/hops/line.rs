//! The broker as a row sees it: two topics of its own.

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::row::BrokerKind;
use super::{kafka, nats, rabbitmq};

/// Where the topics are, in a form that can be handed to a process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Line {
    pub(crate) broker: BrokerKind,
    pub(crate) url: String,
    /// What the generator sends to.
    pub(crate) first: String,
    /// What relays publish to.
    pub(crate) second: String,
}

/// One message that the auditor's own reader found on topic 2. They come in the order of their first publication, at least
/// those of one key.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) payload: Vec<u8>,
}

impl Line {
    pub(crate) fn new(broker: BrokerKind, url: &str, seed: u64) -> Self {
        let name = |what: &str| format!("hop-{what}-{seed}");
        Self { broker, url: url.to_owned(), first: name("first"), second: name("second") }
    }

    /// What relays call topic 2.
    pub(crate) fn second_topic(&self) -> String {
        match self.broker {
            // An exchange, so that the auditor's queue gets everything too.
            BrokerKind::RabbitMq => format!("{}/", self.second),
            BrokerKind::Nats | BrokerKind::Kafka => self.second.clone(),
        }
    }

    /// Creates both topics, and what the auditor reads the second by.
    pub(crate) async fn set_up(&self) -> anyhow::Result<()> {
        let made = match self.broker {
            BrokerKind::Nats => nats::set_up(self).await,
            BrokerKind::RabbitMq => rabbitmq::set_up(self).await,
            BrokerKind::Kafka => kafka::set_up(self).await,
        };
        made.context("cannot create the topics")
    }

    /// Messages of both topics that the consumers have not settled, as far as the broker tells.
    pub(crate) async fn lag(&self) -> anyhow::Result<u64> {
        match self.broker {
            BrokerKind::Nats => nats::lag(self).await,
            BrokerKind::RabbitMq => rabbitmq::lag(self).await,
            BrokerKind::Kafka => kafka::lag(self).await,
        }
    }

    /// All of topic 2, read by itself and without the adapters.
    pub(crate) async fn tap(&self) -> anyhow::Result<Vec<Seen>> {
        let seen = match self.broker {
            BrokerKind::Nats => nats::tap(self).await,
            BrokerKind::RabbitMq => rabbitmq::tap(self).await,
            BrokerKind::Kafka => kafka::tap(self).await,
        };
        seen.context("cannot read what was published")
    }
}
