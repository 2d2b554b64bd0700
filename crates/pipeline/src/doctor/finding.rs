//! What an examination found.

use std::fmt;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// It works, and may hurt one day.
    Warning,
    /// What is promised can't be kept, or it does not run.
    Error,
}

impl Severity {
    /// As people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One thing that was found. None of its texts holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The check that found it, by a name that stays: `store.fsync`.
    pub check: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about: `store`, `consumer invoices`.
    pub about: String,
    /// What was seen.
    pub evidence: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    pub(super) fn new(
        check: &'static str,
        severity: Severity,
        about: impl Into<String>,
        evidence: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { check, severity, about: about.into(), evidence: evidence.into(), fix: fix.into() }
    }
}
