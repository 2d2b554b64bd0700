//! Stores for tests: a schema or a file of its own for each.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

pub(crate) mod fixtures;

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{
    Claim, ClaimRequest, Clock, ConsumerId, ConsumerName, Ended, Fingerprint, Inbox, Key, Session, Store, SystemClock,
    Transaction,
};
use oncebox_store_sql::{Postgres, Sqlite};
use oncebox_testkit::{ManualClock, skipped};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A schema of its own on the server that the environment names. Unqualified table names land in it.
pub(crate) struct PostgresPlace {
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl PostgresPlace {
    /// `None` without a server.
    pub(crate) fn new() -> Option<Self> {
        let url = std::env::var("ONCEBOX_TEST_POSTGRES_URL").ok()?;
        let schema = format!("t_{}", SystemClock.id().simple());
        let mark = if url.contains('?') { '&' } else { '?' };
        Some(Self { url: format!("{url}{mark}options[search_path]={schema}"), schema })
    }

    /// `None` without a server; then the name of the test is noted.
    pub(crate) fn or_skip(test: &str) -> Option<Self> {
        let place = Self::new();
        if place.is_none() {
            skipped(test);
        }
        place
    }

    pub(crate) async fn open(&self) -> Postgres {
        Postgres::builder(&self.url).schema(&self.schema).connect().await.unwrap()
    }

    pub(crate) async fn open_with(&self, clock: Arc<ManualClock>) -> Postgres {
        Postgres::builder(&self.url).schema(&self.schema).clock(clock).connect().await.unwrap()
    }

    /// A connection that has nothing to do with the store.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection().await).await.unwrap();
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = AssertSqlSafe(format!("select count(*) from {table}"));
        sqlx::query_scalar(sql).fetch_one(&mut self.connection().await).await.unwrap()
    }
}

/// A file of its own.
pub(crate) struct SqlitePlace {
    pub(crate) folder: TempDir,
}

impl SqlitePlace {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> String {
        self.folder.path().join("store.db").to_str().unwrap().to_owned()
    }

    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(self.path()).await.unwrap()
    }

    pub(crate) async fn open_with(&self, clock: Arc<ManualClock>) -> Sqlite {
        Sqlite::builder(self.path()).clock(clock).open().await.unwrap()
    }

    pub(crate) async fn connection(&self) -> sqlx::SqliteConnection {
        sqlx::SqliteConnection::connect(&format!("sqlite:{}?mode=rwc", self.path())).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection().await).await.unwrap();
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = AssertSqlSafe(format!("select count(*) from {table}"));
        sqlx::query_scalar(sql).fetch_one(&mut self.connection().await).await.unwrap()
    }
}

pub(crate) async fn begin<S: Store>(store: &S) -> S::Tx {
    store.connect().await.unwrap().begin(LOCK_WAIT).await.unwrap()
}

pub(crate) async fn commit<T: Transaction>(tx: T) -> T::Session {
    match tx.commit().await {
        Ended::Committed(session) => session,
        Ended::RolledBack { error, .. } => panic!("rolled back: {error}"),
        Ended::Unknown { error, .. } => panic!("unknown: {error}"),
    }
}

pub(crate) async fn consumer<S: Store>(store: &S, name: &str) -> ConsumerId {
    store.consumer(&ConsumerName::new(name).unwrap()).await.unwrap()
}

pub(crate) fn request(consumer: ConsumerId, id: &str) -> ClaimRequest {
    ClaimRequest { consumer, key: Key::id(id).unwrap(), fingerprint: fingerprint(7), id_hash: None }
}

pub(crate) fn fingerprint(hash: i64) -> Fingerprint {
    Fingerprint::from_stored(1, hash)
}

pub(crate) async fn claim<T: Inbox>(tx: &mut T, request: &ClaimRequest) -> Claim {
    tx.claim(std::slice::from_ref(request)).await.unwrap().remove(0)
}

/// What a claim would be answered now; leaves nothing behind.
pub(crate) async fn look<S: Store>(store: &S, request: &ClaimRequest) -> Claim {
    let mut tx = begin(store).await;
    let answer = claim(&mut tx, request).await;
    tx.rollback().await;
    answer
}

/// Polls a future once, and cancels it if it is not done.
pub(crate) async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        let polled = std::pin::Pin::new(&mut future).poll(context);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
