//! Keys from a text with holes: `payment:{payment_id}`, `cpu:{host}:{ts|hour}`, `Order:{order_id}:{@id}`.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::{Key, KeyError};
use crate::json::{self, Scalar};
use crate::message::Message;

/// A text with holes, filled from a message.
///
/// | hole | filled with |
/// | --- | --- |
/// | `{payment_id}`, `{order.id}` | a field of the JSON payload, by dotted path |
/// | `{ts\|minute}`, `{ts\|hour}`, `{ts\|day}` | the start of the window, in UTC, that a time falls in |
/// | `{@id}`, `{@source}`, `{@type}`, `{@order-key}`, `{@time\|hour}` | an attribute of the message |
/// | `{@header.tenant}` | a header |
///
/// `{{` and `}}` stand for themselves. A hole that is missing, null or empty makes no key: a permanent failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Hole { from: From, window: Option<Window> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Field(String),
    Id,
    Source,
    Kind,
    OrderKey,
    Time,
    Header(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Minute,
    Hour,
    Day,
}

/// A template that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the key template `{template}`: {reason}")]
pub struct TemplateError {
    template: String,
    reason: String,
}

impl Template {
    /// The fields of the payload that it is filled from, by dotted path; `true` for those that must be times.
    pub fn fields(&self) -> impl Iterator<Item = (&str, bool)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Hole { from: From::Field(path), window } => Some((path.as_str(), window.is_some())),
            _ => None,
        })
    }

    /// Reads a template. It needs at least one hole: a key without one would make every message the same.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let error = |reason: String| TemplateError { template: text.to_owned(), reason };
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
                literal.push(c);
                rest = after;
            } else if c == '}' {
                return Err(error("a `}` has no `{` before it; write `}}` for a literal one".into()));
            } else if c == '{' {
                let end = rest.find('}').ok_or_else(|| error("a `{` is never closed".into()))?;
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(hole(&rest[1..end]).map_err(error)?);
                rest = &rest[end + 1..];
            } else {
                literal.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        if !pieces.iter().any(|p| matches!(p, Piece::Hole { .. })) {
            return Err(error("it has no `{field}`, so every message would get the same key".into()));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }

    /// The values in order, literals included, so that neighbours can't run into each other in a key.
    pub(super) fn fill(&self, message: &Message) -> Result<Vec<String>, KeyError> {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) => Ok(text.clone()),
                Piece::Hole { from, window } => from.read(message, *window),
            })
            .collect()
    }

    /// The key for `message`.
    pub fn key(&self, message: &Message) -> Result<Key, KeyError> {
        let values = self.fill(message)?;
        Key::parts(values.iter().map(String::as_bytes))
    }

    /// The key of a message that fills the template to this text. A hole ends where the literal after it begins first;
    /// `None`: it does not fit, or two holes stand side by side, and nobody knows where one ends.
    pub fn key_of_text(&self, text: &str) -> Option<Key> {
        let (mut parts, mut rest) = (Vec::new(), text);
        for (at, piece) in self.pieces.iter().enumerate() {
            let length = match (piece, self.pieces.get(at + 1)) {
                (Piece::Literal(literal), _) => rest.starts_with(literal.as_str()).then_some(literal.len())?,
                (Piece::Hole { .. }, None) => rest.len(),
                (Piece::Hole { .. }, Some(Piece::Literal(next))) => rest.find(next.as_str())?,
                (Piece::Hole { .. }, Some(Piece::Hole { .. })) => return None,
            };
            let (part, after) = rest.split_at(length);
            parts.push(part.as_bytes());
            rest = after;
        }
        if rest.is_empty() { Key::parts(parts).ok() } else { None }
    }

    /// The filled text, for an order key.
    pub fn text(&self, message: &Message) -> Result<String, KeyError> {
        Ok(self.fill(message)?.concat())
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        Self::parse(text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn hole(inside: &str) -> Result<Piece, String> {
    let (name, window) = match inside.split_once('|') {
        None => (inside, None),
        Some((name, "minute")) => (name, Some(Window::Minute)),
        Some((name, "hour")) => (name, Some(Window::Hour)),
        Some((name, "day")) => (name, Some(Window::Day)),
        Some((_, other)) => return Err(format!("`{other}` is no window; use minute, hour or day")),
    };
    let from = match name.strip_prefix('@') {
        None if name.split('.').any(|step| step.trim().is_empty()) => {
            return Err(format!("`{{{inside}}}` names no field"));
        }
        None => From::Field(name.to_owned()),
        Some("id") => From::Id,
        Some("source") => From::Source,
        Some("type") => From::Kind,
        Some("order-key") => From::OrderKey,
        Some("time") => From::Time,
        Some(other) => match other.strip_prefix("header.") {
            Some(header) if !header.is_empty() => From::Header(header.to_owned()),
            _ => {
                return Err(format!(
                    "`@{other}` is no attribute; use @id, @source, @type, @order-key, @time or @header.NAME"
                ));
            }
        },
    };
    Ok(Piece::Hole { from, window })
}

impl From {
    fn read(&self, message: &Message, window: Option<Window>) -> Result<String, KeyError> {
        let missing = || KeyError::MissingField(self.to_string());
        let value = match self {
            Self::Field(path) => match json::field(&message.payload, path).map_err(|_| KeyError::NotJson)? {
                Scalar::Absent => return Err(missing()),
                Scalar::Compound => return Err(KeyError::NotScalar(path.clone())),
                Scalar::Text(text) => text,
            },
            Self::Id => message.id.as_ref().ok_or(KeyError::NoId)?.as_str().to_owned(),
            Self::Source => message.source.clone().ok_or_else(missing)?,
            Self::Kind => message.kind.clone(),
            Self::OrderKey => message.order_key.clone().ok_or_else(missing)?,
            Self::Time => message.time.to_string(),
            Self::Header(name) => message.headers.get(name).ok_or_else(missing)?.to_owned(),
        };
        if value.is_empty() {
            return Err(KeyError::EmptyPart(format!("part `{self}`")));
        }
        match window {
            None => Ok(value),
            Some(window) => {
                let time = instant(&value).ok_or_else(|| KeyError::NotTime(self.to_string()))?;
                Ok(window.start(time).to_string())
            }
        }
    }
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(path) => f.write_str(path),
            Self::Id => f.write_str("@id"),
            Self::Source => f.write_str("@source"),
            Self::Kind => f.write_str("@type"),
            Self::OrderKey => f.write_str("@order-key"),
            Self::Time => f.write_str("@time"),
            Self::Header(name) => write!(f, "@header.{name}"),
        }
    }
}

