//! What was sent: a [`Message`], its id and its headers.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;

use crate::error::InvalidMessage;
use crate::time::{Clock, SystemClock, Timestamp};

/// The longest id, source, type or order key that is accepted, in bytes.
pub const ATTRIBUTE_BYTES_MAX: usize = 4096;

/// The header of a message whose payload is [null](Message::payload_is_null). A header, because it goes wherever the message
/// goes: through queues, outbox, parked rows and brokers, and past processes of an older version.
const PAYLOAD: &str = "oncebox-payload";

/// What was sent. It arrives as one or more deliveries; see [`Delivery`](crate::source::Delivery).
///
/// `Debug` prints sizes, never contents: a message may hold anything.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The producer's id, if the producer makes one. With [`source`](Self::source) it is the CloudEvents identity.
    pub id: Option<MessageId>,
    /// Who produced it (CloudEvents `source`). Ids are unique within a source.
    pub source: Option<String>,
    /// What it says: `payment.received`. Chooses the handler.
    pub kind: String,
    /// Messages that share an order key are handled in the order they were sent, where a consumer asks for order.
    pub order_key: Option<String>,
    /// The version of the entity that it describes, for versioned consumers.
    pub version: Option<u64>,
    /// Everything else that travelled with it.
    pub headers: Headers,
    /// The body, untouched.
    pub payload: Bytes,
    /// When it was made.
    pub time: Timestamp,
}

impl Message {
    /// A message of this type with a fresh time-ordered id, made now.
    pub fn new(kind: impl Into<String>) -> Self {
        Self::made_by(&SystemClock, kind)
    }

    /// The same with time and id from `clock`.
    pub fn made_by(clock: &dyn Clock, kind: impl Into<String>) -> Self {
        Self { id: Some(MessageId(clock.id().to_string())), ..Self::received(kind, Bytes::new(), clock.now()) }
    }

    /// A message as it arrived, with no id, for adapters that fill in what their broker carries.
    pub fn received(kind: impl Into<String>, payload: Bytes, time: Timestamp) -> Self {
        Self {
            id: None,
            source: None,
            kind: kind.into(),
            order_key: None,
            version: None,
            headers: Headers::default(),
            payload,
            time,
        }
    }

    /// Replaces the id by the producer's own.
    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Names who produced it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the order key.
    #[must_use]
    pub fn with_order_key(mut self, key: impl Into<String>) -> Self {
        self.order_key = Some(key.into());
        self
    }

    /// Sets the version of the entity that it describes.
    #[must_use]
    pub fn with_version(mut self, version: u64) -> Self {
        self.version = Some(version);
        self
    }

    /// Replaces the payload.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Takes the payload away: null, which is not the same as empty. In Kafka it deletes what was said under its key.
    #[must_use]
    pub fn with_null_payload(mut self) -> Self {
        self.payload = Bytes::new();
        // Neither part holds a control character.
        let _ = self.headers.set(PAYLOAD, "null");
        self
    }

    /// Whether it has no payload at all, rather than an empty one.
    pub fn payload_is_null(&self) -> bool {
        self.payload.is_empty() && self.headers.get(PAYLOAD) == Some("null")
    }

    /// Replaces the payload by `value` as JSON.
    pub fn with_json(mut self, value: &impl Serialize) -> Result<Self, InvalidMessage> {
        self.payload = serde_json::to_vec(value).map_err(|_| InvalidMessage::NotJson)?.into();
        Ok(self)
    }

    /// How people name this message in logs and errors: its id, or its type where it has none.
    pub fn label(&self) -> Label<'_> {
        Label(self)
    }

    /// Checks what every store and broker relies on: attributes are not empty, not absurdly long.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        let attributes = [
            ("type", Some(self.kind.as_str())),
            ("source", self.source.as_deref()),
            ("order key", self.order_key.as_deref()),
        ];
        for (name, value) in attributes {
            match value {
                Some("") => return Err(InvalidMessage::Empty(name)),
                Some(value) if value.len() > ATTRIBUTE_BYTES_MAX => return Err(InvalidMessage::TooLong(name)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("type", &self.kind)
            .field("headers", &self.headers.0.len())
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// See [`Message::label`].
#[derive(Clone, Copy, Debug)]
pub struct Label<'m>(&'m Message);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.id {
            Some(id) => write!(f, "{id}"),
            None => write!(f, "(no id, type {})", Shown(&self.0.kind)),
        }
    }
}

