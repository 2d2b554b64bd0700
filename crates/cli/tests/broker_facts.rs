//! What Kafka and NATS say of a topic or a stream, and what `run`, `retention` and `doctor` make of it.

#![cfg(feature = "brokers")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use async_nats::jetstream::{self, consumer::pull, stream};
use oncebox::{Clock, SystemClock};
use oncebox_testkit::skipped;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use serde_json::Value;
use tokio::process::Command;

const ANSWER: Duration = Duration::from_secs(20);
const DAY: u64 = 86_400;

/// A port on which nobody listens.
const NOBODY: &str = "127.0.0.1:1";

struct Place {
    folder: tempfile::TempDir,
    /// Where its messages come from.
    from: String,
}

impl Place {
    fn new(from: String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), from }
    }

    /// The file of a consumer with these fields, in a folder with its tables.
    async fn write(&self, fields: &str) -> &Path {
        let text = format!(
            "[store]\nurl = \"sqlite://oncebox.db\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"{}\"\n{fields}\n\n  \
             [[consumer.on]]\n  type = \"payment.received\"\n  sql = \"select 1\"\n",
            self.from
        );
        std::fs::write(self.folder.path().join("oncebox.toml"), text).unwrap();
        let up = oncebox(self.folder.path(), &["schema", "up"]).await;
        assert!(up.status.success(), "{}", stderr(&up));
        self.folder.path()
    }

    /// What `run --check` says, and how it ends.
    async fn check(&self, fields: &str) -> (String, Option<i32>) {
        let output = oncebox(self.write(fields).await, &["run", "--check"]).await;
        (stderr(&output), output.status.code())
    }

    /// What the doctor finds, beside what it always finds of a server of tests: that nobody sees when NATS writes.
    async fn doctor(&self, fields: &str) -> (Vec<String>, Value, Option<i32>) {
        let output = oncebox(self.write(fields).await, &["doctor", "--json"]).await;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = report["findings"].as_array().unwrap().iter().map(|one| one["check"].as_str().unwrap().to_owned());
        (found.filter(|check| check != "nats.sync-interval").collect(), report.clone(), output.status.code())
    }
}

async fn oncebox(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).env("USER", "ada").kill_on_drop(true).output().await.unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn name() -> String {
    format!("t{}", SystemClock.id().simple())
}

/// A topic of its own with these settings; `None`: there is no server.
async fn kafka(test: &str, settings: &[(&str, &str)]) -> Option<(Place, String)> {
    let Ok(servers) = std::env::var("ONCEBOX_TEST_KAFKA_URL") else {
        skipped(&format!("broker_facts::{test}"));
        return None;
    };
    let name = name();
    let mut topic = NewTopic::new(&name, 1, TopicReplication::Fixed(1));
    for (name, value) in settings {
        topic = topic.set(name, value);
    }
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
    let made = admin.create_topics(&[topic], &AdminOptions::new().operation_timeout(Some(ANSWER))).await;
    assert!(made.unwrap().iter().all(Result::is_ok), "the topic was not created");
    Some((Place::new(format!("kafka://{servers}/{name}")), name))
}

/// A stream of its own; `None`: there is no server.
async fn nats(test: &str, change: impl FnOnce(&mut stream::Config)) -> Option<(Place, stream::Stream, String)> {
    let Ok(url) = std::env::var("ONCEBOX_TEST_NATS_URL") else {
        skipped(&format!("broker_facts::{test}"));
        return None;
    };
    let name = name();
    let mut config = stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
    change(&mut config);
    let made = jetstream::new(async_nats::connect(&url).await.unwrap()).create_stream(config).await.unwrap();
    Some((Place::new(format!("{url}/{name}")), made, name))
}

fn millis(days: u64) -> String {
    (days * DAY * 1000).to_string()
}

/// Where the broker keeps messages for seven days, and says so as `says`.
async fn seven_days_need_fourteen(place: &Place, says: &str) {
    let (told, code) = place.check("retention = \"7d\"").await;
    let expected = format!(
        "oncebox.toml:7: `retention` of consumer `invoices` is 7d, and a message can come back after 7d (the broker keeps \
         it: {says}); keep records for 14d at least, which is twice as long, or write `retention_unsafe = true`"
    );
    assert!(told.contains(&expected), "{told}");
    assert_eq!(code, Some(2));
    let (told, code) = place.check("retention = \"7d\"\nretention_unsafe = true").await;
    assert!(told.contains("WARN") && told.contains("keep records for 14d"), "{told}");
    assert_eq!(code, Some(0));
    let (told, code) = place.check("retention = \"14d\"").await;
    assert_eq!((told.contains("come back"), code), (false, Some(0)), "{told}");
    // Who states it is believed, and who says nothing gets what is right.
    assert_eq!(place.check("retention = \"7d\"\nbroker_retention = \"3d\"").await.1, Some(0));
    assert_eq!(place.check("").await.1, Some(0));
}

/// Where the broker keeps messages for ever, that is a warning and no more.
async fn for_ever_is_a_warning(place: &Place, says: &str) {
    let (told, code) = place.check("retention = \"7d\"").await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("WARN") && told.contains(&format!("can come back after any time ({says})")), "{told}");
    let (told, _) = place.check("retention = \"7d\"\nbroker_retention = \"2d\"").await;
    assert!(!told.contains("come back"), "{told}");
}

