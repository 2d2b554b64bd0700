//! `oncebox run` is started before its broker: it says so once, waits, and goes on by itself when the broker comes.

#![cfg(feature = "brokers")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use oncebox::{Clock, SystemClock};
use oncebox_testkit::{eventually, skipped};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use sqlx::Connection;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

const ANSWER: Duration = Duration::from_secs(20);

/// A way to a server that hangs up at once until it is opened.
struct Gate {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Gate {
    async fn shut(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, is_open) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (mut tasks, opened) = (JoinSet::new(), Arc::clone(&is_open));
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                if opened.load(SeqCst) {
                    let mut server = TcpStream::connect(&server).await.unwrap();
                    ways.spawn(async move {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    });
                }
            }
        });
        Self { address, is_open, _tasks: tasks }
    }
}

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command
}

async fn notes(folder: &Path) -> i64 {
    let url = format!("sqlite:{}", folder.join("oncebox.db").display());
    let Ok(mut db) = sqlx::SqliteConnection::connect(&url).await else { return 0 };
    sqlx::query_scalar("select count(*) from notes").fetch_one(&mut db).await.unwrap_or(0)
}

/// `from` is the address of the source; whatever stands at `server` in it is behind the gate at first.
/// `goes_after`: how long records are kept, where that is for the broker to say.
async fn comes_late(from: &str, server: &str, fields: &str, goes_after: Option<&str>) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = |from: &str| {
        format!(
            "[store]\nurl = \"sqlite://oncebox.db\"\nsetup = \"schema.sql\"\n\n[[consumer]]\nname = \"notes\"\n\
             from = \"{from}\"\ncreate = true\n{fields}\n\n  [[consumer.on]]\n  type = \"noted\"\n  \
             sql = \"insert into notes (id) values (:id)\"\n"
        )
    };
    std::fs::write(folder.join("schema.sql"), "create table if not exists notes (id integer primary key);").unwrap();
    let gate = Gate::shut(server.to_owned()).await;
    assert!(from.contains(server), "{from}");
    std::fs::write(folder.join("oncebox.toml"), file(&from.replacen(server, &gate.address.to_string(), 1))).unwrap();
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut child = oncebox(folder, &["run"]).stderr(log).spawn().unwrap();
    let said = || std::fs::read_to_string(folder.join("log")).unwrap();
    let waits = || said().lines().filter(|line| line.contains("waiting for the source")).count();
    eventually("it waits", async || waits() > 0).await;
    assert!(!said().contains("consumer starts"), "{}", said());
    gate.is_open.store(true, SeqCst);
    eventually("it starts", async || said().contains("consumer starts")).await;
    assert_eq!(waits(), 1, "{}", said());
    // To the broker itself, not through the gate.
    let words = ["send", "--to", from, "--type", "noted", "--payload", r#"{"id": 1}"#];
    let sent = oncebox(folder, &words).output().await.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    eventually("the message is handled", async || notes(folder).await == 1).await;
    if let Some(goes_after) = goes_after {
        let answered = format!("the broker has answered: records are removed after {goes_after}");
        eventually("retention begins", async || said().contains(&answered)).await;
        let waits = said().lines().filter(|line| line.contains("until its broker says")).count();
        assert_eq!(waits, 1, "{}", said());
    }
    assert!(child.try_wait().unwrap().is_none(), "{}", said());
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().await.unwrap().success(), "{}", said());
}

/// Host and port of a server's address.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split('/').next().unwrap()
}

fn name() -> String {
    format!("late{}", SystemClock.id().simple())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rabbitmq_that_comes_late_is_waited_for() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_RABBITMQ_URL") else {
        return skipped("late_broker::a_rabbitmq_that_comes_late_is_waited_for");
    };
    comes_late(&format!("{url}/{}", name()), place(&url), "", None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nats_server_that_comes_late_is_waited_for() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_NATS_URL") else {
        return skipped("late_broker::a_nats_server_that_comes_late_is_waited_for");
    };
    let name = name();
    let config = stream::Config { name: name.clone(), subjects: vec![name.clone()], ..stream::Config::default() };
    jetstream::new(async_nats::connect(&url).await.unwrap()).create_stream(config).await.unwrap();
    // It keeps messages for ever, so what there is by default is all there is.
    comes_late(&format!("{url}/{name}"), place(&url), "", Some("7d")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_that_comes_late_is_waited_for() {
    let Ok(servers) = std::env::var("ONCEBOX_TEST_KAFKA_URL") else {
        return skipped("late_broker::a_kafka_that_comes_late_is_waited_for");
    };
    let name = name();
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", &servers).create().unwrap();
    let week = "604800000";
    let topic = NewTopic::new(&name, 1, TopicReplication::Fixed(1)).set("retention.ms", week);
    let made = admin.create_topics(&[topic], &AdminOptions::new().operation_timeout(Some(ANSWER))).await;
    assert!(made.unwrap().iter().all(Result::is_ok), "the topic was not created");
    comes_late(&format!("kafka://{servers}/{name}"), place(&servers), "start = \"beginning\"", Some("14d")).await;
}
