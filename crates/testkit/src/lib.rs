//! Tests for what Oncebox is made of: conformance suites for stores and sources, and the means to make things go wrong
//! on purpose. A store or a source is supported when it passes its suite.
//!
//! # Write a store
//!
//! Give each case a store of its own, say how to reach two business tables beside it, and run the suite with one line
//! in your crate's `tests` folder:
//!
//! ```
//! use std::sync::Arc;
//!
//! use oncebox_core::Failure;
//! use oncebox_core::memory::{MemoryDb, MemoryStore};
//! use oncebox_testkit::ManualClock;
//! use oncebox_testkit::store::StoreFixture;
//!
//! struct Memory;
//!
//! impl StoreFixture for Memory {
//!     type Store = MemoryStore;
//!
//!     // `None` if there is no server: the case is skipped and its name noted.
//!     async fn fresh(&self, clock: Arc<ManualClock>) -> Option<MemoryStore> {
//!         Some(MemoryStore::with_clock(clock))
//!     }
//!
//!     async fn write_effect(db: &mut MemoryDb, id: &str) -> Result<(), Failure> {
//!         Ok(db.append("effects", &id)?)
//!     }
//!
//!     async fn effects(store: &MemoryStore) -> Vec<String> {
//!         store.with_db(|db| db.rows("effects")).await.expect("the table can be read")
//!     }
//!
//!     async fn insert_unique(db: &mut MemoryDb, key: &str) -> Result<(), Failure> {
//!         Ok(db.insert("unique", key, &())?)
//!     }
//!
//!     async fn swallow_error(db: &mut MemoryDb) {
//!         let _ = db.insert("unique", "twice", &());
//!         let _ = db.insert("unique", "twice", &());
//!     }
//! }
//!
//! oncebox_testkit::store_suite!(Memory);
//! # fn main() {}
//! ```
//!
//! Each case becomes a `#[tokio::test]` named after what it promises, in the modules `inbox` and `queue`:
//! `cargo test inbox::a_rolled_back_claim_never_was`. To run several fixtures in one file, put each in a module of its
//! own. Your crate needs `tokio` with `macros` and `rt-multi-thread` among its development dependencies.
//!
//! A source is the same with [`SourceFixture`](source::SourceFixture) and [`source_suite!`].
//!
//! # Prove your own handlers
//!
//! With the feature `crashpoints`, implement [`handler::Subject`](handler) for your consumer and run `handler_suite!`: it
//! delivers twice, at the same instant, and around crashes, and compares your tables with what they hold when each
//! message came once.
//!
//! # Make things go wrong
//!
//! | with | you can |
//! | --- | --- |
//! | [`ManualClock`] | move time, and repeat what chance did |
//! | [`eventually`](fn@eventually) | wait for what another task does, with one deadline and a name for it |
//! | [`faults`] | lose a call or its answer, at any seam, by hand, by chance or at each call in turn |
//! | `crash` | kill, fail, delay or hang a process at a named place; with the feature `crashpoints` |
//! | `proxy` | cut, delay or swallow what goes over a connection, and cut inside COMMIT; with the feature `proxy` |
//!
//! # What it does not do
//!
//! It starts no server and kills no process: a fixture finds the one, and the end-to-end tests do the other. `faults`
//! are made at the seams, so they show what the engine does when a store fails, and not whether a driver tells the
//! truth about it; that takes a real server, behind `proxy` or taken away. A suite that passes says nothing about speed
//! or about power cuts.
//!
//! # Features
//!
//! | feature | for |
//! | --- | --- |
//! | `crashpoints` | arming crash points, which the core compiles to nothing without its own feature of this name |
//! | `proxy` | the TCP proxy, which brings sockets |

pub mod clock;
#[cfg(feature = "crashpoints")]
pub mod crash;
mod eventually;
pub mod faults;
#[cfg(feature = "crashpoints")]
pub mod handler;
mod hostile;
mod names;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod sink;
mod skip;
pub mod source;
pub mod store;

pub use clock::ManualClock;
pub use eventually::{Answer, DEADLINE, eventually, eventually_within, stays_pending};
pub use names::UnknownName;
pub use skip::skipped;
