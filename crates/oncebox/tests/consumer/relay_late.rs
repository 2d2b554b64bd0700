//! Rows that commit late, while a relay has more than it can publish.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySink;
use oncebox::outbox::Outbox;
use oncebox::sink::SinkCapabilities;
use oncebox::{Ended, Outgoing, Relay, Session, Sink, SinkError, Store, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;
use tokio::sync::Mutex;

use super::relay::{emit, outgoing, texts};
use super::rig::*;

/// A sink in which, during its third batch, somebody's transaction commits.
struct CommitsLate<T> {
    taken: MemorySink,
    batches: AtomicUsize,
    late: Mutex<Option<T>>,
}

impl<T: Transaction + Send + 'static> Sink for CommitsLate<T> {
    fn capabilities(&self) -> SinkCapabilities {
        self.taken.capabilities()
    }

    async fn open(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        if self.batches.fetch_add(1, SeqCst) == 2
            && let Some(late) = self.late.lock().await.take()
        {
            assert!(matches!(late.commit().await, Ended::Committed(_)));
        }
        self.taken.publish(batch).await
    }
}

/// While each batch is fetched ahead, from behind the last, somebody still looks from the beginning.
pub(crate) async fn a_row_that_commits_late_does_not_wait_for_the_end_of_a_backlog<F: EngineFixture>(setup: Setup<F>) {
    if !setup.store.capabilities().concurrent {
        return;
    }
    let mut late = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    late.emit(&[outgoing("t", Some("k"), "late")]).await.unwrap();
    let rows: Vec<Outgoing> = (0..400).map(|n| outgoing("t", Some("k"), &n.to_string())).collect();
    emit(&setup.store, &rows).await;
    let taken = MemorySink::new();
    let sink = CommitsLate { taken: taken.clone(), batches: AtomicUsize::new(0), late: Mutex::new(Some(late)) };
    let relay = Relay::new(setup.store.clone(), sink).bounds(|bounds| {
        bounds.workers = 1;
        bounds.batch_messages_max = 4;
    });
    let done = eventually("all are published", async || taken.len() >= 401);
    in_real_time(&setup.clock, relay.run(done)).await.unwrap();
    let said = texts(&taken.take());
    let at = said.iter().position(|text| text == "late").unwrap();
    assert!(at < 100, "it was published behind {at} others");
    assert_eq!(said.iter().filter(|text| *text != "late").count(), 400);
}
