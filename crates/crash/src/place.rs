//! Where a row runs: a SQLite file or a PostgreSQL schema, with business tables that have no constraint. An effect that
//! happens twice is there twice, for everyone to see.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use oncebox::postgres::Postgres;
use oncebox::sqlite::Sqlite;
use oncebox::{Message, Queue, StoreError};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row as _, SqliteConnection};

use crate::row::{Row, SourceKind};

/// The consumer, and its queue.
pub(crate) const NAME: &str = "crash";

/// A place, in a form that can be handed to a worker process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Place {
    Sqlite { path: PathBuf },
    Postgres { url: String, schema: String },
}

impl Place {
    /// The name of a table, ours or Oncebox's.
    pub(crate) fn table(&self, name: &str) -> String {
        match self {
            Self::Sqlite { .. } => format!("oncebox_{name}"),
            Self::Postgres { schema, .. } => format!("{schema}.{name}"),
        }
    }

    pub(crate) async fn eye(&self) -> anyhow::Result<Eye> {
        match self {
            Self::Sqlite { path } => {
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
                Ok(Eye::Sqlite(options.disable_statement_logging().connect().await.context("cannot open the file")?))
            }
            Self::Postgres { url, .. } => {
                let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
                Ok(Eye::Postgres(PgConnection::connect_with(&options).await.context("cannot reach PostgreSQL")?))
            }
        }
    }

    /// Creates Oncebox's tables and the business tables.
    pub(crate) async fn set_up(&self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite { path } => drop(sqlite(path).await?),
            Self::Postgres { url, schema } => drop(postgres(url, schema).await?),
        }
        let serial = match self {
            Self::Sqlite { .. } => "integer primary key",
            Self::Postgres { .. } => "bigserial",
        };
        let (effects, totals) = (self.table("crash_effects"), self.table("crash_totals"));
        let mut eye = self.eye().await?;
        let columns = "n bigint not null, key bigint not null, seq bigint not null";
        eye.execute(format!("create table {effects} (at {serial}, {columns})")).await?;
        eye.execute(format!("create table {totals} (key bigint primary key, total bigint not null)")).await?;
        let keys: Vec<String> = (0..64).map(|key| format!("({key}, 0)")).collect();
        eye.execute(format!("insert into {totals} values {}", keys.join(", "))).await?;
        self.watch_parked(&mut eye).await
    }

    /// Notes of every row that leaves the parked messages what the inbox says of it at that moment, in the transaction that
    /// removes it.
    async fn watch_parked(&self, eye: &mut Eye) -> anyhow::Result<()> {
        let (left, note) = (self.table("crash_left"), self.table("crash_leave"));
        let (parked, inbox) = (self.table("parked"), self.table("inbox"));
        eye.execute(format!("create table {left} (n bigint not null, outcome bigint)")).await?;
        let same = "known.consumer = old.consumer and known.key = old.key and known.fingerprint = old.fingerprint";
        let record = format!("select known.outcome from {inbox} as known where {same}");
        let insert = format!("insert into {left} values (old.id, ({record}));");
        match self {
            Self::Sqlite { .. } => {
                eye.execute(format!("create trigger {note} after delete on {parked} begin {insert} end")).await?;
            }
            Self::Postgres { .. } => {
                let body = format!("begin {insert} return old; end");
                let function = format!("create function {note}() returns trigger language plpgsql as $$ {body} $$");
                eye.execute(function).await?;
                let each = format!("after delete on {parked} for each row execute function {note}()");
                eye.execute(format!("create trigger crash_leave {each}")).await?;
            }
        }
        Ok(())
    }

    /// Sends to the queue in the store.
    pub(crate) async fn sender(&self, row: &Row) -> anyhow::Result<Sender> {
        Ok(match self {
            Self::Sqlite { path } => Sender::Sqlite(queue(row, sqlite(path).await?)?),
            Self::Postgres { url, schema } => Sender::Postgres(queue(row, postgres(url, schema).await?)?),
        })
    }
}

/// The queue in the store that a row's messages go through.
pub(crate) fn queue<S: oncebox::queue::QueueStore>(row: &Row, store: S) -> anyhow::Result<Queue<S>> {
    let queue = match row.source {
        SourceKind::OrderedQueue => Queue::ordered(store, NAME)?,
        SourceKind::Queue | SourceKind::Broker | SourceKind::Partitions | SourceKind::Uncounted => {
            Queue::new(store, NAME)?
        }
    };
    Ok(queue.lease(row.lease()))
}

/// The queue, from the side of a producer.
pub(crate) enum Sender {
    Sqlite(Queue<Sqlite>),
    Postgres(Queue<Postgres>),
}

impl Sender {
    pub(crate) async fn send(&self, messages: Vec<Message>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(queue) => queue.send(messages).await,
            Self::Postgres(queue) => queue.send(messages).await,
        }
    }
}

/// A connection for looking at the tables, apart from everything that is being tested.
pub(crate) enum Eye {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Eye {
    pub(crate) async fn execute(&mut self, sql: String) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(eye) => sqlx::query(AssertSqlSafe(sql)).execute(eye).await.map(|_| ()),
            Self::Postgres(eye) => sqlx::query(AssertSqlSafe(sql)).execute(eye).await.map(|_| ()),
        }
    }

    /// Rows of numbers.
    pub(crate) async fn numbers(&mut self, sql: String) -> sqlx::Result<Vec<Vec<i64>>> {
        match self {
            Self::Sqlite(eye) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(eye).await?;
                rows.iter().map(|row| (0..row.len()).map(|at| row.try_get_unchecked(at)).collect()).collect()
            }
            Self::Postgres(eye) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(eye).await?;
                rows.iter().map(|row| (0..row.len()).map(|at| row.try_get(at)).collect()).collect()
            }
        }
    }

    /// Rows of bytes.
    pub(crate) async fn bytes(&mut self, sql: String) -> sqlx::Result<Vec<Vec<u8>>> {
        match self {
            Self::Sqlite(eye) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(eye).await,
            Self::Postgres(eye) => sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(eye).await,
        }
    }

    pub(crate) async fn number(&mut self, sql: String) -> sqlx::Result<i64> {
        Ok(self.numbers(sql).await?.first().and_then(|row| row.first().copied()).unwrap_or(0))
    }
}

pub(crate) async fn sqlite(path: &Path) -> anyhow::Result<Sqlite> {
    Ok(Sqlite::open(path.to_str().context("cannot use this path: it is not UTF-8")?).await?)
}

pub(crate) async fn postgres(url: &str, schema: &str) -> anyhow::Result<Postgres> {
    Ok(Postgres::builder(url).schema(schema).connect().await?)
}

/// A store whose server gives up early on clients that say nothing in the middle of a transaction: where those are
/// killed and the network hides it, nobody else does.
pub(crate) async fn impatient_postgres(url: &str, schema: &str) -> anyhow::Result<Postgres> {
    let limit = Duration::from_secs(2);
    Ok(Postgres::builder(url).schema(schema).idle_in_transaction_timeout(limit).connect().await?)
}
