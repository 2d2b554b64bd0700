//! Messages on the wire: CloudEvents 1.0, in binary mode (attributes among the headers) or structured (one JSON document).
//!
//! | ours | CloudEvents |
//! | --- | --- |
//! | id, source, type, time | `id`, `source`, `type`, `time` |
//! | order key | `partitionkey` |
//! | version | `onceboxversion` |
//! | headers | themselves, beside the attributes; one whose name would be taken for something else is written as `name;own` |
//!
//! Reading is lenient, because what arrives was often made by others: an attribute that is missing or makes no sense is
//! simply not there ([one that is not UTF-8](text_of) is, where it tells messages apart), and the payload comes through untouched: in a structured event, too, where `data` is cut out of the
//! document as it was written. A number that went through a parser's own would come out with other digits, and the key
//! and fingerprint of the message with them.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::json;
use crate::message::{Headers, Message, MessageId};
use crate::time::Timestamp;

/// How a broker's convention spells the attributes among its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    prefix: &'static str,
    /// Read as well.
    also: Option<&'static str>,
    /// Headers that the broker itself obeys or writes.
    brokers: &'static [&'static str],
}

/// The content type of a structured event.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// The header that carries an id for those who do not speak CloudEvents.
pub const ID_HEADER: &str = "oncebox-id";

const ORDER_KEY: &str = "partitionkey";
const VERSION: &str = "onceboxversion";
const CONTENT_TYPE: &str = "content-type";

/// Marks a header whose value is not plain text, and is kept as base64.
const ENCODED: &str = ";base64";

/// Marks a header of the message's own whose name means something else on the wire.
const OWN: &str = ";own";

/// The attributes that become parts of a message.
const PARTS: &[&str] = &["id", "source", "type", "time", ORDER_KEY, VERSION];

impl Spelling {
    /// `ce_id`.
    pub const KAFKA: Self = Self { prefix: "ce_", also: None, brokers: &[] };
    /// `ce-id`.
    pub const NATS: Self = Self { prefix: "ce-", also: None, brokers: &[] };
    /// `cloudEvents:id`; also read as `cloudEvents_id`, from those whose header names may hold no colon. RabbitMQ counts
    /// deliveries in headers, routes by others and closes the channel over a text there.
    pub const AMQP: Self = Self {
        prefix: "cloudEvents:",
        also: Some("cloudEvents_"),
        brokers: &["x-delivery-count", "x-acquired-count", "CC", "BCC"],
    };

    /// The headers of a message in binary mode. `source` stands in where the message names none: CloudEvents demands
    /// one, and a sink always has one; only who forwards the messages of others has not.
    pub fn write(self, message: &Message, source: Option<&str>) -> Vec<(String, Vec<u8>)> {
        let attributes = attributes(message, source);
        let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
        let mut add = |name: &str, value: &str| headers.push((format!("{}{name}", self.prefix), value.into()));
        add("specversion", "1.0");
        for (name, value) in &attributes {
            add(name, value);
        }
        headers.extend(self.own_headers(message));
        headers
    }

    /// The message's own headers among them, which say nothing about it but themselves.
    pub fn own_headers(self, message: &Message) -> Vec<(String, Vec<u8>)> {
        let written = message.headers.iter().map(|(name, value)| {
            let (name, value) = decoded(name, value);
            let is_structured = || value.starts_with(STRUCTURED.as_bytes());
            let is_taken = self.takes(&name) && (!name.eq_ignore_ascii_case(CONTENT_TYPE) || is_structured());
            (if is_taken { format!("{name}{OWN}") } else { name }, value)
        });
        written.collect()
    }

    /// The attribute that a header's name spells.
    fn attribute(self, name: &str) -> Option<&str> {
        let strip = |prefix: &str| {
            let start = name.get(..prefix.len())?;
            start.eq_ignore_ascii_case(prefix).then(|| &name[prefix.len()..])
        };
        strip(self.prefix).or_else(|| self.also.and_then(strip))
    }

