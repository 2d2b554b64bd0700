//! `oncebox doctor`: what it says of a sound file, and of one with everything wrong.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Command, Output};

use oncebox_testkit::{eventually, skipped};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};

const FILE: &str = r#"[store]
url = "sqlite://oncebox.db"

[[consumer]]
name = "invoices"
from = "queue:payments"

  [[consumer.on]]
  type = "payment.received"
  sql = "select 1"
"#;

fn oncebox(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).current_dir(folder).args(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A folder with this file and its tables.
fn folder(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("oncebox.toml"), text).unwrap();
    let up = oncebox(folder.path(), &["schema", "up"]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    folder
}

fn checks(folder: &Path) -> (Vec<String>, Option<i32>) {
    let output = oncebox(folder, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let found = report["findings"].as_array().unwrap().iter();
    (found.map(|one| one["check"].as_str().unwrap().to_owned()).collect(), output.status.code())
}

#[test]
fn a_sound_file_has_no_findings_and_gives_what_is_required() {
    let folder = folder(FILE);
    let output = oncebox(folder.path(), &["doctor", "--require", "effectively-once"]);
    assert_eq!(
        stdout(&output),
        "consumer invoices handles each message effectively once\nnothing was found\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success());
    let json = oncebox(folder.path(), &["doctor", "--require", "effectively-once", "--json"]);
    assert_eq!(
        stdout(&json),
        "{\"findings\":[],\"promises\":[{\"because\":null,\"consumer\":\"invoices\",\"guarantee\":\"effectively once\"}],\
         \"required\":{\"given\":true,\"guarantee\":\"effectively once\"}}\n"
    );
}

#[test]
fn a_weaker_promise_than_required_names_the_weakest_link() {
    let folder = folder(&FILE.replace("\n\n  [[", "\nkey = \"broker-coordinate\"\n\n  [["));
    let output = oncebox(folder.path(), &["doctor", "--require", "effectively-once"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(
            "consumer invoices can't promise effectively once; its weakest link: its key is the place in the broker"
        ),
        "{text}"
    );
    assert!(oncebox(folder.path(), &["doctor"]).status.success());
}

#[test]
fn each_mistake_of_a_file_is_told_with_its_fix() {
    let text = FILE.replace("\n\n  [[", "\nkey = \"{order}\"\nretention = \"7d\"\nreplay_within = \"7d\"\n\n  [[")
        + "\n  [[consumer.on]]\n  type = \"payment.refunded\"\n  sql = \"select 2\"\n\n[relay]\nto = \"amqp://shop:CANARY@mq.shop/\"\n";
    let folder = folder(&text);
    let output = oncebox(folder.path(), &["doctor"]);
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for expected in [
        "error: consumer invoices (retention.too-short)\n  `retention` of consumer `invoices` is 7d",
        "fix: keep records for 14d at least",
        "warning: file (file.secret)\n  line 20 holds a password\n  fix: write ${NAME} in its place",
        "warning: relay (connection.plain-text)\n  the connection to mq.shop is not encrypted\n  fix: write amqps:// in its place",
        "warning: consumer invoices (key.too-broad)\n  key `{order}` is the same for payment.received and payment.refunded",
    ] {
        assert!(told.contains(expected), "{expected}\n--\n{told}");
    }
    assert!(!told.contains("CANARY"), "{told}");
}

#[tokio::test]
async fn tables_that_are_missing_and_indexes_that_are_gone_are_told() {
    let without = tempfile::tempdir().unwrap();
    std::fs::write(without.path().join("oncebox.toml"), FILE).unwrap();
    assert_eq!(checks(without.path()), (vec!["store.missing".to_owned()], Some(1)));
    let folder = folder(FILE);
    let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{}", folder.path().join("oncebox.db").display()))
        .await
        .unwrap();
    sqlx::raw_sql("drop index oncebox_inbox_processed_at").execute(&mut db).await.unwrap();
    assert_eq!(checks(folder.path()), (vec!["store.indexes".to_owned()], Some(1)));
}

#[tokio::test]
async fn settings_of_postgres_that_lose_data_are_told() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("doctor::settings_of_postgres_that_lose_data_are_told");
    };
    let schema = format!("doctor_{}", std::process::id());
    let file = |url: &str| FILE.replace("sqlite://oncebox.db\"", &format!("{url}\"\nschema = \"{schema}\""));
    let folder = folder(&file(&url));
    assert_eq!(checks(folder.path()), (vec![], Some(0)));
    let separator = if url.contains('?') { '&' } else { '?' };
    let unsafe_url = format!("{url}{separator}options=-c%20synchronous_commit%3Doff");
    std::fs::write(folder.path().join("oncebox.toml"), file(&unsafe_url)).unwrap();
    let (found, code) = checks(folder.path());
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("drop schema {schema} cascade"))).execute(&mut db).await.unwrap();
    assert!(found.contains(&"store.synchronous-commit".to_owned()), "{found:?}");
    assert_eq!(code, Some(1));
}

