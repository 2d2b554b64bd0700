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

/// What is parked of a consumer. The two counts share one bound: with `is_more`, both are of the oldest
/// [`COUNTED_MAX`](Depth::COUNTED_MAX) rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParkedDepth {
    /// Depth for a retry, for their turn, or for a gap to close.
    pub waiting: u64,
    /// Depth for a person.
    pub dead: u64,
    /// There are more.
    pub is_more: bool,
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
