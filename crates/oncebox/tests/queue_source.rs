//! The source suite of the test kit on the embedded queue, ordered and not, in every store.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

#[path = "../../store-sql/tests/common/mod.rs"]
mod sql;

use std::sync::Arc;
use std::time::Duration;

use oncebox::memory::MemoryStore;
use oncebox::queue::QueueStore;
use oncebox::{Message, Queue, Release, Source};
use oncebox_testkit::ManualClock;
use oncebox_testkit::source::SourceFixture;
use oncebox_testkit::store::StoreFixture;

/// Opens a fresh store for a case.
trait Open: Send + Sync + 'static {
    type Store: QueueStore;

    fn open(&self, clock: Arc<ManualClock>) -> impl Future<Output = Option<Self::Store>> + Send;
}

struct Memory;

impl Open for Memory {
    type Store = MemoryStore;

    async fn open(&self, clock: Arc<ManualClock>) -> Option<MemoryStore> {
        Some(MemoryStore::with_clock(clock))
    }
}

impl Open for sql::fixtures::SqliteFixture {
    type Store = oncebox_store_sql::Sqlite;

    async fn open(&self, clock: Arc<ManualClock>) -> Option<Self::Store> {
        self.fresh(clock).await
    }
}

impl Open for sql::fixtures::PostgresFixture {
    type Store = oncebox_store_sql::Postgres;

    async fn open(&self, clock: Arc<ManualClock>) -> Option<Self::Store> {
        self.fresh(clock).await
    }
}

struct Queued<O> {
    stores: O,
    ordered: bool,
}

impl<O: Open> SourceFixture for Queued<O> {
    type Store = O::Store;
    type Source = Queue<O::Store>;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<(Self::Store, Self::Source)> {
        let store = self.stores.open(clock).await?;
        let open = if self.ordered { Queue::ordered } else { Queue::new };
        // The queue renews its lanes by real time, so a long lease would make the cases that move the clock slow.
        Some((store.clone(), open(store, "suite").unwrap().lease(Duration::from_millis(400))))
    }

    async fn send(&self, _: &Self::Store, source: &Self::Source, messages: Vec<Message>) {
        source.send(messages).await.unwrap();
    }
}

macro_rules! on {
    ($store:ident, $fixture:expr) => {
        mod $store {
            use super::*;

            mod free {
                use super::*;
                oncebox_testkit::source_suite!(Queued { stores: $fixture, ordered: false });
            }

            mod ordered {
                use super::*;
                oncebox_testkit::source_suite!(Queued { stores: $fixture, ordered: true });
            }
        }
    };
}

on!(memory, Memory);
on!(sqlite, sql::fixtures::SqliteFixture::default());
on!(postgres, sql::fixtures::PostgresFixture::default());

/// A beat that was on its way when a message went back must not hide it for another lease.
async fn an_extension_after_a_release_hides_nothing<O: Open>(stores: O) {
    let Some(store) = stores.open(Arc::new(ManualClock::new())).await else { return };
    let queue = Queue::new(store.clone(), "released").unwrap().lease(Duration::from_secs(600));
    queue.open(&store).await.unwrap();
    queue.send([Message::new("noted")]).await.unwrap();
    let first = queue.receive(1, Duration::ZERO).await.unwrap();
    let receipt = Arc::clone(first[0].receipt());
    queue.release(first, Release::default()).await.unwrap();
    queue.extend(&[receipt]).await.unwrap();
    assert_eq!(queue.receive(1, Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_extension_after_a_release_hides_nothing_in_memory() {
    an_extension_after_a_release_hides_nothing(Memory).await;
}

#[tokio::test]
async fn an_extension_after_a_release_hides_nothing_in_sqlite() {
    an_extension_after_a_release_hides_nothing(sql::fixtures::SqliteFixture::default()).await;
}
