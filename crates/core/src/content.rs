//! What a message says: the part of it that a content hash and a fingerprint cover.

use sha2::{Digest, Sha256};

use crate::json::{self, Keep, Part};
use crate::message::Message;

/// Which part of a payload counts, and in what form. By default all of it, as canonical JSON where it is JSON, so that
/// a producer that writes its fields in another order still says the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    form: Form,
    fields: Fields,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Json,
    Raw,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Fields {
    #[default]
    All,
    Only(Vec<String>),
    Without(Vec<String>),
}

impl Content {
    /// The payload byte for byte.
    pub fn raw() -> Self {
        Self { form: Form::Raw, fields: Fields::All }
    }

    /// Only these fields, by dotted path.
    pub fn only(fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { form: Form::Json, fields: Fields::Only(fields.into_iter().map(Into::into).collect()) }
    }

    /// All but these fields, by dotted path: a timestamp that every retry sets anew.
    pub fn without(fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { form: Form::Json, fields: Fields::Without(fields.into_iter().map(Into::into).collect()) }
    }

    /// In words, for the [scheme](crate::identity::Scheme) of a consumer: equal for equal content, and only then.
    pub fn scheme_text(&self) -> String {
        match (&self.form, &self.fields) {
            (Form::Raw, _) => "the payload byte for byte".to_owned(),
            (Form::Json, Fields::All) => "the whole payload".to_owned(),
            (Form::Json, Fields::Only(fields)) => format!("only {fields:?}"),
            (Form::Json, Fields::Without(fields)) => format!("all but {fields:?}"),
        }
    }

    /// SHA-256 over all that tells a message from another when it has no id: type, source, order key and the chosen content. A
    /// null payload is not an empty one.
    pub(crate) fn identity(&self, message: &Message) -> [u8; 32] {
        // Its own beginning: no digest of the other kind is one of these.
        let mut hash = Sha256::new().chain_update([2]);
        for part in [Some(message.kind.as_str()), message.source.as_deref(), message.order_key.as_deref()] {
            // Absent is not empty, and no part runs into the next.
            match part {
                None => hash.update([0]),
                Some(part) => {
                    hash.update([1]);
                    hash.update((part.len() as u64).to_be_bytes());
                    hash.update(part);
                }
            }
        }
        self.add_nullable_payload(hash, message)
    }

    /// SHA-256 over the type and the chosen content, for a fingerprint. A null payload is not an empty one.
    pub(crate) fn said(&self, message: &Message) -> [u8; 32] {
        self.add_nullable_payload(Self::of_kind(message), message)
    }

    /// The same as versions computed it that took a null payload for an empty one. Keys of theirs are found by it, so it
    /// stays as it is.
    pub(crate) fn digest(&self, message: &Message) -> [u8; 32] {
        self.add_payload(Self::of_kind(message), message)
    }

    fn of_kind(message: &Message) -> Sha256 {
        Sha256::new().chain_update(message.kind.as_bytes()).chain_update([0])
    }

    fn add_nullable_payload(&self, hash: Sha256, message: &Message) -> [u8; 32] {
        match message.payload_is_null() {
            // No payload begins like this: theirs have a 0 or a 1 in front.
            true => hash.chain_update([2]).finalize().into(),
            false => self.add_payload(hash, message),
        }
    }

    fn add_payload(&self, hash: Sha256, message: &Message) -> [u8; 32] {
        let canonical = match self.form {
            Form::Json => json::canonical(&message.payload, &self.fields).ok(),
            Form::Raw => None,
        };
        // The marker keeps a raw payload apart from a canonical one that happens to have the same bytes.
        match canonical {
            Some(json) => hash.chain_update([1]).chain_update(json),
            None => hash.chain_update([0]).chain_update(&message.payload),
        }
        .finalize()
        .into()
    }

    /// A number for "how this was computed", so that a change of fields is noticed.
    pub(crate) fn scheme(&self) -> [u8; 2] {
        // Bump when the canonical form or the hash changes. 2: payloads of structured events came with other numbers before,
        // and a null payload was an empty one.
        const ALGORITHM: u8 = 2;
        let digest = Sha256::new().chain_update([ALGORITHM]).chain_update(format!("{self:?}")).finalize();
        [digest[0], digest[1]]
    }
}

impl Keep for Fields {
    fn keeps_all(&self) -> bool {
        matches!(self, Self::All)
    }

