//! The little JSON that keys and fingerprints need, kept exact: numbers are compared by their text, so that no two
//! large ones become the same on the way through a float.

use std::borrow::Cow;
use std::collections::HashMap;

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

type Object<'d> = HashMap<Cow<'d, str>, &'d RawValue>;

/// The value at a dotted path of an object.
pub(crate) fn field(document: &[u8], path: &str) -> Result<Scalar, NotJson> {
    let mut object: Object<'_> = serde_json::from_slice(document).map_err(|_| NotJson)?;
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
