//! A broker that is away for a while, under a relay: the outbox grows, the log says so once, and all of it is published
//! when the broker is back. In a file of its own, because it takes the servers away from everyone.
//!
//! `ONCEBOX_TEST_AWAY_SECONDS` makes it as long as you like.

#![cfg(all(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use oncebox::kafka::{KafkaSink, KafkaSource, Start};
use oncebox::memory::MemoryStore;
use oncebox::nats::{JetStreamSink, JetStreamSource, NewConsumer};
use oncebox::outbox::Outbox;
use oncebox::rabbitmq::{QueueKind, Rabbit};
use oncebox::sqlite::Sqlite;
use oncebox::{
    Clock, Ended, Message, MessageId, Outgoing, Relay, Session, Sink, Source, Store, SystemClock, Transaction,
};
use oncebox_testkit::{eventually, eventually_within, skipped};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use tokio::sync::watch;
use tokio::time::Instant;

const BEFORE: usize = 10;
const MEANWHILE: usize = 200;

/// A server that can be killed, and a destination on it.
struct Broker {
    script: &'static str,
    folder: String,
    topic: String,
}

impl Broker {
    /// Its URL too; or `None`, noted as skipped.
    fn or_skip(script: &'static str) -> Option<(Self, String)> {
        let variable = |what: &str| std::env::var(format!("ONCEBOX_TEST_{}_{what}", script.to_uppercase())).ok();
        let (Some(url), Some(folder)) = (variable("URL"), variable("DIR")) else {
            skipped(&format!("broker_away::{script}"));
            return None;
        };
        Some((Self { script, folder, topic: format!("away{}", SystemClock.id().simple()) }, url))
    }

