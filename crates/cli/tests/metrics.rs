//! What `oncebox run` serves over HTTP: metrics as they are documented, health, and no secrets.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use oncebox_testkit::eventually;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const FILE: &str = r#"
[store]
url = "sqlite://oncebox.db"
setup = "schema.sql"

[[consumer]]
name = "invoices"
from = "queue:payments"
key = "message-id"

  [[consumer.on]]
  type = "payment.received"
  sql = "insert into payments (id, invoice, amount) values (:payment_id, :invoice_id, :amount)"
  emit = [{ type = "invoice.paid", topic = "letters", key = "{invoice_id}" }]

[relay]
to = "queue:"

[metrics]
listen = "127.0.0.1:0"
"#;

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command
}

/// `oncebox run`, and where it serves.
async fn running(folder: &Path) -> (Child, String) {
    running_with(folder, FILE).await
}

async fn running_with(folder: &Path, file: &str) -> (Child, String) {
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();
    let schema = "create table if not exists payments (id text primary key, invoice text, amount integer not null);";
    std::fs::write(folder.join("schema.sql"), schema).unwrap();
    let mut child = oncebox(folder, &["run"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    let address = loop {
        let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {said}"));
        said.push_str(&line);
        if let Some((_, rest)) = line.split_once("metrics at http://") {
            break rest.split_once('/').unwrap().0.to_owned();
        }
    };
    let mut reader = tokio::task::JoinSet::new();
    reader.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    reader.detach_all();
    (child, address)
}

/// The status and the body.
async fn get(address: &str, path: &str) -> (u16, String) {
    try_get(address, path).await.unwrap()
}

/// The same of a process that may be gone.
async fn try_get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let cut_off = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Everything in a text that looks like one of our metrics.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("oncebox_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_what_the_documents_say_and_health_answers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_child, address) = running(folder).await;
    let sent = oncebox(folder, &["send", "--repeat", "200", "--duplicate-ratio", "0.5"]).output().await.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let canary = r#"{"payment_id":{"x":1},"invoice_id":"CANARY-payload","amount":"CANARY-amount"}"#;
    let sent = oncebox(folder, &["send", "--payload", canary, "--id", "CANARY-id"]).output().await.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));

    let sample = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit_once(' ').unwrap().1.parse().ok()
    };
    let text = eventually("all is counted, the gauges too", async || {
        let (status, text) = get(&address, "/metrics").await;
        assert_eq!(status, 200);
        let done = sample(&text, r#"oncebox_outcomes_total{consumer="invoices",outcome="applied"}"#) >= Some(200.0);
        let published = sample(&text, "oncebox_relay_published_total") >= Some(200.0);
        let looked = sample(&text, r#"oncebox_backlog{consumer="invoices"}"#) == Some(0.0);
        (done && published && looked).then_some(text)
    })
    .await;
    let again = r#"oncebox_duplicates_total{consumer="invoices",type="payment.received",cause="sent_again"}"#;
    assert_eq!(sample(&text, again), Some(100.0), "{text}");
    assert!(sample(&text, r#"oncebox_handler_seconds_count{consumer="invoices"}"#) >= Some(200.0), "{text}");
    assert_eq!(sample(&text, "oncebox_store_up"), Some(1.0));
    assert_eq!(sample(&text, r#"oncebox_oldest_seconds{consumer="invoices"}"#), Some(0.0));

    // The table, the dashboard and the rules speak of what is there, and of all of it.
    let served: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).flat_map(names).collect();
    let rows: Vec<String> =
        read("docs/metrics.md").lines().filter(|line| line.starts_with("| `oncebox_")).map(str::to_owned).collect();
    let documented: BTreeSet<String> = rows.iter().map(|row| row.split('`').nth(1).unwrap().to_owned()).collect();
    assert_eq!(served, documented, "what is served, and the table in docs/metrics.md");
    assert_eq!(rows.len(), documented.len(), "each once");
    for row in &rows {
        let (name, kind) = (row.split('`').nth(1).unwrap(), row.split('|').nth(2).unwrap().trim());
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{row}");
    }
    for file in ["deploy/grafana/oncebox.json", "deploy/prometheus/alerts.yml"] {
        let unknown: Vec<String> = names(&read(file)).difference(&served).cloned().collect();
        assert!(unknown.is_empty(), "{file} speaks of {unknown:?}, which nobody serves");
    }
    serde_json::from_str::<serde_json::Value>(&read("deploy/grafana/oncebox.json")).unwrap();

    assert_eq!(get(&address, "/healthz").await, (200, "alive\n".to_owned()));
    assert_eq!(get(&address, "/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(get(&address, "/").await.0, 404);
    let (_, last) = get(&address, "/metrics").await;
    assert!(!last.contains("CANARY"), "{last}");
}

/// What is old goes, and whoever watches sees it go.
#[tokio::test(flavor = "multi_thread")]
async fn what_retention_removes_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = FILE.replace("key = \"message-id\"", "key = \"message-id\"\nretention = \"30d\"");
    std::fs::write(folder.join("oncebox.toml"), &file).unwrap();
    assert!(oncebox(folder, &["schema", "up"]).output().await.unwrap().status.success());
    let path = format!("sqlite:{}", folder.join("oncebox.db").display());
    let mut db = <sqlx::SqliteConnection as sqlx::Connection>::connect(&path).await.unwrap();
    let old = "insert into oncebox_consumers (id, name) values (1, 'invoices');
         with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 50)
         insert into oncebox_inbox (consumer, key, fingerprint, scheme, processed_at)
         select 1, cast('old ' || n as blob), n, 1, (unixepoch() - 40 * 86400 - n) * 1000000 from numbers";
    sqlx::raw_sql(old).execute(&mut db).await.unwrap();

    let (_child, address) = running_with(folder, &file).await;
    let text = eventually("a pass has ended", async || {
        let (_, text) = get(&address, "/metrics").await;
        let done = text.contains("oncebox_retention_passes_total{consumer=\"invoices\"} 1\n");
        done.then_some(text)
    })
    .await;
    assert!(text.contains("oncebox_retention_removed_total{consumer=\"invoices\",what=\"records\"} 50\n"), "{text}");
    assert!(text.contains("oncebox_retention_removed_total{what=\"sent\"} 0\n"), "{text}");
    assert!(text.contains("oncebox_retention_failures_total{consumer=\"invoices\"} 0\n"), "{text}");
    assert!(text.contains("oncebox_retention_share 0.1\n"), "{text}");
    let horizon =
        text.lines().find_map(|line| line.strip_prefix("oncebox_retention_horizon_seconds{consumer=\"invoices\"} "));
    let back: u64 = horizon.unwrap().parse().unwrap();
    assert!((40 * 86_400..41 * 86_400).contains(&back), "{text}");
}

/// A store that went away is told, and who asks is told why.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ready_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (_child, address) = running(folder).await;
    eventually("it is ready", async || get(&address, "/readyz").await.0 == 200).await;
    let mut db = <sqlx::SqliteConnection as sqlx::Connection>::connect(&format!(
        "sqlite:{}",
        folder.join("oncebox.db").display()
    ))
    .await
    .unwrap();
    sqlx::raw_sql("drop table oncebox_counters").execute(&mut db).await.unwrap();
    let body = eventually("it is not", async || {
        let (status, body) = get(&address, "/readyz").await;
        (status == 503).then_some(body)
    })
    .await;
    assert!(body.starts_with("not ready:\n- the store does not answer: cannot write counters"), "{body}");
    assert_eq!(get(&address, "/healthz").await.0, 200, "the process itself is alive");
    let (_, text) = get(&address, "/metrics").await;
    assert!(text.contains("\noncebox_store_up 0\n"), "{text}");
    // Nothing else fails with it.
    let sent = oncebox(folder, &["send", "--repeat", "5"]).output().await.unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    let applied = r#"oncebox_outcomes_total{consumer="invoices",outcome="applied"} 5"#;
    eventually("messages are handled all the same", async || get(&address, "/metrics").await.1.contains(applied)).await;
}

/// A name that is bound to another key while the consumer runs: `status` tells it, and the process is ready until it ends,
/// which it does with its next message.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_consumer_whose_key_is_refused_ends_and_does_not_start_again() {
    use oncebox::horizon::Consumers as _;
    use oncebox::{ConsumerName, Session as _, Store as _, Transaction as _};
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut child, address) = running(folder).await;
    eventually("it is ready", async || get(&address, "/readyz").await.0 == 200).await;
    let store = oncebox::sqlite::Sqlite::open(folder.join("oncebox.db").display().to_string()).await.unwrap();
    let consumer = store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap();
    let mut tx = store.connect().await.unwrap().begin(std::time::Duration::from_secs(5)).await.unwrap();
    let mut binding = tx.binding(consumer, true).await.unwrap().unwrap();
    "content-hash/2".clone_into(&mut binding.scheme.key);
    tx.set_binding(consumer, &binding).await.unwrap();
    assert!(matches!(tx.commit().await, oncebox::Ended::Committed(_)));

    let output = oncebox(folder, &["status", "--json"]).output().await.unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let refused = status["consumers"][0]["identity_refused"].as_str().unwrap();
    assert!(refused.contains("`content-hash/2`") && refused.contains("`message-id`"), "{status}");
    let output = oncebox(folder, &["status"]).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("invoices cannot start as the file has it"), "{text}");

    // It finds out with a message, some seconds after its last look.
    let ended = eventually("it ends", async || {
        oncebox(folder, &["send"]).output().await.unwrap();
        // Between its last message and its end it may still be asked: it drains then.
        if let Ok((status, body)) = try_get(&address, "/readyz").await {
            assert!(status == 200 || body.contains("- consumer invoices does not run"), "{body}");
        }
        child.try_wait().unwrap()
    })
    .await;
    assert_eq!(ended.code(), Some(1));
    let again = oncebox(folder, &["run"]).output().await.unwrap();
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && said.contains("OB0214") && said.contains("`content-hash/2`"), "{said}");
}

