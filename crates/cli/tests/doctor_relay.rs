//! What `oncebox doctor` makes of the broker that the relay publishes to: one that is away, one that is there, topics that are
//! not. It publishes nothing and makes nothing.

#![cfg(feature = "brokers")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::process::Output;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use oncebox::{Clock, SystemClock};
use oncebox_testkit::skipped;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use serde_json::Value;
use tokio::process::Command;

fn name() -> String {
    format!("t{}", SystemClock.id().simple())
}

/// What a doctor says of a file whose relay goes there and whose consumer emits to these topics.
async fn examined(to: &str, topics: &[&str], words: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let emit: Vec<String> = topics.iter().map(|topic| format!("{{ type = \"e\", topic = \"{topic}\" }}")).collect();
    let text = format!(
        "[store]\nurl = \"sqlite://oncebox.db\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"queue:payments\"\n\n  \
         [[consumer.on]]\n  type = \"t\"\n  sql = \"select 1\"\n  emit = [{}]\n\n[relay]\nto = \"{to}\"\n",
        emit.join(", ")
    );
    std::fs::write(folder.path().join("oncebox.toml"), text).unwrap();
    let oncebox = async |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.current_dir(folder.path()).args(words).env("PW", "CANARY").kill_on_drop(true).output().await.unwrap()
    };
    assert!(oncebox(&["schema", "up"]).await.status.success());
    let output = oncebox(&[&["doctor", "--json"], words].concat()).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!report.to_string().contains("CANARY"), "{report:#}");
    (output, report)
}

/// Check, severity and evidence of each finding, without those that only the servers of tests have.
fn findings(report: &Value) -> Vec<(&str, &str, &str)> {
    let all = report["findings"].as_array().unwrap().iter();
    let all = all.map(|one| {
        (one["check"].as_str().unwrap(), one["severity"].as_str().unwrap(), one["evidence"].as_str().unwrap())
    });
    all.filter(|(check, ..)| !["file.secret", "kafka.replicas", "nats.sync-interval"].contains(check)).collect()
}

#[tokio::test]
async fn a_broker_that_the_relay_can_t_reach_is_an_error() {
    for to in ["amqp://u:${PW}@127.0.0.1:1/", "nats://u:${PW}@127.0.0.1:1", "kafka://127.0.0.1:1"] {
        let (output, report) = examined(to, &["paid"], &["--require", "effectively-once"]).await;
        let found = findings(&report);
        assert_eq!((found.len(), output.status.code()), (1, Some(1)), "{report:#}");
        assert_eq!((found[0].0, found[0].1), ("broker.unreachable", "error"), "{report:#}");
        assert!(found[0].2.contains("127.0.0.1:1"), "{report:#}");
        let finding = &report["findings"][0];
        assert_eq!(finding["about"], "relay");
        assert!(finding["fix"].as_str().unwrap().starts_with("check the address"), "{report:#}");
        assert!(finding["fix"].as_str().unwrap().ends_with("what is emitted waits in the outbox"), "{report:#}");
        assert_eq!(report["required"]["given"], false, "{report:#}");
        assert_eq!(report["promises"][0]["guarantee"], "effectively once", "{report:#}");
    }
}

#[tokio::test]
async fn exchanges_and_queues_that_are_not_there_are_told_and_not_made() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_RABBITMQ_URL") else {
        return skipped("doctor_relay::exchanges_and_queues_that_are_not_there");
    };
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let (exchange, queue, passing) = (name(), name(), name());
    let by_exchange = format!("{exchange}/paid");
    for _ in 0..2 {
        let (output, report) = examined(&url, &[&by_exchange, &queue, "{shop}", "/"], &[]).await;
        let mut found = findings(&report);
        found.sort_unstable();
        let no_exchange = format!(
            "consumer invoices emits to `{by_exchange}`: there is no exchange {exchange}, and its rows wait in the outbox"
        );
        let no_queue =
            format!("consumer invoices emits to `{queue}`: there is no queue {queue}, and its rows wait in the outbox");
        let nowhere =
            "consumer invoices emits to `/`: its topic names neither an exchange nor a queue: its rows are set aside";
        let mut expected = [
            ("relay.topic", "error", no_exchange.as_str()),
            ("relay.topic", "error", no_queue.as_str()),
            ("relay.topic", "error", nowhere),
        ];
        expected.sort_unstable();
        assert_eq!((found.as_slice(), output.status.code()), (&expected[..], Some(1)), "{report:#}");
    }
    let exchange_name = exchange.as_str();
    let declared = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let made = channel.exchange_declare(exchange_name.into(), ExchangeKind::Topic, declared, FieldTable::default());
    made.await.unwrap();
    for (queue, durable) in [(&queue, true), (&passing, false)] {
        let options = QueueDeclareOptions { durable, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await.unwrap();
    }
    let (sound, report) = examined(&url, &[&by_exchange, &queue], &["--require", "effectively-once"]).await;
    assert_eq!((findings(&report), sound.status.code()), (vec![], Some(0)), "{report:#}");
    assert_eq!(report["required"]["given"], true);
    let (_, report) = examined(&url, &[&passing], &[]).await;
    assert_eq!(findings(&report)[0].0, "rabbitmq.not-durable", "{report:#}");
    channel.exchange_delete(exchange_name.into(), ExchangeDeleteOptions::default()).await.unwrap();
    for queue in [queue, passing] {
        channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    }
    // A user who is not let in.
    let (_, host) = url.rsplit_once('@').unwrap();
    let (_, report) = examined(&format!("amqp://nobody:${{PW}}@{host}"), &["paid"], &[]).await;
    let found = findings(&report);
    assert_eq!((found[0].0, found[0].1), ("broker.unreachable", "error"), "{report:#}");
    assert!(found[0].2.contains("refused"), "{report:#}");
}

