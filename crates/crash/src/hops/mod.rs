//! Rows with an outbox, relays and a real broker.
//!
//! ```text
//!  generator ─▶ topic 1 ─▶ consumer 1 ─┐ effect, event     ┌─▶ topic 2 ─▶ consumer 2 ─▶ effect
//!                                      ├─▶ outbox ─▶ relay ┤
//!                      writer ─────────┘                   └─▶ a reader of its own, for the auditor
//! ```
//!
//! A row has two hops, or a writer in place of the first and nobody behind the relay. Every attempt of a handler to emit
//! has a number of its own, the *token*, which is written into the business table in the same transaction: what the
//! auditor's reader finds on the wire must have its token there, and each token there must be on the wire.
//!
//! | file | what it does |
//! | --- | --- |
//! | `row` | what runs, and what is done to it |
//! | `line` | the broker as a row sees it; `nats`, `rabbitmq` and `kafka` behind it |
//! | `hand` | the processes: consumers and relays |
//! | `crew` | starts, kills, stops and continues them |
//! | `generator`, `writer` | where messages come from |
//! | `tables` | what they write, and what is watched |
//! | `blows` | kills of the broker, relays that are stopped, one kill a second |
//! | `run` | a row from beginning to end |
//! | `audit`, `takeover` | the verdict |

mod audit;
mod blows;
mod crew;
mod generator;
mod hand;
mod kafka;
mod line;
mod nats;
mod rabbitmq;
mod row;
mod run;
mod tables;
mod takeover;
mod writer;

pub(crate) use hand::run as run_hand;
pub(crate) use row::{HopsRow, bugs, matrix};
pub(crate) use run::{Ground, run};