    fn keep(&self, path: &str) -> Part {
        let below = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match self {
            Self::All => Part::All,
            Self::Only(fields) if fields.iter().any(|field| below(field, path)) => Part::All,
            Self::Only(fields) if fields.iter().any(|field| below(path, field)) => Part::Inside,
            Self::Only(_) => Part::None,
            Self::Without(fields) if fields.iter().any(|field| below(field, path)) => Part::None,
            Self::Without(_) => Part::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprinter;

    fn digest(content: &Content, payload: &str) -> [u8; 32] {
        content.digest(&Message::new("t").with_payload(payload.to_owned()))
    }

    #[test]
    fn order_of_fields_white_space_and_escapes_do_not_count() {
        let all = Content::default();
        assert_eq!(digest(&all, r#"{"a":1,"b":"A"}"#), digest(&all, "{ \"b\" : \"\\u0041\", \"a\" : 1 }"));
        assert_ne!(digest(&all, r#"{"a":[1,2]}"#), digest(&all, r#"{"a":[2,1]}"#));
    }

    #[test]
    fn large_numbers_stay_different() {
        let all = Content::default();
        assert_ne!(digest(&all, r#"{"a":12345678901234567890123}"#), digest(&all, r#"{"a":12345678901234567890124}"#));
    }

    #[test]
    fn a_field_named_twice_is_not_a_field_named_once() {
        let all = Content::default();
        assert_ne!(digest(&all, r#"{"a":1,"a":2}"#), digest(&all, r#"{"a":2}"#));
    }

    #[test]
    fn fields_can_be_left_in_or_out() {
        let only = Content::only(["id", "card.last4"]);
        assert_eq!(
            digest(&only, r#"{"id":1,"card":{"last4":"1","x":1},"ts":1}"#),
            digest(&only, r#"{"id":1,"card":{"last4":"1","x":2},"ts":2}"#)
        );
        assert_ne!(
            digest(&only, r#"{"id":1,"card":{"last4":"1"}}"#),
            digest(&only, r#"{"id":1,"card":{"last4":"2"}}"#)
        );
        let without = Content::without(["meta.sent_at"]);
        assert_eq!(
            digest(&without, r#"{"id":1,"meta":{"sent_at":1}}"#),
            digest(&without, r#"{"id":1,"meta":{"sent_at":2}}"#)
        );
        assert_ne!(digest(&without, r#"{"id":1}"#), digest(&without, r#"{"id":2}"#));
    }

    #[test]
    fn what_is_not_json_is_taken_byte_for_byte() {
        let all = Content::default();
        assert_ne!(digest(&all, "not json 1"), digest(&all, "not json 2"));
        assert_ne!(digest(&Content::raw(), r#"{"a":1}"#), digest(&Content::raw(), r#"{"a": 1}"#));
    }

    #[test]
    fn a_document_too_deep_to_walk_is_still_told_apart() {
        let deep = |leaf: &str| format!("{}{leaf}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_ne!(digest(&Content::default(), &deep("1")), digest(&Content::default(), &deep("2")));
    }

    #[test]
    fn an_identity_covers_source_order_key_and_null() {
        let all = Content::default();
        let base = || Message::new("t");
        let different = [
            base(),
            base().with_null_payload(),
            base().with_payload("null"),
            base().with_order_key("k"),
            base().with_order_key("k").with_null_payload(),
            base().with_order_key("l").with_null_payload(),
            base().with_source("k"),
            base().with_source("/a").with_order_key("bc"),
            base().with_source("/ab").with_order_key("c"),
            Message::new("tk"),
        ];
        let digests: std::collections::HashSet<_> = different.iter().map(|message| all.identity(message)).collect();
        assert_eq!(digests.len(), different.len());
        assert_eq!(all.identity(&base().with_order_key("k")), all.identity(&base().with_order_key("k")));
        assert!(!digests.contains(&all.digest(&base())), "the two kinds of digest never meet");
    }

    #[test]
    fn a_fingerprint_tells_a_null_payload_from_an_empty_one() {
        let message = || Message::new("t").with_order_key("k");
        for content in [Content::default(), Content::raw(), Content::only(["id"])] {
            let fingerprinter = Fingerprinter::new(content);
            let fingerprint = |message: &Message| fingerprinter.fingerprint(message);
            assert!(!fingerprint(&message().with_null_payload()).agrees_with(fingerprint(&message())));
            let again = message().with_null_payload();
            assert!(fingerprint(&message().with_null_payload()).agrees_with(fingerprint(&again)));
        }
    }

    #[test]
    fn the_type_counts() {
        let all = Content::default();
        let paid = Message::new("order.paid").with_payload("{}");
        let shipped = Message::new("order.shipped").with_payload("{}");
        assert_ne!(all.digest(&paid), all.digest(&shipped));
    }
}
