//! What differs between databases: how a connection is made, how a transaction begins and ends, and the statements.
//!
//! ```text
//!  connect ──▶ Idle ──begin──▶ Open ──commit──▶ Ended
//!               ▲               ├──rollback──▶ Idle, or nothing
//!               └───────────────┴──abandon──▶ Doubt ──resolve
//! ```
//!
//! Everything else is written once, over [`Dialect`].

#[cfg(feature = "postgres")]
mod doubt;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod same_file;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "postgres")]
mod standby;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use oncebox_core::error::StoreError;
use oncebox_core::store::{Ended, StoreCapabilities};

#[cfg(feature = "postgres")]
pub use self::postgres::PostgresDialect;
#[cfg(feature = "postgres")]
pub(crate) use self::postgres::Timeouts;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteDialect;
use crate::connection::Connection;
use crate::queries::Queries;
use crate::schema::Migration;

/// A database that a store can live in. Not for implementing outside this crate.
pub trait Dialect: fmt::Debug + Send + Sync + Sized + 'static {
    /// What a handler writes through.
    type Db: Connection + 'static;
    /// A connection that is not in a transaction.
    type Idle: fmt::Debug + Send + 'static;
    /// A connection in a transaction. Dropped, it closes the connection.
    type Open: fmt::Debug + Send + 'static;
    /// What is left of a transaction whose end is not known.
    type Doubt: fmt::Debug + Send + Sync + 'static;

    /// Its migrations, oldest first.
    #[doc(hidden)]
    const MIGRATIONS: &'static [Migration];

    /// Where it is, in words without secrets: `postgres at localhost:5432/shop`.
    #[doc(hidden)]
    fn place(&self) -> &str;

    /// The name of the schema that holds its tables; for errors and for the catalog.
    #[doc(hidden)]
    fn schema(&self) -> &str;

    /// Text in which the mark `{schema}` stands for the schema, in quotes.
    #[doc(hidden)]
    fn in_schema(&self, text: &str) -> String;

    #[doc(hidden)]
    fn queries(&self) -> Queries;

    /// What was learned at the last connect decides what is durable.
    #[doc(hidden)]
    fn capabilities(&self) -> StoreCapabilities;

    /// How long one of our own statements may take before the server counts as gone.
    #[doc(hidden)]
    fn patience(&self) -> Duration;

    #[doc(hidden)]
    fn connect(&self) -> impl Future<Output = Result<Self::Idle, StoreError>> + Send;

    #[doc(hidden)]
    fn begin(
        &self,
        idle: Self::Idle,
        lock_wait: Duration,
    ) -> impl Future<Output = Result<Self::Open, StoreError>> + Send;

    /// Rolls back what a failed statement left, and begins again.
    #[doc(hidden)]
    fn restart(&self, open: &mut Self::Open) -> impl Future<Output = Result<(), StoreError>> + Send;

    #[doc(hidden)]
    fn db(open: &mut Self::Open) -> &mut Self::Db;

    /// Whether it is still the transaction that was begun, as far as this side can tell.
    #[doc(hidden)]
    fn alive(&self, open: &Self::Open) -> Result<(), StoreError>;

    /// Asks the database whether it is; `Breached` if someone else has ended it.
    #[doc(hidden)]
    fn verify(&self, open: &mut Self::Open) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Seals, then commits.
    #[doc(hidden)]
    fn commit(&self, open: Self::Open) -> impl Future<Output = Ended<Self::Idle, Self::Doubt>> + Send;

    #[doc(hidden)]
    fn rollback(&self, open: Self::Open) -> impl Future<Output = Option<Self::Idle>> + Send;

    #[doc(hidden)]
    fn abandon(&self, open: Self::Open) -> Self::Doubt;

    #[doc(hidden)]
    fn resolve(&self, doubt: &Self::Doubt) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What commits of this process wait for beyond the database itself.
    #[doc(hidden)]
    fn commits_wait_for(&self) -> Option<String> {
        None
    }
}