    /// Whether a header of this name may be taken for something else than a header.
    fn takes(self, name: &str) -> bool {
        let is = |known: &&str| name.eq_ignore_ascii_case(known);
        let is_part =
            |attribute: &str| ["specversion"].iter().chain(PARTS).any(|part| attribute.eq_ignore_ascii_case(part));
        self.attribute(name).is_some_and(is_part)
            || [ID_HEADER, CONTENT_TYPE].iter().chain(self.brokers).any(is)
            || name.ends_with(OWN)
    }

    /// A message from what a broker delivered. `kind` is its type where no attribute names one; `arrived` its time where
    /// none says when it was made.
    pub fn read<'h>(
        self,
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        payload: Bytes,
        kind: &str,
        arrived: Timestamp,
    ) -> Message {
        let mut message = Message::received(kind, payload, arrived);
        let mut is_structured = false;
        let mut id = None;
        for (name, value) in headers {
            if let Some(own) = name.strip_suffix(OWN).filter(|own| self.takes(own)) {
                add(&mut message.headers, own, value);
                continue;
            }
            let text = std::str::from_utf8(value).ok();
            match (self.attribute(name), text) {
                (Some(attribute), None) if tells_apart(attribute) => {
                    if !set(&mut message, &attribute.to_ascii_lowercase(), &text_of(value)) {
                        add(&mut message.headers, name, value);
                    }
                }
                (Some(attribute), Some(text)) => {
                    let attribute = attribute.to_ascii_lowercase();
                    if attribute != "specversion" && !set(&mut message, &attribute, text) {
                        add(&mut message.headers, name, value);
                    }
                }
                (None, _) if name.eq_ignore_ascii_case(ID_HEADER) => id = MessageId::new(text_of(value)).ok(),
                (None, Some(text)) if name.eq_ignore_ascii_case(CONTENT_TYPE) && text.starts_with(STRUCTURED) => {
                    is_structured = true;
                }
                _ => add(&mut message.headers, name, value),
            }
        }
        if is_structured && !unfold(&mut message) {
            // Not what it says: the handler is told by its payload.
            add(&mut message.headers, CONTENT_TYPE, STRUCTURED.as_bytes());
        }
        message.id = message.id.or(id);
        message
    }
}

/// A text for what others wrote as a name, a key or an id: itself if it is UTF-8, otherwise `hex:` with the bytes. Two that
/// differ in a letter of Latin-1 are two messages, and must not become one.
pub fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => {
            let mut text = String::with_capacity("hex:".len() + 2 * bytes.len());
            text.push_str("hex:");
            for byte in bytes {
                // Into a text, which takes whatever fits into memory.
                let _ = write!(text, "{byte:02x}");
            }
            text.into()
        }
    }
}

/// Whether two messages may differ in this attribute alone.
fn tells_apart(attribute: &str) -> bool {
    ["id", "source", "type", ORDER_KEY].iter().any(|part| attribute.eq_ignore_ascii_case(part))
}

