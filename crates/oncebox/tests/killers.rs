//! A message that kills its process, on brokers that do not count deliveries. Consumers are processes of their own here.

#![cfg(all(feature = "kafka", feature = "rabbitmq", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use oncebox::kafka::{KafkaSink, KafkaSource, Start};
use oncebox::memory::MemoryStore;
use oncebox::quarantine::Quarantine;
use oncebox::rabbitmq::{QueueKind, Rabbit, RabbitSource};
use oncebox::sqlite::Sqlite;
use oncebox::{
    Clock, Consumer, ConsumerName, Context, Message, MessageId, Outcome, Outgoing, Session, Sink, Source, Store,
    SystemClock, Transaction,
};
use oncebox_testkit::{eventually_within, skipped};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use tokio::process::Command;

const KILLER: &str = "killer";
const NEIGHBOURS: [&str; 4] = ["a", "b", "c", "d"];

/// Deaths that a killer may cause here: two among others, after which it is a suspect, and two alone. One more, in case a
/// process dies before it has noted anything.
const DEATHS_MAX: usize = 5;

/// What a process is told: which broker, where it is, the queue or topic there, and the store's file.
const WHAT: [&str; 4] = ["KILLERS_BROKER", "KILLERS_URL", "KILLERS_PLACE", "KILLERS_STORE"];

fn queue(url: &str, place: &str) -> RabbitSource {
    Rabbit::new(url).source(place).declare(QueueKind::Classic)
}

fn topic(url: &str, place: &str) -> KafkaSource {
    // With a name of its own, a process that is started again need not wait until the one before is missed.
    KafkaSource::new(url, place, place).start_from(Start::Beginning).setting("group.instance.id", "one")
}

/// Not a test: a consumer, for a test of another process.
#[tokio::test(flavor = "multi_thread")]
async fn consume_for_another_process() {
    let told: Option<Vec<String>> = WHAT.iter().map(|name| std::env::var(name).ok()).collect();
    let Some(told) = told else { return };
    let [broker, url, place, file] = &told[..] else { return };
    let store = Sqlite::open(file).await.unwrap();
    match broker.as_str() {
        "kafka" => consume(store, topic(url, place)).await,
        _ => consume(store, queue(url, place)).await,
    }
}

async fn consume<Src: Source<Sqlite>>(store: Sqlite, source: Src) {
    let consumer = Consumer::new("c", store.clone(), source)
        .on("noted", async |mut ctx: Context<Sqlite>, text: String| {
            if text == KILLER {
                std::process::abort();
            }
            sqlx::query("insert into effects (text) values (?)").bind(text).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        })
        .bounds(|bounds| {
            bounds.starts_max = 2;
            bounds.suspect_wait = Duration::from_millis(50);
        });
    let stats = consumer.stats();
    let done = async || {
        let dead = parked(&store).await;
        !dead.is_empty() && stats.snapshot().in_hand == 0 && effects(&store).await.len() >= NEIGHBOURS.len()
    };
    consumer.run(eventually_within(Duration::from_secs(60), "all are settled", done)).await.unwrap();
}

async fn effects(store: &Sqlite) -> Vec<String> {
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let texts = sqlx::query_scalar("select text from effects order by text").fetch_all(tx.db()).await.unwrap();
    tx.rollback().await;
    texts
}

/// Why messages are parked.
async fn parked(store: &Sqlite) -> Vec<String> {
    let consumer = store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let rows = tx.page(consumer, 0, 10).await.unwrap();
    tx.rollback().await;
    rows.into_iter().map(|row| row.reason).collect()
}

async fn send(sink: impl Sink, place: &str) {
    sink.open().await.unwrap();
    let mut texts = NEIGHBOURS.to_vec();
    texts.insert(2, KILLER);
    let batch: Vec<Outgoing> = texts
        .into_iter()
        .map(|text| {
            let message = Message::new("noted").with_id(MessageId::new(text).unwrap()).with_json(&text).unwrap();
            Outgoing { topic: place.to_owned(), message: Arc::new(message) }
        })
        .collect();
    assert!(sink.publish(&batch).await.iter().all(Result::is_ok));
    sink.close().await;
}

/// Starts processes until one survives.
async fn what_kills_is_parked(broker: &str, url: &str, place: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("killers.db").display().to_string();
    let store = Sqlite::open(&file).await.unwrap();
    create(&store).await;
    let mut deaths = 0;
    loop {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "consume_for_another_process", "--nocapture"]);
        command.envs(WHAT.into_iter().zip([broker, url, place, file.as_str()])).current_dir(Path::new("/"));
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().await.unwrap();
        if ended.success() {
            break;
        }
        assert_eq!(ended.code(), None, "it was not killed: it failed");
        deaths += 1;
        assert!(deaths <= DEATHS_MAX, "{broker}: it kills and kills");
    }
    assert!(deaths > 0, "nothing was killed");
    assert_eq!(effects(&store).await, NEIGHBOURS, "{broker}");
    let parked = parked(&store).await;
    assert_eq!(parked.len(), 1, "{broker}: {parked:?}");
    assert!(parked[0].contains("died"), "{broker}: {parked:?}");
}

async fn create(store: &Sqlite) {
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    sqlx::query("create table effects (text text not null)").execute(tx.db()).await.unwrap();
    let _ = tx.commit().await;
}

fn url_or_skip(broker: &str, name: &str) -> Option<String> {
    let url = std::env::var(format!("ONCEBOX_TEST_{}_URL", broker.to_uppercase())).ok();
    if url.is_none() {
        skipped(&format!("killers::{name}"));
    }
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kills_its_process_is_found_on_a_classic_queue() {
    let Some(url) = url_or_skip("rabbitmq", "what_kills_its_process_is_found_on_a_classic_queue") else { return };
    let place = format!("killers{}", SystemClock.id().simple());
    let created = queue(&url, &place);
    created.open(&MemoryStore::new()).await.unwrap();
    Source::<MemoryStore>::close(&created).await;
    send(Rabbit::new(url.as_str()).sink(), &place).await;
    what_kills_is_parked("rabbitmq", &url, &place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kills_its_process_is_found_on_kafka() {
    let Some(url) = url_or_skip("kafka", "what_kills_its_process_is_found_on_kafka") else { return };
    let place = format!("killers{}", SystemClock.id().simple());
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", &url).create().unwrap();
    let topic = NewTopic::new(&place, 1, TopicReplication::Fixed(1));
    let created = admin.create_topics(&[topic], &AdminOptions::new()).await.unwrap();
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    send(KafkaSink::new(url.as_str()), &place).await;
    what_kills_is_parked("kafka", &url, &place).await;
}
