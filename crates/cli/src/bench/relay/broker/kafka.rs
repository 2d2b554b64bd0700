//! Kafka: topics with a few partitions.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use oncebox::cloud_events::Spelling;
use oncebox::kafka::{KafkaSink, KafkaSource, Start};
use oncebox::{Outgoing, Sink};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use super::{Broker, ByHand, SOURCE};

pub(in crate::bench) struct Kafka {
    servers: String,
    admin: AdminClient<DefaultClientContext>,
    /// Asks how much is where.
    asks: FutureProducer,
}

pub(in crate::bench) struct KafkaByHand(FutureProducer);

/// How long a broker may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

const PARTITIONS: i32 = 4;

impl Kafka {
    fn config(&self) -> ClientConfig {
        config(&self.servers)
    }

    async fn asked<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&FutureProducer) -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<T> {
        let asks = self.asks.clone();
        tokio::task::spawn_blocking(move || ask(&asks)).await?
    }
}

fn config(servers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    config
}

impl Broker for Kafka {
    const NAME: &'static str = "Kafka";
    const DURABILITY: &'static str = "4 partitions, idempotent producer, acks=all";

    type Sink = KafkaSink;
    type Source = KafkaSource;
    type ByHand = KafkaByHand;

    async fn connect(url: &str) -> anyhow::Result<Self> {
        let servers = url.trim_start_matches("kafka://").trim_end_matches('/').to_owned();
        let probe = KafkaSink::new(&servers);
        probe.open().await?;
        probe.close().await;
        let (admin, asks) = (config(&servers).create()?, config(&servers).create()?);
        Ok(Self { servers, admin, asks })
    }

    async fn make(&self, topic: &str) -> anyhow::Result<()> {
        let new = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(-1));
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let made = self.admin.create_topics(&[new], &options).await.context("cannot create a topic")?;
        for answer in made {
            answer.map_err(|(_, code)| anyhow!("cannot create a topic: {code}"))?;
        }
        // The brokers learn of it a moment after they have said that it is there.
        let topic = topic.to_owned();
        let is_known = async || {
            let topic = topic.clone();
            self.asked(move |asks| {
                let metadata = asks.client().fetch_metadata(Some(&topic), ANSWER)?;
                Ok(metadata.topics().iter().any(|found| found.error().is_none() && !found.partitions().is_empty()))
            })
            .await
        };
        let known = async {
            while !is_known().await? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(ANSWER, known).await.context("a new topic does not appear at the brokers")?
    }

    async fn remove(&self, topic: &str) -> anyhow::Result<()> {
        self.admin.delete_topics(&[topic], &AdminOptions::new()).await.context("cannot delete the topic")?;
        Ok(())
    }

    async fn stored(&self, topic: &str) -> anyhow::Result<u64> {
        let topic = topic.to_owned();
        self.asked(move |asks| {
            let mut stored = 0;
            for partition in 0..PARTITIONS {
                let (low, high) = asks.client().fetch_watermarks(&topic, partition, ANSWER)?;
                stored += u64::try_from(high - low)?;
            }
            Ok(stored)
        })
        .await
    }

    fn sink(&self, _topic: &str) -> KafkaSink {
        KafkaSink::new(&self.servers)
    }

    fn source(&self, topic: &str) -> KafkaSource {
        KafkaSource::new(&self.servers, topic, topic).start_from(Start::Beginning)
    }

    async fn by_hand(&self, topic: &str, publishers: usize) -> anyhow::Result<Vec<KafkaByHand>> {
        let producer: FutureProducer = self
            .config()
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "1")
            .set("partitioner", "murmur2_random")
            .create()?;
        // Its first metadata and its producer id, which others got before they were measured.
        let (asks, topic) = (producer.clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || asks.client().fetch_metadata(Some(&topic), ANSWER).map(drop)).await??;
        Ok((0..publishers).map(|_| KafkaByHand(producer.clone())).collect())
    }
}

impl ByHand for KafkaByHand {
    async fn publish(&mut self, batch: &[Outgoing]) -> anyhow::Result<()> {
        let mut deliveries = Vec::with_capacity(batch.len());
        for Outgoing { topic, message } in batch {
            let written = Spelling::KAFKA.write(message, Some(SOURCE));
            let headers =
                written.iter().fold(OwnedHeaders::new_with_capacity(written.len()), |headers, (name, value)| {
                    headers.insert(Header { key: name, value: Some(value) })
                });
            let mut record = FutureRecord::<str, [u8]>::to(topic).payload(&message.payload).headers(headers);
            if let Some(key) = &message.order_key {
                record = record.key(key);
            }
            deliveries.push(self.0.send_result(record).map_err(|(error, _)| error)?);
        }
        for delivery in deliveries {
            delivery.await?.map_err(|(error, _)| error)?;
        }
        Ok(())
    }
}
