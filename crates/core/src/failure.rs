//! Why a handler did not finish, and what may be done about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What a failure allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// May pass by itself: try again.
    Transient,
    /// Won't pass until someone changes the message or the code.
    Permanent,
    /// The effect may or may not have happened outside the store: look before trying again.
    Unknown,
    /// The business refuses the message: recorded as its outcome and given to its duplicates, not retried. What the
    /// handler wrote is rolled back; to keep it, return [`Outcome::rejected`](crate::Outcome::rejected).
    Rejected,
}

impl Class {
    /// The class as people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Unknown => "unknown",
            Self::Rejected => "rejected",
        }
    }

    /// The stored number. Never changes its meaning.
    pub fn code(self) -> i16 {
        match self {
            Self::Transient => 0,
            Self::Permanent => 1,
            Self::Unknown => 2,
            Self::Rejected => 3,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        let all = [Self::Transient, Self::Permanent, Self::Unknown, Self::Rejected];
        all.into_iter().find(|class| class.code() == code)
    }

    /// The class of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Transient, Self::Permanent, Self::Unknown, Self::Rejected].into_iter().find(|class| class.name() == name)
    }
}

/// What a handler returns when it did not finish.
///
/// `?` on any error makes one; its class is then found by whoever knows the error (the store knows its driver's), and
/// is transient otherwise.
pub struct Failure {
    class: Option<Class>,
    reason: String,
    code: Option<String>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// May pass by itself. `reason` is shown to operators: no payloads, no secrets.
    pub fn transient(reason: impl Into<String>) -> Self {
        Self::classed(Class::Transient, reason)
    }

    /// Won't pass until someone acts.
    pub fn permanent(reason: impl Into<String>) -> Self {
        Self::classed(Class::Permanent, reason)
    }

    /// Something outside the store may or may not have happened.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::classed(Class::Unknown, reason)
    }

    /// The business refuses the message: recorded, returned to duplicates, not retried. Nothing that the handler wrote
    /// is kept; to keep it, return [`Outcome::rejected`](crate::Outcome::rejected).
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self::classed(Class::Rejected, reason)
    }

    fn classed(class: Class, reason: impl Into<String>) -> Self {
        Self { class: Some(class), reason: reason.into(), code: None, retry_after: None, source: None }
    }

    /// Names the cause: failures with one code are one group for operators. Without it, the kind of the error behind
    /// the failure or the words of its reason stand in.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// What failures of one cause have in common: the code, or the reason with everything that varies taken out.
    pub fn cause_code(&self) -> String {
        self.code.clone().unwrap_or_else(|| without_values(&self.reason))
    }

    /// The same with this code, unless the handler gave one.
    #[must_use]
    pub fn code_or(mut self, code: impl Into<String>) -> Self {
        self.code.get_or_insert_with(|| code.into());
        self
    }

    /// Asks not to be tried before this long.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The class, if the handler named one.
    pub fn class(&self) -> Option<Class> {
        self.class
    }

    /// The same with a class and a reason that are known to be right and safe to show.
    #[must_use]
    pub fn known_as(mut self, class: Class, reason: impl Into<String>) -> Self {
        self.class = Some(class);
        self.reason = reason.into();
        self
    }

    /// How long to wait, if the handler said so.
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Why, for people.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Takes out the error behind it: whoever drops that runs code of the user's.
    pub fn take_cause(&mut self) -> Option<Box<dyn Error + Send + Sync>> {
        self.source.take()
    }

    /// The error behind it.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let reason = error.to_string();
        Self { class: None, reason, code: None, retry_after: None, source: Some(Box::new(error)) }
    }
}

/// A text with `#` for every word that holds a digit or stands in quotes: what stays is what failures of one cause have
/// in common.
fn without_values(text: &str) -> String {
    let mut words = Vec::new();
    let mut quoted = false;
    for word in text.split_whitespace() {
        let opens = word.starts_with(['"', '\'', '`']);
        let varies = quoted || opens || word.contains(|c: char| c.is_ascii_digit());
        let closes = word.trim_end_matches([',', '.', ';', ':', ')']).ends_with(['"', '\'', '`']);
        quoted = (quoted || opens) && !(closes && (quoted || word.len() > 1));
        match (varies, words.last()) {
            (true, Some(&"#")) => {}
            (true, _) => words.push("#"),
            (false, _) => words.push(word),
        }
    }
    words.join(" ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("class", &self.class).field("reason", &self.reason).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_no_part_of_a_cause() {
        let code = |reason: &str| Failure::transient(reason).cause_code();
        assert_eq!(code("timed out after 1200 ms on 10.0.0.7:5432"), "timed out after # ms on #");
        assert_eq!(code("no account `a b c` here"), "no account # here");
        assert_eq!(code("key 'x', column \"total sum\": too large"), "key # column # too large");
        assert_eq!(code("timed out after 7 ms on 10.0.0.9:5432"), code("timed out after 1200 ms on 10.0.0.7:5432"));
        assert_eq!(Failure::transient("whatever 7").code("card-declined").cause_code(), "card-declined");
    }

    #[test]
    fn classes_have_names_and_numbers() {
        for class in [Class::Transient, Class::Permanent, Class::Unknown, Class::Rejected] {
            assert_eq!(Class::from_name(class.name()), Some(class));
            assert_eq!(Class::from_code(class.code()), Some(class));
        }
        assert_eq!(Class::from_name("odd"), None);
    }
}
