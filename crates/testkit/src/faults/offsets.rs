//! A [`Faulty`](super::Faulty) store's offsets.

use oncebox_core::offsets::{HeldLog, OffsetStep, OffsetStore, Offsets, TakenOffset};
use oncebox_core::{ConsumerId, StoreError};

use super::plan::Fault;
use super::store::{FaultyTx, injected, lost, on_transaction};

impl<S: OffsetStore> Offsets for FaultyTx<S> {
    async fn take_offsets(&mut self, consumer: ConsumerId, logs: &[String]) -> Result<Vec<TakenOffset>, StoreError> {
        on_transaction!(self, "take-offsets", self.inner.take_offsets(consumer, logs))
    }

    async fn begin_offsets(&mut self, consumer: ConsumerId, starts: &[(HeldLog, i64)]) -> Result<(), StoreError> {
        on_transaction!(self, "begin-offsets", self.inner.begin_offsets(consumer, starts))
    }

    async fn lock_offsets(&mut self, consumer: ConsumerId, held: &[HeldLog]) -> Result<Vec<i64>, StoreError> {
        on_transaction!(self, "lock-offsets", self.inner.lock_offsets(consumer, held))
    }

    async fn advance_offsets(&mut self, consumer: ConsumerId, steps: &[OffsetStep]) -> Result<(), StoreError> {
        on_transaction!(self, "advance-offsets", self.inner.advance_offsets(consumer, steps))
    }
}
