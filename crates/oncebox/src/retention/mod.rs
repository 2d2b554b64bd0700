//! Retention: removes what nobody needs any more, off the path of messages.
//!
//! | file | what it does |
//! | --- | --- |
//! | `runner` | passes over the records of each consumer, then what else is old |
//! | `stats` | how far it is |
//!
//! What a pass deletes, and how it paces itself, is in [`core`](oncebox_core::retention).

mod runner;
mod stats;

pub use oncebox_core::retention::{RETENTION, RETENTION_MONEY, RetentionBounds};
pub use runner::{Retention, RetentionError};
pub use stats::{RetentionProgress, RetentionStats};
