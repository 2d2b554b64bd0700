//! Oncebox makes every message take effect once.
//!
//! Brokers deliver at least once: crashes, lost acknowledgements, rebalances and replays all deliver again. Oncebox
//! claims each message's key in the same transaction as your handler's writes, so that a message that comes again
//! finds itself done.
//!
//! *Within a consumer's retention window, a message's effects in the configured store are committed once per
//! (consumer, key), provided the store keeps what it acknowledged.* That is what "effectively once" means here. Effects
//! outside the store (a call, a mail) are not covered by it.
//!
//! # Hello
//!
//! ```
//! use oncebox::memory::{MemorySource, MemoryStore};
//! use oncebox::{Consumer, Context, Message, Outcome};
//!
//! async fn greet(mut ctx: Context<MemoryStore>, name: String) -> oncebox::Result<Outcome> {
//!     ctx.db().append("greetings", &format!("hello {name}"))?;
//!     Ok(Outcome::applied())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (store, source) = (MemoryStore::new(), MemorySource::new());
//! let message = Message::new("greet").with_json(&"world")?;
//! source.send_all([message.clone(), message]); // delivered twice
//!
//! let consumer = Consumer::new("greeter", store.clone(), source.clone()).on("greet", greet);
//! consumer.run(async move { while source.backlog() > 0 { tokio::task::yield_now().await } }).await?;
//!
//! let greetings: Vec<String> = store.with_db(|db| db.rows("greetings")).await?;
//! assert_eq!(greetings, ["hello world"]); // one effect
//! # Ok(()) }
//! ```
//!
//! # Reading order
//!
//! [`Consumer`] and [`Context`]; then [`KeyStrategy`] for what makes two deliveries the same message, [`Outcome`] and
//! [`Failure`] for what a handler returns, [`Queue`] for the embedded queue, and `postgres` or `sqlite` for
//! primitives on your own transaction.
//!
//! # What it does not do
//!
//! It does not make calls to other services happen once, it does not order messages unless asked
//! ([`Consumer::order_by`]), and it remembers only as long as its records are kept.
//!
//! # Features
//!
//! | feature | why |
//! | --- | --- |
//! | `sqlite` | the embedded store; brings SQLite, compiled in |
//! | `postgres` | PostgreSQL 13 and later; brings its driver and TLS |
//! | `rabbitmq`, `rabbitmq-tls` | RabbitMQ as a source and a sink; with `-tls`, also over `amqps://` |
//! | `nats` | NATS JetStream as a source and a sink; brings its client and TLS |
//! | `kafka` | Kafka as source and sink; compiles librdkafka, which takes a C and C++ compiler and `make` |
//! | `opentelemetry` | spans that go on with the trace of a message; see [`trace`] |
//! | `crashpoints`, `planted-bugs` | for tests of Oncebox itself: places to kill it, and bugs to find |

pub mod consumer;
mod context;
pub mod counting;
mod event;
mod handler;
mod own_session;
mod parked_source;
mod process;
mod queue_source;
pub mod relay;
pub mod retention;
pub mod shutdown;
pub mod trace;

pub use consumer::{
    Bounds, Consumer, Dead, Drained, DryRunner, Gap, Guarantee, HookRuns, Missing, OrderBy, Retry, Versioned,
};
pub use context::Context;
pub use event::Event;
pub use handler::{BatchHandler, Handler, Outcomes};
pub use oncebox_core::*;
pub use queue_source::{Queue, QueueReceipt};
pub use relay::{Relay, RelayBounds};
pub use retention::Retention;

#[cfg(feature = "kafka")]
pub use oncebox_kafka as kafka;

/// PostgreSQL: the store, and primitives on your own transaction.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use oncebox_store_sql::dialect::PostgresDialect;
    pub use oncebox_store_sql::{
        ConsumerInbox, Emitter, InsertOnce, InsertOnceError, Migrate, Once, Postgres, PostgresBuilder, SchemaState,
    };
}

/// RabbitMQ: queues as sources, exchanges as sinks.
#[cfg(feature = "rabbitmq")]
pub use oncebox_rabbitmq as rabbitmq;

/// SQLite: the store, and primitives on your own transaction.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use oncebox_store_sql::dialect::SqliteDialect;
    pub use oncebox_store_sql::{
        ConsumerInbox, Emitter, InsertOnce, InsertOnceError, Migrate, Once, SchemaState, Sqlite, SqliteBuilder,
    };
}

/// NATS JetStream: a source and a sink.
#[cfg(feature = "nats")]
pub mod nats {
    pub use oncebox_nats::{
        DiskSync, JetStreamReceipt, JetStreamSink, JetStreamSource, NewConsumer, Server, StreamFacts, inspect, look_for,
    };
}

/// What handlers return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;