/// An index that is gone, and a table of which most is dead.
#[tokio::test]
async fn tables_of_postgres_that_are_worn_are_told() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("doctor::tables_of_postgres_that_are_worn_are_told");
    };
    let schema = format!("doctor_worn_{}", std::process::id());
    let folder = folder(&FILE.replace("sqlite://oncebox.db\"", &format!("{url}\"\nschema = \"{schema}\"")));
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    let wear = format!(
        "alter table {schema}.inbox set (autovacuum_enabled = false);
         drop index {schema}.inbox_processed_at;"
    );
    assert_eq!(checks(folder.path()), (vec![], Some(0)));
    sqlx::raw_sql(AssertSqlSafe(wear)).execute(&mut db).await.unwrap();
    assert_eq!(checks(folder.path()), (vec!["store.indexes".to_owned()], Some(1)));
    // Rows that were never there for anyone: each is dead at once.
    let columns: Vec<String> = sqlx::query_scalar(
        "select case when data_type = 'bytea' then 'int8send(n)' when data_type = 'timestamp with time zone' then 'now()'
         else 'n % 100' end from information_schema.columns where table_schema = $1 and table_name = 'inbox'
         and is_nullable = 'NO' and column_default is null order by ordinal_position",
    )
    .bind(&schema)
    .fetch_all(&mut db)
    .await
    .unwrap();
    let names: Vec<String> = sqlx::query_scalar(
        "select column_name::text from information_schema.columns where table_schema = $1 and table_name = 'inbox'
         and is_nullable = 'NO' and column_default is null order by ordinal_position",
    )
    .bind(&schema)
    .fetch_all(&mut db)
    .await
    .unwrap();
    let fill = format!(
        "begin; insert into {schema}.inbox ({}) select {} from generate_series(1::int8, 120000) n; rollback;",
        names.join(", "),
        columns.join(", ")
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(&mut db).await.unwrap();
    drop(db);
    eventually("the server has counted them", async || checks(folder.path()).0.contains(&"store.bloat".to_owned()))
        .await;
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("drop schema {schema} cascade"))).execute(&mut db).await.unwrap();
}

/// Two messages under one id that say different things.
#[tokio::test]
async fn keys_that_clash_are_told() {
    let folder = folder(FILE);
    let folder = folder.path();
    let mut run = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    let mut run = run.current_dir(folder).arg("run").stderr(std::process::Stdio::null()).spawn().unwrap();
    let applied = |field: &str| {
        let status: Value = serde_json::from_slice(&oncebox(folder, &["status", "--json"]).stdout).unwrap_or_default();
        status["consumers"][0][field].as_u64().unwrap_or(0)
    };
    let send = |payload| {
        let words = ["send", "--id", "p-1", "--type", "payment.received", "--payload", payload];
        assert!(oncebox(folder, &words).status.success());
    };
    send("{\"amount\": 5}");
    eventually("the first is applied", async || applied("applied") == 1).await;
    assert_eq!(checks(folder), (vec![], Some(0)));
    send("{\"amount\": 6}");
    eventually("the second is a conflict", async || applied("conflicts") == 1).await;
    let found = checks(folder);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(found, (vec!["key.conflicts".to_owned()], Some(0)));
}

/// A server of its own, which is stopped whatever happens.
struct OwnServer(tempfile::TempDir);

impl OwnServer {
    fn start() -> (Self, String) {
        use std::os::unix::fs::PermissionsExt as _;
        let server = Self(tempfile::tempdir().unwrap());
        // It runs as another user, who has to get there.
        std::fs::set_permissions(server.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = server.script("start");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (server, stdout(&output).trim().to_owned())
    }

    fn script(&self, verb: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        Command::new(script).arg(verb).arg(self.0.path().join("server")).output().unwrap()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.script("stop");
    }
}

/// These settings are the server's, and what a consumer can promise hangs on them.
#[tokio::test]
async fn a_server_that_does_not_keep_what_it_acknowledged_is_told() {
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("doctor::a_server_that_does_not_keep_what_it_acknowledged_is_told");
    }
    let (server, url) = OwnServer::start();
    let folder = folder(&FILE.replace("sqlite://oncebox.db", &url));
    assert_eq!(checks(folder.path()), (vec![], Some(0)));
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    for setting in
        ["alter system set fsync = off", "alter system set full_page_writes = off", "select pg_reload_conf()"]
    {
        sqlx::raw_sql(setting).execute(&mut db).await.unwrap();
    }
    drop(db);
    let expected = ["store.fsync", "store.full-page-writes", "promise.weak"].map(str::to_owned).to_vec();
    let told = async || checks(folder.path()) == (expected.clone(), Some(1));
    eventually("the server has read its settings", told).await;
    drop(server);
    assert_eq!(checks(folder.path()), (vec!["store.unreachable".to_owned()], Some(1)));
}
