//! Who acts, and why.

use crate::error::Error;

/// Who acts, and why: every change wants both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    who: String,
    why: String,
}

impl Actor {
    /// The longest name or reason, in bytes.
    pub const BYTES_MAX: usize = 500;

    /// Checks a name and a reason: neither is empty, endless, or breaks a line.
    pub fn new(who: impl Into<String>, why: impl Into<String>) -> Result<Self, Error> {
        let (who, why) = (who.into(), why.into());
        for (what, text) in [("name", &who), ("reason", &why)] {
            let problem = match text {
                text if text.trim().is_empty() => "it is empty",
                text if text.len() > Self::BYTES_MAX => "it is longer than 500 bytes",
                text if text.chars().any(char::is_control) => "it holds a control character",
                _ => continue,
            };
            return Err(Error::Actor { what, problem });
        }
        Ok(Self { who, why })
    }

    /// Who.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Why.
    pub fn why(&self) -> &str {
        &self.why
    }
}