/// A producer's id for a message: stable across every redelivery of it.
///
/// What a broker makes anew for each delivery is a [`DeliveryTag`](crate::source::DeliveryTag), and no conversion
/// leads from there to here.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(String);

impl MessageId {
    /// Takes the producer's id as it is; it is neither trimmed nor folded.
    pub fn new(id: impl Into<String>) -> Result<Self, InvalidMessage> {
        let id = id.into();
        match id.len() {
            0 => Err(InvalidMessage::Empty("id")),
            n if n > ATTRIBUTE_BYTES_MAX => Err(InvalidMessage::TooLong("id")),
            _ => Ok(Self(id)),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<uuid::Uuid> for MessageId {
    fn from(id: uuid::Uuid) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Shown(&self.0))
    }
}

/// Foreign text made fit for a terminal and a log line: control characters escaped, length bounded.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'t>(pub &'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 120;
        let mut rest = self.0.chars();
        for c in rest.by_ref().take(SHOWN_MAX) {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        if rest.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// Name and value pairs that travel with a message, in order; a name may come more than once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds a header. Control characters are refused both ways: a header crosses protocols that split on them.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), InvalidMessage> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() {
            return Err(InvalidMessage::Empty("header name"));
        }
        if name.chars().chain(value.chars()).any(char::is_control) {
            return Err(InvalidMessage::ControlCharacter);
        }
        self.0.push((name, value));
        Ok(())
    }

    /// Replaces all headers of this name by one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), InvalidMessage> {
        let name = name.into();
        self.add(name.as_str(), value)?;
        let added = self.0.pop();
        self.remove(&name);
        self.0.extend(added);
        Ok(())
    }

    /// Takes out all headers of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
    }

    /// The first value under `name`, compared without case as every broker's conventions do.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// All headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may hold credentials; names are enough to debug with.
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_never_shows_contents() {
        let mut message = Message::new("payment.received").with_payload("CANARY-payload");
        message.headers.add("authorization", "CANARY-header").unwrap();
        let shown = format!("{message:?} {:?}", message.headers);
        assert!(!shown.contains("CANARY"), "{shown}");
    }

    #[test]
    fn a_hostile_id_cannot_break_a_log_line() {
        let id = MessageId::new(format!("a\nb\u{1b}[31m{}", "x".repeat(500))).unwrap();
        let shown = id.to_string();
        assert!(!shown.contains('\n') && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.chars().count() < 160);
    }

    #[test]
    fn headers_refuse_control_characters() {
        let mut headers = Headers::default();
        assert_eq!(headers.add("x", "a\r\nb"), Err(InvalidMessage::ControlCharacter));
        assert!(headers.is_empty());
    }

    #[test]
    fn null_is_not_empty() {
        let empty = Message::new("t");
        let null = empty.clone().with_null_payload();
        assert!(null.payload_is_null() && !empty.payload_is_null());
        assert!(!null.with_payload("something").payload_is_null());
    }

    #[test]
    fn a_header_that_is_set_replaces_all_of_its_name() {
        let mut headers = Headers::default();
        for (name, value) in [("Traceparent", "a"), ("tenant", "t"), ("traceparent", "b")] {
            headers.add(name, value).unwrap();
        }
        headers.set("traceparent", "c").unwrap();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("tenant", "t"), ("traceparent", "c")]);
        assert!(headers.set("traceparent", "\n").is_err());
        assert_eq!(headers.get("traceparent"), Some("c"), "what is refused changes nothing");
    }
}
