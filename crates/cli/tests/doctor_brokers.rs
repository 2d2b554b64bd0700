//! What `oncebox doctor` makes of queues of RabbitMQ and of streams of NATS: each bad setting on a server, and the good one
//! beside it.

#![cfg(feature = "brokers")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use async_nats::jetstream::{self, consumer::pull, stream};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use oncebox::{Clock, SystemClock};
use oncebox_testkit::{eventually, skipped};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};
use tokio::process::Command;

async fn oncebox(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true).output().await.unwrap()
}

fn name() -> String {
    format!("t{}", SystemClock.id().simple())
}

/// What a doctor says of a file: checks with their severities, and the exit code.
struct Said {
    findings: Vec<(String, String)>,
    report: Value,
    code: Option<i32>,
}

impl Said {
    fn is(&self, expected: &[(&str, &str)], code: i32) {
        let found: Vec<(&str, &str)> =
            self.findings.iter().map(|(check, severity)| (check.as_str(), severity.as_str())).collect();
        assert_eq!((found.as_slice(), self.code), (expected, Some(code)), "{:#}", self.report);
    }

    fn says(&self, words: &str) {
        assert!(self.report.to_string().contains(words), "{words}: {:#}", self.report);
    }
}

/// Examines a consumer with these fields, on a store of its own with tables.
async fn examined(from: &str, fields: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[store]\nurl = \"sqlite://oncebox.db\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"{from}\"\n\
         broker_retention = \"1d\"\n{fields}\n\n  [[consumer.on]]\n  type = \"t\"\n  sql = \"select 1\"\n"
    );
    std::fs::write(folder.path().join("oncebox.toml"), text).unwrap();
    assert!(oncebox(folder.path(), &["schema", "up"]).await.status.success());
    said(&oncebox(folder.path(), &["doctor", "--json"]).await)
}

fn said(output: &Output) -> Said {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let findings = findings.map(|one| (text(one, "check"), text(one, "severity")));
    // The password of a server of tests stands in its address.
    let findings = findings.filter(|(check, _)| check != "file.secret").collect();
    Said { findings, report, code: output.status.code() }
}

/// A broker to declare queues on.
struct Rabbit {
    url: String,
    channel: lapin::Channel,
    _connection: lapin::Connection,
}

impl Rabbit {
    async fn connect(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var("ONCEBOX_TEST_RABBITMQ_URL") else {
            skipped(&format!("doctor_brokers::{test}"));
            return None;
        };
        let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Some(Self { url, channel, _connection: connection })
    }

