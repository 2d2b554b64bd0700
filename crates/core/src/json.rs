//! The little JSON that keys and fingerprints need, kept exact: numbers are compared by their text, so that no two
//! large ones become the same on the way through a float.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Deeper documents are not walked into; they are hashed as they were sent.
const DEPTH_MAX: usize = 64;

/// A document that is not JSON, or not the shape that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    /// Nothing, or null.
    Absent,
    /// A text as it reads, a number or boolean as it is written.
    Text(String),
    /// An object or an array.
    Compound,
}

/// The fields of an object, as they were written. Of a field that is named twice, the last.
pub(crate) type Object<'d> = BTreeMap<Cow<'d, str>, &'d RawValue>;

/// The fields of a document that is an object.
pub(crate) fn object(document: &[u8]) -> Result<Object<'_>, NotJson> {
    serde_json::from_slice(document).map_err(|_| NotJson)
}

/// The value at a dotted path of an object.
pub(crate) fn field(document: &[u8], path: &str) -> Result<Scalar, NotJson> {
    let mut object: Object<'_> = object(document)?;
    let mut steps = path.split('.').peekable();
    while let Some(step) = steps.next() {
        let Some(value) = object.get(step).map(|v| v.get()) else { return Ok(Scalar::Absent) };
        if steps.peek().is_some() {
            match serde_json::from_str(value) {
                Ok(inner) => object = inner,
                Err(_) => return Ok(Scalar::Absent),
            }
            continue;
        }
        return Ok(match value.as_bytes().first() {
            Some(b'{' | b'[') => Scalar::Compound,
            Some(b'n') => Scalar::Absent,
            Some(b'"') => Scalar::Text(serde_json::from_str(value).map_err(|_| NotJson)?),
            _ => Scalar::Text(value.to_owned()),
        });
    }
    Ok(Scalar::Absent)
}

/// Which dotted paths of a document count.
pub(crate) trait Keep {
    /// Whether the value at `path` counts: in whole, in part (look inside), or not at all.
    fn keep(&self, path: &str) -> Part;

    /// Whether everything counts, so that nobody needs to ask.
    fn keeps_all(&self) -> bool;
}

/// See [`Keep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Inside,
    None,
}

/// Writes `document` so that two documents that differ only in white space, in the order of fields or in how a text
/// is escaped come out the same.
pub(crate) fn canonical(document: &[u8], keep: &dyn Keep) -> Result<Vec<u8>, NotJson> {
    let root: &RawValue = serde_json::from_slice(document).map_err(|_| NotJson)?;
    let mut out = Vec::with_capacity(document.len());
    write(root, "", (!keep.keeps_all()).then_some(keep), 0, &mut out)?;
    Ok(out)
}

