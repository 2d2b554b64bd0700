//! The relay: publishes what transactions put into the outbox.
//!
//! | file | what it does |
//! | --- | --- |
//! | `relay` | the builder; starting and ending |
//! | `lanes` | which part of the outbox is this relay's |
//! | `worker` | fetch, publish, settle |
//! | `publish` | one batch, and what became of it |
//! | `rounds` | what may be under way at once |
//! | `pauses` | destinations that fail |

mod bounds;
mod lanes;
mod pauses;
mod publish;
#[allow(clippy::module_inception, reason = "the relay is the module's main type")]
mod relay;
mod rounds;
mod stats;
mod worker;

pub use bounds::RelayBounds;
pub use relay::{Relay, RelayError};
pub use stats::{RelaySnapshot, RelayStats};