#[tokio::test]
async fn subjects_that_no_stream_takes_are_told() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_NATS_URL") else {
        return skipped("doctor_relay::subjects_that_no_stream_takes_are_told");
    };
    let prefix = name();
    let subject = format!("{prefix}.paid");
    let (output, report) = examined(&url, &[&subject, "a..b"], &[]).await;
    let none = format!(
        "consumer invoices emits to `{subject}`: there is no stream that takes it, and its rows wait in the outbox"
    );
    let empty = "consumer invoices emits to `a..b`: its subject is empty or has an empty part: its rows are set aside";
    let expected = [("relay.topic", "error", empty), ("relay.topic", "error", none.as_str())];
    assert_eq!((findings(&report).as_slice(), output.status.code()), (&expected[..], Some(1)), "{report:#}");
    let context = jetstream::new(async_nats::connect(&url).await.unwrap());
    let config = |storage| stream::Config {
        name: prefix.clone(),
        subjects: vec![format!("{prefix}.*")],
        max_age: Duration::from_secs(3600),
        storage,
        ..stream::Config::default()
    };
    context.create_stream(config(stream::StorageType::File)).await.unwrap();
    let (sound, report) = examined(&url, &[&subject], &[]).await;
    assert_eq!((findings(&report), sound.status.code()), (vec![], Some(0)), "{report:#}");
    context.delete_stream(&prefix).await.unwrap();
    context.create_stream(config(stream::StorageType::Memory)).await.unwrap();
    let (forgets, report) = examined(&url, &[&subject], &[]).await;
    context.delete_stream(&prefix).await.unwrap();
    assert_eq!((findings(&report)[0].0, forgets.status.code()), ("nats.memory", Some(1)), "{report:#}");
    assert_eq!(report["findings"][0]["about"], format!("relay, stream {prefix}"));
}

#[tokio::test]
async fn topics_that_are_not_there_are_told_and_not_made() {
    let Ok(servers) = std::env::var("ONCEBOX_TEST_KAFKA_URL") else {
        return skipped("doctor_relay::topics_that_are_not_there_are_told_and_not_made");
    };
    let (to, topic) = (format!("kafka://{servers}"), name());
    for _ in 0..2 {
        let (output, report) = examined(&to, &[&topic], &[]).await;
        let none = format!(
            "consumer invoices emits to `{topic}`: there is no such topic, or this user may not see it, and its rows wait in \
             the outbox"
        );
        let expected = vec![("relay.topic", "error", none.as_str())];
        assert_eq!((findings(&report), output.status.code()), (expected, Some(1)), "{report:#}");
    }
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(10)));
    admin.create_topics(&[NewTopic::new(&topic, 1, TopicReplication::Fixed(1))], &options).await.unwrap();
    let (sound, report) = examined(&to, &[&topic], &[]).await;
    admin.delete_topics(&[&topic], &options).await.unwrap();
    assert_eq!((findings(&report), sound.status.code()), (vec![], Some(0)), "{report:#}");
    // One broker keeps it: told as it is of topics that are read.
    let told: Vec<&Value> = report["findings"].as_array().unwrap().iter().collect();
    assert!(told.iter().any(|one| one["check"] == "kafka.replicas" && one["about"] == format!("relay, topic {topic}")));
}
