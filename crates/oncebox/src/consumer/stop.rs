//! Telling tasks to end.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

/// Set once, and seen by everyone who waits for it in the order in which they began to. (A `watch` channel wakes them in
/// random order, and a run that stops on the way could not be repeated from its seed.)
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    set: Notify,
}

impl Stop {
    pub(crate) fn set(&self) {
        self.is_set.store(true, SeqCst);
        self.set.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(SeqCst)
    }

    /// Returns once it is set.
    pub(crate) async fn wait(&self) {
        // Made before the look: it is woken by what is set from here on, awaited or not.
        let set = self.set.notified();
        if !self.is_set() {
            set.await;
        }
    }
}
