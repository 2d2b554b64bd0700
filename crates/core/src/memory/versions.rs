//! The versions of a memory store.

use super::store::MemoryTx;
use crate::error::StoreError;
use crate::key::Key;
use crate::store::ConsumerId;
use crate::versions::Versions;

impl Versions for MemoryTx {
    async fn lock_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        // The one open transaction holds everything.
        self.read_versions(consumer, aggregates).await
    }

    async fn read_versions(
        &mut self,
        consumer: ConsumerId,
        aggregates: &[Key],
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let db = self.usable("read versions")?;
        let versions = &db.state().versions;
        Ok(aggregates.iter().map(|aggregate| versions.get(&(consumer, aggregate.clone())).copied()).collect())
    }

    async fn advance_versions(&mut self, consumer: ConsumerId, versions: &[(Key, u64)]) -> Result<(), StoreError> {
        let db = self.usable("advance versions")?;
        for (aggregate, version) in versions {
            let (place, version) = ((consumer, aggregate.clone()), *version);
            db.change(move |state| {
                let before = state.versions.insert(place.clone(), version);
                Box::new(move |state| {
                    match before {
                        Some(before) => state.versions.insert(place, before),
                        None => state.versions.remove(&place),
                    };
                })
            });
        }
        Ok(())
    }
}
