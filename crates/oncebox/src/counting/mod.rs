//! Keeps what this process counts in the store, so that `oncebox status` sees it, and what waits there in view.
//!
//! ```text
//!  Stats, RelayStats ──every second──▶ rows of this process in the store ──▶ whoever looks
//!        │                                          ▲
//!        └──▶ Overview ◀──every ten seconds── what waits: queues, parked, outbox
//!                └──▶ metrics and health of this process
//! ```
//!
//! On a connection of its own, beside everything else: it slows nobody down, and where it fails nothing else does. A
//! process that dies loses what it counted since the last flush, a second or so.

mod flush;
mod overview;
mod rise;
mod task;

pub use overview::{InStore, Overview};
pub use task::{Counting, CountingBounds};