    /// What is said of a queue that was declared so.
    async fn queue(&self, is_durable: bool, arguments: &[(&str, AMQPValue)], messages: usize, fields: &str) -> Said {
        let (queue, mut table) = (name(), FieldTable::default());
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: is_durable, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.as_str().into(), options, table).await.unwrap();
        for _ in 0..messages {
            let (options, properties) = (BasicPublishOptions::default(), lapin::BasicProperties::default());
            self.channel.basic_publish("".into(), queue.as_str().into(), options, b"{}", properties).await.unwrap();
        }
        if messages > 0 {
            let passive = QueueDeclareOptions { passive: true, durable: is_durable, ..QueueDeclareOptions::default() };
            eventually("they are there", async || {
                let there = self.channel.queue_declare(queue.as_str().into(), passive, FieldTable::default()).await;
                there.unwrap().message_count() as usize == messages
            })
            .await;
        }
        let said = examined(&format!("{}/{queue}", self.url), fields).await;
        self.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
        said
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn quorum() -> (&'static str, AMQPValue) {
    ("x-queue-type", text("quorum"))
}

fn dead_letters() -> (&'static str, AMQPValue) {
    ("x-dead-letter-exchange", text("amq.fanout"))
}

#[tokio::test]
async fn a_quorum_queue_that_drops_what_was_delivered_too_often_is_told() {
    let Some(rabbit) = Rabbit::connect("a_quorum_queue_that_drops").await else { return };
    rabbit.queue(true, &[quorum(), dead_letters()], 0, "").await.is(&[], 0);
    let without = rabbit.queue(true, &[quorum()], 0, "").await;
    without.is(&[("rabbitmq.dead-letters", "warning")], 0);
    without.says("give it a dead-letter exchange (x-dead-letter-exchange");
    let limited = rabbit.queue(true, &[quorum(), ("x-delivery-limit", AMQPValue::LongInt(3))], 0, "").await;
    limited.is(&[("rabbitmq.dead-letters", "error")], 1);
    limited.says("has a delivery limit of 3 and no x-dead-letter-exchange");
    let both = [quorum(), ("x-delivery-limit", AMQPValue::LongInt(3)), dead_letters()];
    rabbit.queue(true, &both, 0, "").await.is(&[], 0);
}

#[tokio::test]
async fn a_queue_that_forgets_is_told() {
    let Some(rabbit) = Rabbit::connect("a_queue_that_forgets").await else { return };
    rabbit.queue(false, &[], 0, "").await.is(&[("rabbitmq.not-durable", "error")], 1);
    let classic = ("rabbitmq.classic", "note");
    rabbit.queue(true, &[], 0, "").await.is(&[classic], 0);
    let ttl = ("x-message-ttl", AMQPValue::LongInt(60_000));
    let forgets = rabbit.queue(true, std::slice::from_ref(&ttl), 0, "").await;
    forgets.is(&[("rabbitmq.drops", "warning"), classic], 0);
    forgets.says("drops messages that nobody has read, by x-message-ttl");
    rabbit.queue(true, &[ttl, dead_letters()], 0, "").await.is(&[classic], 0);
    let full = ("x-max-length", AMQPValue::LongInt(10));
    rabbit.queue(true, std::slice::from_ref(&full), 0, "").await.is(&[("rabbitmq.drops", "warning"), classic], 0);
    let refuses = ("x-overflow", text("reject-publish"));
    rabbit.queue(true, &[full, refuses], 0, "").await.is(&[classic], 0);
    let expires = [quorum(), dead_letters(), ("x-expires", AMQPValue::LongInt(600_000))];
    rabbit.queue(true, &expires, 0, "").await.is(&[("rabbitmq.drops", "warning")], 0);
}

#[tokio::test]
async fn a_queue_that_does_not_fit_the_file_is_told() {
    let Some(rabbit) = Rabbit::connect("a_queue_that_does_not_fit").await else { return };
    let ordered = "order_by = \"{invoice}\"";
    let sound = [quorum(), dead_letters()];
    rabbit.queue(true, &sound, 0, ordered).await.is(&[("rabbitmq.order", "error")], 1);
    let single = [quorum(), dead_letters(), ("x-single-active-consumer", AMQPValue::Boolean(true))];
    rabbit.queue(true, &single, 0, ordered).await.is(&[], 0);
    rabbit.queue(true, &[], 0, "create = true").await.is(&[("rabbitmq.kind", "error")], 1);
    rabbit.queue(true, &sound, 0, "create = true").await.is(&[], 0);
    rabbit.queue(true, &sound, 0, "lanes = 300").await.is(&[("prefetch.too-small", "warning")], 0);
    rabbit.queue(true, &sound, 0, "lanes = 200").await.is(&[], 0);
    let unread = rabbit.queue(true, &sound, 3, "").await;
    unread.is(&[("rabbitmq.unread", "note")], 0);
    unread.says("has 3 messages, and nobody reads it");
}

#[tokio::test]
async fn a_queue_that_is_missing_is_told_and_never_made() {
    let Some(rabbit) = Rabbit::connect("a_queue_that_is_missing").await else { return };
    let from = format!("{}/{}", rabbit.url, name());
    for _ in 0..2 {
        let missing = examined(&from, "").await;
        missing.is(&[("broker.unreachable", "error")], 1);
        missing.says("there is no queue t");
    }
    examined(&from, "create = true").await.is(&[], 0);
    examined(&from, "").await.is(&[("broker.unreachable", "error")], 1);
    let away = examined("amqp://shop:CANARY@127.0.0.1:1/v/payments", "").await;
    away.is(&[("broker.unreachable", "error")], 1);
    assert!(!away.report.to_string().contains("CANARY"), "{:#}", away.report);
}

/// A user who may read queues and not declare them.
#[tokio::test]
async fn a_queue_that_does_not_show_what_it_is_is_told() {
    let Some(rabbit) = Rabbit::connect("a_queue_that_does_not_show").await else { return };
    let Ok(folder) = std::env::var("ONCEBOX_TEST_RABBITMQ_DIR") else {
        return skipped("doctor_brokers::a_queue_that_does_not_show_what_it_is_is_told");
    };
    let (queue, user) = (name(), name());
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    rabbit.channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await.unwrap();
    let ctl = async |words: &[&str]| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rabbitmq");
        let output = Command::new(script).args(["ctl", &folder]).args(words).output().await.unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    ctl(&["add_user", &user, "CANARY"]).await;
    ctl(&["set_permissions", "-p", "/", &user, "^$", "^$", ".*"]).await;
    let (_, host) = rabbit.url.rsplit_once('@').unwrap();
    let unseen = examined(&format!("amqp://{user}:CANARY@{host}/{queue}"), "").await;
    ctl(&["delete_user", &user]).await;
    rabbit.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    unseen.is(&[("rabbitmq.unseen", "note")], 0);
    unseen.says("does not show what it is made of: ACCESS_REFUSED");
    assert!(!unseen.report.to_string().contains("CANARY"), "{:#}", unseen.report);
}

/// A stream of its own at this server, with a consumer if it is said what it is like.
async fn stream(url: &str, consumer: Option<pull::Config>) -> String {
    let name = name();
    let config = stream::Config {
        name: name.clone(),
        subjects: vec![name.clone()],
        max_age: Duration::from_secs(86_400),
        ..stream::Config::default()
    };
    let made = jetstream::new(async_nats::connect(url).await.unwrap()).create_stream(config).await.unwrap();
    if let Some(consumer) = consumer {
        let durable = Some("invoices".to_owned());
        made.create_consumer(pull::Config { durable_name: durable, ..consumer }).await.unwrap();
    }
    format!("{url}/{name}")
}

/// A server of its own with this `sync_interval`, which is stopped whatever happens.
struct OwnServer(tempfile::TempDir);

impl OwnServer {
    fn start(sync: &str) -> (Self, String) {
        let server = Self(tempfile::tempdir().unwrap());
        let output = server.script("start", sync);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (server, String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    fn script(&self, verb: &str, sync: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/nats");
        let mut command = std::process::Command::new(script);
        command.arg(verb).arg(self.0.path()).env("ONCEBOX_NATS_SYNC", sync).output().unwrap()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.script("stop", "");
    }
}

/// A server that writes now and then, one that writes at once, and one that does not tell.
#[tokio::test]
async fn a_stream_that_is_written_too_late_is_told() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_NATS_URL") else {
        return skipped("doctor_brokers::a_stream_that_is_written_too_late_is_told");
    };
    let unseen = examined(&stream(&url, None).await, "").await;
    unseen.is(&[("nats.sync-interval", "note")], 0);
    unseen.says("this user can't see its sync_interval");
    for (sync, expected) in [("2m", &[("nats.sync-interval", "warning")][..]), ("always", &[])] {
        let (_server, url) = OwnServer::start(sync);
        let said = examined(&stream(&url, None).await, "").await;
        said.is(expected, 0);
        if sync == "2m" {
            said.says("writes to its disk every 2m");
        }
    }
}

#[tokio::test]
async fn a_consumer_that_drops_or_hurries_is_told() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_NATS_URL") else {
        return skipped("doctor_brokers::a_consumer_that_drops_or_hurries_is_told");
    };
    let unseen = ("nats.sync-interval", "note");
    let sound = pull::Config { ack_wait: Duration::from_secs(30), ..pull::Config::default() };
    examined(&stream(&url, Some(sound.clone())).await, "").await.is(&[unseen], 0);
    let drops = pull::Config { max_deliver: 5, ..sound.clone() };
    let drops = examined(&stream(&url, Some(drops)).await, "").await;
    drops.is(&[("nats.consumer", "error"), unseen], 1);
    drops.says("its max_deliver is 5, after which the server falls silent");
    let hurries = pull::Config { ack_wait: Duration::from_secs(5), ..sound.clone() };
    let hurries = examined(&stream(&url, Some(hurries)).await, "").await;
    hurries.is(&[unseen, ("lease.short", "note")], 0);
    hurries.says("ack_wait of its consumer is 5s, and a handler may take 30s");
    let ordered = examined(&stream(&url, Some(sound)).await, "order_by = \"{invoice}\"").await;
    ordered.is(&[("nats.consumer", "error"), unseen], 1);
}

