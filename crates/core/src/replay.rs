//! Replays: parked messages put back through the same claim, by an operation that outlives its process.
//!
//! ```text
//!            ┌──── resume ────┬───────────┐
//!            ▼                │           │
//!  create ▶ running ──pause──▶ paused     │
//!            │  │ └──a failure too many──▶ stopped
//!            │  └──cancel (also from paused and stopped)──▶ cancelled
//!            └──all looked at, none on its way──▶ done
//! ```
//!
//! Everything a driver knows is stored: where it is (the cursor), what it counted, whether its canary came through. One
//! driver at a time holds a replay, by a lease with a fence; what it does to messages and what it notes about it are
//! one transaction, so that another driver carries on exactly where it stopped.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::error::StoreError;
use crate::store::ConsumerId;
use crate::time::Timestamp;

/// The replays on a transaction. Times are the store's own.
pub trait Replays {
    /// Creates a replay that runs.
    fn create_replay(&mut self, spec: &ReplaySpec) -> impl Future<Output = Result<ReplayId, StoreError>> + Send;

    /// A replay, locked until the transaction ends.
    fn replay(&mut self, id: ReplayId) -> impl Future<Output = Result<Option<Replay>, StoreError>> + Send;

    /// The newest replays, of one consumer or of all, the newest first.
    fn replays(
        &mut self,
        consumer: Option<ConsumerId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Replay>, StoreError>> + Send;

    /// The newest replays that are not [over](ReplayState::is_final), of one consumer or of all, the newest first, however
    /// many are over since.
    fn open_replays(
        &mut self,
        consumer: Option<ConsumerId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Replay>, StoreError>> + Send;

    /// Takes hold of a replay that nobody holds, under a new fence; or, with the fence of an earlier hold, keeps hold of
    /// it for another `lease`. Fails with `Fenced` if somebody else has it since. Locks it as [`replay`](Self::replay)
    /// does.
    fn hold_replay(
        &mut self,
        id: ReplayId,
        fence: Option<i32>,
        lease: Duration,
    ) -> impl Future<Output = Result<Hold, StoreError>> + Send;

    /// Lets go of a replay that is held under this fence; otherwise does nothing.
    fn let_go_replay(&mut self, id: ReplayId, fence: i32) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores the state, the cursor and the counts of a replay that this transaction has locked.
    /// [`withdrawn`](Counts::withdrawn) is not stored: it belongs to those who withdraw.
    fn save_replay(&mut self, replay: &Replay) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Where the messages are that this replay revived.
    fn on_their_way(
        &mut self,
        consumer: ConsumerId,
        id: ReplayId,
    ) -> impl Future<Output = Result<OnTheirWay, StoreError>> + Send;

    /// Removes up to `max` replays that came to their end before `before`, and answers how many. One that a parked
    /// message names stays, and so does what the audit log tells of all of them.
    fn sweep_replays(&mut self, before: Timestamp, max: usize) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// The number of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplayId(pub i64);

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a replay was asked to do. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySpec {
    /// Of which consumer.
    pub consumer: ConsumerId,
    /// Which messages: the text of a filter.
    pub filter: String,
    /// The time by which the filter judges ages, so that what matches does not drift while the replay runs.
    pub as_of: Timestamp,
    /// The last row that takes part: what is parked later does not.
    pub until: i64,
    /// This many go first, and the others only if none of them failed.
    pub canary: u32,
    /// At most this many a second; `None`: as fast as the store goes.
    pub rate: Option<u32>,
    /// At most this many on their way at once: when what is downstream slows, the replay slows with it.
    pub in_flight_max: u32,
    /// Stop when more than this many of a thousand failed.
    pub stop_permille: u16,
    /// Revive also what is refused otherwise: older than the horizon, or with an effect that may have happened.
    pub force: bool,
    /// Who started it.
    pub who: String,
    /// Why.
    pub why: String,
}

/// A replay.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Its number.
    pub id: ReplayId,
    /// What it was asked to do.
    pub spec: ReplaySpec,
    /// Whether it runs.
    pub state: ReplayState,
    /// Why it stopped, if it did so by itself.
    pub stop_reason: Option<String>,
    /// The last row that was looked at.
    pub cursor: i64,
    /// What was counted up to there.
    pub counts: Counts,
    /// The canary came through, or there is none.
    pub canary_passed: bool,
    /// What was counted when it was last started or resumed after it had stopped: canary and ratio begin anew there.
    pub base: Base,
    /// Raised each time that it changes hands.
    pub fence: i32,
    /// Until when somebody holds it.
    pub held_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was stored last.
    pub changed_at: Timestamp,
}

impl Replay {
    /// A replay that was just created.
    pub fn new(id: ReplayId, spec: ReplaySpec, created_at: Timestamp) -> Self {
        let canary_passed = spec.canary == 0;
        Self {
            id,
            spec,
            state: ReplayState::Running,
            stop_reason: None,
            cursor: 0,
            counts: Counts::default(),
            canary_passed,
            base: Base::default(),
            fence: 0,
            held_until: None,
            created_at,
            changed_at: created_at,
        }
    }
}

/// What a replay counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Matched and revived.
    pub revived: u64,
    /// Matched, and refused: the plan says why.
    pub refused: u64,
    /// Matched, and left where it is: an earlier message of its order key is dead.
    pub held_up: u64,
    /// Matched, and not dead: it is tried by itself, or another replay has it.
    pub moving: u64,
    /// Revived, and then discarded, edited or revived by someone else before it was done.
    pub withdrawn: u64,
}

/// See [`Replay::base`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Revived until then.
    pub revived: u64,
    /// Done until then.
    pub done: u64,
    /// Failed until then.
    pub failed: u64,
}

/// Where the messages are that a replay revived; those that are nowhere are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnTheirWay {
    /// Due, in hand, or waiting for another attempt.
    pub live: u64,
    /// Waiting behind a dead message of their order key.
    pub held_up: u64,
    /// Dead again.
    pub failed: u64,
}

/// Whether a replay runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplayState {
    /// A driver carries it on.
    Running,
    /// An operator paused it.
    Paused,
    /// It stopped by itself: its canary failed, or too many failed.
    Stopped,
    /// An operator cancelled it. Final.
    Cancelled,
    /// Everything that matched was looked at, and nothing is on its way. Final.
    Done,
}

impl ReplayState {
    const ALL: [Self; 5] = [Self::Running, Self::Paused, Self::Stopped, Self::Cancelled, Self::Done];

    /// The state as people and files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
        }
    }

    /// The stored number. Never changes its meaning.
    pub fn code(self) -> i16 {
        match self {
            Self::Running => 0,
            Self::Paused => 1,
            Self::Stopped => 2,
            Self::Cancelled => 3,
            Self::Done => 4,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Whether it can't go on any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Cancelled | Self::Done)
    }
}

/// What became of an attempt to take hold of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is ours, under its [`fence`](Replay::fence).
    Held(Box<Replay>),
    /// Somebody holds it, until then unless they keep hold of it.
    Busy(Timestamp),
    /// There is no such replay.
    Absent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_numbers() {
        for state in ReplayState::ALL {
            assert_eq!(ReplayState::from_code(state.code()), Some(state));
        }
        assert_eq!(ReplayState::from_code(9), None);
    }
}
