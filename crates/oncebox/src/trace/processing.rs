//! The span of a handler's call. It ends with the transaction, and says how that ended.

use std::sync::Arc;

use oncebox_core::{Class, Failure, Message};
use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::context::{TraceContext, link, set_parent};
use super::{TARGET, system, title};

/// Where a consumer's messages come from.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) consumer: String,
    /// A source's name of itself.
    pub(crate) source: &'static str,
    pub(crate) destination: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    Committed,
    RolledBack,
    /// The answer to the commit was lost.
    Unknown,
    /// There was nothing left to do.
    Duplicate,
}

/// A call of a handler. It was rolled back unless it is told otherwise.
#[derive(Debug)]
pub(crate) struct Processing {
    span: Span,
    handled: Handled,
}

impl Processing {
    /// Begins. One message is the cause; of several, none is, and each is linked.
    pub(crate) fn begin<'m>(place: &Place, messages: impl ExactSizeIterator<Item = &'m Arc<Message>>) -> Self {
        let span = debug_span!(
            target: TARGET, parent: None, "process",
            otel.name = title("process", &place.destination), otel.kind = "consumer",
            messaging.system = system(place.source), messaging.destination.name = place.destination,
            messaging.operation.name = "process", messaging.operation.type = "process",
            messaging.consumer.group.name = place.consumer,
            messaging.message.id = Empty, messaging.batch.message_count = Empty,
            oncebox.outcome = Empty, error.type = Empty, otel.status_code = Empty
        );
        let this = Self { span, handled: Handled::RolledBack };
        if this.span.is_disabled() {
            return this;
        }
        let count = messages.len();
        for message in messages {
            if count > 1 {
                link(&this.span, message);
            } else {
                set_parent(&this.span, message);
                if let Some(id) = &message.id {
                    this.span.record("messaging.message.id", id.as_str());
                }
            }
        }
        if count > 1 {
            this.span.record("messaging.batch.message_count", count as u64);
        }
        this
    }

    /// One that nobody sees.
    pub(crate) fn unseen() -> Self {
        Self { span: Span::none(), handled: Handled::RolledBack }
    }

    /// Itself, if anyone sees it.
    pub(crate) fn if_seen(self) -> Option<Self> {
        (!self.span.is_disabled()).then_some(self)
    }

    /// The span, for what the handler itself says.
    pub(crate) fn span(&self) -> Span {
        self.span.clone()
    }

    /// What the handler emits goes on with this.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        TraceContext::of_span(&self.span)
    }

    /// The handler failed. Its reason may quote anything; its class does not.
    pub(crate) fn failed(&self, failure: &Failure) {
        self.span.record("error.type", failure.class().map_or("error", Class::name));
        self.span.record("otel.status_code", "ERROR");
    }

    /// The transaction ended.
    pub(crate) fn end(mut self, handled: Handled) {
        self.handled = handled;
    }
}

impl Drop for Processing {
    fn drop(&mut self) {
        let outcome = match self.handled {
            Handled::Committed => "committed",
            Handled::RolledBack => "rolled back",
            Handled::Unknown => "unknown",
            Handled::Duplicate => "duplicate",
        };
        self.span.record("oncebox.outcome", outcome);
    }
}
