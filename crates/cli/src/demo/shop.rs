//! The demo's store and business table, on SQLite or PostgreSQL.
//!
//! The business table has no unique constraint: an effect that happens twice is there twice, for everyone to see.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use oncebox::postgres::Postgres;
use oncebox::sqlite::Sqlite;
use oncebox::{Message, Queue, StoreError};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, SqliteConnection};
use tokio::sync::Mutex;

/// The queue that the messages go through.
pub(super) const QUEUE: &str = "payments";

/// Where a demo runs.
pub(super) struct Shop {
    place: Place,
    store: Backend,
    /// A connection of its own for looking at the tables, apart from everything that is being tested.
    eye: Mutex<Eye>,
    _folder: Option<tempfile::TempDir>,
}

/// Where the tables are, in a form that can be handed to a worker process.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Sqlite { path: PathBuf },
    Postgres { url: String, schema: String },
}

enum Backend {
    Sqlite(Queue<Sqlite>),
    Postgres(Queue<Postgres>),
}

enum Eye {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// What the tables hold.
pub(super) struct State {
    pub(super) effects: u64,
    pub(super) queued: u64,
}

impl Place {
    /// The name of a table of ours.
    fn table(&self, name: &str) -> String {
        match self {
            Self::Sqlite { .. } => format!("oncebox_{name}"),
            Self::Postgres { schema, .. } => format!("{schema}.{name}"),
        }
    }

    /// The table that handlers write to.
    pub(super) fn effects(&self) -> String {
        self.table("demo_effects")
    }

    fn read(url: Option<&str>, seed: u64) -> anyhow::Result<(Self, Option<tempfile::TempDir>)> {
        match url {
            None => {
                let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
                Ok((Self::Sqlite { path: folder.path().join("demo.db") }, Some(folder)))
            }
            Some(url) if url.starts_with("postgres:") || url.starts_with("postgresql:") => {
                let schema = format!("oncebox_demo_{}_{seed}", std::process::id());
                Ok((Self::Postgres { url: url.to_owned(), schema }, None))
            }
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(path) => {
                    let path = PathBuf::from(path.trim_start_matches("//"));
                    if path.exists() {
                        bail!("cannot run the demo in {}: the file exists; name a new one", path.display());
                    }
                    Ok((Self::Sqlite { path }, None))
                }
                // The value is not repeated: it may hold a password.
                None => bail!("cannot use this --store: it is neither sqlite:PATH nor postgres://…"),
            },
        }
    }
}

impl Shop {
    pub(super) async fn open(url: Option<&str>, seed: u64) -> anyhow::Result<Self> {
        let (place, folder) = Place::read(url, seed)?;
        let store = match &place {
            Place::Sqlite { path } => Backend::Sqlite(Queue::new(sqlite(path).await?, QUEUE)?),
            Place::Postgres { url, schema } => Backend::Postgres(Queue::new(postgres(url, schema).await?, QUEUE)?),
        };
        let mut eye = match &place {
            Place::Sqlite { path } => {
                let options =
                    SqliteConnectOptions::new().filename(path).busy_timeout(std::time::Duration::from_secs(30));
                Eye::Sqlite(options.disable_statement_logging().connect().await.context("cannot open the demo's file")?)
            }
            Place::Postgres { url, .. } => {
                let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
                let connected = PgConnection::connect_with(&options).await;
                Eye::Postgres(connected.ok().context("cannot open a second connection to PostgreSQL")?)
            }
        };
        let table = place.effects();
        eye.execute(format!("create table {table} (payment text not null, account bigint, amount bigint not null)"))
            .await
            .context("cannot create the business table")?;
        Ok(Self { place, store, eye: Mutex::new(eye), _folder: folder })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn kind(&self) -> &'static str {
        match &self.place {
            Place::Sqlite { .. } => "SQLite",
            Place::Postgres { .. } => "PostgreSQL",
        }
    }

    pub(super) async fn send(&self, messages: Vec<Message>) -> Result<(), StoreError> {
        match &self.store {
            Backend::Sqlite(queue) => queue.send(messages).await,
            Backend::Postgres(queue) => queue.send(messages).await,
        }
    }

    /// How many effects and queued messages there are.
    pub(super) async fn state(&self) -> sqlx::Result<State> {
        let (effects, queue) = (self.place.effects(), self.place.table("queue"));
        let query = format!("select (select count(*) from {effects}), (select count(*) from {queue})");
        let rows = self.eye.lock().await.pairs(query).await?;
        let (effects, queued) =
            rows.first().map_or((0, 0), |(effects, queued)| (effects.parse().unwrap_or(0), *queued));
        Ok(State { effects, queued: u64::try_from(queued).unwrap_or(0) })
    }

    /// Every row of the business table: payment and amount.
    pub(super) async fn effects(&self) -> sqlx::Result<Vec<(String, i64)>> {
        self.eye.lock().await.pairs(format!("select payment, amount from {}", self.place.effects())).await
    }

    /// Leaves nothing behind.
    pub(super) async fn close(self) {
        if let Place::Postgres { schema, .. } = &self.place {
            let dropped = self.eye.lock().await.execute(format!("drop schema {schema} cascade")).await;
            if let Err(error) = dropped {
                tracing::warn!("the demo's schema {schema} is still there: {error}");
            }
        }
    }
}

impl Eye {
    async fn execute(&mut self, sql: String) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(eye) => sqlx::query(AssertSqlSafe(sql)).execute(eye).await.map(|_| ()),
            Self::Postgres(eye) => sqlx::query(AssertSqlSafe(sql)).execute(eye).await.map(|_| ()),
        }
    }

    /// Rows of a text (or a number as text) and a number.
    async fn pairs(&mut self, sql: String) -> sqlx::Result<Vec<(String, i64)>> {
        match self {
            Self::Sqlite(eye) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(eye).await?;
                rows.iter().map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?))).collect()
            }
            Self::Postgres(eye) => {
                let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(eye).await?;
                let text = |row: &sqlx::postgres::PgRow| match row.try_get::<String, _>(0) {
                    Ok(text) => Ok(text),
                    Err(_) => row.try_get::<i64, _>(0).map(|number| number.to_string()),
                };
                rows.iter().map(|row| Ok((text(row)?, row.try_get(1)?))).collect()
            }
        }
    }
}

pub(super) async fn sqlite(path: &std::path::Path) -> anyhow::Result<Sqlite> {
    let path = path.to_str().context("cannot use this path: it is not UTF-8")?;
    Ok(Sqlite::open(path).await?)
}

pub(super) async fn postgres(url: &str, schema: &str) -> anyhow::Result<Postgres> {
    Ok(Postgres::builder(url).schema(schema).connect().await?)
}
