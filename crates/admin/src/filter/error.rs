//! What is wrong with a filter, and where.

use std::fmt;

/// A filter that can't be read. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    column: usize,
    problem: String,
    nearest: Option<&'static str>,
}

impl FilterError {
    /// `at` counts characters from zero.
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { column: at + 1, problem: problem.into(), nearest: None }
    }

    pub(super) fn or_rather(mut self, nearest: Option<&'static str>) -> Self {
        self.nearest = nearest;
        self
    }

    /// Where, counted in characters from one.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What was probably meant.
    pub fn nearest(&self) -> Option<&'static str> {
        self.nearest
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read the filter at column {}: {}", self.column, self.problem)?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FilterError {}
