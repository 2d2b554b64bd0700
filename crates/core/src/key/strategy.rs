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
    /// SHA-256 over type, source, order key and content. For producers that make no ids; two messages that mean the same
    /// twice are then one.
    ContentHash(Content),
    /// The content hash of the versions that kept no scheme: over type and content alone, so that two messages that say the
    /// same under two order keys are one, and a null payload is an empty one. For the bridge from there.
    ContentHashV1(Content),
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
            Self::ContentHash(content) => Ok(Key::digest(content.identity(message))),
            Self::ContentHashV1(content) => Ok(Key::digest(content.digest(message))),
            Self::Template(template) => template.key(message),
            Self::Coordinate => {
                let coordinate = coordinate.ok_or(KeyError::NoCoordinate)?;
                Key::parts([&b"coordinate"[..], coordinate.as_str().as_bytes()])
            }
        }
    }

    /// How keys are made, for the [scheme](crate::identity::Scheme) of a consumer. It tells more than what is written in a file:
    /// which version of a hash it is, and of what.
    pub fn scheme_text(&self) -> String {
        match self {
            Self::ContentHash(content) => versioned(2, content),
            Self::ContentHashV1(content) => versioned(1, content),
            other => other.to_string(),
        }
    }

    /// How versions made the key that kept no scheme, where they made another one.
    pub fn legacy(&self) -> Option<Self> {
        match self {
            Self::ContentHash(content) => Some(Self::ContentHashV1(content.clone())),
            _ => None,
        }
    }

    /// Whether the key is the message's own id, so that keeping the id beside it says nothing new.
    pub fn is_message_id(&self) -> bool {
        matches!(self, Self::MessageId)
    }
}

fn versioned(version: u8, content: &Content) -> String {
    if *content == Content::default() {
        return format!("content-hash/{version}");
    }
    format!("content-hash/{version} of {}", content.scheme_text())
}

impl FromStr for KeyStrategy {
    type Err = TemplateError;

    /// `message-id`, `content-hash`, `broker-coordinate`, or a template.
    fn from_str(text: &str) -> Result<Self, TemplateError> {
        match text {
            "message-id" => Ok(Self::MessageId),
            "content-hash" | "content-hash/2" => Ok(Self::ContentHash(Content::default())),
            "content-hash/1" => Ok(Self::ContentHashV1(Content::default())),
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
            Self::ContentHashV1(_) => f.write_str("content-hash/1"),
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
    fn a_content_hash_tells_order_keys_apart_and_null_from_empty() {
        let hash = |message: &Message| KeyStrategy::ContentHash(Content::default()).key(message, None).unwrap();
        let former = |message: &Message| KeyStrategy::ContentHashV1(Content::default()).key(message, None).unwrap();
        let tombstone = |key: &str| message("1").with_order_key(key).with_null_payload();
        assert_ne!(hash(&tombstone("a")), hash(&tombstone("b")));
        assert_ne!(hash(&tombstone("a")), hash(&message("1").with_order_key("a")));
        assert_eq!(hash(&tombstone("a")), hash(&tombstone("a").with_id(MessageId::new("2").unwrap())));
        assert_eq!(former(&tombstone("a")), former(&message("1")), "as it was");
    }

    #[test]
    fn what_is_named_in_a_scheme_can_be_written_into_a_file() {
        for strategy in ["content-hash", "content-hash/1", "message-id", "a:{b}"] {
            let strategy: KeyStrategy = strategy.parse().unwrap();
            assert_eq!(strategy.scheme_text().parse::<KeyStrategy>().unwrap(), strategy);
        }
    }

    #[test]
    fn strategies_read_from_a_file_print_the_same_again() {
        for text in ["message-id", "content-hash", "content-hash/1", "broker-coordinate", "payment:{payment_id}"] {
            assert_eq!(text.parse::<KeyStrategy>().unwrap().to_string(), text);
        }
    }
}
