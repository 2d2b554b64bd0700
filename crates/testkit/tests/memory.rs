//! The memory adapters pass the same suites as the real ones.

use std::sync::Arc;

use oncebox_core::memory::{MemoryDb, MemorySink, MemorySource, MemoryStore};
use oncebox_core::{Failure, Message};
use oncebox_testkit::ManualClock;
use oncebox_testkit::sink::SinkFixture;
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

#[derive(Default)]
struct Published(MemorySink);

impl SinkFixture for Published {
    type Sink = MemorySink;

    async fn fresh(&self) -> Option<(MemorySink, String)> {
        self.0.set_missing("missing", true);
        Some((self.0.clone().with_payload_bytes_max(1_000), "notes".to_owned()))
    }

    fn missing_topic(&self) -> String {
        "missing".to_owned()
    }

    fn too_large(&self) -> Option<usize> {
        Some(1_001)
    }

    async fn arrived(&self, topic: &str) -> Vec<Message> {
        let all = self.0.take();
        all.into_iter().filter(|out| out.topic == topic).map(|out| Message::clone(&out.message)).collect()
    }
}

oncebox_testkit::store_suite!(Memory);
oncebox_testkit::sink_suite!(Published::default());
oncebox_testkit::source_suite!(Memory);
