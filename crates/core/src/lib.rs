//! Vocabulary and seams of Oncebox.
//!
//! Adapters and the engine meet here: [`Store`], [`Source`] and the words they speak ([`Message`], [`Key`], [`Claim`],
//! [`Outcome`], [`Failure`]). The crate knows no driver. It also holds the memory adapters, which pass the same
//! conformance suites as the real ones.
//!
//! Applications depend on `oncebox`; this crate is for those who write a store or a source.

pub mod address;
pub mod archive;
pub mod audit;
pub mod claim;
pub mod cloud_events;
pub mod code;
pub mod content;
pub mod counters;
pub mod crashpoint;
pub mod decimal;
pub mod depths;
pub mod dry_run;
pub mod error;
pub mod failure;
pub mod fingerprint;
pub mod horizon;
pub mod identity;
pub mod journal;
mod json;
pub mod key;
pub mod memory;
pub mod message;
pub mod mutants;
pub mod offsets;
pub mod outbox;
pub mod outcome;
pub mod parked;
pub mod planted;
pub mod quarantine;
pub mod queue;
pub mod replay;
pub mod retention;
pub mod sink;
pub mod source;
pub mod store;
pub mod time;
pub mod trail;
pub mod versions;

pub use claim::{Claim, ClaimRequest, Conflict, Earlier};
pub use code::Code;
pub use content::Content;
pub use error::{SourceError, SourceErrorKind, StoreError, StoreErrorKind};
pub use failure::{Class, Failure};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use key::{Key, KeyError, KeyStrategy, Scope, Template};
pub use message::{Headers, Message, MessageId};
pub use outcome::{Outcome, OutcomeKind};
pub use sink::{Outgoing, Sink, SinkError, SinkErrorKind};
pub use source::{Coordinate, Delivery, Release, Source};
pub use store::{ConsumerId, ConsumerName, ConsumerStore, Ended, Inbox, Session, Store, Transaction};
pub use time::{Clock, SystemClock, Timestamp};
