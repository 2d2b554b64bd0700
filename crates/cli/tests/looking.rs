//! On SQLite there is one writer. Who only looks does not wait for it.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};

use sqlx::{Connection, SqliteConnection};
use tokio::process::Command;

const FILE: &str = r#"
[store]
url = "sqlite://oncebox.db"

[[consumer]]
name = "invoices"
from = "queue:payments"
retention = "30d"

  [[consumer.on]]
  type = "payment.received"
  sql = "insert into payments (id) values (:payment_id)"
"#;

async fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).stdin(Stdio::null()).env("USER", "ada").output().await.unwrap()
}

/// A handler holds its transaction for as long as it likes, and the person on call wants to know why.
#[tokio::test(flavor = "multi_thread")]
async fn every_look_answers_while_somebody_writes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("oncebox.toml"), FILE).unwrap();
    assert!(run(folder, &["schema", "up"]).await.status.success());
    let path = format!("sqlite:{}", folder.join("oncebox.db").display());
    let mut writer = SqliteConnection::connect(&path).await.unwrap();
    let before = "create table payments (id text primary key);
         insert into oncebox_consumers (id, name) values (1, 'invoices');";
    sqlx::raw_sql(before).execute(&mut writer).await.unwrap();
    let held = "begin immediate; insert into payments (id) values ('p1')";
    sqlx::raw_sql(held).execute(&mut writer).await.unwrap();

    let looks: &[&[&str]] = &[
        &["status"],
        &["status", "--watch", "--looks", "2"],
        &["parked", "groups", "invoices"],
        &["parked", "list", "invoices"],
        &["parked", "plan", "invoices"],
        &["parked", "export", "invoices"],
        &["outbox", "list"],
        &["replay", "list"],
        &["retention", "plan"],
        &["schema", "check"],
        &["doctor"],
    ];
    for words in looks {
        let output = run(folder, words).await;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(!said.contains("OB02") && !said.contains("store.unreachable"), "{words:?}: {said}");
    }
    let unknown = run(folder, &["message", "show", "m1"]).await;
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("nothing is known of message m1"), "{unknown:?}");

    // A table that somebody has dropped is missed, whatever the version says.
    sqlx::raw_sql("rollback; drop table oncebox_counters").execute(&mut writer).await.unwrap();
    let gone = run(folder, &["schema", "check"]).await;
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stdout).contains("some are gone: oncebox_counters"), "{gone:?}");
    sqlx::raw_sql(held).execute(&mut writer).await.unwrap();

    // Who acts waits, and says for whom.
    let by = ["--who", "ada", "--why", "a test"];
    let acts = [&["outbox", "retry", "1"], by.as_slice()].concat();
    let waited = run(folder, &acts).await;
    assert!(String::from_utf8_lossy(&waited.stderr).contains("OB0202"), "{waited:?}");
}

/// A message that is older than the rows that are looked at may be there, and whoever looks is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_was_cut_short_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("oncebox.toml"), FILE).unwrap();
    assert!(run(folder, &["schema", "up"]).await.status.success());
    let path = format!("sqlite:{}", folder.join("oncebox.db").display());
    let mut db = SqliteConnection::connect(&path).await.unwrap();
    let fill = "insert into oncebox_consumers (id, name) values (1, 'invoices');
         insert into oncebox_queues (id, name) values (9, 'payments');
         with recursive c (n) as (select 0 union all select n + 1 from c where n < 100000)
         insert into oncebox_queue (queue, visible_at, received_at, made_at, made_at_nanos, message_id, kind, payload)
         select 9, 1, 0, 0, 0, case when n = 0 then cast('m-old' as blob) end, cast('t' as blob), x'00' from c;
         with recursive c (n) as (select 0 union all select n + 1 from c where n < 2000)
         insert into oncebox_audit (at, messages, verb, who, why, detail) select 0, 0, 'parked.note', 'ada', 'x', '{}' from c";
    sqlx::raw_sql(fill).execute(&mut db).await.unwrap();

    let text = run(folder, &["message", "show", "m-old"]).await;
    let said = String::from_utf8(text.stderr).unwrap();
    assert_eq!((text.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    let says = "nothing is known of message m-old among the newest; it may be among the older ones of the queues, the audit log";
    assert!(said.contains(says), "{said}");
    let shown = String::from_utf8(text.stdout).unwrap();
    let says = "only the newest rows (100,000; of the audit log 2,000 entries) were looked at in the queues, the audit log: \
                older ones may be there";
    assert!(shown.contains(says), "{shown}");
    let json = run(folder, &["message", "show", "m-old", "--json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["known"], &json["not_looked_at"]), (&false.into(), &serde_json::json!(["queues", "audit"])));

    // One row less, and all of them were looked at.
    let fewer = "delete from oncebox_queue where id = (select max(id) from oncebox_queue)";
    sqlx::raw_sql(fewer).execute(&mut db).await.unwrap();
    let found = run(folder, &["message", "show", "m-old", "--json"]).await;
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!((&found["known"], &found["not_looked_at"]), (&true.into(), &serde_json::json!(["audit"])), "{found}");
}
