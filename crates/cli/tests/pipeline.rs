//! `oncebox init`, `run` and `send`, as a newcomer meets them, and with `run` killed again and again.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

#[cfg(feature = "brokers")]
use oncebox::{Clock, SystemClock};
#[cfg(feature = "brokers")]
use oncebox_testkit::skipped;
use oncebox_testkit::{DEADLINE, eventually, eventually_within};
#[cfg(feature = "brokers")]
use sqlx::AssertSqlSafe;
use sqlx::Connection;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command
}

async fn done(folder: &Path, words: &[&str]) -> Output {
    let output = oncebox(folder, words).output().await.unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// `oncebox run`, once its consumers have started.
async fn running(folder: &Path) -> Child {
    let mut child = oncebox(folder, &["run"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = String::new();
    loop {
        let line = lines.next_line().await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended: {said}"));
        said.push_str(&line);
        if line.contains("consumer starts") {
            break;
        }
    }
    // Someone must read what it says, or it waits for that one day.
    let mut reader = tokio::task::JoinSet::new();
    reader.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    reader.detach_all();
    child
}

/// What the business tables hold: payments, invoices, and what was paid.
type Held = (i64, i64, i64);

const COUNT: &str = "select (select count(*) from payments), (select count(*) from invoices), \
                     (select cast(coalesce(sum(paid), 0) as bigint) from invoices)";

async fn held_by_sqlite(folder: &Path) -> Held {
    let url = format!("sqlite:{}", folder.join("oncebox.db").display());
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query_as(COUNT).fetch_one(&mut db).await.unwrap()
}

/// What it must be after messages 1 to `count`.
fn expected(count: i64) -> Held {
    (count, count, count * (count + 1) / 2)
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_init_writes_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init"]).await;
    let again = oncebox(folder, &["init"]).output().await.unwrap();
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("it is there already"));
    let mut child = running(folder).await;
    let sent = done(folder, &["send", "--repeat", "300", "--duplicate-ratio", "0.5"]).await;
    assert_eq!(String::from_utf8_lossy(&sent.stdout), "300 messages to queue:payments, 150 of them twice\n");
    eventually("all have taken effect", async || held_by_sqlite(folder).await == expected(300)).await;
    terminate(&child);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(held_by_sqlite(folder).await, expected(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init"]).await;
    done(folder, &["send"]).await;
    done(folder, &["run", "--check"]).await;
    assert_eq!(held_by_sqlite(folder).await, (0, 0, 0));
}

/// Runs until `held` is as it should be, and kills it ten times on the way.
async fn killed(folder: &Path, count: i64, held: impl AsyncFn() -> Held) {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..10 {
        let mut child = running(folder).await;
        let before = held().await.0;
        let goal = (before + random.i64(1..=count / 20)).min(count);
        eventually("it makes headway", async || held().await.0 >= goal).await;
        child.kill().await.unwrap();
    }
    let mut child = running(folder).await;
    let deadline = DEADLINE + Duration::from_secs(count.unsigned_abs() / 200);
    eventually_within(deadline, "all have taken effect", async || held().await == expected(count)).await;
    terminate(&child);
    assert!(child.wait().await.unwrap().success());
    assert_eq!(held().await, expected(count));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_lose_and_double_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init"]).await;
    done(folder, &["send", "--repeat", "2000", "--duplicate-ratio", "0.5"]).await;
    // The tables come with the first start.
    drop(running(folder).await);
    killed(folder, 2000, async || held_by_sqlite(folder).await).await;
}

/// The same file with two URLs changed.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_lose_and_double_nothing_on_postgres_and_rabbitmq() {
    let test = "cli::pipeline::ten_kills_lose_and_double_nothing_on_postgres_and_rabbitmq";
    let server = |name| std::env::var(name).ok();
    let (Some(postgres), Some(rabbit)) = (server("ONCEBOX_TEST_POSTGRES_URL"), server("ONCEBOX_TEST_RABBITMQ_URL"))
    else {
        return skipped(test);
    };
    let name = format!("r{}", SystemClock.id().simple());
    let mut db = sqlx::PgConnection::connect(&postgres).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut db).await.unwrap();
    let (server, _) = postgres.rsplit_once('/').unwrap();
    let url = format!("{server}/{name}");

    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init"]).await;
    let file = std::fs::read_to_string(folder.join("oncebox.toml")).unwrap();
    let file = file.replace("sqlite://oncebox.db", &url).replace("queue:payments", &format!("{rabbit}/{name}"));
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();

    // Makes the tables and the queue.
    drop(running(folder).await);
    let count: i64 = server_count();
    done(folder, &["send", "--repeat", &count.to_string(), "--duplicate-ratio", "0.5"]).await;
    killed(folder, count, async || {
        let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
        sqlx::query_as(COUNT).fetch_one(&mut db).await.unwrap()
    })
    .await;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut db).await.unwrap();
}

/// `ONCEBOX_TEST_PIPELINE_MESSAGES` makes it as long or as short as you like.
#[cfg(feature = "brokers")]
fn server_count() -> i64 {
    std::env::var("ONCEBOX_TEST_PIPELINE_MESSAGES").ok().map_or(100_000, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let says = async |words: &[&str]| {
        let output = oncebox(folder, words).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(says(&["run"]).await.contains("cannot read oncebox.toml"));
    assert!(says(&["send"]).await.contains("cannot read oncebox.toml"));
    done(folder, &["init"]).await;
    assert!(says(&["relay"]).await.contains("has no [relay]"));
    assert!(says(&["send", "--to", "sqs://q"]).await.contains("not built yet"));
    assert!(says(&["send", "--payload", "CANARY"]).await.contains("the payload is not JSON"));
    assert!(!says(&["send", "--payload", "CANARY"]).await.contains("CANARY"));
    let file = std::fs::read_to_string(folder.join("oncebox.toml")).unwrap();
    std::fs::write(folder.join("oncebox.toml"), file.replace("into payments", "into paymnts")).unwrap();
    let said = says(&["run"]).await;
    assert!(said.contains("oncebox.toml:20: statement 1 of type `payment.received` cannot run"), "{said}");
    let usage = oncebox(folder, &["send", "--duplicate-ratio", "2"]).output().await.unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

/// What `send` makes up is what the consumer needs, its keys included: the guides send to files like this.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_up_has_the_fields_of_the_keys() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = r#"
[store]
url = "sqlite://oncebox.db"
setup = "schema.sql"

[[consumer]]
name = "readings"
from = "queue:readings"
key = "cpu:{host.name}:{at|hour}:{number}"
order_by = "{rack}"
require = "effectively-once"

  [[consumer.on]]
  type = "reading"
  sql = "insert into readings (value) values (:value)"
"#;
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();
    std::fs::write(folder.join("schema.sql"), "create table if not exists readings (value integer);").unwrap();
    let child = running(folder).await;
    done(folder, &["send", "--repeat", "20"]).await;
    let url = format!("sqlite:{}", folder.join("oncebox.db").display());
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    eventually("all are applied", async || {
        let count: i64 = sqlx::query_scalar("select count(*) from readings").fetch_one(&mut db).await.unwrap();
        count == 20
    })
    .await;
    drop(child);
}

/// Under one key, two messages: what became of the first is not told of the second.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_message_did_is_not_told_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    done(folder, &["init"]).await;
    let file = std::fs::read_to_string(folder.join("oncebox.toml")).unwrap();
    let file = file.replace("key = \"message-id\"", "key = \"payment:{payment_id}\"");
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();
    let child = running(folder).await;
    for (id, amount) in [("first", "5"), ("second", "6")] {
        let payload = format!(r#"{{"payment_id": 1, "invoice_id": 1, "amount": {amount}}}"#);
        done(folder, &["send", "--id", id, "--payload", &payload]).await;
        let applied = async || held_by_sqlite(folder).await.0 == 1;
        eventually("the first is applied", applied).await;
    }
    let said = eventually("the second is set aside", async || {
        let shown = oncebox(folder, &["message", "show", "second"]).output().await.unwrap();
        let said = String::from_utf8(shown.stdout).unwrap();
        said.contains("dead").then_some(said)
    })
    .await;
    assert!(said.contains("; that was another message with this key"), "{said}");
    let shown = done(folder, &["message", "show", "second", "--json"]).await;
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["consumers"][0]["records"][0]["of_another"], true, "{shown}");
    drop(child);
}
