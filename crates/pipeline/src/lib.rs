//! Runs what an `oncebox.toml` describes: consumers whose handlers are SQL statements and emitted messages, and a relay.
//!
//! The `oncebox` command is made of it. The file is the contract; see [`file::Pipeline`].

mod backend;
pub mod doctor;
mod dry_run;
mod feed;
pub mod file;
mod handler;
mod identity;
mod journal;
mod judging;
pub mod metrics;
mod outlet;
mod payload;
pub mod place;
pub mod retention;
mod run;
mod send;
pub mod shape;
pub mod sql;
mod watching;

pub use dry_run::dry_runner;
pub use identity::{Refused, refused};
pub use run::{Parts, RunFileError, Running, run};
pub use send::{SendError, send};