#[tokio::test]
async fn kafka_is_asked_how_long_it_keeps_messages() {
    let Some((place, topic)) = kafka("kafka_is_asked", &[("retention.ms", &millis(7))]).await else { return };
    seven_days_need_fourteen(&place, &format!("retention.ms of topic {topic}")).await;
    let Some((place, topic)) = kafka("kafka_is_asked", &[("retention.ms", "-1")]).await else { return };
    for_ever_is_a_warning(&place, &format!("retention.ms of topic {topic}")).await;
    // What is compacted stays, whatever its retention says.
    let compacted = [("cleanup.policy", "compact"), ("retention.ms", &millis(1))];
    let Some((place, topic)) = kafka("kafka_is_asked", &compacted).await else { return };
    for_ever_is_a_warning(&place, &format!("retention.ms of topic {topic}")).await;
}

#[tokio::test]
async fn nats_is_asked_how_long_it_keeps_messages() {
    let week = |config: &mut stream::Config| config.max_age = Duration::from_secs(7 * DAY);
    let Some((place, _, stream)) = nats("nats_is_asked", week).await else { return };
    seven_days_need_fourteen(&place, &format!("max_age of stream {stream}")).await;
    let Some((place, _, stream)) = nats("nats_is_asked", |_| {}).await else { return };
    for_ever_is_a_warning(&place, &format!("max_age of stream {stream}")).await;
}

/// A broker that is away says nothing of what must be kept. A number in the file takes its place; without one nothing
/// is removed.
#[tokio::test]
async fn a_broker_that_is_away_is_told_and_nothing_goes_without_a_number() {
    for (from, what) in [
        (format!("kafka://{NOBODY}/payments"), format!("cannot look at the topic payments on Kafka at {NOBODY}: ")),
        (format!("nats://{NOBODY}/payments"), format!("cannot look at the stream payments on NATS at {NOBODY}: ")),
    ] {
        let place = Place::new(from);
        let (told, code) = place.check("").await;
        assert_eq!(code, Some(0), "{told}");
        let expected = "WARN no old records of consumer `invoices` are removed until its broker says how long it keeps \
                        messages: ";
        assert!(told.contains(&format!("{expected}{what}")), "{told}");
        assert!(!told.contains("gave no code"), "{told}");
        let apply = ["retention", "apply", "--why", "the disk is full", "--yes"];
        let output = oncebox(place.folder.path(), &apply).await;
        assert!(!output.status.success() && stderr(&output).contains("OB0702"), "{}", stderr(&output));
        let (told, code) = place.check("retention = \"7d\"").await;
        assert_eq!((told.contains("INFO") && told.contains(&what), code), (true, Some(0)), "{told}");
        let (found, report, code) = place.doctor("retention = \"7d\"").await;
        assert_eq!(
            (found, code),
            (vec!["broker.unreachable".to_owned()], Some(1)),
            "once, and not for each that follows"
        );
        assert!(report["findings"][0]["evidence"].as_str().unwrap().starts_with(&what), "{report}");
    }
}

#[tokio::test]
async fn the_doctor_tells_of_a_topic_that_can_lose_what_it_confirmed() {
    let test = "the_doctor_tells_of_a_topic";
    let Some((place, _)) = kafka(test, &[("retention.ms", &millis(1))]).await else { return };
    let (found, report, code) = place.doctor("start = \"end\"").await;
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(
        (sorted, code),
        (vec!["kafka.offset-reset".to_owned(), "kafka.replicas".to_owned()], Some(0)),
        "{report}"
    );
    let settings = [("retention.ms", millis(1)), ("min.insync.replicas", "2".to_owned())];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let Some((place, _)) = kafka(test, &settings).await else { return };
    assert_eq!(place.doctor("").await.0, Vec::<String>::new());
    // A topic that is not there.
    let missing = Place::new(format!("{}-missing", place.from));
    let (found, report, code) = missing.doctor("retention = \"7d\"").await;
    assert_eq!((found[0].as_str(), code), ("broker.unreachable", Some(1)), "{report}");
    assert!(report["findings"][0]["evidence"].as_str().unwrap().contains("the topic does not exist"), "{report}");
}

#[tokio::test]
async fn the_doctor_tells_of_a_stream_that_forgets_and_of_a_consumer_that_is_starved() {
    let test = "the_doctor_tells_of_a_stream";
    let day = |config: &mut stream::Config| config.max_age = Duration::from_secs(DAY);
    let Some((place, stream, _)) = nats(test, day).await else { return };
    assert_eq!(place.doctor("").await.0, Vec::<String>::new(), "a consumer that is not there yet is no finding");
    let durable = Some("invoices".to_owned());
    stream
        .create_consumer(pull::Config { durable_name: durable, max_ack_pending: 2, ..pull::Config::default() })
        .await
        .unwrap();
    let (found, report, code) = place.doctor("lanes = 8").await;
    assert_eq!((found, code), (vec!["prefetch.too-small".to_owned()], Some(0)), "{report}");
    assert!(report.to_string().contains("max_ack_pending of its consumer is 2, and it has 8 lanes"), "{report}");
    assert_eq!(place.doctor("lanes = 2").await.0, Vec::<String>::new());
    let in_memory = |config: &mut stream::Config| {
        day(config);
        config.storage = stream::StorageType::Memory;
    };
    let Some((place, _, _)) = nats(test, in_memory).await else { return };
    let (found, report, code) = place.doctor("").await;
    assert_eq!((found, code), (vec!["nats.memory".to_owned()], Some(1)), "{report}");
}
