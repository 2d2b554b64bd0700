//! A table of the file, read field by field. Whoever reads it says which fields it knows by asking for them; what nobody
//! asked for is a mistake, told with its line and the nearest name that is known.

use std::cell::RefCell;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration;
use super::environment::Environment;
use super::mistake::Mistake;

/// A file that is being read, and what was found wrong so far.
pub(super) struct Reader<'f> {
    text: &'f str,
    environment: &'f dyn Environment,
    mistakes: RefCell<Vec<Mistake>>,
}

impl<'f> Reader<'f> {
    pub(super) fn new(text: &'f str, environment: &'f dyn Environment) -> Self {
        Self { text, environment, mistakes: RefCell::default() }
    }

    /// The line of a byte of the file.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    pub(super) fn mistake(&self, line: usize, says: impl Into<String>) {
        self.mistakes.borrow_mut().push(Mistake { line, says: says.into() });
    }

    pub(super) fn into_mistakes(self) -> Vec<Mistake> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort();
        mistakes.dedup();
        mistakes
    }
}

/// One table.
pub(super) struct Table<'r> {
    reader: &'r Reader<'r>,
    /// What it is called in messages: `[store]`.
    called: String,
    fields: &'r DeTable<'r>,
    pub(super) line: usize,
    known: RefCell<Vec<&'static str>>,
}

/// A value and where it stands.
pub(super) struct Field<'r> {
    reader: &'r Reader<'r>,
    /// `key in [[consumer]]`.
    called: String,
    pub(super) value: &'r DeValue<'r>,
    pub(super) line: usize,
}

impl<'r> Table<'r> {
    pub(super) fn new(reader: &'r Reader<'r>, called: impl Into<String>, fields: &'r DeTable<'r>, line: usize) -> Self {
        Self { reader, called: called.into(), fields, line, known: RefCell::default() }
    }

    /// A field, if it is there.
    pub(super) fn field(&self, name: &'static str) -> Option<Field<'r>> {
        self.know(name);
        let (_, value) = self.fields.iter().find(|(key, _)| key.get_ref() == name)?;
        Some(self.at(name, value))
    }

    fn know(&self, name: &'static str) {
        let mut known = self.known.borrow_mut();
        if !known.contains(&name) {
            known.push(name);
        }
    }

    fn at(&self, name: &str, value: &'r Spanned<DeValue<'r>>) -> Field<'r> {
        let called = format!("`{name}` in {}", self.called);
        Field { reader: self.reader, called, value: value.get_ref(), line: self.reader.line(value.span().start) }
    }

    /// A field that must be there.
    pub(super) fn required(&self, name: &'static str) -> Option<Field<'r>> {
        let field = self.field(name);
        if field.is_none() {
            self.mistake(format!("{} has no `{name}`", self.called));
        }
        field
    }

    /// A text, if it is there and one.
    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        self.field(name)?.text()
    }

    /// Something about the table as a whole.
    pub(super) fn mistake(&self, says: impl Into<String>) {
        self.reader.mistake(self.line, says);
    }

    /// Something about a part of it.
    pub(super) fn mistake_at(&self, line: usize, says: impl Into<String>) {
        self.reader.mistake(line, says);
    }

    /// Fields that are not built yet are refused with a word of their own.
    pub(super) fn not_yet(&self, name: &'static str, what: &str) {
        if let Some((_, value)) = self.fields.iter().find(|(key, _)| key.get_ref() == name) {
            self.know(name);
            self.at(name, value).mistake(format!("{what} can't be run from a file yet; leave it out"));
        }
    }

    /// All fields, for tables whose names are the user's.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'r str, Field<'r>)> {
        self.fields.iter().map(|(name, value)| (name.get_ref().as_ref(), self.at(name.get_ref(), value)))
    }

    /// Everything was asked for: what is left is a mistake.
    pub(super) fn finish(&self) {
        let known = self.known.borrow();
        for (name, _) in self.fields {
            let (name, line) = (name.get_ref(), self.reader.line(name.span().start));
            if known.iter().any(|known| known == name) {
                continue;
            }
            let advice = match nearest(name, &known) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("it knows {}", listed(&known)),
            };
            self.reader.mistake(line, format!("`{name}` is not a field of {}; {advice}", self.called));
        }
    }
}

