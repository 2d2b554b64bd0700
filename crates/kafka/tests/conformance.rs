//! The suites of the test kit.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

mod source {
    use std::sync::Arc;
    use std::time::Duration;

    use oncebox_core::Message;
    use oncebox_core::cloud_events::Spelling;
    use oncebox_core::memory::MemoryStore;
    use oncebox_kafka::KafkaSource;
    use oncebox_testkit::ManualClock;
    use oncebox_testkit::source::SourceFixture;
    use rdkafka::message::{Header, OwnedHeaders};
    use rdkafka::producer::FutureRecord;
    use tokio::sync::OnceCell;

    use crate::common::{ANSWER, Place, open, producer};

    #[derive(Default)]
    struct Kafka(OnceCell<Place>);

    impl SourceFixture for Kafka {
        type Store = MemoryStore;
        type Source = KafkaSource;

        async fn fresh(&self, _clock: Arc<ManualClock>) -> Option<(MemoryStore, KafkaSource)> {
            // The suite notes what is skipped by itself.
            let servers = std::env::var("ONCEBOX_TEST_KAFKA_URL").ok()?;
            let place = self.0.get_or_init(async || Place::on(&servers, 2, &[]).await).await;
            Some((MemoryStore::new(), place.source()))
        }

        async fn send(&self, _store: &MemoryStore, _source: &KafkaSource, messages: Vec<Message>) {
            let place = self.0.get().unwrap();
            let producer = producer(&place.servers, &[]);
            for message in messages {
                let headers = Spelling::KAFKA.write(&message, None);
                let headers = headers.iter().fold(OwnedHeaders::new(), |owned, (name, value)| {
                    owned.insert(Header { key: name, value: Some(value) })
                });
                // The cases have keys `a` and `b`, which must not share a partition; without a key, one partition.
                let partition = message.order_key.as_ref().map_or(0, |key| i32::from(key.as_bytes()[0] % 2));
                let record = FutureRecord::<str, [u8]>::to(&place.topic).partition(partition).headers(headers);
                producer.send(record.payload(&message.payload), ANSWER).await.unwrap();
            }
        }

        async fn after_a_crash(&self, _store: &MemoryStore, source: KafkaSource) -> Option<KafkaSource> {
            drop(source);
            Some(open(self.0.get().unwrap().source()).await)
        }

        async fn advance(&self, _source: &KafkaSource, _clock: &ManualClock, by: Duration) {
            // A delay runs by real time.
            tokio::time::sleep(by).await;
        }
    }

    oncebox_testkit::source_suite!(Kafka::default());
}

mod sink {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use bytes::Bytes;
    use oncebox_core::cloud_events::Spelling;
    use oncebox_core::{Message, Timestamp};
    use oncebox_kafka::KafkaSink;
    use oncebox_testkit::sink::SinkFixture;
    use rdkafka::consumer::{BaseConsumer, Consumer};
    use rdkafka::message::Headers as _;
    use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};

    use crate::common::{ANSWER, Place, random};

    const PARTITIONS: i32 = 2;

    #[derive(Default)]
    struct Kafka {
        servers: Mutex<String>,
        read: Mutex<HashMap<i32, i64>>,
    }

    impl SinkFixture for Kafka {
        type Sink = KafkaSink;

        async fn fresh(&self) -> Option<(KafkaSink, String)> {
            let servers = std::env::var("ONCEBOX_TEST_KAFKA_URL").ok()?;
            servers.clone_into(&mut self.servers.lock().unwrap());
            let place = Place::on(&servers, PARTITIONS, &[]).await;
            Some((KafkaSink::new(servers), place.topic))
        }

        fn missing_topic(&self) -> String {
            random("missing")
        }

        fn too_large(&self) -> Option<usize> {
            Some(2_000_000)
        }

        async fn arrived(&self, topic: &str) -> Vec<Message> {
            let servers = self.servers.lock().unwrap().clone();
            let mut read = self.read.lock().unwrap();
            let reader: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", servers)
                .set("group.id", "reads-without-committing")
                .set("enable.auto.commit", "false")
                .create()
                .unwrap();
            let mut messages = Vec::new();
            for partition in 0..PARTITIONS {
                let from = read.entry(partition).or_default();
                let (_, end) = reader.fetch_watermarks(topic, partition, ANSWER).unwrap();
                let mut list = TopicPartitionList::new();
                list.add_partition_offset(topic, partition, Offset::Offset(*from)).unwrap();
                reader.assign(&list).unwrap();
                while *from < end {
                    let Some(record) = reader.poll(Duration::from_millis(100)) else { continue };
                    let record = record.unwrap();
                    *from = record.offset() + 1;
                    let pairs = record.headers().into_iter().flat_map(|headers| headers.iter());
                    let headers: Vec<(&str, &[u8])> =
                        pairs.map(|header| (header.key, header.value.unwrap_or_default())).collect();
                    let payload = Bytes::copy_from_slice(record.payload().unwrap_or_default());
                    let message = Spelling::KAFKA.read(headers, payload, "unnamed", Timestamp::UNIX_EPOCH);
                    assert_eq!(record.key(), message.order_key.as_ref().map(String::as_bytes));
                    messages.push(message);
                }
            }
            messages
        }
    }

    oncebox_testkit::sink_suite!(Kafka::default());
}
