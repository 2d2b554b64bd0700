//! A folder with a file in it, a store that is its own, and the command that is run there.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use oncebox::outbox::{Fetch, Outbox};
use oncebox::postgres::Postgres;
use oncebox::queue::{LaneRequest, QueueStore, QueueTx};
use oncebox::sqlite::Sqlite;
use oncebox::{Clock, Ended, Session, SystemClock, Transaction};
use sqlx::{AssertSqlSafe, Connection};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Handles payments; reversals only from the second version on.
const FILE: &str = r#"
[store]
url = "STORE"
setup = "schema.sql"

[[consumer]]
name = "invoices"
from = "queue:payments"
lanes = 1

  [[consumer.on]]
  type = "payment.received"
  sql = "insert into payments (id, amount) values (:payment_id, :amount)"
  emit = [{ type = "invoice.paid", topic = "letters", key = "{payment_id}" }]

[[consumer]]
name = "ledger"
from = "queue:entries"
key = "entry:{entry}"
journal = true

  [[consumer.on]]
  type = "entry.made"
  sql = "insert into payments (id, amount) values (:entry, 0)"
"#;

const REVERSALS: &str = r#"
  [[consumer.on]]
  type = "payment.reversed"
  sql = "delete from payments where id = :payment_id"
"#;

/// Much is wrong with it, and all of that can be seen in it alone.
const AILING: &str = r#"
[store]
url = "STORE"

[[consumer]]
name = "invoices"
from = "queue:payments"
key = "payment:{payment_id}"
key_was = "message-id"
retention = "7d"
replay_within = "7d"

  [[consumer.on]]
  type = "payment.received"
  sql = "select 1"

  [[consumer.on]]
  type = "payment.reversed"
  sql = "select 2"

[[consumer]]
name = "ledger"
from = "queue:entries"
key = "broker-coordinate"
key_was = "entry:{entry}"

  [[consumer.on]]
  type = "entry.made"
  emit = [{ type = "entry.seen", topic = "*" }]

[relay]
to = "queue:"

[kafka]
"ssl.key.password" = "CANARY"
"#;

const SCHEMA: &str = "create table if not exists payments (id integer primary key, amount integer not null);\n";

pub(crate) struct Place {
    folder: TempDir,
    store: String,
    database: Option<String>,
}

impl Place {
    fn new(store: impl FnOnce(&Path) -> String, database: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let place = Self { folder, store, database };
        place.write("schema.sql", SCHEMA);
        place.write("oncebox.toml", &FILE.replace("STORE", &place.store));
        place
    }

    pub(crate) fn sqlite() -> Self {
        Self::new(|folder| format!("sqlite://{}", folder.join("shop.db").display()), None)
    }

    /// A database of its own on this server.
    pub(crate) async fn postgres(server: &str) -> Self {
        let name = format!("v{}", SystemClock.id().simple());
        let mut db = sqlx::PgConnection::connect(server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("create database {name}"))).execute(&mut db).await.unwrap();
        let (host, _) = server.rsplit_once('/').unwrap();
        Self::new(|_| format!("{host}/{name}"), Some(name.clone()))
    }

    pub(crate) async fn dropped(self, server: &str) {
        let mut db = sqlx::PgConnection::connect(server).await.unwrap();
        let drop = format!("drop database {} with (force)", self.database.unwrap());
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut db).await.unwrap();
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// A file beside the one that runs, for the doctor.
    pub(crate) fn with_an_ailing_file(&self) {
        self.write("ailing.toml", &AILING.replace("STORE", &self.store));
    }

    /// From now on reversals are handled, too.
    pub(crate) fn with_reversals(&self) {
        let file = FILE.replace("STORE", &self.store);
        let (invoices, ledger) = file.split_once("[[consumer]]\nname = \"ledger\"").unwrap();
        self.write("oncebox.toml", &format!("{invoices}{REVERSALS}\n[[consumer]]\nname = \"ledger\"{ledger}"));
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
        command.current_dir(self.folder.path()).args(words).stdin(Stdio::null()).kill_on_drop(true);
        command.env("USER", "ada").env_remove("ONCEBOX_LOG");
        command
    }

    pub(crate) async fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().await.unwrap()
    }

    /// What a verb prints; it must exit with this code, and say nothing beside its answer if that is 0.
    pub(crate) async fn answer(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(code != 0 || said.is_empty(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// `oncebox run`, once its consumers have started.
    pub(crate) async fn running(&self) -> Child {
        let mut child = self.command(&["run"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while said.matches("consumer starts").count() < 2 {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {said}"));
            said.push_str(&line);
        }
        // Someone must read what it says, or it waits for that one day.
        let mut reader = tokio::task::JoinSet::new();
        reader.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        reader.detach_all();
        child
    }

    /// Makes every record a month older.
    pub(crate) async fn let_a_month_pass(&self) {
        match self.store.strip_prefix("sqlite://") {
            Some(path) => {
                let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
                let sql = "update oncebox_inbox set processed_at = processed_at - 2592000000000";
                sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
            }
            None => {
                let mut db = sqlx::PgConnection::connect(&self.store).await.unwrap();
                let sql = "update oncebox.inbox set processed_at = processed_at - interval '30 days'";
                sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
            }
        }
    }

    /// Has the broker refuse everything that is in the outbox, for this reason.
    pub(crate) async fn refuse(&self, reason: &str) {
        match self.store.strip_prefix("sqlite://") {
            Some(path) => refuse(&Sqlite::open(path).await.unwrap(), reason).await,
            None => refuse(&Postgres::connect(&self.store).await.unwrap(), reason).await,
        }
    }
}

async fn refuse<S: QueueStore>(store: &S, reason: &str) {
    let queue = store.outbox().await.unwrap();
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let lease = Duration::from_secs(30);
    let request = LaneRequest { queue, owner: SystemClock.id(), lease, give_back: Vec::new() };
    let lanes = tx.hold_lanes(&request).await.unwrap().lanes;
    let fetch = Fetch { lanes: &lanes, max: 100, without: &[], after: &Default::default() };
    let rows = tx.fetch_unsent(fetch).await.unwrap().rows;
    let rows: Vec<_> = rows.into_iter().map(|row| (row.receipt, reason.to_owned())).collect();
    tx.set_unsent_aside(&rows).await.unwrap();
    tx.leave_lanes(queue, request.owner).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}
