//! What makes two deliveries the same message.
//!
//! A [`Key`] is a short string of bytes that a store compares as bytes: no collation, no case folding, no trimming.
//! It starts with a tag, so that keys of different kinds never meet:
//!
//! | tag | then | for |
//! | --- | --- | --- |
//! | 1 | 16 bytes | a UUID in its canonical lower-case form; UUIDv7 keys stay in time order in the index |
//! | 2 | the text, at most 64 bytes | a single id |
//! | 3 | parts, each with its length before it, at most 64 bytes | several parts: source and id, templates, scopes |
//! | 4 | SHA-256, 32 bytes | anything longer |
//!
//! Keys are made by a [`KeyStrategy`] within a [`Scope`]. There is no way to make one from a
//! [`DeliveryTag`](crate::source::DeliveryTag), which a broker makes anew for each delivery:
//!
//! ```compile_fail
//! use oncebox_core::{Key, source::DeliveryTag};
//! let tag = DeliveryTag::new("amq.ctag-17");
//! let key: Key = tag.into(); // does not compile: the next delivery of this message has another tag
//! ```

mod scope;
mod strategy;
mod template;

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use scope::Scope;
pub use strategy::KeyStrategy;
pub use template::{Template, TemplateError};

use crate::message::Shown;

const TAG_UUID: u8 = 1;
const TAG_TEXT: u8 = 2;
const TAG_PARTS: u8 = 3;
const TAG_HASH: u8 = 4;

/// Longer keys are hashed, so that an index entry stays small whatever producers send.
const RAW_BYTES_MAX: usize = 64;

/// What makes two deliveries the same message; see the [module](self). Clones share their bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The key for one id. Canonical UUIDs take 17 bytes; other texts are kept as they are.
    pub fn id(id: &str) -> Result<Self, KeyError> {
        if id.is_empty() {
            return Err(KeyError::EmptyPart("id".into()));
        }
        Ok(match canonical_uuid(id) {
            Some(uuid) => Self::uuid(uuid),
            None => Self::tagged(TAG_TEXT, id.as_bytes()),
        })
    }

    /// The key for a UUID.
    pub fn uuid(id: Uuid) -> Self {
        Self::tagged(TAG_UUID, id.as_bytes())
    }

    /// The key for several parts, which can't run into each other: (`a`, `bc`) is not (`ab`, `c`).
    pub fn parts<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> Result<Self, KeyError> {
        let mut bytes = Vec::with_capacity(RAW_BYTES_MAX);
        for part in parts {
            if part.is_empty() {
                return Err(KeyError::EmptyPart("part".into()));
            }
            push_length(&mut bytes, part.len());
            bytes.extend_from_slice(part);
        }
        if bytes.is_empty() {
            return Err(KeyError::EmptyPart("key".into()));
        }
        Ok(Self::tagged(TAG_PARTS, &bytes))
    }

    /// The key for a digest that was made elsewhere.
    pub(crate) fn digest(digest: [u8; 32]) -> Self {
        Self::raw(TAG_HASH, &digest)
    }

    /// The keys that are [shown](fmt::Display) so: an id, or the digits that stand for parts and hashes. Empty for an empty
    /// text.
    pub fn shown_as(text: &str) -> Vec<Self> {
        let mut keys: Vec<Self> = Self::id(text).into_iter().collect();
        let digits = text.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok().filter(|_| pair.bytes().all(|b| b.is_ascii_hexdigit()))
        });
        if let Some(bytes) = digits.collect::<Option<Vec<u8>>>() {
            for tag in [TAG_PARTS, TAG_HASH] {
                let stored: Vec<u8> = std::iter::once(tag).chain(bytes.iter().copied()).collect();
                keys.extend(Self::from_stored(stored));
            }
        }
        keys
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes back what [`as_bytes`](Self::as_bytes) gave to a store.
    pub fn from_stored(bytes: impl Into<Box<[u8]>>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        let fits = match bytes.first() {
            Some(&TAG_UUID) => bytes.len() == 17,
            Some(&TAG_TEXT | &TAG_PARTS) => (2..=RAW_BYTES_MAX + 1).contains(&bytes.len()),
            Some(&TAG_HASH) => bytes.len() == 33,
            _ => false,
        };
        if fits { Ok(Self(bytes.into())) } else { Err(KeyError::NotStored) }
    }

    fn tagged(tag: u8, bytes: &[u8]) -> Self {
        if bytes.len() <= RAW_BYTES_MAX {
            return Self::raw(tag, bytes);
        }
        // The tag goes into the hash: a long text and long parts with the same bytes stay apart.
        Self::digest(Sha256::new().chain_update([tag]).chain_update(bytes).finalize().into())
    }

    fn raw(tag: u8, bytes: &[u8]) -> Self {
        // On the stack first: a key is made for every delivery, and this way with a single allocation.
        let mut key = [tag; RAW_BYTES_MAX + 1];
        let key = &mut key[..=bytes.len()];
        key[1..].copy_from_slice(bytes);
        Self((&*key).into())
    }
}