/// A message as one JSON document; to be sent with the content type [`STRUCTURED`].
pub fn structured(message: &Message, source: Option<&str>) -> Vec<u8> {
    let mut event = String::from(r#"{"specversion":"1.0""#);
    let mut add = |name: &str, json: &str| {
        event.push_str(",\"");
        event.push_str(name);
        event.push_str("\":");
        event.push_str(json);
    };
    for (name, value) in attributes(message, source) {
        add(name, &quoted(&value));
    }
    match serde_json::from_slice::<&RawValue>(&message.payload) {
        Ok(data) => {
            add("datacontenttype", r#""application/json""#);
            add("data", data.get());
        }
        Err(_) => {
            let content_type = message.headers.get(CONTENT_TYPE).unwrap_or("application/octet-stream");
            add("datacontenttype", &quoted(content_type));
            add("data_base64", &quoted(&STANDARD.encode(&message.payload)));
        }
    }
    event.push('}');
    event.into_bytes()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn attributes<'m>(message: &'m Message, source: Option<&'m str>) -> Vec<(&'static str, Cow<'m, str>)> {
    let mut attributes: Vec<(&'static str, Cow<'m, str>)> = Vec::new();
    if let Some(id) = &message.id {
        attributes.push(("id", id.as_str().into()));
    }
    if let Some(source) = message.source.as_deref().or(source) {
        attributes.push(("source", source.into()));
    }
    attributes.push(("type", message.kind.as_str().into()));
    attributes.push(("time", message.time.to_string().into()));
    if let Some(key) = &message.order_key {
        attributes.push((ORDER_KEY, key.into()));
    }
    if let Some(version) = message.version {
        attributes.push((VERSION, version.to_string().into()));
    }
    attributes
}

/// Whether it is an attribute of ours, and makes sense.
fn set(message: &mut Message, attribute: &str, text: &str) -> bool {
    match attribute {
        "id" => MessageId::new(text).map(|id| message.id = Some(id)).is_ok(),
        "source" if !text.is_empty() => {
            message.source = Some(text.to_owned());
            true
        }
        "type" if !text.is_empty() => {
            text.clone_into(&mut message.kind);
            true
        }
        "time" => text.parse().map(|time| message.time = time).is_ok(),
        ORDER_KEY if !text.is_empty() => {
            message.order_key = Some(text.to_owned());
            true
        }
        VERSION => text.parse().map(|version| message.version = Some(version)).is_ok(),
        _ => false,
    }
}

/// Unpacks a structured event; `false` if it is none.
fn unfold(message: &mut Message) -> bool {
    let document = message.payload.clone();
    let Ok(mut event) = json::object(&document) else { return false };
    // The format says that a null attribute is one that is not set. Data may be null.
    event.retain(|name, value| name == "data" || !is_null(value));
    let payload = match (event.remove("data"), event.remove("data_base64")) {
        (Some(data), None) => match text(data).filter(|_| !is_json(&event)) {
            Some(text) => Bytes::from(text),
            None => Bytes::copy_from_slice(data.get().as_bytes()),
        },
        (data, Some(encoded)) if data.is_none_or(is_null) => {
            match text(encoded).and_then(|text| STANDARD.decode(text).ok()) {
                Some(data) => Bytes::from(data),
                None => return false,
            }
        }
        (None, None) => Bytes::new(),
        (_, Some(_)) => return false,
    };
    for (name, value) in event {
        let text = text(value).unwrap_or_else(|| value.get().to_owned());
        if name != "specversion" && !set(message, &name, &text) {
            let name = if name == "datacontenttype" { CONTENT_TYPE } else { &name };
            add(&mut message.headers, name, text.as_bytes());
        }
    }
    message.payload = payload;
    true
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// A text as it reads; `None` for what is none.
fn text(value: &RawValue) -> Option<String> {
    value.get().starts_with('"').then(|| serde_json::from_str(value.get()).ok()).flatten()
}

fn is_json(event: &json::Object<'_>) -> bool {
    event.get("datacontenttype").and_then(|kind| text(kind)).is_none_or(|kind| kind.contains("json"))
}

/// A value that a header can hold as it is.
fn plain(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Keeps a header whatever its bytes are: a value that is not plain text as base64, under a name that says so.
fn add(headers: &mut Headers, name: &str, value: &[u8]) {
    let name: String = name.chars().flat_map(|c| if c.is_control() { vec!['?'] } else { vec![c] }).collect();
    let added = match plain(value) {
        Some(text) => headers.add(name, text),
        None => headers.add(format!("{name}{ENCODED}"), STANDARD.encode(value)),
    };
    // Only a header without a name is left.
    let _ = added;
}

/// The header as it arrived, if it was kept as base64. One that only looks so stays as it is.
fn decoded(name: &str, value: &str) -> (String, Vec<u8>) {
    let raw = name.strip_suffix(ENCODED).and_then(|name| Some((name, STANDARD.decode(value).ok()?)));
    match raw.filter(|(name, raw)| !name.is_empty() && plain(raw).is_none()) {
        Some((name, value)) => (name.to_owned(), value),
        None => (name.to_owned(), value.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests;
