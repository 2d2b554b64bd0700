//! A delivery on its way through a consumer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use oncebox_core::{Delivery, Failure, Store};
use tokio::sync::OwnedSemaphorePermit;

use super::identity::Claims;
use super::routes::Route;
use super::stats::InHand;
use super::versioned::Place;

/// A delivery with everything that is known about it before its transaction.
pub(super) struct Work<S: Store, R> {
    pub(super) delivery: Delivery<R>,
    /// What to do with it, or why nothing can be done.
    pub(super) ready: Result<Ready<S>, Failure>,
    /// Messages that share it go one after another.
    pub(super) order_key: Option<Arc<str>>,
    /// Counts releases: a delivery that was received before a release of its order key must not overtake it.
    pub(super) wave: u64,
    /// It is to show whether things work again, while the breaker is open.
    pub(super) is_probe: bool,
    /// How long its handler took, for the journal.
    pub(super) took: Took,
    /// Room that it takes, given back when it is settled.
    pub(super) room: Room,
}

/// How long the last call of a message's handler took. Set where messages are only looked at, and only if somebody asks.
#[derive(Debug, Default)]
pub(super) struct Took(AtomicU32);

impl Took {
    pub(super) fn set(&self, took: Duration) {
        let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        self.0.store(millis.saturating_add(1), Relaxed);
    }

    /// `None` if no call was made.
    pub(super) fn millis(&self) -> Option<u32> {
        self.0.load(Relaxed).checked_sub(1)
    }
}

/// Room for some messages and for their bytes, and their number among what is in hand.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) messages: OwnedSemaphorePermit,
    pub(super) kib: OwnedSemaphorePermit,
    pub(super) in_hand: InHand,
}

impl Room {
    /// Takes over the room of another message.
    pub(super) fn join(&mut self, other: Self) {
        self.messages.merge(other.messages);
        self.kib.merge(other.kib);
        self.in_hand.join(other.in_hand);
    }
}

/// What it takes to handle a message.
pub(super) struct Ready<S: Store> {
    pub(super) route: Route<S>,
    /// `None` for handlers that are naturally idempotent.
    pub(super) claims: Option<Claims>,
    /// Where it belongs, in a consumer that reads versions.
    pub(super) version: Option<Place>,
    /// An earlier commit of it is in doubt: if its key is taken now, that was us.
    pub(super) in_doubt: bool,
}

impl<S: Store, R> Work<S, R> {
    pub(super) fn bytes(&self) -> usize {
        self.delivery.message.payload.len()
    }

    pub(super) fn shares_order_with(&self, other: &Self) -> bool {
        self.order_key.is_some() && self.order_key == other.order_key
    }
}

impl<S: Store, R> fmt::Debug for Work<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}
