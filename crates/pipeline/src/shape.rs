//! What an emitted message looks like: texts with `{field}` in them, and payloads made of them.

use serde_json::value::RawValue;

use crate::payload::{self, Fields, ValueError};
use crate::sql::Path;

/// A text with `{field}` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Hole(Path),
}

impl Text {
    /// Reads one; `{{` and `}}` are literal braces.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let found = &rest[at..];
            if let Some(after) = found.strip_prefix("{{").or_else(|| found.strip_prefix("}}")) {
                literal.push_str(&found[..1]);
                rest = after;
                continue;
            }
            let Some(inside) = found.strip_prefix('{') else {
                return Err("a `}` has no `{` before it; write `}}` for a literal one".to_owned());
            };
            let Some((name, after)) = inside.split_once('}') else {
                return Err("a `{` is never closed; write `{{` for a literal one".to_owned());
            };
            if name.split('.').any(|step| step.trim().is_empty()) {
                return Err(format!("`{{{name}}}` names no field"));
            }
            let path = Path::new(name);
            payload::check(&path)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Hole(path));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }

    /// The text, if there is no field in it.
    pub(crate) fn literal(&self) -> Option<String> {
        let mut whole = String::new();
        for piece in &self.0 {
            let Piece::Literal(text) = piece else { return None };
            whole.push_str(text);
        }
        Some(whole)
    }

    /// The field, if the text is one `{field}` and nothing else.
    fn only_hole(&self) -> Option<&Path> {
        match self.0.as_slice() {
            [Piece::Hole(path)] => Some(path),
            _ => None,
        }
    }

    /// The filled text. A field that is null counts as missing.
    pub(crate) fn fill(&self, fields: &Fields<'_>) -> Result<String, ValueError> {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => Ok(text.clone()),
            Piece::Hole(path) => fields.value(path)?.into_text().ok_or_else(|| ValueError::Missing(path.clone())),
        };
        self.0.iter().map(piece).collect()
    }
}

/// What a payload is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// The payload of the message that caused it, as it is.
    Same,
    /// A text; one that is a single `{field}` is that field with its type.
    Text(Text),
    /// A number, true or false.
    Literal(serde_json::Value),
    /// A list.
    List(Vec<Shape>),
    /// An object.
    Object(Vec<(String, Shape)>),
}

impl Shape {
    /// The JSON for a message.
    pub(crate) fn json(&self, fields: &Fields<'_>) -> Result<Box<RawValue>, ValueError> {
        let mut json = String::new();
        self.write(fields, &mut json)?;
        RawValue::from_string(json).map_err(|_| ValueError::NotJson)
    }

    fn write(&self, fields: &Fields<'_>, json: &mut String) -> Result<(), ValueError> {
        match self {
            Self::Same => json.push_str(std::str::from_utf8(&fields.message.payload).map_err(|_| ValueError::NotJson)?),
            Self::Literal(value) => json.push_str(&value.to_string()),
            Self::Text(text) => match text.only_hole() {
                Some(path) if !path.as_str().starts_with('@') => json.push_str(fields.raw(path)?.get()),
                _ => json.push_str(&quoted(text.fill(fields)?)),
            },
            Self::List(elements) => {
                json.push('[');
                for (place, element) in elements.iter().enumerate() {
                    json.push_str(if place == 0 { "" } else { "," });
                    element.write(fields, json)?;
                }
                json.push(']');
            }
            Self::Object(members) => {
                json.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    json.push_str(if place == 0 { "" } else { "," });
                    json.push_str(&quoted(name.clone()));
                    json.push(':');
                    value.write(fields, json)?;
                }
                json.push('}');
            }
        }
        Ok(())
    }
}

fn quoted(text: String) -> String {
    serde_json::Value::String(text).to_string()
}

#[cfg(test)]
mod tests {
    use oncebox::Message;

    use super::*;

    fn message() -> Message {
        Message::new("t").with_payload(r#"{"id":7,"paid":12.10,"who":{"name":"A \"B\""},"none":null}"#)
    }

    #[test]
    fn fields_keep_their_type_and_texts_are_escaped() {
        let text = |text: &str| Shape::Text(Text::parse(text).unwrap());
        let shape = Shape::Object(vec![
            ("invoice".into(), text("{id}")),
            ("paid".into(), text("{paid}")),
            ("says".into(), text("{{{who.name}}} paid {paid}")),
            ("list".into(), Shape::List(vec![text("{none}"), Shape::Literal(true.into())])),
        ]);
        let expected = r#"{"invoice":7,"paid":12.10,"says":"{A \"B\"} paid 12.10","list":[null,true]}"#;
        assert_eq!(shape.json(&Fields::read(&message())).unwrap().get(), expected);
        assert_eq!(Shape::Same.json(&Fields::read(&message())).unwrap().get().len(), message().payload.len());
        assert_eq!(
            text("{gone}").json(&Fields::read(&message())).unwrap_err().to_string(),
            "the payload has no field `gone`"
        );
        assert!(Text::parse("{none}").unwrap().fill(&Fields::read(&message())).is_err(), "a topic can't be null");
    }

    #[test]
    fn braces_that_do_not_match_are_said() {
        for wrong in ["{", "}", "{a", "a}", "{}", "{a..b}", "{@what}"] {
            assert!(Text::parse(wrong).is_err(), "{wrong}");
        }
    }
}
