//! `oncebox retention` as an operator meets it, what `oncebox run` refuses, and `run` killed while old records go.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Output, Stdio};

use oncebox_testkit::eventually;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
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
  sql = "select 1"
"#;

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).kill_on_drop(true).stdin(Stdio::null()).env("USER", "ada");
    command
}

async fn run(folder: &Path, words: &[&str]) -> Output {
    oncebox(folder, words).output().await.unwrap()
}

async fn said(folder: &Path, words: &[&str]) -> String {
    let output = run(folder, words).await;
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is said when nothing was tried, because the words or the file are wrong.
async fn complaint(folder: &Path, words: &[&str]) -> String {
    let output = run(folder, words).await;
    assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

async fn open(folder: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", folder.join("oncebox.db").display())).await.unwrap()
}

async fn number(db: &mut SqliteConnection, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(db).await.unwrap()
}

/// A store with `old` records from 40 days ago, a second apart, and one from now.
async fn store(folder: &Path, old: i64) -> SqliteConnection {
    std::fs::write(folder.join("oncebox.toml"), FILE).unwrap();
    said(folder, &["schema", "up"]).await;
    let mut db = open(folder).await;
    let sql = format!(
        "insert into oncebox_consumers (id, name) values (1, 'invoices');
         with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {old})
         insert into oncebox_inbox (consumer, key, fingerprint, scheme, processed_at)
         select 1, cast('old ' || n as blob), n, 1, (unixepoch() - 40 * 86400 + n) * 1000000 from numbers;
         insert into oncebox_inbox (consumer, key, fingerprint, scheme, processed_at)
         values (1, cast('new' as blob), 0, 1, unixepoch() * 1000000)"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
    db
}

/// The times in a text, which are others each time.
fn without_times(text: &str) -> String {
    let blank =
        |word: &str| if word.starts_with("20") && word.ends_with('Z') { "TIME".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split_whitespace().map(blank).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_plan_shows_what_goes_and_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut db = store(folder.path(), 10).await;
    sqlx::raw_sql(
        "insert into oncebox_parked (consumer, state, key, fingerprint, scheme, owns_record, cause, reason, attempts,
             first_at, last_at, kind, payload, made_at, made_at_nanos)
         values (1, 3, cast('old 3' as blob), 99, 1, 0, 'conflict', 'another content', 1, 0, 0, cast('t' as blob),
             cast('' as blob), 0, 0)",
    )
    .execute(&mut db)
    .await
    .unwrap();
    let text = said(folder.path(), &["retention", "plan"]).await;
    assert_eq!(
        without_times(&text),
        "CONSUMER KEPT GOES STAYS OLDEST HORIZON\n\
         invoices 30d 9 1 TIME -\n\
         invoices: 1 stay because a message is parked under their key; 0 replays are open"
    );
    let json: serde_json::Value =
        serde_json::from_str(&said(folder.path(), &["retention", "plan", "--json"]).await).unwrap();
    let one = &json["consumers"][0];
    let fields: Vec<&String> = one.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        [
            "archived_bytes",
            "archived_keys",
            "checkpoint",
            "complaint",
            "consumer",
            "counted",
            "goes",
            "held",
            "horizon",
            "needed_seconds",
            "old",
            "older_than",
            "oldest",
            "open_replays",
            "retention_seconds"
        ]
    );
    assert_eq!((&one["goes"], &one["held"], &one["counted"]), (&9.into(), &1.into(), &true.into()));
    assert_eq!(number(&mut db, "select count(*) from oncebox_inbox").await, 11, "a plan changes nothing");
}

#[tokio::test]
async fn apply_asks_first_and_leaves_an_entry_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut db = store(folder, 1500).await;
    let refused = complaint(folder, &["retention", "apply", "--why", "the disk is full"]).await;
    let rest =
        "records of invoices, and the processed messages that stored mode kept as long, for good; say so with --yes";
    assert!(refused.contains(&format!("this would remove 1500 {rest}")), "{refused}");
    let words = ["retention", "apply", "--why", "the disk is full", "--yes", "--share", "100"];
    let text = said(folder, &words).await;
    assert_eq!(text.split(';').next().unwrap(), "invoices: 1500 records removed", "{text}");
    assert_eq!(number(&mut db, "select count(*) from oncebox_inbox").await, 1);
    let noted = "select sum(messages) from oncebox_audit where verb = 'retention.apply' and who = 'ada'";
    assert_eq!(number(&mut db, noted).await, 1500);
    assert_eq!(number(&mut db, "select count(*) from oncebox_audit").await, 2, "it began, and what it did");
    // There may be something left that is not counted.
    let refused = complaint(folder, &["retention", "apply", "--why", "the disk is full"]).await;
    assert!(refused.contains(&format!("this would remove 0 {rest}")), "{refused}");
    let again = said(folder, &[&words[..], &["--json"]].concat()).await;
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["consumers"][0]["deleted"], &again["consumers"][0]["cut_short"]), (&0.into(), &false.into()));
}

