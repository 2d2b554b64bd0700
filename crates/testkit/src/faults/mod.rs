//! A store and a source that fail where a test says so.
//!
//! ```text
//!  FaultPlan ──what goes wrong, where, how often──▶ Faulty<Store>, FaultySource<Source>
//!      ▲                                                  │
//!      └───────────── which seam calls were made ─────────┘
//! ```
//!
//! [`Faulty`] wraps any store and is one itself, so that the engine runs over it unchanged. A [`FaultPlan`] names the
//! seam calls at which something goes wrong, by hand, by chance from a seed, by a function, or in turn: [`repeat_every_call`] and
//! [`fail_at_each_call_in_turn`] run a whole scenario once for each call that it makes.

mod journal;
mod offsets;
mod outbox;
mod parked;
mod plan;
mod quarantine;
mod queue;
mod scenario;
mod source;
mod store;
mod versions;

pub use plan::{CALLS, Fault, FaultPlan, Moment};
pub use scenario::{fail_at_each_call_in_turn, repeat_every_call};
pub use source::FaultySource;
pub use store::{Faulty, FaultyDoubt, FaultySession, FaultyTx};
