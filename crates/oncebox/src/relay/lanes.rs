//! Holding lanes: a relay's share of the outbox, renewed in time, given back when others want theirs.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use oncebox_core::outbox::OutboxStore;
use oncebox_core::queue::{HeldLane, HeldLanes, LaneRequest, QueueId, QueueStore, QueueTx};
use oncebox_core::source::LaneNumber;
use oncebox_core::{StoreError, StoreErrorKind, planted};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::relay::Shared;
use crate::consumer::Stop;
use crate::own_session::OwnSession;

/// The lanes that one relay holds, as its workers see them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: HeldLanes,
    /// Until when they are ours for sure, by our own clock.
    until: Option<Instant>,
    /// Lanes that a worker has in hand.
    busy: HashSet<LaneNumber>,
}

impl Lanes {
    /// Lanes for worker `worker` of `workers`, in hand until [`done`](Self::done). Those beyond a fair share are not
    /// among them.
    pub(super) fn take(&self, worker: usize, workers: usize) -> Vec<HeldLane> {
        let mut state = self.state();
        if state.until.is_none_or(|until| Instant::now() >= until) {
            return Vec::new();
        }
        let own = |lane: &HeldLane| usize::try_from(lane.lane.0).is_ok_and(|number| number % workers == worker);
        let lanes: Vec<HeldLane> =
            state.held.lanes.iter().take(state.held.share).filter(|lane| own(lane)).copied().collect();
        state.busy.extend(lanes.iter().map(|lane| lane.lane));
        lanes
    }

    pub(super) fn done(&self, lanes: &[HeldLane]) {
        let mut state = self.state();
        for lane in lanes {
            state.busy.remove(&lane.lane);
        }
    }

    /// Whether these are ours for sure, at this moment.
    pub(super) fn are_ours(&self, lanes: &[HeldLane]) -> bool {
        let state = self.state();
        state.until.is_some_and(|until| Instant::now() < until)
            && lanes.iter().all(|lane| state.held.lanes.contains(lane))
    }

    fn give_back(&self) -> Vec<LaneNumber> {
        if planted::is("surplus-lanes-kept") {
            return Vec::new();
        }
        let state = self.state();
        let surplus = state.held.lanes.iter().skip(state.held.share).map(|held| held.lane);
        surplus.filter(|lane| !state.busy.contains(lane)).collect()
    }

    fn set(&self, held: HeldLanes, until: Option<Instant>) {
        let mut state = self.state();
        let changed = state.held != held;
        state.held = held;
        state.until = until;
        drop(state);
        if changed {
            self.changed.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews lanes at a quarter of their lease, until it is told to end. Never in the middle of a transaction.
pub(super) async fn hold<S: OutboxStore + QueueStore, K>(
    own: &OwnSession<S>,
    mut request: LaneRequest,
    shared: &Shared<S, K>,
    end: &Stop,
) {
    let (lanes, lease) = (&shared.lanes, request.lease);
    while !end.is_set() {
        request.give_back = lanes.give_back();
        // The lease runs from before the question was asked, and ends for us a little before it does for others.
        let asked = Instant::now();
        let held = own
            .in_transaction(async |mut tx| {
                let held = tx.hold_lanes(&request).await;
                (tx, held)
            })
            .await;
        match held {
            Ok(held) => {
                shared.stats.lanes.store(held.lanes.len(), Relaxed);
                lanes.set(held, Some(asked + lease * 3 / 4));
            }
            Err(error) if error.kind() == StoreErrorKind::Contended => {}
            Err(error) => {
                if let Some(error) = shared.failed.take(error) {
                    tracing::debug!("cannot renew the lanes of the outbox: {error}");
                }
            }
        }
        tokio::select! {
            () = end.wait() => {}
            () = tokio::time::sleep(lease / 4) => {}
        }
    }
}

/// Gives everything back. If the store can't be told, the lanes are free when their lease is over.
pub(super) async fn leave<S: OutboxStore + QueueStore>(
    own: &OwnSession<S>,
    queue: QueueId,
    owner: Uuid,
) -> Result<(), StoreError> {
    own.in_transaction(async |mut tx| {
        let left = tx.leave_lanes(queue, owner).await;
        (tx, left)
    })
    .await
}
