//! A small language that says which parked messages are meant. Every operation uses it, and acts on everything that
//! matches.
//!
//! ```text
//! class = permanent and type = payment.* and age > 2h and not note
//! payload.amount >= 100 and (cause ~ "timed out" or key = order-7)
//! ```
//!
//! | field | is | compared with |
//! | --- | --- | --- |
//! | `class` | transient, permanent, unknown, rejected | `=` `!=` |
//! | `state` | retrying, turn, gap, dead | `=` `!=` |
//! | `type` `cause` `key` `order` `id` `source` `reason` `note` `header.NAME` | text | `=` `!=` with `*` for anything, `~` for "contains", whatever the case |
//! | `attempts` `row` `version` `replay` `size` | a number | `=` `!=` `<` `<=` `>` `>=` |
//! | `age`, `made` | how long ago it was parked first; how long ago it was made: `90s`, `2h`, `1d12h` | `<` `<=` `>` `>=` |
//! | `payload.PATH` | a field of a JSON payload, by dotted path | all of them; the order of numbers only |
//!
//! A field alone (`note`, `payload.refund`) matches where it is there. `and` binds closer than `or`; `not` closest.
//! Texts with spaces or signs stand in double quotes, and then `*` is a star. `group` is another name for `cause`.
//! `all` matches everything; an empty filter is a mistake.

mod display;
mod error;
mod eval;
mod field;
mod lexer;
mod number;
mod parser;
mod span;
#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::time::Duration;

use oncebox_core::Class;
use oncebox_core::quarantine::ParkedState;

pub use error::FilterError;
pub use eval::Subject;
use field::{Field, NumberField, Since, TextField};

/// The longest filter that is read, in bytes: nobody writes a longer one by hand.
pub const FILTER_BYTES_MAX: usize = 4096;

/// Which parked messages are meant; see the [module](self). Written out with `Display`, it reads the same again.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter(Expr);

impl Filter {
    /// Matches everything.
    pub fn all() -> Self {
        Self(Expr::All)
    }

    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parser::parse(text).map(Self)
    }

    /// Whether it matches everything by its form.
    pub fn is_all(&self) -> bool {
        self.0 == Expr::All
    }

    /// Whether a message is meant.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.0.matches(subject)
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        Self::parse(text)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    All,
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Term(Term),
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
enum Term {
    Present(Field),
    Class(Equal, Class),
    State(Equal, ParkedState),
    Text(TextField, TextTest),
    Number(NumberField, Order, i64),
    Age(Since, Order, Duration),
    Payload(Vec<String>, PayloadTest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Equal {
    Is,
    IsNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Is,
    IsNot,
    Less,
    LessOrIs,
    More,
    MoreOrIs,
}

#[derive(Clone, Debug, PartialEq)]
enum TextTest {
    Equal(Equal, Pattern),
    Contains(String),
}

/// A text, or texts around stars.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Literal(String),
    /// What stands between the stars; at least two parts, each of which may be empty.
    Glob(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
enum PayloadTest {
    Text(TextTest),
    Number(Order, number::Number),
    Bool(Equal, bool),
    Null(Equal),
}
