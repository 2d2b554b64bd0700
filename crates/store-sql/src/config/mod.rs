//! How to open a store.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub use self::postgres::PostgresBuilder;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteBuilder;
