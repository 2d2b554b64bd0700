//! Topics, groups and records for the tests.

#![allow(dead_code, reason = "each test file uses its part")]

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncebox_core::memory::MemoryStore;
use oncebox_core::{Clock, Delivery, Source, SystemClock};
use oncebox_kafka::{KafkaReceipt, KafkaSource, Start};
use oncebox_testkit::{eventually, skipped};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::OwnedHeaders;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

pub(crate) const ANSWER: Duration = Duration::from_secs(20);

/// A topic of a test's own, on the server that the environment names.
pub(crate) struct Place {
    pub(crate) servers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
}

/// The server's address, unless there is none: then `name` is noted as skipped.
pub(crate) fn servers_or_skip(name: &str) -> Option<String> {
    let servers = env::var("ONCEBOX_TEST_KAFKA_URL").ok();
    if servers.is_none() {
        skipped(&format!("kafka::{name}"));
    }
    servers
}

pub(crate) fn random(what: &str) -> String {
    format!("{what}-{}", SystemClock.id())
}

impl Place {
    pub(crate) async fn or_skip(name: &str, partitions: i32) -> Option<Self> {
        let servers = servers_or_skip(name)?;
        Some(Self::on(&servers, partitions, &[]).await)
    }

    pub(crate) async fn on(servers: &str, partitions: i32, settings: &[(&str, &str)]) -> Self {
        let place = Self { servers: servers.to_owned(), topic: random("topic"), group: random("group") };
        let mut topic = NewTopic::new(&place.topic, partitions, TopicReplication::Fixed(1));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let made = admin(servers).create_topics(&[topic], &AdminOptions::new().operation_timeout(Some(ANSWER))).await;
        assert!(made.unwrap().iter().all(Result::is_ok), "the topic was not created");
        // It is created before every broker knows.
        let (asks, name) = (producer(servers, &[]), place.topic.clone());
        let is_known = move || {
            let known = asks.client().fetch_metadata(Some(&name), ANSWER).unwrap();
            let topic = &known.topics()[0];
            std::future::ready(topic.error().is_none() && topic.partitions().iter().all(|p| p.leader() >= 0))
        };
        eventually("the topic is known", is_known).await;
        place
    }

    /// A source that hears of changes in its group soon. Not opened.
    pub(crate) fn source(&self) -> KafkaSource {
        self.careless_source().start_from(Start::Beginning)
    }

    /// The same with nothing said about where it begins.
    pub(crate) fn careless_source(&self) -> KafkaSource {
        KafkaSource::new(&self.servers, &self.group, &self.topic)
            .setting("heartbeat.interval.ms", "200")
            .setting("session.timeout.ms", "6000")
            .setting("topic.metadata.refresh.interval.ms", "1000")
    }

    pub(crate) async fn open(&self) -> KafkaSource {
        open(self.source()).await
    }

    /// Sends texts to a partition, in order.
    pub(crate) async fn send(&self, partition: i32, texts: impl IntoIterator<Item = String>) {
        let producer = producer(&self.servers, &[]);
        for text in texts {
            let headers = OwnedHeaders::new();
            let record = FutureRecord::<str, str>::to(&self.topic).partition(partition).payload(&text).headers(headers);
            producer.send(record, ANSWER).await.unwrap();
        }
    }

    /// The offset that the group has in a partition.
    pub(crate) async fn committed(&self, partition: i32) -> Option<i64> {
        let (servers, group, topic) = (self.servers.clone(), self.group.clone(), self.topic.clone());
        let asked = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer =
                ClientConfig::new().set("bootstrap.servers", servers).set("group.id", group).create().unwrap();
            let mut list = TopicPartitionList::new();
            list.add_partition(&topic, partition);
            let committed = consumer.committed_offsets(list, ANSWER).unwrap();
            committed.elements()[0].offset()
        });
        match asked.await.unwrap() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }

    /// What the group does, and how many are in it.
    pub(crate) fn group_state(&self) -> (String, usize) {
        let asks = producer(&self.servers, &[]);
        let listed = asks.client().fetch_group_list(Some(&self.group), ANSWER).unwrap();
        let group = listed.groups().first();
        group.map_or_else(Default::default, |group| (group.state().to_owned(), group.members().len()))
    }

    /// The offset after the last record of a partition.
    pub(crate) fn end(&self, partition: i32) -> i64 {
        let producer = producer(&self.servers, &[]);
        producer.client().fetch_watermarks(&self.topic, partition, ANSWER).unwrap().1
    }

    pub(crate) async fn await_committed(&self, partition: i32, offset: i64) {
        let awaited = format!("offset {offset} of partition {partition} is committed");
        eventually(&awaited, async || self.committed(partition).await == Some(offset)).await;
    }
}

