//! `oncebox parked plan --dry-run`: each message meets the statements of today's file, and nothing of it is kept.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};

use oncebox::{Clock, SystemClock};
use oncebox_testkit::{eventually, skipped};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};
use tokio::process::{Child, Command};

/// Two types that no handler takes yet, or, with handlers, one that emits and one that meets a payment that is there.
fn file(store: &str, handlers: &str) -> String {
    format!(
        "[store]\nurl = \"{store}\"\nsetup = \"schema.sql\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"queue:payments\"\n\n  \
         [[consumer.on]]\n  type = \"payment.received\"\n  sql = \"insert into payments (id) values (:id)\"\n{handlers}"
    )
}

const HANDLERS: &str = r#"
  [[consumer.on]]
  type = "payment.moved"
  sql = ["insert into payments (id) values (:id)", "update totals set payments = payments + 1"]
  emit = [{ type = "invoice.paid", topic = "letters", key = "{account}" }]
"#;

const SCHEMA: &str = "create table if not exists payments (id integer primary key);
create table if not exists totals (payments integer not null);
insert into totals select 0 where not exists (select 1 from totals);
";

async fn oncebox(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).env("USER", "ada").kill_on_drop(true).output().await.unwrap()
}

async fn answer(folder: &Path, words: &[&str]) -> Value {
    let output = oncebox(folder, words).await;
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every row of every table, so that one that is left behind anywhere is seen.
async fn everything(url: &str) -> Vec<(String, Vec<String>)> {
    let Some(path) = url.strip_prefix("sqlite://") else { return everything_on_postgres(url).await };
    let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
    let tables = sqlx::query_scalar("select name from sqlite_master where type = 'table' order by 1");
    let tables: Vec<String> = tables.fetch_all(&mut db).await.unwrap();
    let mut all = Vec::new();
    for table in tables {
        let columns = format!("select 'quote(' || name || ')' from pragma_table_info('{table}')");
        let columns: Vec<String> = sqlx::query_scalar(AssertSqlSafe(columns)).fetch_all(&mut db).await.unwrap();
        let rows = format!("select {} from {table} order by 1", columns.join(" || ',' || "));
        all.push((table, sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(&mut db).await.unwrap()));
    }
    all
}

async fn everything_on_postgres(url: &str) -> Vec<(String, Vec<String>)> {
    let mut db = sqlx::PgConnection::connect(url).await.unwrap();
    let tables = sqlx::query_scalar(
        "select schemaname || '.' || tablename from pg_tables where schemaname in ('public', 'oncebox') order by 1",
    );
    let tables: Vec<String> = tables.fetch_all(&mut db).await.unwrap();
    let mut all = Vec::new();
    for table in tables {
        let rows = format!("select t::text from {table} t order by 1");
        all.push((table, sqlx::query_scalar(AssertSqlSafe(rows)).fetch_all(&mut db).await.unwrap()));
    }
    all
}

async fn a_dry_run_tells_of_each_and_keeps_nothing(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("schema.sql"), SCHEMA).unwrap();
    std::fs::write(folder.join("oncebox.toml"), file(url, "")).unwrap();
    let mut run = running(folder);
    eventually("it has started", async || oncebox(folder, &["schema", "check"]).await.status.success()).await;
    let messages = [
        ("p-1", "payment.received", "{\"id\": 1}"),
        ("m-3", "payment.moved", "{\"number\": 3}"),
        ("m-4", "payment.moved", "{\"id\": 4}"),
        ("m-1", "payment.moved", "{\"id\": 1, \"account\": \"CANARY\"}"),
        ("m-2", "payment.moved", "{\"id\": 2, \"account\": \"CANARY\"}"),
    ];
    for (at, (id, kind, payload)) in messages.into_iter().enumerate() {
        let sent = oncebox(folder, &["send", "--id", id, "--type", kind, "--payload", payload]).await;
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        // One after another, so that they are parked in this order.
        eventually("it is applied, or parked as the others were", async || {
            let status = oncebox(folder, &["status", "--json"]).await;
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            status["consumers"][0]["dead"] == at && status["consumers"][0]["applied"] == 1
        })
        .await;
    }
    run.kill().await.unwrap();

    std::fs::write(folder.join("oncebox.toml"), file(url, HANDLERS)).unwrap();
    let before = everything(url).await;
    let dry = answer(folder, &["parked", "plan", "invoices", "--dry-run", "--json"]).await;
    assert_eq!(everything(url).await, before, "a row was left behind or changed");
    assert!(!dry.to_string().contains("CANARY"), "{dry}");
    let by_id = |id: &str| {
        let messages = dry["messages"].as_array().unwrap();
        let one = messages.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("no {id}: {dry}"));
        (one["result"].as_str().unwrap().to_owned(), one["sentence"].as_str().unwrap().to_owned())
    };
    assert_eq!(by_id("m-2"), ("applied".to_owned(), "message m-2 would be applied".to_owned()));
    let (result, sentence) = by_id("m-1");
    assert!(result == "failed" && sentence.starts_with("message m-1 would fail (permanent): "), "{dry}");
    let (result, sentence) = by_id("m-3");
    assert!(result == "not_run" && sentence.ends_with("the payload has no field `id`"), "{dry}");
    let (result, sentence) = by_id("m-4");
    let says = "the payload has no field `account`, which `emit` of invoice.paid needs";
    assert!(result == "not_run" && sentence.ends_with(says), "{dry}");
    assert_eq!((&dry["applied"], &dry["not_run"]["unreadable"]), (&1.into(), &2.into()), "{dry}");

    // Each runs as if it were alone: a second look finds the same.
    assert_eq!(answer(folder, &["parked", "plan", "invoices", "--dry-run", "--json"]).await, dry);
    let first = answer(folder, &["parked", "plan", "invoices", "--dry-run", "--limit", "1", "--json"]).await;
    let told: Vec<&str> = first["messages"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    // The one that ran, and one of those that can't.
    assert_eq!((&first["not_reached"], told), (&1.into(), vec!["m-3", "m-1"]), "{first}");
    a_replay_that_is_carried_on_later_refuses_what_the_plan_refused(folder).await;
}

