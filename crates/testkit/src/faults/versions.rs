//! A [`Faulty`](super::Faulty) store's versions.

use oncebox_core::versions::{VersionStore, Versions};
use oncebox_core::{ConsumerId, Key, StoreError};

use super::plan::Fault;
use super::store::{FaultyTx, injected, lost, on_transaction};

impl<S: VersionStore> Versions for FaultyTx<S> {
    async fn lock_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        on_transaction!(self, "lock-versions", self.inner.lock_versions(consumer, aggregates))
    }

    async fn read_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        on_transaction!(self, "read-versions", self.inner.read_versions(consumer, aggregates))
    }

    async fn advance_versions(&mut self, consumer: ConsumerId, versions: &[(Key, u64)]) -> Result<(), StoreError> {
        on_transaction!(self, "advance-versions", self.inner.advance_versions(consumer, versions))
    }
}
