//! What is noted and not written yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncebox_core::journal::JournalEntry;
use tokio::sync::Notify;
use tokio::time::Instant;

/// So many entries are written at a time: one insert that takes a few milliseconds.
pub(super) const STEP_MAX: usize = 1_000;

/// Entries that wait to be written. Shared by the flows of a consumer, which add, and its writer, which takes.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    waiting: Mutex<VecDeque<Note>>,
    /// There are enough for one step.
    enough: Notify,
}

/// One entry, with when its delivery ended.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) at: Instant,
    pub(super) entry: JournalEntry,
}

impl Notes {
    /// Adds entries as long as there is room for them, up to `max` in all. Answers how many are left out.
    pub(super) fn add(&self, entries: Vec<JournalEntry>, max: usize) -> usize {
        let at = Instant::now();
        let mut waiting = self.waiting();
        let room = max.saturating_sub(waiting.len());
        let left_out = entries.len().saturating_sub(room);
        waiting.extend(entries.into_iter().take(room).map(|entry| Note { at, entry }));
        let is_enough = waiting.len() >= STEP_MAX.min(max);
        drop(waiting);
        if is_enough {
            self.enough.notify_one();
        }
        left_out
    }

    /// The oldest, as many as are written at a time.
    pub(super) fn take(&self) -> Vec<Note> {
        let mut waiting = self.waiting();
        let many = waiting.len().min(STEP_MAX);
        waiting.drain(..many).collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting().len()
    }

    /// Returns once there is enough for one step.
    pub(super) async fn enough(&self) {
        self.enough.notified().await;
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Note>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncebox_core::journal::{DeliveryEnd, Told};
    use oncebox_core::{ConsumerId, Key};

    use super::*;

    fn entries(many: usize) -> Vec<JournalEntry> {
        let told = Told {
            end: DeliveryEnd::Applied,
            cause: None,
            attempt: None,
            was_parked: false,
            handler_millis: None,
            coordinate: None,
        };
        let key = |n: usize| Key::id(&n.to_string()).expect("a key");
        let entry = |n| JournalEntry {
            consumer: ConsumerId(1),
            ago: Duration::ZERO,
            key: key(n),
            id_hash: None,
            told: told.clone(),
        };
        (0..many).map(entry).collect()
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_counted() {
        let notes = Notes::default();
        assert_eq!(notes.add(entries(3), 4), 0);
        assert_eq!(notes.add(entries(3), 4), 2);
        let taken = notes.take();
        assert_eq!(taken.len(), 4);
        assert_eq!(taken[3].entry.key, Key::id("0").expect("a key"), "the first ones stay");
        assert_eq!(notes.add(entries(4), 4), 0, "there is room again");
    }

    #[test]
    fn a_step_takes_a_bounded_number() {
        let notes = Notes::default();
        notes.add(entries(STEP_MAX + 5), 10_000);
        assert_eq!((notes.take().len(), notes.take().len(), notes.take().len()), (STEP_MAX, 5, 0));
    }
}
