//! Canary secrets in addresses, variables, headers, payloads and keys: the binary goes through many paths, and none of them
//! comes out in what it says, nor in what it stores as a reason.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};

use oncebox_testkit::eventually;
use sqlx::Connection;
use tokio::process::Command;

/// Begins every secret of this test.
const CANARY: &str = "CANARY";

const FILE: &str = r#"
[store]
url = "sqlite://shop.db"
setup = "schema.sql"

[[consumer]]
name = "payments"
from = "queue:payments"
key = "payment:{number}"
retry = { attempts = 2, first = "1ms", max = "1ms" }

  [[consumer.on]]
  type = "paid"
  sql = "insert into payments (card, amount) values (:card, :amount)"
  emit = [{ type = "booked", topic = "booked", key = "{number}", payload = { card = "{card}" } }]

  [[consumer.on]]
  type = "cast"
  sql = "insert into strict_amounts (amount) values (:amount)"

  [[consumer.on]]
  type = "checked"
  sql = "update payments set amount = 0 where card = :amount"
  expect = 1

[relay]
to = "queue:"

[kafka]
"sasl.password" = "${PLANTED}"
"#;

const SCHEMA: &str = "
create table if not exists payments (card text primary key, amount any check (amount <> 'CANARY-check'));
create table if not exists strict_amounts (amount integer not null) strict;
";

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true);
    command.env("PLANTED", "CANARY-variable").env("ONCEBOX_LOG", "trace");
    // Characters that end a part of an address, in an order that leaves a piece of the secret in each.
    command.env("HOSTILE", "CANARY@CANARY/CANARY:1?CANARY#CANARY%CANARY,CANARY CANARY");
    command
}

/// Everything that was said, and fails if a secret is among it.
fn innocent(what: &str, output: &Output) -> String {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let told: Vec<&str> = said.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(told.is_empty(), "{what} tells a secret:\n{}", told.join("\n"));
    said
}

async fn says(folder: &Path, words: &[&str]) -> String {
    innocent(&format!("{words:?}"), &oncebox(folder, words).output().await.unwrap())
}

