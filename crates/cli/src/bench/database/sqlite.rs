//! SQLite: a file of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use oncebox::sqlite::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, ConnectOptions, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::{Address, Database, Keys, Settings, Statements};

pub(in crate::bench) struct SqlitePlace {
    path: PathBuf,
    /// Where no file was named.
    folder: Option<TempDir>,
    store: Sqlite,
    /// Looks on and cleans up; measures nothing.
    eye: Mutex<SqliteConnection>,
}

const TABLES: &str = "
    create table accounts (id integer primary key, balance integer not null default 0) strict;
    create table hand_inbox (consumer integer not null, key blob not null, primary key (consumer, key))
        strict, without rowid;
    create table hand_outbox (seq integer primary key, id text not null, order_key text, payload blob not null) strict;";

/// The settings of the store, for whoever works by hand.
fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(std::time::Duration::from_secs(10))
}

/// The store in this file.
pub(in crate::bench) async fn open(path: &Path) -> anyhow::Result<Sqlite> {
    Ok(Sqlite::open(path.to_string_lossy()).await?)
}

impl SqlitePlace {
    async fn run(&self, statement: &str) -> anyhow::Result<()> {
        let mut eye = self.eye.lock().await;
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut *eye)
            .await
            .with_context(|| format!("cannot {statement}"))?;
        Ok(())
    }
}

impl Database for SqlitePlace {
    type Store = Sqlite;
    type Connection = SqliteConnection;

    /// A second writer would only wait for the first.
    const NAIVE_CONNECTIONS: &'static [u16] = &[1];

    async fn open(url: &str) -> anyhow::Result<Self> {
        let named = url.strip_prefix("sqlite:").unwrap_or(url).trim_start_matches("//");
        let (path, folder) = if named.is_empty() {
            let folder = tempfile::tempdir().context("cannot make a folder for the benchmark")?;
            (folder.path().join("bench.db"), Some(folder))
        } else {
            ensure!(!Path::new(named).exists(), "{named} is there already; the benchmark makes a file and removes it");
            (PathBuf::from(named), None)
        };
        let store = open(&path).await?;
        let eye = options(&path).connect().await.context("cannot open the file a second time")?;
        let place = Self { path, folder, store, eye: Mutex::new(eye) };
        place.run(TABLES).await?;
        Ok(place)
    }

    fn store(&self) -> &Sqlite {
        &self.store
    }

    async fn connect(&self) -> anyhow::Result<SqliteConnection> {
        options(&self.path).connect().await.context("cannot open a connection")
    }

    fn writers(_lanes: u16) -> u16 {
        1
    }

    async fn reset(&self, accounts: i64) -> anyhow::Result<()> {
        self.run("begin; delete from oncebox_inbox; delete from oncebox_journal; delete from hand_inbox; delete from accounts").await?;
        self.run(&format!(
            "with recursive n (id) as (select 0 union all select id + 1 from n where id + 1 < {accounts})
             insert into accounts (id) select id from n"
        ))
        .await?;
        self.run("commit").await?;
        self.run("pragma wal_checkpoint(truncate)").await
    }

    async fn total(&self) -> anyhow::Result<i64> {
        let query = "select coalesce(sum(balance), 0) from accounts";
        Ok(sqlx::query_scalar(query).fetch_one(&mut *self.eye.lock().await).await?)
    }

    /// Its log starts over at each checkpoint, so its length says nothing.
    async fn log_position(&self) -> anyhow::Result<Option<i64>> {
        Ok(None)
    }

    async fn settings(&self) -> anyhow::Result<Settings> {
        let version = "select sqlite_version()";
        let version: String = sqlx::query_scalar(version).fetch_one(&mut *self.eye.lock().await).await?;
        let settings = [
            ("database", "SQLite".to_owned()),
            ("server_version", version),
            ("journal_mode", "wal".to_owned()),
            ("synchronous", "full".to_owned()),
        ];
        Ok(settings.into())
    }

    async fn fill(&self, rows: u64, keys: Keys, days_ago: u32) -> anyhow::Result<()> {
        let id = match keys {
            Keys::TimeOrdered => {
                format!(
                    "format('%012x', cast(unixepoch('subsec') * 1000 as integer) - {rows} + n) || hex(randomblob(10))"
                )
            }
            Keys::Random => "hex(randomblob(16))".to_owned(),
        };
        self.run(&format!(
            "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {rows})
             insert into oncebox_inbox (consumer, key, fingerprint, scheme, processed_at)
             select 1, unhex('01' || {id}), n, 1,
                 cast((unixepoch('subsec') - {days_ago} * 86400) * 1000000 as integer) from numbers"
        ))
        .await?;
        self.run("pragma wal_checkpoint(truncate)").await
    }

    async fn empty_outbox(&self) -> anyhow::Result<()> {
        self.run("delete from oncebox_outbox").await
    }

    async fn settle_outbox(&self) -> anyhow::Result<()> {
        self.run("pragma wal_checkpoint(truncate)").await
    }

    fn address(&self) -> Address {
        Address::Sqlite { path: self.path.clone() }
    }

    async fn close(self) {
        let Self { path, folder, store, eye } = self;
        drop((store, eye));
        if folder.is_none() {
            for suffix in ["", "-wal", "-shm"] {
                let mut file = path.clone().into_os_string();
                file.push(suffix);
                // Already gone is as good.
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

impl Statements for SqliteConnection {
    async fn begin(&mut self) -> sqlx::Result<()> {
        sqlx::query("begin immediate").execute(self).await.map(drop)
    }

    async fn commit(&mut self) -> sqlx::Result<()> {
        sqlx::query("commit").execute(self).await.map(drop)
    }

    async fn rollback(&mut self) -> sqlx::Result<()> {
        sqlx::query("rollback").execute(self).await.map(drop)
    }

    async fn claim(&mut self, key: Uuid) -> sqlx::Result<bool> {
        let insert = sqlx::query("insert into hand_inbox values (1, $1) on conflict do nothing");
        Ok(insert.bind(key).execute(self).await?.rows_affected() == 1)
    }

    async fn claim_all(&mut self, keys: &[Uuid]) -> sqlx::Result<Vec<Uuid>> {
        // No array parameters here; a list of values that was prepared once is the fastest way in.
        let marks = vec!["(1, ?)"; keys.len()].join(", ");
        let insert = format!("insert into hand_inbox values {marks} on conflict do nothing returning key");
        let mut insert = sqlx::query_scalar(AssertSqlSafe(insert));
        for key in keys {
            insert = insert.bind(*key);
        }
        insert.fetch_all(self).await
    }

    async fn credit(&mut self, account: i64, amount: i64) -> sqlx::Result<()> {
        let update = sqlx::query("update accounts set balance = balance + $1 where id = $2");
        update.bind(amount).bind(account).execute(self).await.map(drop)
    }

    async fn credit_all(&mut self, accounts: &[i64], amounts: &[i64]) -> sqlx::Result<()> {
        let credits: Vec<(i64, i64)> = accounts.iter().copied().zip(amounts.iter().copied()).collect();
        let credits = serde_json::to_string(&credits).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let update = "update accounts set balance = balance + credit.amount
            from (
                select value ->> 0 as id, sum(value ->> 1) as amount from json_each($1) group by value ->> 0
            ) credit
            where accounts.id = credit.id";
        sqlx::query(update).bind(credits).execute(self).await.map(drop)
    }
}
