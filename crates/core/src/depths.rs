//! How much waits in the tables of a store, counted up to a bound: a look costs the same at a hundred million rows.

use std::future::Future;

use crate::counters::Depth;
use crate::error::StoreError;
use crate::source::LaneNumber;
use crate::store::{ConsumerId, Store};

/// A store that can say how much waits in it.
pub trait DepthStore: Store<Tx: Depths> {}

impl<S: Store<Tx: Depths>> DepthStore for S {}

/// How much waits, on a transaction. Every count stops at [`Depth::COUNTED_MAX`], or earlier.
pub trait Depths {
    /// What waits in the queue of this name, in hand or not; `None` if there is no such queue.
    fn queue_depth(&mut self, queue: &str) -> impl Future<Output = Result<Option<Depth>, StoreError>> + Send;

    /// What is parked of a consumer.
    fn parked_depth(&mut self, consumer: ConsumerId) -> impl Future<Output = Result<ParkedDepth, StoreError>> + Send;

    /// The lanes of the outbox in which rows wait to be published.
    fn lane_depths(&mut self) -> impl Future<Output = Result<Vec<LaneDepth>, StoreError>> + Send;
}

/// What is parked of a consumer. Each count has its own bound of [`COUNTED_MAX`](Depth::COUNTED_MAX): however many are
/// tried again by themselves, those that wait for a person are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParkedDepth {
    /// Waiting for a retry, for their turn, or for a gap to close.
    pub waiting: u64,
    /// There are more of these.
    pub waiting_is_more: bool,
    /// Waiting for a person.
    pub dead: u64,
    /// There are more of these.
    pub dead_is_more: bool,
}

impl ParkedDepth {
    /// These, each counted to one more than the bound at least, if there are that many.
    pub fn counted(waiting: u64, dead: u64) -> Self {
        let max = Depth::COUNTED_MAX;
        Self {
            waiting: waiting.min(max),
            waiting_is_more: waiting > max,
            dead: dead.min(max),
            dead_is_more: dead > max,
        }
    }
}

/// A lane of the outbox in which rows wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneDepth {
    /// The lane.
    pub lane: LaneNumber,
    /// Rows to publish.
    pub unsent: u64,
    /// There are more.
    pub is_more: bool,
    /// How long the oldest of them waits.
    pub lag_seconds: u64,
    /// A relay holds the lane now.
    pub is_held: bool,
}
