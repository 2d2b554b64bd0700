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
}

/// What a handler returns when it did not finish.
///
/// `?` on any error makes one; its class is then found by whoever knows the error (the store knows its driver's), and
/// is transient otherwise. A business refusal is not a failure: return
/// [`Outcome::rejected`](crate::Outcome::rejected).
pub struct Failure {
    class: Option<Class>,
    reason: String,
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

    fn classed(class: Class, reason: impl Into<String>) -> Self {
        Self { class: Some(class), reason: reason.into(), retry_after: None, source: None }
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

    /// The error behind it.
    pub fn cause(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: None, reason: error.to_string(), retry_after: None, source: Some(Box::new(error)) }
    }
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
