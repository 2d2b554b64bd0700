//! Where a trace begins.

use oncebox_core::Message;
use tracing::debug_span;

use super::context::TraceContext;
use super::{TARGET, title};

impl TraceContext {
    /// Begins a trace with a message that is to be sent to `destination`, and writes it into its headers. Where spans are
    /// sent to someone, it has one there; otherwise `ids`, which are random and not zero, name it all the same.
    pub fn begin(message: &mut Message, destination: &str, ids: (u128, u64)) -> Self {
        let span = debug_span!(
            target: TARGET, parent: None, "create",
            otel.name = title("create", destination), otel.kind = "producer",
            messaging.system = "oncebox", messaging.destination.name = destination,
            messaging.operation.name = "create", messaging.operation.type = "create",
            messaging.message.id = message.id.as_ref().map(|id| id.as_str())
        );
        let context = Self::of_span(&span).unwrap_or_else(|| Self::named(ids.0, ids.1));
        // It has no characters that a header must not have.
        let _ = context.put(&mut message.headers);
        context
    }
}
