//! Kafka: two topics of several partitions, each read in a group, and again from the beginning.

use std::time::Duration;

use anyhow::Context;
use oncebox::kafka::{KafkaSink, KafkaSource, Start};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Headers;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};

use super::line::{Line, Seen};

const PARTITIONS: i32 = 4;

/// How long the broker may take to answer the matrix itself.
const ANSWER: Duration = Duration::from_secs(20);

fn config(line: &Line) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &line.url);
    config
}

fn group(topic: &str) -> String {
    format!("group-{topic}")
}

pub(super) async fn set_up(line: &Line) -> anyhow::Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(line).create()?;
    let topics = [&line.first, &line.second].map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)));
    let options = AdminOptions::new().operation_timeout(Some(ANSWER));
    for made in admin.create_topics(&topics, &options).await? {
        made.map_err(|(topic, code)| anyhow::anyhow!("topic {topic}: {code}"))?;
    }
    Ok(())
}

/// A process that takes the place of a dead one takes its partitions too, at once, because it has the same name in the
/// group; without a name they would be nobody's until the session of the dead one is over.
pub(super) fn source(line: &Line, topic: &str, name: &str) -> KafkaSource {
    KafkaSource::new(&line.url, group(topic), topic)
        .start_from(Start::Beginning)
        .answer(Duration::from_secs(5))
        .setting("group.instance.id", name)
        .setting("heartbeat.interval.ms", "300")
        .setting("session.timeout.ms", "6000")
        .setting("topic.metadata.refresh.interval.ms", "1000")
        .setting("reconnect.backoff.max.ms", "500")
}

pub(super) fn sink(line: &Line) -> KafkaSink {
    KafkaSink::new(&line.url)
        .timeout(Duration::from_secs(5))
        .answer(Duration::from_secs(5))
        .setting("reconnect.backoff.max.ms", "500")
}

pub(super) async fn lag(line: &Line) -> anyhow::Result<u64> {
    let line = line.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let mut lag = 0;
        for topic in [&line.first, &line.second] {
            let reader: BaseConsumer = config(&line).set("group.id", group(topic)).create()?;
            let mut list = TopicPartitionList::new();
            list.add_partition_range(topic, 0, PARTITIONS - 1);
            for partition in reader.committed_offsets(list, ANSWER)?.elements() {
                let (low, high) = reader.fetch_watermarks(topic, partition.partition(), ANSWER)?;
                let done = match partition.offset() {
                    Offset::Offset(offset) => offset,
                    _ => low,
                };
                lag += u64::try_from(high - done).unwrap_or(0);
            }
        }
        anyhow::Ok(lag)
    });
    asked.await.context("a task broke down")?
}

pub(super) async fn tap(line: &Line) -> anyhow::Result<Vec<Seen>> {
    let line = line.clone();
    let read = tokio::task::spawn_blocking(move || {
        let reader: BaseConsumer = config(&line).set("group.id", "tap").set("enable.auto.commit", "false").create()?;
        let mut seen = Vec::new();
        for partition in 0..PARTITIONS {
            let (low, high) = reader.fetch_watermarks(&line.second, partition, ANSWER)?;
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&line.second, partition, Offset::Offset(low))?;
            reader.assign(&list)?;
            let mut next = low;
            while next < high {
                let record = reader.poll(ANSWER).context("a partition ended before its end")??;
                next = record.offset() + 1;
                let id = record.headers().and_then(|headers| headers.iter().find(|header| header.key == "ce_id"));
                let id = id.and_then(|header| header.value).context("a message without an id")?;
                let payload = record.payload().unwrap_or_default().to_vec();
                seen.push(Seen { id: String::from_utf8_lossy(id).into_owned(), payload });
            }
        }
        anyhow::Ok(seen)
    });
    read.await.context("a task broke down")?
}
