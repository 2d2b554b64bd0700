//! The stores that the cases run on.

use std::sync::Arc;

use oncebox::Failure;
use oncebox::memory::{MemoryDb, MemoryStore};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::StoreFixture;

use super::rig::EngineFixture;
use super::sql::fixtures::{PostgresFixture, SqliteFixture};

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
        for _ in 0..2 {
            let _ = db.insert("unique", "twice", &());
        }
    }
}

impl EngineFixture for Memory {
    fn unique_constraint() -> &'static str {
        "unique"
    }
}

impl EngineFixture for SqliteFixture {
    fn unique_constraint() -> &'static str {
        "uniques.id"
    }
}

impl EngineFixture for PostgresFixture {
    fn unique_constraint() -> &'static str {
        "uniques_pkey"
    }
}
