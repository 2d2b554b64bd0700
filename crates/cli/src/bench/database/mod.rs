//! The databases to measure on: each with tables of its own, and the statements that people write by hand.

mod outbox;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;

use oncebox::quarantine::QuarantineStore;
use oncebox::queue::QueueStore;
use oncebox::store::Transaction;
use serde::{Deserialize, Serialize};
use sqlx::types::Uuid;

pub(super) use self::outbox::{HandOutbox, HandRow};
pub(super) use self::postgres::{PostgresPlace, open as open_postgres};
pub(super) use self::sqlite::{SqlitePlace, open as open_sqlite};

/// A database with tables of its own, which are gone after [`close`](Self::close).
pub(super) trait Database: Sized + Send + Sync + 'static {
    type Store: QueueStore + QuarantineStore<Tx: Transaction<Db = Self::Connection>>;
    type Connection: HandOutbox;

    /// With how many connections the hand-written inbox is tried.
    const NAIVE_CONNECTIONS: &'static [u16];

    /// Makes the tables. What it says of a wrong URL shows no secret.
    fn open(url: &str) -> impl Future<Output = anyhow::Result<Self>> + Send;

    fn store(&self) -> &Self::Store;

    /// A connection for hand-written work, with the same durability as the store's.
    fn connect(&self) -> impl Future<Output = anyhow::Result<Self::Connection>> + Send;

    /// How many connections can write at a time, if `lanes` are asked for.
    fn writers(lanes: u16) -> u16;

    /// No records, this many accounts with nothing on them, no dead rows.
    fn reset(&self, accounts: i64) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// What lies on all accounts.
    fn total(&self) -> impl Future<Output = anyhow::Result<i64>> + Send;

    /// Where its write-ahead log ends, in bytes, if it tells.
    fn log_position(&self) -> impl Future<Output = anyhow::Result<Option<i64>>> + Send;

    /// What the figures depend on: version, durability, buffers.
    fn settings(&self) -> impl Future<Output = anyhow::Result<Settings>> + Send;

    /// Adds records to our inbox as if so many messages had passed, so many days ago.
    fn fill(&self, rows: u64, keys: Keys, days_ago: u32) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Nothing in the outbox, and no dead rows.
    fn empty_outbox(&self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// The outbox was filled: lets the database know how much it holds, as it would by itself after a while.
    fn settle_outbox(&self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// For another process, to open the same store.
    fn address(&self) -> Address;

    /// Leaves nothing behind.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Where the store of a benchmark is. Holds a password, so it is neither shown nor put on a command line.
#[derive(Clone, Deserialize, Serialize)]
pub(super) enum Address {
    Postgres { url: String, schema: String },
    Sqlite { path: PathBuf },
}

/// Name and value of what the figures depend on.
pub(super) type Settings = BTreeMap<&'static str, String>;

/// What message ids look like, and so where in the index they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// UUIDv7.
    TimeOrdered,
    /// UUIDv4.
    Random,
}

impl Keys {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::TimeOrdered => "time-ordered",
            Self::Random => "random",
        }
    }
}

/// The statements of the work, and of an inbox as it is written by hand: a table with a unique key and nothing else.
pub(super) trait Statements: Send + 'static {
    fn begin(&mut self) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn commit(&mut self) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn rollback(&mut self) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Inserts a key; whether it was not there.
    fn claim(&mut self, key: Uuid) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Inserts many keys; those that were not there.
    fn claim_all(&mut self, keys: &[Uuid]) -> impl Future<Output = sqlx::Result<Vec<Uuid>>> + Send;

    /// Credits one account.
    fn credit(&mut self, account: i64, amount: i64) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Credits many accounts in one statement.
    fn credit_all(&mut self, accounts: &[i64], amounts: &[i64]) -> impl Future<Output = sqlx::Result<()>> + Send;
}
