//! What is wrong with a file, each mistake with its line.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// What, and what to do; without values, which may be secrets.
    pub says: String,
}

/// Everything that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The file, as it was named.
    pub file: String,
    /// In the order of their lines; at least one.
    pub found: Vec<Mistake>,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Mistake { line, says }) in self.found.iter().enumerate() {
            let newline = if place == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{line}: {says}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
