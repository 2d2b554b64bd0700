//! Runs what an `oncebox.toml` describes: consumers whose handlers are SQL statements and emitted messages, and a relay.
//!
//! The `oncebox` command is made of it. The file is the contract; see [`file::Pipeline`].

pub mod file;
mod payload;
pub mod place;
pub mod shape;
pub mod sql;
