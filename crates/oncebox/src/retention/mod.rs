//! Retention: removes what nobody needs any more, off the path of messages.
//!
//! | file | what it does |
//! | --- | --- |
//! | `runner` | passes over the records of each consumer, then what else is old |
//! | `old` | what else is old |
//! | `settings` | what is kept for how long |
//! | `stats` | how far it is |
//!
//! What a pass deletes, and how it paces itself, is in [`core`](oncebox_core::retention).

mod old;
mod runner;
mod settings;
mod stats;

pub use oncebox_core::journal::JOURNAL_KEPT;
pub use oncebox_core::retention::{ArchiveKept, RETENTION, RETENTION_MONEY, RetentionBounds};
pub use settings::{Retention, RetentionError};
pub use stats::{RetentionProgress, RetentionStats, SweepProgress};
