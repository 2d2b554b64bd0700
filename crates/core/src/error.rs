//! Errors at the seams. The engine decides by [`kind`](StoreError::kind) alone and never reads a driver's text.

use std::error::Error;
use std::fmt;

use crate::code::Code;

/// Why a message could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// A part that must not be empty is.
    #[error("cannot build a message: its {0} is empty")]
    Empty(&'static str),
    /// A part is longer than [`ATTRIBUTE_BYTES_MAX`](crate::message::ATTRIBUTE_BYTES_MAX).
    #[error("cannot build a message: its {0} is longer than 4096 bytes")]
    TooLong(&'static str),
    /// A header holds a control character.
    #[error("cannot add a header: its name or value holds a control character")]
    ControlCharacter,
    /// The value can't be written as JSON.
    #[error("cannot build a message: its value cannot be written as JSON")]
    NotJson,
}

/// What a caller can do about a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store can't be reached or is shutting down. Hold what you have and try again later.
    Unavailable,
    /// Someone else is in the way: a lock, a deadlock, a serialisation failure. Roll back and run again; not an attempt.
    Contended,
    /// The server is in trouble of its own, or an administrator stepped in: a statement was cancelled or timed out, an
    /// internal error, a code that isn't known. It says nothing about the message. Run again, later.
    Troubled,
    /// The session has lost what it had prepared, or what it had prepared no longer fits. Close it and run again in another;
    /// not an attempt.
    Stale,
    /// The transaction is gone, aborted, or not the one that claimed. Nothing of it may be acknowledged.
    TransactionLost,
    /// A handler ended the transaction itself, and claims of messages that did not run may be committed. Going on would
    /// take them for duplicates: stop, and let a person look.
    Breached,
    /// A lease was taken over by someone with a higher fence. Drop the work; its new owner has it.
    Fenced,
    /// The caller's statement was refused by the store: a constraint, a type, a syntax error.
    Refused,
    /// A setting or the schema is wrong. Trying again does not help; a person must act.
    Configuration,
    /// What the store returned makes no sense.
    Corrupt,
}

/// A store could not do what was asked.
pub struct StoreError {
    kind: StoreErrorKind,
    attempted: String,
    reason: String,
    code: Option<Code>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// `attempted` completes "cannot …"; `reason` says why and, where possible, what to do. Neither may hold payloads
    /// or secrets.
    pub fn new(kind: StoreErrorKind, attempted: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, attempted: attempted.into(), reason: reason.into(), code: None, source: None }
    }

    /// Keeps the driver's error for `Debug` and `source()`.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Gives it a page of its own, where its kind says too little.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        self.code.unwrap_or(match self.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::Troubled | StoreErrorKind::Stale => Code::StoreAway,
            StoreErrorKind::Contended => Code::StoreBusy,
            StoreErrorKind::TransactionLost => Code::TransactionLost,
            StoreErrorKind::Breached => Code::Breached,
            StoreErrorKind::Fenced => Code::Fenced,
            StoreErrorKind::Refused => Code::Refused,
            StoreErrorKind::Configuration => Code::StoreSetting,
            StoreErrorKind::Corrupt => Code::Corrupt,
        })
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Why it failed, without what was attempted.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether it is the trouble of the store or of the way to it: close the session, wait, and run again in another.
    pub fn is_outage(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Troubled | StoreErrorKind::Stale)
    }

    /// Whether the same call may succeed later without anyone changing anything.
    pub fn is_retryable(&self) -> bool {
        self.is_outage() || self.kind == StoreErrorKind::Contended
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.attempted, self.reason)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The driver's own error may quote values; its text stays behind `source()`, for code that asks for it.
        f.debug_struct("StoreError")
            .field("kind", &self.kind)
            .field("attempted", &self.attempted)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

/// What a caller can do about a [`SourceError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The broker can't be reached. Try again later.
    Unavailable,
    /// The delivery is no longer ours. It comes again; settling it changes nothing.
    LeaseLost,
    /// A setting is wrong; a person must act.
    Configuration,
}

/// A source could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempted}: {reason}")]
pub struct SourceError {
    kind: SourceErrorKind,
    attempted: String,
    reason: String,
    code: Option<Code>,
}

impl SourceError {
    /// `attempted` completes "cannot …"; neither part may hold payloads or secrets.
    pub fn new(kind: SourceErrorKind, attempted: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, attempted: attempted.into(), reason: reason.into(), code: None }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        self.code.unwrap_or(match self.kind {
            SourceErrorKind::Unavailable => Code::SourceAway,
            SourceErrorKind::LeaseLost => Code::Fenced,
            SourceErrorKind::Configuration => Code::SourceSetting,
        })
    }
}

impl From<StoreError> for SourceError {
    /// A source that lives in a store fails as its store does, and its page is the store's.
    fn from(error: StoreError) -> Self {
        let code = Some(error.code());
        let kind = match error.kind {
            StoreErrorKind::Unavailable
            | StoreErrorKind::Contended
            | StoreErrorKind::Troubled
            | StoreErrorKind::Stale => SourceErrorKind::Unavailable,
            StoreErrorKind::Fenced | StoreErrorKind::TransactionLost => SourceErrorKind::LeaseLost,
            StoreErrorKind::Refused
            | StoreErrorKind::Configuration
            | StoreErrorKind::Corrupt
            | StoreErrorKind::Breached => SourceErrorKind::Configuration,
        };
        Self { kind, attempted: error.attempted, reason: error.reason, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_by_itself_is_tried_again() {
        use StoreErrorKind::{Configuration, Contended, Corrupt, Fenced, Refused, Unavailable};
        let is_retryable = |kind| StoreError::new(kind, "claim", "a reason").is_retryable();
        assert!([Unavailable, Contended].into_iter().all(is_retryable));
        assert!(![Configuration, Corrupt, Fenced, Refused].into_iter().any(is_retryable));
    }

    #[test]
    fn a_source_that_lives_in_a_store_has_the_store_s_page() {
        let away = StoreError::new(StoreErrorKind::Unavailable, "connect", "nobody answers");
        assert_eq!(SourceError::from(away).code(), Code::StoreAway);
        assert_eq!(SourceError::new(SourceErrorKind::Unavailable, "read", "nobody answers").code(), Code::SourceAway);
    }
}