/// Runs `file` until `done`, and answers what it said at the most talkative.
async fn runs(folder: &Path, form: &str, done: impl AsyncFn() -> bool) -> String {
    let mut child = oncebox(folder, &["run", "--log", form]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    // Whoever says so much needs someone who reads it.
    let (output, ()) = tokio::join!(child.wait_with_output(), async {
        eventually("it has gone through all of them", &done).await;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    });
    innocent("run", &output.unwrap())
}

/// Runs until it has logged this.
#[cfg(feature = "brokers")]
async fn logs(folder: &Path, words: &[&str], awaited: &str) {
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let mut child = oncebox(folder, words).stderr(log).spawn().unwrap();
    let said = || std::fs::read_to_string(folder.join("log")).unwrap();
    eventually(awaited, async || said().contains(awaited)).await;
    child.kill().await.unwrap();
    assert!(!said().contains(CANARY), "{}", said());
}

fn write(folder: &Path, file: &str) {
    std::fs::write(folder.join("oncebox.toml"), file).unwrap();
    std::fs::write(folder.join("schema.sql"), SCHEMA).unwrap();
}

/// Messages that go well, and that fail in ways in which databases quote values.
async fn send_all(folder: &Path) {
    for (kind, payload) in [
        ("paid", r#"{"number": 1, "card": "CANARY-card", "amount": 1, "memo": "CANARY-memo"}"#),
        // A check that fails: SQLite quotes its text, PostgreSQL the row.
        ("paid", r#"{"number": 2, "card": "CANARY-other", "amount": "CANARY-check"}"#),
        ("cast", r#"{"number": 3, "card": "CANARY-3", "amount": "CANARY-no-number"}"#),
        ("cast", r#"{"number": 4, "card": "CANARY-4"}"#),
        ("checked", r#"{"number": 5, "card": "CANARY-5", "amount": "CANARY-nobody"}"#),
        ("CANARY-type", r#"{"number": 6, "card": "CANARY-6"}"#),
        ("paid", r#"{"number": 7, "card": ["CANARY-7"], "amount": null}"#),
    ] {
        let kind = kind.replace("CANARY-", "unknown-");
        let said = says(folder, &["send", "--type", &kind, "--payload", payload]).await;
        assert!(said.contains("1 message to"), "{said}");
    }
}

/// As a producer in Rust sends them.
async fn send_with_headers(folder: &Path) {
    let store = oncebox::sqlite::Sqlite::open(folder.join("shop.db").display().to_string()).await.unwrap();
    let queue = oncebox::Queue::new(store, "payments").unwrap();
    for (kind, card, number) in [("paid", "CANARY-8", 8), ("cast", "CANARY-9", 9)] {
        let payload = format!(r#"{{"number": {number}, "card": "{card}", "amount": "CANARY-amount"}}"#);
        let mut message = oncebox::Message::new(kind).with_payload(payload);
        message.headers.add("authorization", "CANARY-header").unwrap();
        message.headers.add("traceparent", "CANARY-no-trace").unwrap();
        queue.send([message]).await.unwrap();
    }
}

/// Every verb that only looks, in both forms, at what was stored. Ids and keys are shown: they are what operators look for.
async fn operators_look(folder: &Path) {
    let listed = oncebox(folder, &["parked", "list", "payments", "--json"]).output().await.unwrap();
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let parked = listed.as_array().unwrap();
    assert!(parked.len() >= 4, "{listed}");
    let ids: Vec<String> = parked.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    let rows: Vec<String> = parked.iter().map(|one| one["row"].to_string()).collect();
    let mut looks = vec![
        vec!["parked", "list", "payments"],
        vec!["parked", "groups", "payments"],
        vec!["parked", "plan", "payments"],
        vec!["outbox", "list"],
        vec!["replay", "list"],
        vec!["retention", "plan"],
        vec!["schema", "check"],
        vec!["status"],
        vec!["doctor"],
    ];
    looks.extend(ids.iter().map(|id| vec!["message", "show", id]));
    looks.extend(rows.iter().map(|row| vec!["parked", "show", row]));
    for words in looks {
        says(folder, &words).await;
        let words = [&words[..], &["--json"]].concat();
        let output = oncebox(folder, &words).output().await.unwrap();
        innocent(&format!("{words:?}"), &output);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_else(|_| panic!("{words:?}: {output:?}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_fails_tells_no_payload_key_or_variable() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, FILE);
    send_all(folder).await;
    send_with_headers(folder).await;
    let url = format!("sqlite:{}", folder.join("shop.db").display());
    let parked = async || {
        let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let count = sqlx::query_scalar::<_, i64>("select count(*) from oncebox_parked where due_at is null");
        count.fetch_one(&mut db).await.unwrap_or(0) >= 5
    };
    let said = runs(folder, "json", parked).await;
    assert!(said.contains("consumer starts"), "{said}");
    operators_look(folder).await;
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let reasons: Vec<String> =
        sqlx::query_scalar("select reason from oncebox_parked").fetch_all(&mut db).await.unwrap();
    assert!(reasons.len() >= 5, "{reasons:?}");
    assert!(!reasons.concat().contains(CANARY), "{reasons:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_file_tells_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (from, to) in [
        ("sqlite://shop.db", "postgres://app:CANARY-password@127.0.0.1:1/shop"),
        ("sqlite://shop.db", "postgres://app:CANARY-password@no-such-host.invalid/shop?password=CANARY-query"),
        ("sqlite://shop.db", "postgres://app:CANARY-pass word@[bad/shop"),
        ("sqlite://shop.db", "mysql://app:CANARY-password@db/shop"),
        ("sqlite://shop.db", "${PLANTED}"),
        ("queue:payments", "amqp://u:CANARY-password@127.0.0.1:1/%2f/q"),
        ("queue:payments", "amqp://u:CANARY-password@127.0.0.1:1/%zz/q"),
        ("queue:payments", "nats://u:CANARY-password@127.0.0.1:1/stream"),
        ("queue:payments", "kafka://CANARY-password@h/topic/x/y"),
        ("queue:payments", "${PLANTED}"),
        ("sqlite://shop.db", "postgres://app:${HOSTILE}@127.0.0.1:1/shop"),
        ("sqlite://shop.db", "postgres://${HOSTILE}@127.0.0.1:1/shop"),
        ("sqlite://shop.db", "postgres://app@127.0.0.1:1/shop?password=${HOSTILE}"),
        ("sqlite://shop.db", "postgres://app:p@${HOSTILE}/shop"),
        ("sqlite://shop.db", "postgres://app:12/CANARY-password@127.0.0.1:1/shop"),
        ("sqlite://shop.db", "${HOSTILE}"),
        ("queue:payments", "amqp://u:${HOSTILE}@127.0.0.1:1/%2f/q"),
        ("queue:payments", "amqp://${HOSTILE}/%2f/q"),
        ("queue:payments", "nats://u:${HOSTILE}@127.0.0.1:1/stream"),
        ("queue:payments", "nats://${HOSTILE}@127.0.0.1:1/stream"),
        ("queue:payments", "kafka://${HOSTILE}/topic"),
        ("queue:payments", "kafka://u:${HOSTILE}@127.0.0.1:1/topic"),
        ("to = \"queue:\"", "to = \"amqps://u:CANARY-password@h:notaport/\""),
        ("to = \"queue:\"", "to = \"amqp://u:12/CANARY-password@h/\""),
        ("to = \"queue:\"", "to = \"nats://${HOSTILE}\""),
        ("to = \"queue:\"", "to = \"sqs://CANARY-password\""),
        ("payment:{number}", "${PLANTED}{"),
        ("attempts = 2", "attempts = \"${PLANTED}\""),
        ("retry = {", "retry = { first_password = \"CANARY-password\","),
        ("[kafka]", "[kafka"),
    ] {
        assert!(FILE.contains(from), "{from}");
        write(folder, &FILE.replacen(from, to, 1));
        for words in [&["run", "--check"][..], &["send"], &["relay", "--log", "json"], &["schema", "check"]] {
            let log = std::fs::File::create(folder.join("log")).unwrap();
            let mut command = oncebox(folder, words);
            let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
            let said = || std::fs::read_to_string(folder.join("log")).unwrap();
            // A relay with nothing wrong about it runs until it is told to end.
            let mut has_ended = false;
            eventually("it ends or runs", async || {
                has_ended = child.try_wait().unwrap().is_some();
                has_ended || said().contains("relay starts")
            })
            .await;
            if !has_ended {
                let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                child.wait().await.unwrap();
            }
            let said = said();
            assert!(!said.contains(CANARY), "{words:?} with {to}: {said}");
        }
    }
}

/// Somebody pastes an address where something else belongs.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_the_wrong_place_is_told_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, FILE);
    assert!(oncebox(folder, &["schema", "up"]).output().await.unwrap().status.success());
    for address in ["postgres://u:CANARY-password@h/d", "postgres://h/d?password=CANARY-password&x=a@b"] {
        let of_flag = format!("--older-than={address}");
        for words in [
            &["status", address][..],
            &["retention", "plan", "--older-than", address],
            &["retention", "plan", &of_flag],
            &["parked", "groups", address],
            &["parked", "groups", "payments", address],
            &["parked", "list", "payments", &format!("id = {address} and")],
            &["status", "--file", address],
            &["send", "--to", address],
            &["send", "--id", "x", "--repeat", address],
            &["explain", address],
        ] {
            let output = oncebox(folder, words).output().await.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains("oncebox: OB"), "{words:?}: {said}");
            assert!(!said.contains("CANARY-password"), "{words:?}: {said}");
        }
    }
}

/// Passwords that are right and wrong, payloads on the wire, a queue that is not there: real servers at trace level.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn real_servers_are_spoken_to_and_no_secret_is_told() {
    use oncebox::{Clock, SystemClock};
    use oncebox_testkit::skipped;
    use sqlx::AssertSqlSafe;
    let server = |name| std::env::var(name).ok();
    let (Some(postgres), Some(rabbit)) = (server("ONCEBOX_TEST_POSTGRES_URL"), server("ONCEBOX_TEST_RABBITMQ_URL"))
    else {
        return skipped("cli::secrets::real_servers_are_spoken_to_and_no_secret_is_told");
    };
    let name = format!("s{}", SystemClock.id().simple());
    let mut db = sqlx::PgConnection::connect(&postgres).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut db).await.unwrap();
    let (base, _) = postgres.rsplit_once('/').unwrap();
    let (scheme, host) = base.split_once("://").unwrap();
    let (user, host) = host.rsplit_once('@').unwrap_or(("postgres", host));
    let user = user.split(':').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // The server trusts whoever is local, so any password is right.
    let store = format!("{scheme}://{user}:CANARY-right@{host}/{name}");
    let file = FILE
        .replace("sqlite://shop.db", &store)
        .replace("from = \"queue:payments\"", &format!("from = \"{rabbit}/{name}\"\ncreate = true"))
        .replace("to = \"queue:\"", &format!("to = \"{rabbit}\""));
    write(folder, &file);
    let schema =
        "create table if not exists payments (card text primary key, amount text check (amount <> 'CANARY-check'));
                  create table if not exists strict_amounts (amount integer not null);
                  create or replace function tell() returns trigger language plpgsql as
                  $$ begin raise notice 'it is %', new.card; raise warning 'it is %', new.card; return new; end $$;
                  create or replace trigger telling before insert on payments for each row execute function tell();";
    std::fs::write(folder.join("schema.sql"), schema).unwrap();
    let url = format!("{base}/{name}");
    // The queue comes with the first start.
    logs(folder, &["run"], "consumer starts").await;
    send_all(folder).await;
    let parked = async || {
        let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
        let count = sqlx::query_scalar::<_, i64>("select count(*) from oncebox.parked where due_at is null");
        count.fetch_one(&mut db).await.unwrap_or(0) >= 4
    };
    runs(folder, "json", parked).await;
    // There is no queue of that name.
    logs(folder, &["relay"], "cannot publish to booked").await;
    operators_look(folder).await;
    let mut inside = sqlx::PgConnection::connect(&url).await.unwrap();
    let reasons: Vec<String> =
        sqlx::query_scalar("select reason from oncebox.parked").fetch_all(&mut inside).await.unwrap();
    assert!(!reasons.concat().contains(CANARY), "{reasons:#?}");
    drop(inside);
    // Refused by the broker.
    let wrong = rabbit.replacen("guest:guest@", "guest:CANARY-wrong@", 1);
    assert_ne!(wrong, rabbit);
    write(folder, &file.replace(&rabbit, &wrong));
    for words in [&["run", "--log", "json"][..], &["relay"], &["send"]] {
        let said = says(folder, words).await;
        assert!(!said.is_empty());
    }
    sqlx::raw_sql(AssertSqlSafe(format!("drop database {name} with (force)"))).execute(&mut db).await.unwrap();
}
