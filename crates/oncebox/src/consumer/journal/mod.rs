//! The journal of a consumer that asks for one: how each delivery ended, for people.
//!
//! ```text
//!  lanes ──note──▶ Notes (bounded) ──once a second, or every 1,000──▶ writer ──one insert──▶ the store
//!                    └─ full: counted, and left out
//! ```
//!
//! | file | what it does |
//! | --- | --- |
//! | `notes` | what is noted and not written yet |
//! | `entry` | what is noted of a delivery |
//! | `writer` | writes it, on a connection of its own |
//!
//! A consumer without a journal pays a look at an empty `Option` for each batch. One with a journal pays for making the
//! entries; it never waits for the store to take them.

mod entry;
mod notes;
mod writer;

use std::sync::Arc;

use oncebox_core::journal::JournalStore;

pub(super) use entry::End;
pub(super) use notes::Notes;
pub(super) use writer::{Writing, beside};

use crate::context::BoxFuture;

/// A journal that a consumer is to keep. How it is written is known where the store is known to have one.
pub(super) struct Journaling<S> {
    pub(super) notes: Arc<Notes>,
    write: fn(Writing<S>) -> BoxFuture<()>,
}

impl<S: JournalStore> Journaling<S> {
    pub(super) fn new() -> Self {
        Self { notes: Arc::default(), write: |writing| Box::pin(writing.run()) }
    }
}

impl<S> Clone for Journaling<S> {
    fn clone(&self) -> Self {
        Self { notes: Arc::clone(&self.notes), write: self.write }
    }
}
