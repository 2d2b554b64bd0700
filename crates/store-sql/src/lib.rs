//! The transactional stores of Oncebox on SQLite and PostgreSQL.
//!
//! [`Postgres`] and [`Sqlite`] implement the seams of `oncebox-core`: a [`Store`](oncebox_core::Store) whose
//! transactions carry the inbox, and the queue role on top. Applications use them through `oncebox`, which re-exports
//! them behind its features.
//!
//! | feature | brings |
//! | --- | --- |
//! | `sqlite` | [`Sqlite`], with SQLite compiled in: no server; processes share the file and write one at a time |
//! | `postgres` | [`Postgres`], version 13 or newer, with TLS |
//!
//! # Your own transaction
//!
//! [`ConsumerInbox`] claims keys on a connection that you have, in a transaction that you begin and end. [`Emitter`] adds
//! messages to the outbox there.
//! [`InsertOnce`] inserts a row of yours unless it is there, and tells you whether what is there is the same.
//!
//! # What it does not do
//!
//! It has no pool: whoever handles messages keeps a connection. It does not merge databases: what one transaction
//! should commit lies in one of them. It never reads from a replica. It does not work through a pooler that hands out
//! a connection per transaction (PgBouncer in transaction mode): an unknown commit is resolved by ending the server
//! process that ran it, and behind such a pooler nobody knows which one that was.
//!
//! # Reading order
//!
//! `dialect` (how a transaction begins and ends in each database), `transaction`, `inbox`, `queue`, then the statements
//! under `queries/`, one per file.

#![cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "without a database there is nobody to use it")
)]

mod archive;
mod audit;
mod claimed;
mod config;
mod connection;
mod counter_queries;
mod counters;
mod depths;
pub mod dialect;
mod emitter;
mod error;
mod hope;
mod horizon;
mod inbox;
mod insert_once;
mod journal;
mod lanes;
mod layer0;
mod name;
mod names;
mod offset_queries;
mod offsets;
mod operator_queries;
mod outbox;
mod outbox_queries;
mod parked;
mod quarantine;
mod queries;
mod queue;
mod replays;
mod schema;
mod store;
mod trail;
mod transaction;
mod turns;
mod versions;
mod wire;

#[cfg(feature = "postgres")]
pub use config::PostgresBuilder;
#[cfg(feature = "sqlite")]
pub use config::SqliteBuilder;
pub use emitter::Emitter;
pub use insert_once::{InsertOnce, InsertOnceError, Once, OnceConnection};
pub use layer0::ConsumerInbox;
pub use name::{Identifier, InvalidIdentifier};
pub use schema::{Migrate, SchemaState};
pub use store::SqlStore;
pub use transaction::{SqlSession, SqlTx};

/// A store on PostgreSQL 13 or newer.
#[cfg(feature = "postgres")]
pub type Postgres = SqlStore<dialect::PostgresDialect>;

/// A store on SQLite.
#[cfg(feature = "sqlite")]
pub type Sqlite = SqlStore<dialect::SqliteDialect>;
