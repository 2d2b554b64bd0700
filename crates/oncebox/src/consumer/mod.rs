//! The consumer runtime: a source, lanes, and one transaction for what each lane takes at a time.
//!
//! ```text
//!  Source ─▶ intake ─▶ lane 1 ─▶ attempt (one transaction, own task) ─▶ settle
//!     ▲         │      lane 2 ─▶ …
//!     └─ extend ┴─ heartbeat
//! ```
//!
//! What is received is held until it is settled: extended while it waits, given back at a shutdown, never dropped.

mod alerts;
mod archived;
mod aside;
mod attempt;
mod backlog;
mod batch;
mod blame;
mod bound;
mod bounds;
mod breaker;
mod builder;
mod call;
mod cause;
mod dry_run;
mod engine;
mod fate;
mod guarantee;
pub(crate) mod guard;
mod handling;
mod heartbeat;
mod identity;
mod intake;
mod journal;
mod judgement;
mod lane;
mod opening;
mod order_by;
mod outage;
mod parking;
mod plants;
mod poison;
mod retry;
pub(crate) mod routes;
mod seconds;
mod settle;
mod setup;
mod sight;
mod stats;
mod stop;
mod stored;
mod together;
mod too_old;
mod verdict;
mod versioned;
mod work;

pub use alerts::{Dead, Missing};
pub use bounds::Bounds;
pub use builder::Consumer;
pub use cause::Cause;
pub use dry_run::DryRunner;
pub(crate) use engine::Engine;
pub use engine::{Drained, RunError};
pub use guarantee::Guarantee;
pub use order_by::OrderBy;
pub use retry::Retry;
pub use seconds::SecondsSnapshot;
pub use settle::HookRuns;
pub use setup::StartError;
pub use sight::DuplicatesOf;
pub use stats::{Snapshot, Stats};
pub(crate) use stop::Stop;
pub use stored::StoredConsumer;
pub use versioned::{Gap, Versioned};
