//! The spans of messages on their way to a broker.

use std::sync::Arc;

use oncebox_core::{Outgoing, SinkError, SinkErrorKind};
use tracing::field::Empty;
use tracing::{Level, Span, debug_span, span_enabled};

use super::context::{TraceContext, set_parent};
use super::{TARGET, system, title};

/// A batch on its way to a broker: one span for each message, if anyone wants them.
#[derive(Debug, Default)]
pub struct Publishing(Vec<Span>);

impl Publishing {
    /// Begins, for a sink of this name. A message whose trace is kept by someone goes out with the context of its span.
    pub fn begin(sink: &'static str, batch: &mut [Outgoing]) -> Self {
        if !span_enabled!(target: TARGET, Level::DEBUG) {
            return Self::default();
        }
        Self(batch.iter_mut().map(|outgoing| begin(sink, outgoing)).collect())
    }

    /// Ends, with the sink's answers in the order of the messages.
    pub fn end(self, answers: &[Result<(), SinkError>]) {
        for (span, answer) in self.0.iter().zip(answers) {
            if let Err(error) = answer {
                let kind = match error.kind() {
                    SinkErrorKind::Unavailable => "unavailable",
                    SinkErrorKind::Refused => "refused",
                    SinkErrorKind::Configuration => "configuration",
                    _ => "error",
                };
                span.record("error.type", kind);
                span.record("otel.status_code", "ERROR");
            }
        }
    }
}

fn begin(sink: &'static str, outgoing: &mut Outgoing) -> Span {
    let span = debug_span!(
        target: TARGET, parent: None, "send",
        otel.name = title("send", &outgoing.topic), otel.kind = "producer",
        messaging.system = system(sink), messaging.destination.name = outgoing.topic,
        messaging.operation.name = "send", messaging.operation.type = "send",
        messaging.message.id = outgoing.message.id.as_ref().map(|id| id.as_str()),
        error.type = Empty, otel.status_code = Empty
    );
    set_parent(&span, &outgoing.message);
    if TraceContext::is_kept(&span)
        && let Some(context) = TraceContext::of_span(&span)
    {
        // A trace is a help: a header that can't be written costs nobody the message.
        let _ = context.put(&mut Arc::make_mut(&mut outgoing.message).headers);
    }
    span
}