pub(crate) async fn open(source: KafkaSource) -> KafkaSource {
    Source::<MemoryStore>::open(&source, &MemoryStore::new()).await.unwrap();
    source
}

pub(crate) fn admin(servers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", servers).create().unwrap()
}

pub(crate) fn producer(servers: &str, settings: &[(&str, &str)]) -> FutureProducer {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", servers).set("linger.ms", "0");
    for (name, value) in settings {
        client.set(*name, *value);
    }
    let producer: FutureProducer = client.create().unwrap();
    assert!(producer.client().fetch_cluster_id(ANSWER).is_some(), "the broker is there");
    producer
}

pub(crate) type Got = Vec<Delivery<KafkaReceipt>>;

pub(crate) async fn receive(source: &KafkaSource, max: usize, wait: Duration) -> Got {
    Source::<MemoryStore>::receive(source, max, wait).await.unwrap()
}

/// Receives until `count` came.
pub(crate) async fn receive_all(source: &KafkaSource, count: usize) -> Got {
    let mut got = Vec::new();
    eventually(&format!("{count} deliveries come"), async || {
        got.extend(receive(source, count - got.len(), Duration::from_millis(100)).await);
        got.len() >= count
    })
    .await;
    got
}

pub(crate) async fn ack(source: &KafkaSource, deliveries: Got) {
    Source::<MemoryStore>::ack(source, deliveries).await.unwrap();
}

pub(crate) async fn close(source: &KafkaSource) {
    Source::<MemoryStore>::close(source).await;
}

pub(crate) fn text<R>(delivery: &Delivery<R>) -> String {
    String::from_utf8_lossy(&delivery.message.payload).into_owned()
}

pub(crate) fn texts<R>(deliveries: &[Delivery<R>]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

/// The broker itself, to be killed. Whoever has it has it alone within its test program, so the tests that kill are a
/// program of their own. Runs again when this is dropped.
pub(crate) struct Broker {
    dir: PathBuf,
    is_down: bool,
    _alone: MutexGuard<'static, ()>,
}

impl Broker {
    pub(crate) async fn or_skip(name: &str) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let Some(dir) = env::var_os("ONCEBOX_TEST_KAFKA_DIR") else {
            skipped(&format!("kafka::{name}"));
            return None;
        };
        Some(Self { dir: dir.into(), is_down: false, _alone: ALONE.lock().await })
    }

    pub(crate) async fn kill(&mut self) {
        self.is_down = true;
        script("kill", &self.dir).await;
    }

    pub(crate) async fn restart(&mut self) {
        script("restart", &self.dir).await;
        self.is_down = false;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.is_down {
            let _ = std::process::Command::new(script_path()).arg("restart").arg(&self.dir).output();
        }
    }
}

fn script_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka")
}

async fn script(verb: &str, dir: &Path) -> String {
    let ran = Command::new(script_path()).arg(verb).arg(dir).output().await.unwrap();
    assert!(ran.status.success(), "scripts/kafka {verb}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

/// Runs a program of `tests/foreign`, with the client of others. `false` if it can't be had: then `name` is noted as skipped.
pub(crate) async fn foreign(name: &str, program: &str, arguments: &[&str]) -> bool {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(here.join("../../scripts/foreign"));
    let ran = command.arg("run").arg(here.join("tests/foreign").join(program)).args(arguments).output().await.unwrap();
    if ran.status.code() == Some(3) {
        skipped(&format!("kafka::{name}"));
        return false;
    }
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    true
}
