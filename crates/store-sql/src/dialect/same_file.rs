//! Whether a database is still the file that was opened.
//!
//! A process that has a file open goes on writing into it after it was moved, deleted or replaced, and what it acknowledges
//! is gone as soon as the next process opens what is there under that name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use oncebox_core::error::StoreErrorKind;

/// A file by its name, and which one it was when it was first opened.
#[derive(Debug)]
pub(super) struct SameFile {
    path: PathBuf,
    first: OnceLock<Id>,
}

/// What to do about a file that is another one, and why.
type Other = (StoreErrorKind, &'static str);

impl SameFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), first: OnceLock::new() }
    }

    /// The file has been opened: the first one is remembered, and every later one has to be the same.
    pub(super) fn opened(&self) -> Result<(), Other> {
        if self.first.get().is_none()
            && let Ok(Some(id)) = id(&self.path)
        {
            let _ = self.first.set(id);
        }
        self.check()
    }

    /// Whether the name still stands for the file that was opened first.
    pub(super) fn check(&self) -> Result<(), Other> {
        let Some(first) = self.first.get() else { return Ok(()) };
        match id(&self.path) {
            Ok(Some(now)) if now != *first => {
                let why = "another file has taken the place of the one that was opened; start again, to use that one";
                Err((StoreErrorKind::Configuration, why))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err((StoreErrorKind::Unavailable, "the file was moved or deleted; put it back, or start again"))
            }
            // What can't be seen may still be the same.
            _ => Ok(()),
        }
    }
}

/// The file system and the number of a file in it.
type Id = (u64, u64);

#[cfg(unix)]
fn id(path: &Path) -> io::Result<Option<Id>> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path)?;
    Ok(Some((found.dev(), found.ino())))
}

#[cfg(not(unix))]
fn id(path: &Path) -> io::Result<Option<Id>> {
    // An open file can be neither moved nor deleted there.
    std::fs::metadata(path).map(|_| None)
}
