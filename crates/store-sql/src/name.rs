//! Names that become part of a statement. They can't be bound as parameters, so they are checked instead.

use std::fmt;

/// The name of a schema, a table or a column: a letter or `_`, then letters, digits and `_`, at most 63 ASCII
/// characters.
///
/// It is written into statements in quotes, as it is: `Payments` is not `payments`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(String);

impl Identifier {
    /// PostgreSQL cuts longer names off, and two names could become one.
    const BYTES_MAX: usize = 63;

    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidIdentifier> {
        let name = name.into();
        let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let starts = name.bytes().next().is_some_and(letter);
        let fits = starts && name.len() <= Self::BYTES_MAX && name.bytes().all(|b| letter(b) || b.is_ascii_digit());
        if fits { Ok(Self(name)) } else { Err(InvalidIdentifier { name }) }
    }

    /// The name without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    /// The name in quotes, as it stands in a statement.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl fmt::Debug for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that can't be written into a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {name:?} as a name in SQL: it needs a letter or _, then letters, digits and _, at most 63 in all")]
pub struct InvalidIdentifier {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_pass() {
        for name in ["oncebox", "_x", "Payments", "a1_b2", &"x".repeat(63)] {
            assert_eq!(Identifier::new(name).unwrap().to_string(), format!("\"{name}\""));
        }
        for name in ["", "1a", "a-b", "a b", "a\"b", "a;drop", "ä", "a.b", "a\0", &"x".repeat(64)] {
            assert!(Identifier::new(name).is_err(), "{name:?}");
        }
    }
}
