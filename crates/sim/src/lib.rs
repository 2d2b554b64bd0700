//! Two proofs of the engine that need no server.
//!
//! [`simulate`] runs real consumers on the memory store, in virtual time on one thread, while a seed decides what goes
//! wrong: duplicates, lost acknowledgements, commits whose answer is lost, outages, lost leases, failing handlers, dead
//! processes. Then everything heals, and an audit compares the business table with what was sent.
//!
//! ```text
//!  seed ─▶ Scenario ─▶ sender ─▶ MemorySource or Queue ─▶ Consumer × 1..3 ─▶ MemoryStore
//!             │                       ▲ faults ▲                ▲ faults ▲        │
//!             └──────▶ Weather ───────┴────────┴────────────────┴────────┘        ▼
//!                                        what was sent ──────────────────────▶ audit ─▶ Verdict
//! ```
//!
//! The audit reads business rows, inbox records and what was sent, never a consumer's counters. A seed always makes the
//! same run, so a failing one is repeated with `cargo run -p oncebox-sim -- --seed N --trace`.
//!
//! The second proof is a model of claim, lease and fence, checked in every interleaving; it lives in `tests/model`.
//!
//! # What it does not do
//!
//! It says nothing about a driver or a server: the stores of that kind are proven against real ones. The memory store
//! runs one transaction at a time, so races inside a store are not seen here either.

mod audit;
mod clock;
mod handler;
mod hazard;
mod history;
mod journal;
mod leftovers;
mod operator;
pub mod partitions;
mod scenario;
mod shelf;
mod tap;
mod verdict;
mod weather;
mod world;

pub use hazard::{Hazard, Hazards};
pub use scenario::{Ending, Origin, Scenario};
pub use verdict::{Kind, Totals, Verdict, Wrong};
pub use world::simulate;
