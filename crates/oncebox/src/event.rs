//! What a handler emits.

use bytes::Bytes;
use oncebox_core::error::InvalidMessage;
use oncebox_core::trail::CAUSE;
use oncebox_core::{Clock, Message, MessageId, Outgoing};
use serde::Serialize;
use std::sync::Arc;

use crate::trace::TraceContext;

/// A longer id of a cause is not sent along: brokers bound headers.
const CAUSE_BYTES_MAX: usize = 256;

/// A message to publish: `Event::new("invoice.paid").key(invoice_id).json(&paid)?`.
///
/// It gets its id when it is emitted, and keeps it however often it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    topic: Option<String>,
    id: Option<MessageId>,
    message: Message,
}

impl Event {
    /// An event of this type. Its topic is its type unless [`topic`](Self::topic) says otherwise.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            topic: None,
            id: None,
            message: Message::received(kind, Bytes::new(), oncebox_core::Timestamp::UNIX_EPOCH),
        }
    }

    /// Where it is published.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Its order key: events of one topic and key are published in the order in which they were emitted.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.message.order_key = Some(key.into());
        self
    }

    /// The version of the entity that it describes.
    #[must_use]
    pub fn version(mut self, version: u64) -> Self {
        self.message.version = Some(version);
        self
    }

    /// Who says so (CloudEvents `source`); otherwise the sink does.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.message.source = Some(source.into());
        self
    }

    /// An id of your own, the same whenever the same thing is said. One that is in the outbox already is an error.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// The payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.message.payload = payload.into();
        self
    }

    /// The payload, as JSON.
    pub fn json(mut self, value: &impl Serialize) -> Result<Self, InvalidMessage> {
        self.message = self.message.with_json(value)?;
        Ok(self)
    }

    /// A header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self, InvalidMessage> {
        self.message.headers.add(name, value)?;
        Ok(self)
    }

    /// As it is published, with an id and a time of `clock`. Without a cause there is no trace to go on with.
    pub fn made_by(self, clock: &dyn Clock, cause: Option<&Message>) -> Result<Outgoing, InvalidMessage> {
        self.made_in(clock, cause, None)
    }

    /// The same, in a trace that is nearer than that of its cause.
    pub(crate) fn made_in(
        self,
        clock: &dyn Clock,
        cause: Option<&Message>,
        trace: Option<&TraceContext>,
    ) -> Result<Outgoing, InvalidMessage> {
        let Self { topic, id, mut message } = self;
        message.id = Some(id.unwrap_or_else(|| clock.id().into()));
        message.time = clock.now();
        if let Some(trace) = trace.cloned().or_else(|| cause.and_then(TraceContext::of)) {
            trace.put_if_absent(&mut message.headers)?;
        }
        let of_cause = cause.and_then(|cause| cause.id.as_ref()).filter(|id| id.as_str().len() <= CAUSE_BYTES_MAX);
        if let Some(id) = of_cause {
            // An id with control characters can't be a header; then nobody can look up what it caused.
            let _ = message.headers.add(CAUSE, id.as_str());
        }
        message.check()?;
        let topic = topic.unwrap_or_else(|| message.kind.clone());
        if topic.is_empty() {
            return Err(InvalidMessage::Empty("topic"));
        }
        Ok(Outgoing { topic, message: Arc::new(message) })
    }

    /// Whether its id is its own.
    pub(crate) fn has_id(&self) -> bool {
        self.id.is_some()
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::SystemClock;

    use super::*;

    #[test]
    fn an_event_goes_on_with_the_trace_of_its_cause() {
        let mut cause = Message::new("payment.received");
        cause.headers.add("traceparent", "00-aa-bb-01").unwrap();
        cause.headers.add("authorization", "CANARY").unwrap();
        let made = Event::new("invoice.paid").key("i-1").made_by(&SystemClock, Some(&cause)).unwrap();
        assert_eq!((made.topic.as_str(), made.message.order_key.as_deref()), ("invoice.paid", Some("i-1")));
        assert_eq!(made.message.headers.get("traceparent"), Some("00-aa-bb-01"));
        assert_eq!(made.message.headers.get("authorization"), None);
        assert_eq!(made.message.headers.get(CAUSE), cause.id.as_ref().map(MessageId::as_str));
        assert!(made.message.id.is_some());
        let own = Event::new("t").header("traceparent", "mine").unwrap().made_by(&SystemClock, Some(&cause)).unwrap();
        assert_eq!(own.message.headers.get("traceparent"), Some("mine"));
    }

    #[test]
    fn an_event_that_nobody_could_publish_is_refused() {
        assert!(Event::new("").made_by(&SystemClock, None).is_err());
        assert!(Event::new("t").topic("").made_by(&SystemClock, None).is_err());
        assert!(Event::new("t").key("").made_by(&SystemClock, None).is_err());
    }
}
