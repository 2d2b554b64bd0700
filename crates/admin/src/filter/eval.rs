//! Whether a message is meant by a filter.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use oncebox_core::quarantine::ParkedRow;
use oncebox_core::time::Timestamp;
use serde_json::value::RawValue;

use super::field::{Field, NumberField, Since, TextField};
use super::number::Number;
use super::{Equal, Expr, Pattern, PayloadTest, Term, TextTest};

/// A parked message as a filter sees it, at a time.
pub struct Subject<'r> {
    row: &'r ParkedRow,
    now: Timestamp,
}

impl<'r> Subject<'r> {
    /// `row` as it is at `now`, by which ages are judged.
    pub fn new(row: &'r ParkedRow, now: Timestamp) -> Self {
        Self { row, now }
    }

    /// What stands at a path of the payload; `None`: nothing, or it is not JSON.
    fn payload(&self, path: &[String]) -> Option<Found> {
        let document: &RawValue = serde_json::from_slice(&self.row.message.payload).ok()?;
        let found = path.iter().try_fold(document, |value, step| match value.get().as_bytes().first() {
            Some(b'{') => {
                serde_json::from_str::<HashMap<String, &RawValue>>(value.get()).ok()?.get(step.as_str()).copied()
            }
            Some(b'[') => {
                serde_json::from_str::<Vec<&RawValue>>(value.get()).ok()?.get(step.parse::<usize>().ok()?).copied()
            }
            _ => None,
        })?;
        Found::read(found.get())
    }

    fn text(&self, field: &TextField) -> Option<String> {
        let row = self.row;
        let message = &row.message;
        match field {
            TextField::Type => Some(message.kind.clone()),
            TextField::Cause => Some(row.cause.as_str().to_owned()),
            TextField::Key => Some(row.key.to_string()),
            TextField::Order => row.order_key.clone(),
            TextField::Id => message.id.as_ref().map(|id| id.as_str().to_owned()),
            TextField::Source => message.source.clone(),
            TextField::Reason => Some(row.reason.clone()),
            TextField::Note => row.note.clone(),
            TextField::Header(name) => message.headers.get(name).map(str::to_owned),
        }
    }

    fn number(&self, field: NumberField) -> Option<i128> {
        let row = self.row;
        match field {
            NumberField::Attempts => Some(row.attempts.into()),
            NumberField::Row => Some(row.row.into()),
            NumberField::Version => row.message.version.map(Into::into),
            NumberField::Replay => row.replay.map(|replay| replay.0.into()),
            NumberField::Size => i128::try_from(row.message.payload.len()).ok(),
        }
    }

    fn age(&self, since: Since) -> Duration {
        let from = match since {
            Since::Parked => self.row.first_at,
            Since::Made => self.row.message.time,
        };
        // What lies in the future, by a producer's clock, has no age yet.
        Duration::try_from(self.now.duration_since(from)).unwrap_or(Duration::ZERO)
    }

    fn has(&self, field: &Field) -> bool {
        match field {
            Field::Class => self.row.class.is_some(),
            Field::State | Field::Since(_) => true,
            Field::Text(field) => self.text(field).is_some(),
            Field::Number(field) => self.number(*field).is_some(),
            Field::Payload(path) => self.payload(path).is_some_and(|found| !matches!(found, Found::Null)),
        }
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("row", &self.row.row).field("now", &self.now).finish_non_exhaustive()
    }
}

impl Expr {
    pub(super) fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::All => true,
            Self::And(left, right) => left.matches(subject) && right.matches(subject),
            Self::Or(left, right) => left.matches(subject) || right.matches(subject),
            Self::Not(inner) => !inner.matches(subject),
            Self::Term(term) => term.matches(subject),
        }
    }
}

impl Term {
    fn matches(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Present(field) => subject.has(field),
            Self::Class(equal, class) => equal.holds(subject.row.class == Some(*class)),
            Self::State(equal, state) => equal.holds(subject.row.state == *state),
            Self::Text(field, test) => test.matches(subject.text(field).as_deref()),
            Self::Number(field, order, wanted) => {
                subject.number(*field).is_some_and(|found| order.holds(found.cmp(&i128::from(*wanted))))
            }
            Self::Age(since, order, wanted) => order.holds(subject.age(*since).cmp(wanted)),
            Self::Payload(path, test) => test.matches(subject.payload(path).as_ref()),
        }
    }
}

impl TextTest {
    /// What is not there equals nothing and contains nothing.
    fn matches(&self, found: Option<&str>) -> bool {
        match self {
            Self::Equal(equal, pattern) => equal.holds(found.is_some_and(|found| pattern.matches(found))),
            Self::Contains(part) => found.is_some_and(|found| found.to_lowercase().contains(&part.to_lowercase())),
        }
    }
}

/// A value of a payload, with numbers as they were written.
enum Found {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Compound,
}

impl Found {
    fn read(json: &str) -> Option<Self> {
        Some(match json.as_bytes().first()? {
            b'n' => Self::Null,
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'"' => Self::Text(serde_json::from_str(json).ok()?),
            b'{' | b'[' => Self::Compound,
            _ => Self::Number(Number::read(json)?),
        })
    }
}

impl PayloadTest {
    fn matches(&self, found: Option<&Found>) -> bool {
        match (self, found) {
            (Self::Null(equal), found) => equal.holds(matches!(found, None | Some(Found::Null))),
            (Self::Bool(equal, wanted), found) => equal.holds(matches!(found, Some(Found::Bool(is)) if is == wanted)),
            (Self::Text(test), Some(Found::Text(text))) => test.matches(Some(text)),
            // A number or boolean is compared as it is written.
            (Self::Text(test), Some(Found::Number(number))) => test.matches(Some(&number.to_string())),
            (Self::Text(test), Some(Found::Bool(is))) => test.matches(Some(&is.to_string())),
            (Self::Text(test), _) => test.matches(None),
            (Self::Number(order, wanted), Some(Found::Number(found))) => order.holds(found.compare(wanted)),
            (Self::Number(order, _), _) => *order == super::Order::IsNot,
        }
    }
}

impl Equal {
    fn holds(self, is: bool) -> bool {
        (self == Self::Is) == is
    }
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let parts = match self {
            Self::Literal(literal) => return text == literal,
            Self::Glob(parts) => parts,
        };
        let [first, middle @ .., last] = &parts[..] else { return false };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        // Each part at the first place where it fits leaves the most room for the next.
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}
