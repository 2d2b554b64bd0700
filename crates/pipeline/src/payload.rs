//! Values of a message by their path, with numbers as they were written.

use std::collections::HashMap;

use oncebox::message::Message;
use serde_json::value::RawValue;

use crate::sql::Path;

/// Why a value could not be had. Names the path, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("the payload is not JSON")]
    NotJson,
    #[error("the payload has no field `{0}`")]
    Missing(Path),
    #[error("the message has no `{0}`")]
    NoAttribute(Path),
    /// Half of a pair that stands for one character: no text can hold it.
    #[error("the field `{0}` of the payload is no text that can be read: a \\uXXXX in it is half of a pair")]
    NotText(Path),
}

/// A value of a message, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    /// Its digits.
    Number(String),
    Text(String),
    /// A list or an object, as JSON.
    Compound(String),
}

impl Value {
    /// As one text; `None` for null.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Boolean(value) => Some(value.to_string()),
            Self::Number(text) | Self::Text(text) | Self::Compound(text) => Some(text),
        }
    }

    /// As JSON; `None` for null.
    pub(crate) fn into_json(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(serde_json::Value::String(text).to_string()),
            other => other.into_text(),
        }
    }
}

/// A message whose payload was read, once for all of its values.
#[derive(Debug)]
pub(crate) struct Fields<'m> {
    pub(crate) message: &'m Message,
    payload: Payload<'m>,
}

type Object<'m> = HashMap<std::borrow::Cow<'m, str>, &'m RawValue>;

#[derive(Debug)]
enum Payload<'m> {
    /// Only a mistake once someone asks for a field.
    NotJson,
    Object(Object<'m>),
    Other(&'m RawValue),
}

impl<'m> Fields<'m> {
    pub(crate) fn read(message: &'m Message) -> Self {
        let payload = match serde_json::from_slice::<&RawValue>(&message.payload) {
            Err(_) => Payload::NotJson,
            Ok(raw) => serde_json::from_str(raw.get()).map_or(Payload::Other(raw), Payload::Object),
        };
        Self { message, payload }
    }

    /// The value at a path.
    pub(crate) fn value(&self, path: &Path) -> Result<Value, ValueError> {
        if path.as_str().starts_with('@') {
            let attribute = attribute(self.message, path).map(Value::Text);
            return attribute.ok_or_else(|| ValueError::NoAttribute(path.clone()));
        }
        read(self.raw(path)?.get()).ok_or_else(|| ValueError::NotText(path.clone()))
    }

    /// The value at a path of the payload, as JSON.
    pub(crate) fn raw(&self, path: &Path) -> Result<&'m RawValue, ValueError> {
        let missing = || ValueError::Missing(path.clone());
        let mut steps = path.as_str().split('.');
        let mut found = match &self.payload {
            Payload::NotJson => return Err(ValueError::NotJson),
            Payload::Object(fields) => steps.next().and_then(|step| fields.get(step)).copied().ok_or_else(missing)?,
            Payload::Other(raw) => *raw,
        };
        for step in steps {
            found = inside(found, step).ok_or_else(missing)?;
        }
        Ok(found)
    }
}

/// One step into a value.
fn inside<'m>(value: &'m RawValue, step: &str) -> Option<&'m RawValue> {
    match step.parse::<usize>() {
        Ok(place) if value.get().starts_with('[') => {
            serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.get(place).copied()
        }
        _ => serde_json::from_str::<Object<'m>>(value.get()).ok()?.get(step).copied(),
    }
}

fn attribute(message: &Message, path: &Path) -> Option<String> {
    match path.as_str() {
        "@id" => message.id.as_ref().map(|id| id.as_str().to_owned()),
        "@type" => Some(message.kind.clone()),
        "@source" => message.source.clone(),
        "@order-key" => message.order_key.clone(),
        "@time" => Some(message.time.to_string()),
        other => message.headers.get(other.strip_prefix("@header.")?).map(str::to_owned),
    }
}

/// Whether a path can name something at all; what is wrong with it otherwise.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    match path.as_str() {
        "@id" | "@type" | "@source" | "@order-key" | "@time" => Ok(()),
        text if text.strip_prefix("@header.").is_some_and(|name| !name.is_empty()) => Ok(()),
        text if text.starts_with('@') => {
            Err(format!("`{text}` is no attribute; use @id, @source, @type, @order-key, @time or @header.NAME"))
        }
        _ => Ok(()),
    }
}

/// `None`: a text that is none.
fn read(json: &str) -> Option<Value> {
    Some(match json.as_bytes().first() {
        Some(b'n') => Value::Null,
        Some(b't') => Value::Boolean(true),
        Some(b'f') => Value::Boolean(false),
        Some(b'"') => Value::Text(serde_json::from_str(json).ok()?),
        Some(b'{' | b'[') => Value::Compound(json.to_owned()),
        _ => Value::Number(json.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(payload: &'static str, path: &str) -> Result<Value, ValueError> {
        Fields::read(&Message::new("t").with_payload(payload)).value(&Path::new(path))
    }

    #[test]
    fn values_are_found_and_numbers_stay_as_they_were_written() {
        let payload =
            r#"{"a":{"b":[1,{"c":12.10}]},"big":123456789012345678901234567890,"t":"x\n","n":null,"y":true,"":1}"#;
        assert_eq!(of(payload, "a.b.1.c"), Ok(Value::Number("12.10".into())));
        assert_eq!(of(payload, "big"), Ok(Value::Number("123456789012345678901234567890".into())));
        assert_eq!(of(payload, "t"), Ok(Value::Text("x\n".into())));
        assert_eq!(of(payload, "n"), Ok(Value::Null));
        assert_eq!(of(payload, "y"), Ok(Value::Boolean(true)));
        assert_eq!(of(payload, "a.b"), Ok(Value::Compound(r#"[1,{"c":12.10}]"#.into())));
        assert_eq!(of(payload, "a.b.2"), Err(ValueError::Missing(Path::new("a.b.2"))));
        assert_eq!(of(payload, "t.u").unwrap_err().to_string(), "the payload has no field `t.u`");
        assert_eq!(of("{", "a"), Err(ValueError::NotJson));
        assert_eq!(of("[1,[2]]", "1.0"), Ok(Value::Number("2".into())));
        assert_eq!(of("{", "@type"), Ok(Value::Text("t".into())));
        assert_eq!(of("{}", "@type"), Ok(Value::Text("t".into())));
        assert_eq!(of("{}", "@header.tenant"), Err(ValueError::NoAttribute(Path::new("@header.tenant"))));
    }

    #[test]
    fn hostile_documents_have_a_defined_answer() {
        let value = |payload: String, path: &str| {
            Fields::read(&Message::new("t").with_payload(payload)).value(&Path::new(path))
        };
        assert_eq!(of(r#"{"a":"\ud800"}"#, "a"), Err(ValueError::NotText(Path::new("a"))));
        assert_eq!(of(r#"{"a":1,"a":2}"#, "a"), Ok(Value::Number("2".into())));
        assert_eq!(of(r#"{"a":1e999999999}"#, "a"), Ok(Value::Number("1e999999999".into())));
        let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(value(format!(r#"{{"a":{deep}}}"#), "a"), Ok(Value::Compound(deep.clone())));
        assert_eq!(value(deep, "0.0.0.x"), Err(ValueError::Missing(Path::new("0.0.0.x"))));
    }
}