fn write(
    value: &RawValue,
    path: &str,
    keep: Option<&dyn Keep>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), NotJson> {
    if depth > DEPTH_MAX {
        return Err(NotJson);
    }
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            // A list, not a map: a document that names a field twice keeps both, and equals only its like.
            let Fields(mut fields) = serde_json::from_str(text).map_err(|_| NotJson)?;
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            out.push(b'{');
            for (name, inner) in fields {
                let mut inner_path = String::new();
                if let Some(keep) = keep {
                    inner_path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                    let part = keep.keep(&inner_path);
                    let compound = inner.get().starts_with(['{', '[']);
                    if part == Part::None || (part == Part::Inside && !compound) {
                        continue;
                    }
                }
                quote(&name, out)?;
                out.push(b':');
                write(inner, &inner_path, keep, depth + 1, out)?;
                out.push(b',');
            }
            out.push(b'}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| NotJson)?;
            out.push(b'[');
            for item in items {
                write(item, path, keep, depth + 1, out)?;
                out.push(b',');
            }
            out.push(b']');
        }
        Some(b'"') => {
            let text: Cow<'_, str> = serde_json::from_str::<Borrowed<'_>>(text).map_err(|_| NotJson)?.0;
            quote(&text, out)?;
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

fn quote(text: &str, out: &mut Vec<u8>) -> Result<(), NotJson> {
    serde_json::to_writer(out, text).map_err(|_| NotJson)
}

/// A text that borrows where nothing is escaped.
#[derive(serde::Deserialize)]
struct Borrowed<'d>(#[serde(borrow)] Cow<'d, str>);

/// The fields of an object in the order they stand, repeats included.
struct Fields<'d>(Vec<(Cow<'d, str>, &'d RawValue)>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<Borrowed<'de>, &'de RawValue>()? {
                    fields.push((name.0, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cloud_events::{STRUCTURED, Spelling, structured};
    use crate::{Content, Message, Template, Timestamp};

    struct All;

    impl Keep for All {
        fn keep(&self, _: &str) -> Part {
            Part::All
        }
        fn keeps_all(&self) -> bool {
            true
        }
    }

    fn text(document: &str) -> Result<Scalar, NotJson> {
        field(document.as_bytes(), "a")
    }

    /// Each has one defined answer, and none takes the process down.
    #[test]
    fn hostile_documents_have_a_defined_answer() {
        let nested =
            |open: &str, leaf: &str, close: &str| format!("{}{leaf}{}", open.repeat(50_000), close.repeat(50_000));
        let is = |document: &str, expected: Result<Scalar, NotJson>| {
            assert_eq!(text(document), expected, "{}", document.get(..40).unwrap_or(document));
            // Whatever it is, it is hashed.
            let _ = canonical(document.as_bytes(), &All);
            let _ = Content::only(["a"]).digest(&Message::new("t").with_payload(document.to_owned()));
        };
        is(&format!(r#"{{"a":{}}}"#, nested("[", "1", "]")), Ok(Scalar::Compound));
        is(&format!(r#"{{"b":{},"a":1}}"#, nested(r#"{"b":"#, "1", "}")), Ok(Scalar::Text("1".into())));
        is(&nested(r#"{"a":"#, "1", "}"), Ok(Scalar::Compound));
        is(&nested("[", "", ""), Err(NotJson));
        is(r#"{"a":1,"a":2}"#, Ok(Scalar::Text("2".into())));
        is(r#"{"a":1e999999999}"#, Ok(Scalar::Text("1e999999999".into())));
        is(r#"{"a":-0.0E-999999999999999999999}"#, Ok(Scalar::Text("-0.0E-999999999999999999999".into())));
        is(r#"{"a":"\ud800"}"#, Err(NotJson));
        is(r#"{"\ud800":1,"a":1}"#, Err(NotJson));
        is(r#"{"a":"\u0000"}"#, Ok(Scalar::Text("\0".into())));
        is(r#"{"a":01}"#, Err(NotJson));
        is("{\"a\":1}\u{0}", Err(NotJson));
        assert_eq!(field(b"{\"a\":\"\xff\"}", "a"), Err(NotJson));
    }

    proptest! {
        /// From the wire of a structured event to the key and the fingerprint, a number has the digits it was sent with.
        #[test]
        fn any_number_survives_the_wire(number in "-?(0|[1-9][0-9]{0,40})([.][0-9]{1,40})?([eE][+-]?[0-9]{1,12})?") {
            let payload = format!(r#"{{"a":{number}}}"#);
            let sent = Message::new("t").with_payload(payload.clone());
            let event = structured(&sent, Some("us"));
            let header = [("content-type", STRUCTURED.as_bytes())];
            let back = Spelling::KAFKA.read(header, event.into(), "t", Timestamp::UNIX_EPOCH);
            prop_assert_eq!(&back.payload, payload.as_bytes());
            let template = Template::parse("{a}").unwrap();
            prop_assert_eq!(template.text(&back).unwrap(), number.clone());
            prop_assert_eq!(Content::default().digest(&back), Content::default().digest(&sent));
            prop_assert_eq!(canonical(&back.payload, &All).unwrap(), format!(r#"{{"a":{number},}}"#).into_bytes());
        }
    }
}