/// A handler that takes longer than its lease, and one that does not, as the store remembers them.
#[tokio::test]
async fn a_handler_that_outlasts_its_lease_is_told() {
    let (Ok(nats), Ok(server)) = (std::env::var("ONCEBOX_TEST_NATS_URL"), std::env::var("ONCEBOX_TEST_POSTGRES_URL"))
    else {
        return skipped("doctor_brokers::a_handler_that_outlasts_its_lease_is_told");
    };
    let mut db = sqlx::PgConnection::connect(&server).await.unwrap();
    for (seconds, expected) in [("2.1", Some("warning")), ("0", None)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let consumer = pull::Config { ack_wait: Duration::from_secs(2), ..pull::Config::default() };
        let (from, schema) = (stream(&nats, Some(consumer)).await, name());
        let text = format!(
            "[store]\nurl = \"{server}\"\nschema = \"{schema}\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"{from}\"\n\n  \
             [[consumer.on]]\n  type = \"t\"\n  sql = \"select pg_sleep({seconds})\"\n"
        );
        std::fs::write(folder.join("oncebox.toml"), text).unwrap();
        let mut run = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        let mut run = run.current_dir(folder).arg("run").stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let words = ["send", "--to", &from, "--type", "t", "--payload", "{}"];
        let sent = oncebox(folder, &words).await;
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        eventually("it is counted", async || {
            let status = oncebox(folder, &["status", "--json"]).await;
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            status["consumers"][0]["counters"]["handler_calls"] == 1
        })
        .await;
        let while_it_runs = said(&oncebox(folder, &["doctor", "--json"]).await);
        run.kill().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("drop schema {schema} cascade"))).execute(&mut db).await.unwrap();
        let found = while_it_runs.findings.iter().find(|(check, _)| check == "lease.handler-time");
        assert_eq!(found.map(|(_, severity)| severity.as_str()), expected, "{:#}", while_it_runs.report);
        if expected.is_some() {
            while_it_runs.says("2.1 s at most, over 1 calls, and a delivery (ack_wait) is leased for 2.0 s");
        }
    }
}
