//! How a consumer makes keys.

use std::fmt;
use std::str::FromStr;

use super::{Key, KeyError, Template, TemplateError};
use crate::content::Content;
use crate::message::Message;
use crate::source::Coordinate;

/// How a consumer makes the key of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyStrategy {
    /// The producer's id, with the CloudEvents `source` where there is one. The right choice when producers make ids.
    #[default]
    MessageId,
    /// SHA-256 over the content. For producers that make no ids; two messages that mean the same twice are then one.
    ContentHash(Content),
    /// A business key, a producer's id with context, or a time window; see [`Template`].
    Template(Template),
    /// Where the message lies in its broker. Survives a redelivery, **not** a producer's retry, a dead-letter hop or
    /// a mirror: a fallback to choose knowingly, never a default.
    Coordinate,
}

impl KeyStrategy {
    /// A business key: `payment:{payment_id}`.
    pub fn template(text: &str) -> Result<Self, TemplateError> {
        Template::parse(text).map(Self::Template)
    }

    /// The key of a message that came from `coordinate`.
    pub fn key(&self, message: &Message, coordinate: Option<&Coordinate>) -> Result<Key, KeyError> {
        match self {
            Self::MessageId => {
                let id = message.id.as_ref().ok_or(KeyError::NoId)?.as_str();
                match message.source.as_deref() {
                    None => Key::id(id),
                    Some(source) => Key::parts([source.as_bytes(), id.as_bytes()]),
                }
            }
            // The type belongs to what a message says: the same body under another type is another message.
            Self::ContentHash(content) => Ok(Key::digest(content.digest(message))),
            Self::Template(template) => template.key(message),
            Self::Coordinate => {
                let coordinate = coordinate.ok_or(KeyError::NoCoordinate)?;
                Key::parts([&b"coordinate"[..], coordinate.as_str().as_bytes()])
            }
        }
    }

    /// Whether the key is the message's own id, so that keeping the id beside it says nothing new.
    pub fn is_message_id(&self) -> bool {
        matches!(self, Self::MessageId)
    }
}

impl FromStr for KeyStrategy {
    type Err = TemplateError;

    /// `message-id`, `content-hash`, `broker-coordinate`, or a template.
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        match text {
            "message-id" => Ok(Self::MessageId),
            "content-hash" => Ok(Self::ContentHash(Content::default())),
            "broker-coordinate" => Ok(Self::Coordinate),
            template => Self::template(template),
        }
    }
}

impl fmt::Display for KeyStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageId => f.write_str("message-id"),
            Self::ContentHash(_) => f.write_str("content-hash"),
            Self::Template(template) => template.fmt(f),
            Self::Coordinate => f.write_str("broker-coordinate"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageId;

    fn message(id: &str) -> Message {
        Message::new("t").with_id(MessageId::new(id).unwrap())
    }

    #[test]
    fn a_cloud_event_is_its_source_and_id_together() {
        let by_id = |m: Message| KeyStrategy::MessageId.key(&m, None).unwrap();
        assert_eq!(by_id(message("1").with_source("/a")), by_id(message("1").with_source("/a")));
        assert_ne!(by_id(message("1").with_source("/a")), by_id(message("1").with_source("/b")));
        assert_ne!(by_id(message("1").with_source("/a")), by_id(message("1")));
    }

    #[test]
    fn a_message_without_an_id_is_refused_with_the_way_out() {
        let mut message = message("1");
        message.id = None;
        let error = KeyStrategy::MessageId.key(&message, None).unwrap_err();
        assert!(error.to_string().contains("choose another key strategy"));
    }

    #[test]
    fn a_coordinate_is_a_key_only_where_it_is_asked_for() {
        let coordinate = Coordinate::new("orders/3/17");
        let key = KeyStrategy::Coordinate.key(&message("1"), Some(&coordinate)).unwrap();
        assert_eq!(key, KeyStrategy::Coordinate.key(&message("2"), Some(&coordinate)).unwrap());
        assert_eq!(KeyStrategy::Coordinate.key(&message("1"), None), Err(KeyError::NoCoordinate));
    }

    #[test]
    fn strategies_read_from_a_file_print_the_same_again() {
        for text in ["message-id", "content-hash", "broker-coordinate", "payment:{payment_id}"] {
            assert_eq!(text.parse::<KeyStrategy>().unwrap().to_string(), text);
        }
    }
}