#[tokio::test]
async fn wrong_words_get_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    drop(store(folder, 1).await);
    for (words, expected) in [
        (&["retention", "plan", "invoces"][..], "there is no consumer `invoces` in oncebox.toml; it has invoices"),
        (&["retention", "plan", "--file", "none.toml"][..], "cannot read none.toml"),
        (&["retention", "plan", "--store", "sqlite://oncebox.db"][..], "name the consumers, and add --older-than"),
    ] {
        let told = complaint(folder, words).await;
        assert!(told.contains(expected), "{words:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let output = run(folder, &["retention", "plan", "--older-than", "soon"]).await;
    assert_eq!(output.status.code(), Some(2));
    let output = run(folder, &["retention", "apply", "--older-than", "5m", "--why", "x", "--yes"]).await;
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "oncebox: OB0701: cannot remove what is older than 300s: records are kept for an hour at least\n");
}

#[tokio::test]
async fn a_retention_shorter_than_the_longest_way_back_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let short = FILE.replace("\"30d\"", "\"30d\"\nreplay_within = \"20d\"");
    std::fs::write(folder.join("oncebox.toml"), &short).unwrap();
    let told = complaint(folder, &["run", "--check"]).await;
    assert!(
        told.contains(
            "oncebox.toml:8: `retention` of consumer `invoices` is 30d, and a message can come back after 20d"
        ),
        "{told}"
    );
    assert!(told.contains("keep records for 40d at least"), "{told}");
    let meant = short.replace("replay_within", "retention_unsafe = true\nreplay_within");
    std::fs::write(folder.join("oncebox.toml"), meant).unwrap();
    let output = run(folder, &["run", "--check"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("WARN"));
    // Who says nothing gets what is right.
    std::fs::write(folder.join("oncebox.toml"), short.replace("retention = \"30d\"\n", "")).unwrap();
    said(folder, &["run", "--check"]).await;
}

