//! The memory adapters pass the same suites as the real ones.

use std::sync::Arc;

use oncebox_core::memory::{MemoryDb, MemorySource, MemoryStore};
use oncebox_core::{Failure, Message};
use oncebox_testkit::ManualClock;
use oncebox_testkit::source::SourceFixture;
use oncebox_testkit::store::StoreFixture;

struct Memory;

impl StoreFixture for Memory {
    type Store = MemoryStore;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<MemoryStore> {
        Some(MemoryStore::with_clock(clock))
    }

    async fn write_effect(db: &mut MemoryDb, id: &str) -> Result<(), Failure> {
        Ok(db.append("effects", &id)?)
    }

    async fn effects(store: &MemoryStore) -> Vec<String> {
        store.with_db(|db| db.rows("effects")).await.expect("the table can be read")
    }

    async fn insert_unique(db: &mut MemoryDb, key: &str) -> Result<(), Failure> {
        Ok(db.insert("unique", key, &())?)
    }

    async fn swallow_error(db: &mut MemoryDb) {
        let _ = db.insert("unique", "twice", &());
        let _ = db.insert("unique", "twice", &());
    }
}

impl SourceFixture for Memory {
    type Store = MemoryStore;
    type Source = MemorySource;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<(MemoryStore, MemorySource)> {
        let source = MemorySource::with_clock(clock.clone(), MemorySource::LEASE);
        Some((MemoryStore::with_clock(clock), source))
    }

    async fn send(&self, _store: &MemoryStore, source: &MemorySource, messages: Vec<Message>) {
        source.send_all(messages);
    }
}

oncebox_testkit::store_suite!(Memory);
oncebox_testkit::source_suite!(Memory);
