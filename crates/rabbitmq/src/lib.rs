//! RabbitMQ for Oncebox: [`RabbitSource`] reads a queue, [`RabbitSink`] publishes to exchanges.
//!
//! ```no_run
//! use oncebox_rabbitmq::{QueueKind, Rabbit};
//!
//! let rabbit = Rabbit::new("amqp://user:password@rabbit.example:5672/%2f");
//! let source = rabbit.source("payments").declare(QueueKind::Quorum);
//! let sink = rabbit.sink();
//! # let _ = (source, sink);
//! ```
//!
//! Give the source to a consumer and the sink to a relay. Each has a connection of its own, so that a broker that slows
//! publishers down does not slow consumers.
//!
//! # What it promises
//!
//! A message is acknowledged after its transaction committed, never before. Whatever was not acknowledged comes again, in
//! its order, when the channel closes: at a shutdown, a lost connection, a crash. Connections are rebuilt with a pause that
//! grows until a connection lasts or something is acknowledged on it; while there is none, receiving and publishing say so instead of finding nothing.
//!
//! Messages are published persistent, `mandatory` and with confirms: one that no queue would get is an error, not a loss.
//!
//! # What it does not do
//!
//! It creates no exchange, no binding and, unless asked, no queue. It does not read dead-letter queues by itself and never
//! rejects a message to one: what fails is parked in the store. It keeps no order unless the queue has a single active
//! consumer ([`RabbitSource::single_active`]). AMQP header tables have no order and each name once: headers come sorted by
//! name, and a name that repeats travels as an array.
//!
//! # Limits of the broker worth knowing
//!
//! A delivery that is not settled within the broker's `consumer_timeout` (30 minutes by default) closes the channel, and
//! everything unsettled comes again. From RabbitMQ 4.0, a quorum queue drops a message after 20 returns unless it has a
//! dead-letter exchange: give it one, or a higher `delivery-limit`; each lost connection counts as a return. One that
//! [`declare`](RabbitSource::declare) creates has one. Tested with RabbitMQ 3.10.
//!
//! # Features
//!
//! | feature | why |
//! | --- | --- |
//! | `tls` | `amqps://`, with ring and the certificates that the system trusts |

mod backoff;
mod error;
mod field;
mod guard;
mod inspect;
mod link;
mod rabbit;
mod read;
mod sink;
mod source;
mod target;
mod topic;
mod topology;
mod window;
mod write;

pub use inspect::{QueueFacts, inspect};
pub use rabbit::Rabbit;
pub use sink::RabbitSink;
pub use source::{RabbitReceipt, RabbitSource};
pub use target::{Target, look_for};
pub use topology::QueueKind;