/// Whatever is gone was made before the horizon, whenever the process died.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_nothing_goes_without_the_horizon_knowing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut db = store(folder, 40_000).await;
    let count = "select count(*) from oncebox_inbox";
    for _ in 0..6 {
        let before = number(&mut db, count).await;
        let mut child = oncebox(folder, &["run"]).stderr(Stdio::null()).spawn().unwrap();
        eventually("records go", async || number(&mut open(folder).await, count).await < before).await;
        child.kill().await.unwrap();
        let gone = "select max(n) from (
                with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 40000)
                select n from numbers
                where not exists (select 1 from oncebox_inbox where consumer = 1 and key = cast('old ' || n as blob))
            )";
        let newest_gone = number(&mut db, gone).await;
        let kept = "select min(processed_at) from oncebox_inbox";
        let horizon = number(&mut db, "select coalesce(horizon, 0) from oncebox_consumers where id = 1").await;
        assert!(number(&mut db, count).await > 1, "it was too fast to be killed on its way");
        let (kept, first) = (
            number(&mut db, kept).await,
            number(&mut db, "select min(fingerprint) from oncebox_inbox where fingerprint > 0").await,
        );
        // A second lies between two records.
        let time_of_newest_gone = kept + (newest_gone - first) * 1_000_000;
        assert!(time_of_newest_gone <= horizon, "{newest_gone} is gone and the horizon is at {horizon}");
    }
    let mut child = oncebox(folder, &["run"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("all old ones are gone", async || number(&mut open(folder).await, count).await == 1).await;
    child.kill().await.unwrap();
}

/// Whenever the process dies, a key has its record or is archived.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_every_key_is_in_the_inbox_or_in_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut db = store(folder, 40_000).await;
    std::fs::write(folder.join("oncebox.toml"), FILE.replace("\"30d\"", "\"30d\"\narchive_keys = true")).unwrap();
    let (count, archived) =
        ("select count(*) from oncebox_inbox", "select coalesce(sum(keys), 0) from oncebox_archive");
    for _ in 0..5 {
        let before = number(&mut db, count).await;
        let mut child = oncebox(folder, &["run"]).stderr(Stdio::null()).spawn().unwrap();
        eventually("records go", async || number(&mut open(folder).await, count).await < before).await;
        child.kill().await.unwrap();
        let (left, archived) = (number(&mut db, count).await, number(&mut db, archived).await);
        assert!(left > 1, "it was too fast to be killed on its way");
        assert_eq!(left + archived, 40_001);
    }
    let mut child = oncebox(folder, &["run"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("all old ones are gone", async || number(&mut open(folder).await, count).await == 1).await;
    child.kill().await.unwrap();
    assert_eq!(number(&mut db, archived).await, 40_000);
    assert_eq!(number(&mut db, "select sum(length(hashes)) from oncebox_archive").await, 480_000, "12 bytes a key");
    let text = said(folder, &["retention", "plan"]).await;
    let told = "invoices: the archive has 40000 keys of records that are gone, in 480000 bytes";
    assert_eq!(text.lines().last(), Some(told), "{text}");
}

#[tokio::test]
async fn an_archive_that_would_hold_nothing_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let with = |fields: &str| FILE.replace("\"30d\"", &format!("\"30d\"\n{fields}"));
    for (fields, expected) in [
        ("archive_for = \"90d\"", "oncebox.toml:9: `archive_for` in [[consumer]] needs `archive_keys = true`"),
        (
            "archive_keys = true\narchive_for = \"30d\"",
            "`archive_for` of consumer `invoices` is 30d, and its records themselves are kept for 30d",
        ),
        ("archive_key = true", "did you mean `archive_keys`"),
    ] {
        std::fs::write(folder.join("oncebox.toml"), with(fields)).unwrap();
        let told = complaint(folder, &["run", "--check"]).await;
        assert!(told.contains(expected), "{fields}: {told}");
    }
    std::fs::write(folder.join("oncebox.toml"), with("archive_keys = true\narchive_for = \"400d\"")).unwrap();
    said(folder, &["run", "--check"]).await;
}

#[tokio::test]
async fn a_checkpoint_asks_first_never_goes_back_and_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut db = store(folder, 1).await;
    let at = |time: &'static str| ["retention", "checkpoint", "invoices", "--before", time, "--why", "cut-over"];
    let refused = complaint(folder, &at("2026-01-02T00:00:00Z")).await;
    let says = "this would forbid for good to replay what was made for invoices before 2026-01-02T00:00:00Z; say so";
    assert!(refused.contains(says), "{refused}");
    assert_eq!(number(&mut db, "select count(*) from oncebox_consumers where checkpoint is not null").await, 0);
    let text = said(folder, &[&at("2026-01-02T00:00:00Z")[..], &["--yes"]].concat()).await;
    assert_eq!(text, "invoices: its checkpoint is at 2026-01-02T00:00:00Z\n");
    for (time, expected) in [
        ("2026-01-01T00:00:00Z", "it is at 2026-01-02T00:00:00Z already, and never goes back"),
        ("2999-01-01T00:00:00Z", "a checkpoint lies an hour back at least"),
    ] {
        let told = complaint(folder, &[&at(time)[..], &["--yes"]].concat()).await;
        assert!(told.contains(expected), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let noted = "select count(*) from oncebox_audit where verb = 'retention.checkpoint' and who = 'ada'";
    assert_eq!(number(&mut db, noted).await, 1);
    let plan = said(folder, &["retention", "plan"]).await;
    assert!(plan.contains("invoices: nothing made before its checkpoint, 2026-01-02T00:00:00Z, is replayed"), "{plan}");
}
