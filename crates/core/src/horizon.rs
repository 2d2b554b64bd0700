//! The consumers of a store and their horizons: how far back each can still tell a duplicate.
//!
//! A record that was deleted can't answer a duplicate any more. The horizon is the time of the newest deleted record:
//! a message that was made after it, and has no record, was never handled; of an older one nobody knows.

use std::future::Future;

use crate::error::StoreError;
use crate::store::{ConsumerId, ConsumerName};
use crate::time::Timestamp;

/// The consumers on a transaction.
pub trait Consumers {
    /// All consumers that were ever registered.
    fn consumers(&mut self) -> impl Future<Output = Result<Vec<KnownConsumer>, StoreError>> + Send;

    /// Deletes up to `limit` records of what was handled before `older_than`, and moves the horizon with them. Records
    /// of keys under which a message is parked stay, whatever their age.
    fn expire(
        &mut self,
        consumer: ConsumerId,
        older_than: Timestamp,
        limit: usize,
    ) -> impl Future<Output = Result<Expired, StoreError>> + Send;
}

/// A consumer that the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownConsumer {
    /// Its small id.
    pub id: ConsumerId,
    /// Its name.
    pub name: ConsumerName,
    /// The time of its newest deleted record; `None`: none was ever deleted.
    pub horizon: Option<Timestamp>,
}

/// What a step of expiry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many records were deleted; fewer than the limit: there are no more.
    pub deleted: u64,
    /// The horizon after it.
    pub horizon: Option<Timestamp>,
}
