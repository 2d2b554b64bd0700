//! NATS JetStream for Oncebox: [`JetStreamSource`] reads from a durable pull consumer, [`JetStreamSink`] publishes to
//! streams.
//!
//! ```no_run
//! use oncebox_nats::{JetStreamSink, JetStreamSource, NewConsumer};
//!
//! # fn main() {
//! let orders = JetStreamSource::new("nats://127.0.0.1", "ORDERS", "billing").create(NewConsumer::default());
//! let invoices = JetStreamSink::new("nats://127.0.0.1").stream("INVOICES");
//! # }
//! ```
//!
//! # What it needs of the server
//!
//! NATS 2.10 or later with JetStream. A stream that must survive a power cut needs `sync_interval: always`, because the
//! default syncs every two minutes, after the acknowledgement. Tested against 2.15.1.
//!
//! # What it does with a message
//!
//! | ours | on the wire |
//! | --- | --- |
//! | id, source, type, time, order key, version | CloudEvents attributes: headers `ce-id`, … (percent-encoded as the binding says), or one JSON document |
//! | id | with a digest of subject and source in `Nats-Msg-Id` as well, so that the stream itself drops what is published again within its window |
//! | headers | themselves. Values that a header can't carry (line breaks, bytes that are no text, spaces at the ends) go as `name;base64`; names that it can't carry, or that would be an order to the server (`Nats-…`), as `name;percent`. Both are undone on arrival |
//!
//! A message that comes without CloudEvents gets its id from `oncebox-id`, else from `Nats-Msg-Id`, and its type from its
//! subject. The order of headers with different names is not kept; those of one name stay in order.
//!
//! # What it does not do
//!
//! It creates no streams, and changes neither streams nor consumers.
//!
//! The client library that this builds on breaks its connection on headers that hold bytes that are not text, or a carriage
//! return: other clients can publish such. Where one message is under way at a time (`max_ack_pending = 1`), the source
//! connects again, reads the message by its number and hands it out; this needs the right to `STREAM.MSG.GET`. What of its
//! headers can't be read comes along as base64. With more under way, the message is not delivered: the source goes on one by
//! one, and meets it each time its `ack_wait` is over, until a person removes it from the stream.

mod error;
mod fetch;
mod headers;
mod inspect;
mod link;
mod oldest;
mod place;
mod receipt;
mod server;
mod settings;
mod sink;
mod source;
mod stuck;

pub use inspect::{DiskSync, StreamFacts, inspect, look_for};
pub use receipt::JetStreamReceipt;
pub use server::Server;
pub use settings::NewConsumer;
pub use sink::JetStreamSink;
pub use source::JetStreamSource;
