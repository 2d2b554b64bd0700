//! One connected trace from `oncebox send` through consumer, outbox and relay to the next consumer, as a collector gets it.

#![cfg(feature = "otlp")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use oncebox_testkit::eventually;
#[cfg(feature = "brokers")]
use oncebox_testkit::skipped;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// A collector of OTLP over HTTP that keeps everything.
struct Collector {
    endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
    _serving: JoinSet<()>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let mut serving = JoinSet::new();
        let kept = Arc::clone(&spans);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&kept)));
            }
        });
        Self { endpoint, spans, _serving: serving }
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

/// Requests of one connection, until it ends.
async fn serve(stream: TcpStream, spans: Arc<Mutex<Vec<Span>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let new = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.lock().unwrap().extend(new.flat_map(|scope| scope.spans));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

const FILE: &str = r#"
[store]
url = "STORE"
setup = "schema.sql"

[[consumer]]
name = "first"
from = "FIRST"
create = true

  [[consumer.on]]
  type = "paid"
  sql = "insert into effects (who, note) values ('first', :note)"
  emit = [{ type = "booked", topic = "TOPIC" }]

[[consumer]]
name = "second"
from = "SECOND"
create = true

  [[consumer.on]]
  type = "booked"
  sql = "insert into effects (who, note) values ('second', :note)"

[relay]
to = "RELAY"

[traces]
endpoint = "COLLECTOR"
ratio = 0
"#;

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command
}

fn write(folder: &Path, parts: &[(&str, &str)]) {
    let file = parts.iter().fold(FILE.to_owned(), |file, (name, value)| file.replace(name, value));
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();
    std::fs::write(folder.join("schema.sql"), "create table if not exists effects (who text, note text)").unwrap();
}

/// `oncebox run`, once both consumers have started.
async fn running(folder: &Path) -> Child {
    let mut child = oncebox(folder, &["run"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (mut said, mut started) = (String::new(), 0);
    while started < 2 {
        let line = lines.next_line().await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended: {said}"));
        started += usize::from(line.contains("consumer starts"));
        said.push_str(&line);
    }
    let mut reader = JoinSet::new();
    reader.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    reader.detach_all();
    child
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM).unwrap();
}

/// The attributes of a span that are texts.
fn texts(span: &Span) -> HashMap<&str, &str> {
    let texts = span.attributes.iter().filter_map(|attribute| match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some((attribute.key.as_str(), text.as_str())),
        _ => None,
    });
    texts.collect()
}

/// Sends one message and looks at its trace.
async fn one_trace(folder: &Path, collector: &Collector, names: [&str; 5], system: &str) {
    let mut child = running(folder).await;
    let sent =
        oncebox(folder, &["send", "--trace", "--payload", r#"{"note": "CANARY-payload"}"#]).output().await.unwrap();
    let stdout = String::from_utf8(sent.stdout).unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let trace_id = stdout.lines().find_map(|line| line.strip_prefix("trace ")).unwrap().to_owned();
    // The file keeps none of the traces that begin here: this one is kept because its producer keeps it.
    eventually("the whole trace arrives", async || collector.spans().len() >= 5).await;
    terminate(&child);
    assert!(child.wait().await.unwrap().success());

    let spans = collector.spans();
    let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut parent = Vec::new();
    for name in names {
        let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>());
        let span = found[0];
        assert_eq!(hex(&span.trace_id), trace_id, "{name}");
        assert_eq!(hex(&span.parent_span_id), hex(&parent), "{name}");
        parent = span.span_id.clone();
        let texts = texts(span);
        assert!(texts.contains_key("messaging.message.id"), "{name}: {texts:?}");
        assert!(texts["messaging.destination.name"].len() > 1, "{name}: {texts:?}");
        if name.starts_with("process") {
            assert_eq!(texts["oncebox.outcome"], "committed", "{name}: {texts:?}");
            assert_eq!(texts["messaging.system"], system, "{name}: {texts:?}");
        }
    }
    assert_eq!(spans.len(), 5);
    assert!(!format!("{spans:?}").contains("CANARY"), "{spans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_through_queue_outbox_and_relay() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let parts = [
        ("STORE", "sqlite://shop.db"),
        ("FIRST", "queue:payments"),
        ("SECOND", "queue:bookings"),
        ("TOPIC", "bookings"),
        ("RELAY", "queue:"),
        ("COLLECTOR", collector.endpoint.as_str()),
        ("create = true\n", ""),
    ];
    write(folder.path(), &parts);
    let names = ["create payments", "send payments", "process payments", "send bookings", "process bookings"];
    one_trace(folder.path(), &collector, names, "oncebox").await;
}

#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_through_postgres_and_rabbitmq() {
    use oncebox::{Clock, SystemClock};
    use sqlx::{AssertSqlSafe, Connection};
    let server = |name| std::env::var(name).ok();
    let (Some(postgres), Some(rabbit)) = (server("ONCEBOX_TEST_POSTGRES_URL"), server("ONCEBOX_TEST_RABBITMQ_URL"))
    else {
        return skipped("cli::traces::a_trace_goes_through_postgres_and_rabbitmq");
    };
    let name = format!("t{}", SystemClock.id().simple());
    let mut db = sqlx::PgConnection::connect(&postgres).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut db).await.unwrap();
    let (base, _) = postgres.rsplit_once('/').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    let (first, second) = (format!("{name}a"), format!("{name}b"));
    let parts = [
        ("STORE", format!("{base}/{name}")),
        ("FIRST", format!("{rabbit}/{first}")),
        ("SECOND", format!("{rabbit}/{second}")),
        ("TOPIC", second.clone()),
        ("RELAY", rabbit.clone()),
        ("COLLECTOR", collector.endpoint.clone()),
    ];
    write(folder.path(), &parts.each_ref().map(|(name, value)| (*name, value.as_str())));
    let names = [
        format!("create {first}"),
        format!("send {first}"),
        format!("process {first}"),
        format!("send {second}"),
        format!("process {second}"),
    ];
    one_trace(folder.path(), &collector, names.each_ref().map(String::as_str), "rabbitmq").await;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut db).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_is_said_once_and_harms_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Bound and never answered: nobody else gets the port meanwhile.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let parts = [
        ("STORE", "sqlite://shop.db"),
        ("FIRST", "queue:payments"),
        ("SECOND", "queue:bookings"),
        ("TOPIC", "bookings"),
        ("RELAY", "queue:"),
        ("COLLECTOR", endpoint.as_str()),
        ("create = true\n", ""),
        ("ratio = 0", "ratio = 1"),
    ];
    write(folder, &parts);
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut child = oncebox(folder, &["run"]).stderr(log).spawn().unwrap();
    let said = || std::fs::read_to_string(folder.join("log")).unwrap();
    for round in 0..3 {
        let sent = oncebox(folder, &["send", "--payload", r#"{"note": "n"}"#]).status().await.unwrap();
        assert!(sent.success());
        eventually("its effects are there", async || effects(folder).await == 2 * (round + 1)).await;
        eventually("its spans were dropped", async || said().contains("traces cannot be sent to")).await;
    }
    terminate(&child);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(said().matches("traces cannot be sent to").count(), 1, "{}", said());
}

async fn effects(folder: &Path) -> i64 {
    use sqlx::Connection;
    let url = format!("sqlite:{}", folder.join("shop.db").display());
    let Ok(mut db) = sqlx::SqliteConnection::connect(&url).await else { return 0 };
    sqlx::query_scalar("select count(*) from effects").fetch_one(&mut db).await.unwrap_or(0)
}
