//! The parked role of a store whose calls go wrong by a plan.

use std::time::Duration;

use oncebox_core::parked::{LeasedPark, Park, ParkLease, ParkReceipt, ParkStore, Parking, PutBack, Waiting};
use oncebox_core::{ConsumerId, Key, StoreError};

use super::plan::Fault;
use super::store::{FaultyTx, injected, lost, on_transaction};

impl<S: ParkStore> Parking for FaultyTx<S> {
    async fn park(&mut self, parks: &[Park]) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "park", self.inner.park(parks))
    }

    async fn is_blocked(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "is-blocked", self.inner.is_blocked(consumer, order_keys))
    }

    async fn count_blocking(
        &mut self,
        consumer: ConsumerId,
        order_keys: &[&str],
        max: u64,
    ) -> Result<Vec<u64>, StoreError> {
        on_transaction!(self, "count-blocking", self.inner.count_blocking(consumer, order_keys, max))
    }

    async fn lease_parked(&mut self, request: &ParkLease) -> Result<Vec<LeasedPark>, StoreError> {
        on_transaction!(self, "lease-parked", self.inner.lease_parked(request))
    }

    async fn extend_parked(&mut self, rows: &[ParkReceipt], lease: Duration) -> Result<(), StoreError> {
        on_transaction!(self, "extend-parked", self.inner.extend_parked(rows, lease))
    }

    async fn end_parked(&mut self, rows: &[ParkReceipt]) -> Result<(), StoreError> {
        on_transaction!(self, "end-parked", self.inner.end_parked(rows))
    }

    async fn put_back(&mut self, rows: &[PutBack]) -> Result<(), StoreError> {
        on_transaction!(self, "put-back", self.inner.put_back(rows))
    }

    async fn release_parked(&mut self, rows: &[ParkReceipt], delay: Duration) -> Result<(), StoreError> {
        on_transaction!(self, "release-parked", self.inner.release_parked(rows, delay))
    }

    async fn count_gaps(&mut self, consumer: ConsumerId, order_key: &str) -> Result<u64, StoreError> {
        on_transaction!(self, "count-gaps", self.inner.count_gaps(consumer, order_key))
    }

    async fn wake_gaps(&mut self, consumer: ConsumerId, order_keys: &[&str]) -> Result<(), StoreError> {
        on_transaction!(self, "wake-gaps", self.inner.wake_gaps(consumer, order_keys))
    }

    async fn note_wait(&mut self, consumer: ConsumerId, key: &Key) -> Result<Waiting, StoreError> {
        on_transaction!(self, "note-wait", self.inner.note_wait(consumer, key))
    }

    async fn note_start(&mut self, consumer: ConsumerId, key: &Key, waited: Waiting) -> Result<u32, StoreError> {
        on_transaction!(self, "note-start", self.inner.note_start(consumer, key, waited))
    }

    async fn forget_starts(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        on_transaction!(self, "forget-starts", self.inner.forget_starts(keys))
    }
}
