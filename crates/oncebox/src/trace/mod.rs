//! Spans of messages, for traces from producer through outbox and broker to consumer.
//!
//! | span | when | parent | fields |
//! | --- | --- | --- | --- |
//! | `create TOPIC` | a trace begins ([`TraceContext::begin`]) | none | `messaging.*` |
//! | `process QUEUE` | a handler is called; it ends with the transaction | the message's `traceparent`; a batch handler's span has a link to each instead | `messaging.*`, `oncebox.outcome`, `error.type` |
//! | `send TOPIC` | a relay publishes a row, or `oncebox send` a message | the row's `traceparent` | `messaging.*`, `error.type` |
//!
//! `messaging.system`, `messaging.destination.name`, `messaging.operation.name` and `.type`, `messaging.message.id`,
//! `messaging.consumer.group.name` and `messaging.batch.message_count` are those of OpenTelemetry's conventions. Payloads,
//! header values and order keys are in none of them.
//!
//! Spans have the target [`TARGET`] and the level `DEBUG`, so nobody gets them who did not ask for them; then one costs a
//! look at a cached flag for each call of a handler and each batch of a relay. With the feature `opentelemetry` and a
//! `tracing_opentelemetry` layer, parents come from `traceparent` and `tracestate` (W3C), and what a handler emits, or a
//! relay publishes, carries the context of its span in them. Otherwise an event carries those of the message that caused it.

mod context;
mod creating;
mod processing;
mod publishing;

pub use self::context::TraceContext;
pub(crate) use self::processing::{Handled, Place, Processing};
pub use self::publishing::Publishing;

/// The target of all these spans.
pub const TARGET: &str = "oncebox::traces";

/// The name of a messaging system as OpenTelemetry writes it.
fn system(name: &'static str) -> &'static str {
    match name {
        "jetstream" => "nats",
        "queue" | "parked" | "memory" => "oncebox",
        name => name,
    }
}

/// `process payments`; a place without a name leaves it out.
fn title(operation: &str, destination: &str) -> String {
    if destination.is_empty() { operation.to_owned() } else { format!("{operation} {destination}") }
}