impl Window {
    fn start(self, time: Timestamp) -> i64 {
        let seconds = match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        };
        time.as_second().div_euclid(seconds) * seconds
    }
}

fn instant(value: &str) -> Option<Timestamp> {
    // Eleven digits of seconds end in the year 5138; what is larger counts milliseconds.
    const SECONDS_MAX: i64 = 100_000_000_000;
    match value.parse::<i64>() {
        Ok(number) if number.abs() < SECONDS_MAX => Timestamp::from_second(number).ok(),
        Ok(number) => Timestamp::from_millisecond(number).ok(),
        Err(_) => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::MessageId;

    fn message(payload: serde_json::Value) -> Message {
        Message::new("t").with_json(&payload).unwrap()
    }

    fn key(template: &str, payload: serde_json::Value) -> Result<Key, KeyError> {
        Template::parse(template).unwrap().key(&message(payload))
    }

    #[test]
    fn a_filled_text_leads_back_to_its_key() {
        let template = Template::parse("Order:{order}:{@id}").unwrap();
        let message = Message::new("t").with_id(MessageId::new("m:1").unwrap());
        let message = message.with_json(&serde_json::json!({ "order": 7 })).unwrap();
        assert_eq!(template.key_of_text("Order:7:m:1"), Some(template.key(&message).unwrap()));
        for text in ["Order:7", "Order::m", "order:7:m", ""] {
            assert_eq!(template.key_of_text(text), None, "{text}");
        }
        assert_eq!(Template::parse("{a}{b}").unwrap().key_of_text("xy"), None);
    }

    #[test]
    fn values_cannot_run_into_each_other() {
        let a = key("{x}:{y}", json!({"x": "1:2", "y": "3"})).unwrap();
        let b = key("{x}:{y}", json!({"x": "1", "y": "2:3"})).unwrap();
        assert_ne!(a, b);
    }

    #[test]
    fn dotted_paths_and_attributes_are_read() {
        let message = message(json!({"order": {"id": 17}})).with_id(crate::MessageId::new("m-1").unwrap());
        let template = Template::parse("Order:{order.id}:{@id}").unwrap();
        assert_eq!(template.text(&message).unwrap(), "Order:17:m-1");
    }

    #[test]
    fn a_window_collapses_what_falls_into_it() {
        let at = |ts: serde_json::Value| key("cpu:{host}:{ts|hour}", json!({"host": "a", "ts": ts}));
        assert_eq!(at(json!("2026-11-15T10:00:00Z")).unwrap(), at(json!("2026-11-15T10:59:59Z")).unwrap());
        assert_ne!(at(json!("2026-11-15T10:59:59Z")).unwrap(), at(json!("2026-11-15T11:00:00Z")).unwrap());
        assert_eq!(at(json!(1_794_736_800)).unwrap(), at(json!(1_794_736_800_000_i64)).unwrap());
        assert_eq!(at(json!("soon")), Err(KeyError::NotTime("ts".into())));
    }

    #[test]
    fn what_is_missing_null_empty_or_compound_makes_no_key() {
        let from = |payload| key("payment:{payment_id}", payload);
        assert_eq!(from(json!({})), Err(KeyError::MissingField("payment_id".into())));
        assert_eq!(from(json!({"payment_id": null})), Err(KeyError::MissingField("payment_id".into())));
        assert_eq!(from(json!({"payment_id": ""})), Err(KeyError::EmptyPart("part `payment_id`".into())));
        assert_eq!(from(json!({"payment_id": {}})), Err(KeyError::NotScalar("payment_id".into())));
        assert_eq!(from(json!("text")), Err(KeyError::NotJson));
    }

    #[test]
    fn mistakes_in_a_template_are_named() {
        for (text, says) in [
            ("payment", "every message would get the same key"),
            ("a{b", "never closed"),
            ("a}b{c}", "has no `{` before it"),
            ("{ts|week}", "use minute, hour or day"),
            ("{@nope}", "is no attribute"),
            ("{}", "names no field"),
        ] {
            let error = Template::parse(text).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(text), "{error}");
        }
    }
}