/// A broker that is away, with a password in its address, and a message with secrets that cannot be published.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_broker_tells_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let away = FILE.replace("to = \"queue:\"", "to = \"amqp://shop:CANARY-password@127.0.0.1:1/%2f\"");
    let (_child, address) = running_with(folder, &away).await;
    let store = oncebox::sqlite::Sqlite::open(folder.join("oncebox.db").display().to_string()).await.unwrap();
    let payload = r#"{"payment_id":"p","invoice_id":"i","amount":1,"card":"CANARY-payload"}"#;
    let mut message = oncebox::Message::new("payment.received").with_payload(payload);
    message.headers.add("authorization", "CANARY-header").unwrap();
    oncebox::Queue::new(store, "payments").unwrap().send([message]).await.unwrap();
    let text = eventually("what was emitted waits", async || {
        let (_, text) = get(&address, "/metrics").await;
        text.contains("\noncebox_outbox_rows{state=\"unsent\"} 1\n").then_some(text)
    })
    .await;
    for path in ["/healthz", "/readyz"] {
        let (_, body) = get(&address, path).await;
        assert!(!body.contains("CANARY") && !body.is_empty(), "{path}: {body}");
    }
    assert!(!text.contains("CANARY"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(folder.join("oncebox.toml"), FILE.replace("127.0.0.1:0", &address)).unwrap();
    std::fs::write(
        folder.join("schema.sql"),
        "create table payments (id text primary key, invoice text, amount integer);",
    )
    .unwrap();
    let output = oncebox(folder, &["run"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let line = format!("oncebox: OB0408: cannot serve metrics at {address}: Address already in use");
    assert!(said.contains(&line) && said.contains("choose another `listen`"), "{said}");
}
