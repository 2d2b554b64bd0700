//! Where the thread that polls and the async side meet.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::{SourceError, SourceErrorKind};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::partitions::Partitions;

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something arrived, or went wrong, or ended.
    arrived: Notify,
    /// Something was settled or taken, or the thread should stop.
    settled: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) partitions: Partitions,
    /// What `receive` has to tell.
    pub(super) trouble: Option<Trouble>,
    /// Marks may have moved.
    pub(super) is_dirty: bool,
    pub(super) is_stopping: bool,
    /// The consumer is of no use any more: make another.
    pub(super) must_rebuild: bool,
    /// When offsets were last committed.
    pub(super) committed_at: Option<Instant>,
    /// The last commit may not have got through.
    pub(super) is_unsure: bool,
    /// Records behind the ends of the partitions; `None` if that is not known of all.
    pub(super) lag: Option<u64>,
    is_running: bool,
}

/// Why nothing can be read.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) kind: SourceErrorKind,
    pub(super) reason: String,
}

impl Trouble {
    pub(super) fn unavailable(reason: impl Into<String>) -> Self {
        Self { kind: SourceErrorKind::Unavailable, reason: reason.into() }
    }

    pub(super) fn configuration(reason: impl Into<String>) -> Self {
        Self { kind: SourceErrorKind::Configuration, reason: reason.into() }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrived(&self) -> Notified<'_> {
        self.arrived.notified()
    }

    pub(super) fn tell_receivers(&self) {
        self.arrived.notify_waiters();
    }

    pub(super) fn tell_thread(&self) {
        self.settled.notify_all();
    }

    /// Remembers what went wrong. What a person has to mend stays.
    pub(super) fn fail(&self, trouble: Trouble) {
        let mut state = self.state();
        if state.trouble.as_ref().is_none_or(|now| now.kind != SourceErrorKind::Configuration) {
            state.trouble = Some(trouble);
        }
        drop(state);
        self.tell_receivers();
    }

    /// The brokers are there.
    pub(super) fn recover(&self) {
        let mut state = self.state();
        if state.trouble.as_ref().is_some_and(|trouble| trouble.kind != SourceErrorKind::Configuration) {
            state.trouble = None;
            state.is_unsure = true;
        }
    }

    /// No broker answers, as far as we know.
    pub(super) fn is_away(&self) -> bool {
        self.state().trouble.as_ref().is_some_and(|trouble| trouble.kind == SourceErrorKind::Unavailable)
    }

    /// The thread waits while `waits` says so, at most for this long, and not when it should stop. Whether it still does.
    pub(super) fn wait_while(&self, most: Duration, mut waits: impl FnMut(&mut State) -> bool) -> bool {
        let waiting = |state: &mut State| !state.is_stopping && waits(state);
        let waited = self.settled.wait_timeout_while(self.state(), most, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn stop(&self) {
        self.state().is_stopping = true;
        self.tell_thread();
    }

    /// The thread is about to begin. `false` if there is one.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state();
        if state.is_running {
            return false;
        }
        *state = State { is_running: true, ..State::default() };
        true
    }

    /// The thread is at its end, and reads nothing any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.is_running = false;
        state.partitions = Partitions::default();
        state.trouble.get_or_insert_with(|| Trouble::configuration("it was closed; open it anew"));
        drop(state);
        self.tell_receivers();
    }

    /// Resolves when the thread is at its end.
    pub(super) async fn ended(&self) {
        loop {
            let arrived = self.arrived.notified();
            if !self.state().is_running {
                return;
            }
            arrived.await;
        }
    }
}

impl From<&SourceError> for Trouble {
    fn from(error: &SourceError) -> Self {
        Self { kind: error.kind(), reason: error.to_string() }
    }
}
