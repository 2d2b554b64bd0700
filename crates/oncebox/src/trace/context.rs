//! The trace that a message belongs to, in its headers and in a span.

use oncebox_core::Message;
use oncebox_core::error::InvalidMessage;
use oncebox_core::message::Headers;
use tracing::Span;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// What the headers `traceparent` and `tracestate` say (W3C Trace Context).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// The trace of a message, if it has one.
    pub fn of(message: &Message) -> Option<Self> {
        let parent = message.headers.get(PARENT)?.to_owned();
        Some(Self { parent, state: message.headers.get(STATE).map(str::to_owned) })
    }

    /// A trace that is kept by whoever sees it.
    pub(super) fn named(trace: u128, span: u64) -> Self {
        Self { parent: format!("00-{trace:032x}-{span:016x}-01"), state: None }
    }

    /// The id under which a collector shows the trace.
    pub fn trace_id(&self) -> &str {
        self.parent.split('-').nth(1).unwrap_or_default()
    }

    /// Writes it into headers, in place of another.
    pub fn put(&self, headers: &mut Headers) -> Result<(), InvalidMessage> {
        headers.set(PARENT, self.parent.as_str())?;
        match &self.state {
            Some(state) => headers.set(STATE, state.as_str()),
            None => {
                headers.remove(STATE);
                Ok(())
            }
        }
    }

    /// Writes it into headers that have none of their own.
    pub(crate) fn put_if_absent(&self, headers: &mut Headers) -> Result<(), InvalidMessage> {
        if headers.get(PARENT).is_some() {
            return Ok(());
        }
        self.put(headers)
    }
}

#[cfg(feature = "opentelemetry")]
mod opentelemetry_spans {
    use std::collections::HashMap;

    use opentelemetry::propagation::{Extractor, TextMapPropagator};
    use opentelemetry::trace::TraceContextExt;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    use super::*;

    struct Carrier<'h>(&'h Headers);

    impl Extractor for Carrier<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get(key)
        }

        fn keys(&self) -> Vec<&str> {
            self.0.iter().map(|(name, _)| name).collect()
        }
    }

    fn read(message: &Message) -> opentelemetry::Context {
        TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &Carrier(&message.headers))
    }

    pub(in super::super) fn set_parent(span: &Span, message: &Message) {
        let parent = read(message);
        if parent.span().span_context().is_valid() {
            // Without a layer of OpenTelemetry there is no trace to go on with.
            let _ = span.set_parent(parent);
        }
    }

    pub(in super::super) fn link(span: &Span, message: &Message) {
        let linked = read(message);
        if linked.span().span_context().is_valid() {
            span.add_link(linked.span().span_context().clone());
        }
    }

    impl TraceContext {
        /// The context of a span, if it belongs to a trace.
        pub(in super::super) fn of_span(span: &Span) -> Option<Self> {
            if span.is_disabled() {
                return None;
            }
            let mut headers = HashMap::new();
            TraceContextPropagator::new().inject_context(&span.context(), &mut headers);
            let state = headers.remove(STATE).filter(|state| !state.is_empty());
            Some(Self { parent: headers.remove(PARENT)?, state })
        }

        /// Whether someone keeps it.
        pub(in super::super) fn is_kept(span: &Span) -> bool {
            span.context().span().span_context().is_sampled()
        }
    }
}

#[cfg(not(feature = "opentelemetry"))]
mod no_spans {
    use super::*;

    pub(in super::super) fn set_parent(_: &Span, _: &Message) {}

    pub(in super::super) fn link(_: &Span, _: &Message) {}

    impl TraceContext {
        pub(in super::super) fn of_span(_: &Span) -> Option<Self> {
            None
        }

        pub(in super::super) fn is_kept(_: &Span) -> bool {
            false
        }
    }
}

#[cfg(not(feature = "opentelemetry"))]
pub(super) use self::no_spans::{link, set_parent};
#[cfg(feature = "opentelemetry")]
pub(super) use self::opentelemetry_spans::{link, set_parent};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_takes_the_place_of_another() {
        let mut message = Message::new("t");
        assert_eq!(TraceContext::of(&message), None);
        message.headers.add("traceparent", "00-aa-bb-01").unwrap();
        message.headers.add("tracestate", "vendor=1").unwrap();
        let old = TraceContext::of(&message).unwrap();
        assert_eq!(old.trace_id(), "aa");
        TraceContext::named(1, 2).put(&mut message.headers).unwrap();
        let new = TraceContext::of(&message).unwrap();
        assert_eq!(new.parent, "00-00000000000000000000000000000001-0000000000000002-01");
        assert_eq!(new.state, None, "the state of another trace is not kept");
        old.put_if_absent(&mut message.headers).unwrap();
        assert_eq!(TraceContext::of(&message), Some(new));
    }
}
