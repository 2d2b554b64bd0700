//! Memory adapters: a store with real transactions and a source with real leases, for tests, examples and single
//! processes that may forget.
//!
//! [`MemoryStore`] runs one transaction at a time, keeps an undo log, and aborts a transaction at its first error, as
//! the strictest of the real stores do. What a handler gets wrong on PostgreSQL, it gets wrong here.

mod counters;
mod db;
mod horizon;
mod inbox;
mod journal;
mod offsets;
mod operations;
mod outbox;
mod parked;
mod quarantine;
mod queue;
mod sink;
mod source;
mod store;
mod versions;

pub use db::{MemoryDb, MemoryError};
pub use parked::Departure;
pub use sink::MemorySink;
pub use source::{MemoryReceipt, MemorySource};
pub use store::{MemoryDoubt, MemorySession, MemoryStore, MemoryTx};