    async fn run(&self, verb: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(self.script);
        let output = tokio::process::Command::new(script).args([verb, &self.folder]).output().await.unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// How long it is away.
fn away() -> Duration {
    let seconds = std::env::var("ONCEBOX_TEST_AWAY_SECONDS").ok().map_or(3, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

/// How long a sink waits for a confirmation: not longer than its broker is away, or it would not notice.
fn patience() -> Duration {
    away().min(Duration::from_secs(30))
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Lines of our own that hold `text`.
    fn lines(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains("oncebox") && line.contains(text)).map(str::to_owned).collect()
    }
}

async fn emit(store: &Sqlite, topic: &str, numbers: std::ops::Range<usize>) {
    let rows: Vec<Outgoing> = numbers
        .map(|n| {
            let message = Message::new("noted").with_id(MessageId::new(format!("{topic}-{n}")).unwrap());
            let message = message.with_order_key(format!("{}", n % 7)).with_payload(n.to_string());
            Outgoing { topic: topic.to_owned(), message: Arc::new(message) }
        })
        .collect();
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    tx.emit(&rows).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

async fn unsent(store: &Sqlite) -> usize {
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let unsent = tx.outbox_backlog().await.unwrap().unsent;
    tx.rollback().await;
    usize::try_from(unsent).unwrap()
}

/// What is in the destination.
async fn read(source: impl Source<MemoryStore>, count: usize) -> BTreeSet<String> {
    let store = MemoryStore::new();
    source.open(&store).await.unwrap();
    let seen = Mutex::new(BTreeSet::new());
    eventually("everything arrived", async || {
        let received = source.receive(1000, Duration::from_millis(200)).await.unwrap();
        let ids = received.iter().filter_map(|delivery| delivery.message.id.as_ref());
        seen.lock().unwrap().extend(ids.map(|id| id.as_str().to_owned()));
        source.ack(received).await.unwrap();
        seen.lock().unwrap().len() >= count
    })
    .await;
    source.close().await;
    seen.into_inner().unwrap()
}

async fn broker_away<K: Sink>(broker: &Broker, sink: K, log: &Log) {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("shop.db").display().to_string()).await.unwrap();
    let away = away();
    let relay = Relay::new(store.clone(), sink);
    let stats = relay.stats();
    let (stop, mut stopped) = watch::channel(false);
    let story = async {
        emit(&store, &broker.topic, 0..BEFORE).await;
        eventually("what came before is published", async || unsent(&store).await == 0).await;
        broker.run("kill").await;
        let since = Instant::now();
        for n in BEFORE..BEFORE + MEANWHILE {
            emit(&store, &broker.topic, n..n + 1).await;
        }
        let long = away + Duration::from_secs(60);
        eventually_within(long, "it was away for long enough, and that was noticed", async || {
            since.elapsed() >= away && stats.snapshot().waiting_for.is_some()
        })
        .await;
        assert_eq!(unsent(&store).await, MEANWHILE, "the outbox grows");
        broker.run("restart").await;
        eventually_within(long, "the outbox drains", async || unsent(&store).await == 0).await;
        eventually("nothing is waited for", async || stats.snapshot().waiting_for.is_none()).await;
        stop.send(true).unwrap();
    };
    let ended = async {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let (relay, ()) = tokio::join!(relay.run(ended), story);
    relay.unwrap();
    let said = |text: &str| log.lines(text).into_iter().filter(|line| line.contains(&broker.topic)).count();
    assert_eq!(said("cannot publish to"), 1, "{:#?}", log.lines(&broker.topic));
    assert_eq!(said("are published again"), 1, "{:#?}", log.lines(&broker.topic));
    assert_eq!(log.lines(&broker.topic).len(), 2, "{:#?}", log.lines(&broker.topic));
}

fn all(broker: &Broker) -> BTreeSet<String> {
    (0..BEFORE + MEANWHILE).map(|n| format!("{}-{n}", broker.topic)).collect()
}

async fn on_rabbitmq(log: &Log) {
    let Some((broker, url)) = Broker::or_skip("rabbitmq") else { return };
    let rabbit = Rabbit::new(url);
    let queue = || rabbit.source(broker.topic.as_str()).declare(QueueKind::Classic);
    let created = queue();
    created.open(&MemoryStore::new()).await.unwrap();
    Source::<MemoryStore>::close(&created).await;
    broker_away(&broker, rabbit.sink(), log).await;
    assert_eq!(read(queue(), BEFORE + MEANWHILE).await, all(&broker));
}

async fn on_nats(log: &Log) {
    let Some((broker, url)) = Broker::or_skip("nats") else { return };
    let client = async_nats::connect(&url).await.unwrap();
    let (name, subjects) = (broker.topic.clone(), vec![broker.topic.clone()]);
    let stream = stream::Config { name, subjects, ..stream::Config::default() };
    jetstream::new(client).create_stream(stream).await.unwrap();
    broker_away(&broker, JetStreamSink::new(url.as_str()).timeout(patience()), log).await;
    let source = JetStreamSource::new(url.as_str(), broker.topic.as_str(), "d").create(NewConsumer::default());
    assert_eq!(read(source, BEFORE + MEANWHILE).await, all(&broker));
}

async fn on_kafka(log: &Log) {
    let Some((broker, url)) = Broker::or_skip("kafka") else { return };
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", &url).create().unwrap();
    let topic = NewTopic::new(&broker.topic, 3, TopicReplication::Fixed(1));
    let created = admin.create_topics(&[topic], &AdminOptions::new()).await.unwrap();
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    broker_away(&broker, KafkaSink::new(url.as_str()).timeout(patience()), log).await;
    let source = KafkaSource::new(url.as_str(), "g", broker.topic.as_str()).start_from(Start::Beginning);
    assert_eq!(read(source, BEFORE + MEANWHILE).await, all(&broker));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_said_once_and_nothing_is_lost() {
    let log = Log::default();
    let written = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone()).init();
    on_nats(&log).await;
    on_rabbitmq(&log).await;
    on_kafka(&log).await;
}
