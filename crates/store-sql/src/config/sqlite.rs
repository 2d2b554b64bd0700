//! How to open a store on SQLite.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::time::Clock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::Sqlite;
use crate::dialect::{Dialect, SqliteDialect};
use crate::schema::{self, Migrate, SchemaState};
use crate::store::SqlStore;

/// How to open a store on SQLite. Made by [`Sqlite::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it opens"]
pub struct SqliteBuilder {
    path: String,
    busy_timeout: Duration,
    synchronous: SqliteSynchronous,
    clock: Option<Arc<dyn Clock>>,
    migrate: Migrate,
    looks_only: bool,
}

impl Sqlite {
    /// Opens the store in a file (a path, or a URL like `sqlite:shop.db`), makes it if it is not there, and brings its
    /// tables up to date.
    pub async fn open(path: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(path).open().await
    }

    /// The same with other settings.
    pub fn builder(path: impl Into<String>) -> SqliteBuilder {
        SqliteBuilder {
            path: path.into(),
            busy_timeout: Duration::from_secs(10),
            synchronous: SqliteSynchronous::Full,
            clock: None,
            migrate: Migrate::Apply,
            looks_only: false,
        }
    }
}

impl SqliteBuilder {
    /// How long to wait while another transaction holds the database. 10 seconds unless set.
    pub fn busy_timeout(mut self, limit: Duration) -> Self {
        self.busy_timeout = limit;
        self
    }

    /// Commits without waiting for the disk. Faster, and after a power cut the last messages that were acknowledged
    /// are gone: neither their effects nor their records are there, and no broker sends them again.
    pub fn synchronous_normal_may_lose_acknowledged_messages(mut self) -> Self {
        self.synchronous = SqliteSynchronous::Normal;
        self
    }

    /// Lets leases run by `clock` instead of SQLite's. For tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Whether to bring the tables up to date or only to check them.
    pub fn migrate(mut self, migrate: Migrate) -> Self {
        self.migrate = migrate;
        self
    }

    /// Opens it to look, for people and tools beside those who work: each transaction sees the store as it is when it first
    /// reads, waits for nobody who writes, and is refused whatever would write. Tables are checked, never brought up to
    /// date.
    pub fn look_only(mut self) -> Self {
        self.looks_only = true;
        self.migrate(Migrate::Check)
    }

    /// Opens the file, looks at its tables, and returns the store.
    pub async fn open(self) -> Result<Sqlite, StoreError> {
        SqlStore::start(self.dialect()?, self.migrate, self.clock).await
    }

    /// Compares the tables with what this version needs. Changes nothing in them.
    pub async fn schema_check(&self) -> Result<SchemaState, StoreError> {
        let dialect = self.dialect()?;
        schema::check(&dialect, &dialect.queries().schema).await
    }

    /// The statements that make the tables, to review them or to run them by hand. Does not open the file.
    pub fn schema_print(&self) -> Result<String, StoreError> {
        let dialect = self.dialect()?;
        Ok(schema::print(&dialect, &dialect.queries().schema))
    }

    fn dialect(&self) -> Result<SqliteDialect, StoreError> {
        let options = parse(&self.path)?
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(self.synchronous)
            // Without it, macOS reports what still lies in the drive's cache as written. Elsewhere it does nothing.
            .pragma("fullfsync", "ON")
            .foreign_keys(true)
            // Waiting for the file is ours, in `begin`: SQLite's own wait is too patient beside a busy process. Who only
            // looks waits in the rarest of cases, when the log is being made good after a crash.
            .busy_timeout(if self.looks_only { self.busy_timeout } else { Duration::ZERO });
        let options = if self.looks_only { options.pragma("query_only", "ON") } else { options };
        let place = format!("sqlite at {}", options.get_filename().display());
        let durable = matches!(self.synchronous, SqliteSynchronous::Full);
        Ok(SqliteDialect::new(options, place, self.busy_timeout, durable, self.looks_only))
    }
}

fn parse(path: &str) -> Result<SqliteConnectOptions, StoreError> {
    let wrong = |why: &str| StoreError::new(StoreErrorKind::Configuration, "open a store on sqlite", why);
    if path.is_empty() || path.contains(":memory:") || path.contains("mode=memory") {
        return Err(wrong("it needs a file; what is in memory is gone with its connection (use the memory store)"));
    }
    if !path.starts_with("sqlite:") {
        return Ok(SqliteConnectOptions::new().filename(path).create_if_missing(true));
    }
    let options = SqliteConnectOptions::from_str(path).map_err(|_| wrong("its URL is not of the form sqlite:path"))?;
    Ok(if path.contains("mode=") { options } else { options.create_if_missing(true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_url_name_the_same_file() {
        for path in ["shop.db", "sqlite:shop.db", "sqlite://shop.db"] {
            assert_eq!(parse(path).unwrap().get_filename().to_str(), Some("shop.db"));
        }
        for path in ["", ":memory:", "sqlite::memory:", "sqlite:x?mode=memory", "sqlite:x?CANARY=1"] {
            let error = parse(path).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration);
            assert!(!error.to_string().contains("CANARY"));
        }
    }
}