/// Only the form that `Uuid` itself prints: another spelling of the same UUID is another id, as it is for a producer.
fn canonical_uuid(id: &str) -> Option<Uuid> {
    let uuid = (id.len() == 36).then(|| Uuid::try_parse(id).ok()).flatten()?;
    let mut spelled = [0; 36];
    (uuid.hyphenated().encode_lower(&mut spelled) == id).then_some(uuid)
}

/// A length as a little-endian base-128 number: one byte for every part that people use.
fn push_length(bytes: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        bytes.push((length as u8 & 0x7f) | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tag, bytes) = self.0.split_at(1);
        match (tag[0], bytes.try_into().map(Uuid::from_bytes), std::str::from_utf8(bytes)) {
            (TAG_UUID, Ok(uuid), _) => write!(f, "{uuid}"),
            (TAG_TEXT, _, Ok(text)) => write!(f, "{}", Shown(text)),
            _ => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Why no key can be made. It lies in the message, so trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The consumer keys by message id and the message has none.
    #[error("the message has no id; let its producer set one, or choose another key strategy")]
    NoId,
    /// The consumer keys by broker coordinate and the source gives none.
    #[error("the source gives no stable coordinate; choose another key strategy")]
    NoCoordinate,
    /// The caller makes its own keys and asks for one.
    #[error("its inbox was opened without a key strategy; open it with one (`inbox_by`)")]
    NoStrategy,
    /// A part is empty.
    #[error("the {0} of its key is empty")]
    EmptyPart(String),
    /// A field that the key is built from is absent or null.
    #[error("its payload has no field `{0}`, which its key needs")]
    MissingField(String),
    /// A field is an object or an array.
    #[error("the field `{0}` of its payload is not a text, number or boolean, so it cannot be part of a key")]
    NotScalar(String),
    /// A field that should be a time is not.
    #[error("the field `{0}` of its payload is not a time (RFC 3339, or seconds or milliseconds since 1970)")]
    NotTime(String),
    /// Fields were asked for and the payload is not JSON.
    #[error("its payload is not a JSON object, so no field can be read for its key")]
    NotJson,
    /// A store returned bytes that are no key.
    #[error("the stored bytes are not a key")]
    NotStored,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_canonical_uuid_takes_seventeen_bytes_and_other_spellings_stay_apart() {
        let lower = "018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e";
        let key = Key::id(lower).unwrap();
        assert_eq!(key.as_bytes().len(), 17);
        assert_eq!(key.to_string(), lower);
        assert_ne!(key, Key::id(&lower.to_uppercase()).unwrap());
        assert_ne!(key, Key::id(&lower.replace('-', "")).unwrap());
    }

    #[test]
    fn what_is_shown_of_a_key_finds_it_again() {
        let keys = [
            Key::id("018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e"),
            Key::id("order-7"),
            Key::id(&"x".repeat(65)),
            Key::parts([&b"a"[..], b"b"]),
        ];
        for key in keys.map(Result::unwrap) {
            assert!(Key::shown_as(&key.to_string()).contains(&key), "{key}");
        }
        assert!(Key::shown_as("").is_empty());
    }

    #[test]
    fn time_ordered_ids_stay_in_order() {
        let earlier = Key::id("018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e").unwrap();
        let later = Key::id("018f9c2e-7d5b-7000-8000-000000000000").unwrap();
        assert!(earlier < later);
    }

    #[test]
    fn a_text_that_looks_like_a_stored_key_is_only_a_text() {
        let hashed = Key::id(&"x".repeat(65)).unwrap();
        assert_eq!(hashed.as_bytes().len(), 33);
        let forged = String::from_utf8_lossy(hashed.as_bytes()).into_owned();
        assert_ne!(Key::id(&forged).unwrap(), hashed);
    }

    proptest! {
        #[test]
        fn different_parts_make_different_keys(a in any::<Vec<Vec<u8>>>(), b in any::<Vec<Vec<u8>>>()) {
            let key = |parts: &[Vec<u8>]| Key::parts(parts.iter().map(Vec::as_slice));
            if let (Ok(ka), Ok(kb)) = (key(&a), key(&b)) {
                prop_assert_eq!(ka == kb, a == b);
            }
        }

        #[test]
        fn every_key_comes_back_from_a_store(id in ".{1,200}") {
            let key = Key::id(&id).unwrap();
            prop_assert_eq!(Key::from_stored(key.as_bytes()).unwrap(), key);
        }
    }
}