impl<'r> Field<'r> {
    /// Something about this field.
    pub(super) fn mistake(&self, says: impl AsRef<str>) {
        self.reader.mistake(self.line, format!("{}: {}", self.called, says.as_ref()));
    }

    /// Something about its text, in which variables were expanded: a reason that quotes it must not tell them.
    pub(super) fn mistake_in_text(&self, reason: String) {
        let DeValue::String(text) = self.value else { return self.mistake(reason) };
        self.mistake(self.reader.environment.conceal(text, reason));
    }

    fn expected(&self, what: &str) {
        let found = match self.value {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.mistake(format!("expected {what}, found {found}"));
    }

    /// A text with variables of the environment in it.
    pub(super) fn text(&self) -> Option<String> {
        match self.reader.environment.expand(&self.verbatim()?) {
            Ok(text) => Some(text),
            Err(reason) => {
                self.mistake(reason);
                None
            }
        }
    }

    /// A text as it stands.
    pub(super) fn verbatim(&self) -> Option<String> {
        if let DeValue::String(text) = self.value {
            return Some(text.clone().into_owned());
        }
        self.expected("a text");
        None
    }

    pub(super) fn count(&self) -> Option<u64> {
        if let DeValue::Integer(number) = self.value
            && let Ok(count) = u64::from_str_radix(number.as_str(), number.radix())
        {
            return Some(count);
        }
        self.expected("a whole number, 0 or more");
        None
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        if let DeValue::Boolean(value) = self.value {
            return Some(*value);
        }
        self.expected("true or false");
        None
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.text()?;
        match duration::parse(&text) {
            Ok(duration) => Some(duration),
            Err(reason) => {
                self.mistake_in_text(reason);
                None
            }
        }
    }

    /// What `read` makes of the text, or its complaint.
    pub(super) fn read<T, E: std::fmt::Display>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        self.read_expanded(&self.text()?, read)
    }

    /// What `read` makes of an address, in which variables of the environment are parts.
    pub(super) fn read_address<T>(&self, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match self.reader.environment.expand_address(&self.verbatim()?) {
            Ok(text) => self.read_expanded(&text, read),
            Err(reason) => {
                self.mistake(reason);
                None
            }
        }
    }

    fn read_expanded<T, E: std::fmt::Display>(&self, text: &str, read: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        match read(text) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.mistake_in_text(reason.to_string());
                None
            }
        }
    }

    pub(super) fn table(&self, called: impl Into<String>) -> Option<Table<'r>> {
        if let DeValue::Table(fields) = self.value {
            return Some(Table::new(self.reader, called, fields, self.line));
        }
        self.expected("a table");
        None
    }

    /// The elements of a list.
    pub(super) fn elements(&self) -> Vec<Field<'r>> {
        let DeValue::Array(elements) = self.value else {
            self.expected("a list");
            return Vec::new();
        };
        let element = |(place, value): (usize, &'r Spanned<DeValue<'r>>)| Field {
            reader: self.reader,
            called: format!("element {} of {}", place + 1, self.called),
            value: value.get_ref(),
            line: self.reader.line(value.span().start),
        };
        elements.iter().enumerate().map(element).collect()
    }
}

/// The known name that was probably meant.
pub(super) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let best = known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= LIKE_ENOUGH).then_some(best)
}

/// Letters swapped, left out or put in; another ending.
const LIKE_ENOUGH: f64 = 0.75;

/// `a`, `b` and `c`.
pub(super) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_one_that_was_probably_meant() {
        let known = ["name", "from", "key", "order_by", "retention", "retry"];
        assert_eq!(nearest("nmae", &known), Some("name"));
        assert_eq!(nearest("orderby", &known), Some("order_by"));
        assert_eq!(nearest("retries", &known), Some("retry"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
        assert_eq!(listed(&["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
