//! The memory store as a fixture.

use std::sync::Arc;

use oncebox_core::Failure;
use oncebox_core::memory::{MemoryDb, MemoryStore};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::StoreFixture;

pub(crate) struct Memory;

impl StoreFixture for Memory {
    type Store = MemoryStore;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<MemoryStore> {
        Some(MemoryStore::with_clock(clock))
    }

    async fn write_effect(db: &mut MemoryDb, id: &str) -> Result<(), Failure> {
        Ok(db.append("effects", &id)?)
    }

    async fn effects(store: &MemoryStore) -> Vec<String> {
        store.with_db(|db| db.rows("effects")).await.unwrap()
    }

    async fn insert_unique(db: &mut MemoryDb, key: &str) -> Result<(), Failure> {
        Ok(db.insert("unique", key, &())?)
    }

    async fn swallow_error(db: &mut MemoryDb) {
        let _ = db.insert("unique", "twice", &());
        let _ = db.insert("unique", "twice", &());
    }
}