/// A replay that nobody carries on at first is judged by the file when somebody does: unreadable is unreadable.
async fn a_replay_that_is_carried_on_later_refuses_what_the_plan_refused(folder: &Path) {
    let which = ["parked", "plan", "invoices", "id != m-1", "--json"];
    let plan = answer(folder, &which).await;
    assert_eq!((&plan["will_run"], &plan["forecasts"]["unreadable"]), (&1.into(), &2.into()), "{plan}");
    let start = ["parked", "replay", "invoices", "id != m-1", "--detach", "--yes", "--why", "mended", "--json"];
    let id = answer(folder, &start).await["id"].to_string();
    for verb in ["pause", "resume"] {
        answer(folder, &["replay", verb, &id, "--why", "a break", "--json"]).await;
    }
    let mut run = running(folder);
    let end = answer(folder, &["replay", "drive", &id, "--why", "carrying on", "--json"]).await;
    run.kill().await.unwrap();
    let counts = ["refused", "revived", "done", "failed"].map(|field| end[field].as_u64().unwrap());
    assert_eq!((end["state"].as_str(), counts), (Some("done"), [2, 1, 1, 0]), "{end}");
}

fn running(folder: &Path) -> Child {
    let mut run = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    run.current_dir(folder).arg("run").stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_keeps_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    a_dry_run_tells_of_each_and_keeps_nothing(&format!("sqlite://{}", folder.path().join("shop.db").display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_keeps_nothing_on_postgres() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("dry_run::a_dry_run_keeps_nothing_on_postgres");
    };
    let name = format!("dry{}", SystemClock.id().simple());
    let mut db = sqlx::PgConnection::connect(&server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut db).await.unwrap();
    let (host, _) = server.rsplit_once('/').unwrap();
    a_dry_run_tells_of_each_and_keeps_nothing(&format!("{host}/{name}")).await;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut db).await.unwrap();
}

#[tokio::test]
async fn a_dry_run_without_its_statements_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("oncebox.toml"), file("sqlite://shop.db", "")).unwrap();
    std::fs::write(folder.join("schema.sql"), SCHEMA).unwrap();
    assert!(oncebox(folder, &["schema", "up"]).await.status.success());
    for (words, says) in [
        (&["parked", "plan", "letters", "--dry-run"][..], "oncebox.toml has no such consumer"),
        (&["parked", "plan", "invoices", "--dry-run", "--store", "sqlite://shop.db"], "--store names no file"),
    ] {
        let output = oncebox(folder, words).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}
