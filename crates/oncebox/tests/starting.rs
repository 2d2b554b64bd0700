//! A consumer that starts while its broker is away waits for it; what only a person can mend ends it.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use oncebox::consumer::RunError;
use oncebox::memory::{MemoryReceipt, MemorySource, MemoryStore};
use oncebox::source::SourceCapabilities;
use oncebox::{
    Consumer, Context, Delivery, Drained, Message, Outcome, Release, Source, SourceError, SourceErrorKind, Store,
};
use oncebox_testkit::eventually;

/// A source whose first tries to open it fail.
#[derive(Clone)]
struct Late {
    inner: MemorySource,
    kind: SourceErrorKind,
    away: Arc<AtomicU32>,
    tries: Arc<AtomicU32>,
}

impl Late {
    fn new(inner: &MemorySource, kind: SourceErrorKind, away: u32) -> Self {
        Self { inner: inner.clone(), kind, away: Arc::new(AtomicU32::new(away)), tries: Arc::default() }
    }
}

impl<S: Store> Source<S> for Late {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        Source::<S>::capabilities(&self.inner)
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        if self.tries.fetch_add(1, SeqCst) < self.away.load(SeqCst) {
            return Err(SourceError::new(self.kind, "open the queue late", "a test said so"));
        }
        self.inner.open(store).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        Source::<S>::receive(&self.inner, max, wait).await
    }

    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        Source::<S>::ack(&self.inner, deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        Source::<S>::release(&self.inner, deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.inner, receipts).await
    }
}

fn consumer<Src: Source<MemoryStore>>(source: Src) -> Consumer<MemoryStore, Src> {
    let noted = |_: Context<MemoryStore>, (): ()| async { Ok(Outcome::applied()) };
    Consumer::new("late", MemoryStore::new(), source).on("noted", noted)
}

#[tokio::test(start_paused = true)]
async fn a_consumer_waits_for_a_source_that_is_away_at_its_start() {
    let queue = MemorySource::new();
    queue.send(Message::new("noted").with_payload("null"));
    let late = Late::new(&queue, SourceErrorKind::Unavailable, u32::MAX);
    let consumer = consumer(late.clone());
    let stats = consumer.stats();
    let story = async {
        let said = eventually("it says what it waits for", async || stats.snapshot().waiting_for).await;
        assert!(said.contains("open the queue late"), "{said}");
        eventually("it tries again and again", async || late.tries.load(SeqCst) > 5).await;
        late.away.store(0, SeqCst);
        eventually("the message is handled", async || queue.backlog() == 0).await;
        assert_eq!((stats.snapshot().waiting_for, stats.snapshot().handled), (None, 1));
    };
    assert_eq!(consumer.run(story).await.unwrap(), Drained::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_for_its_source_can_be_stopped() {
    let late = Late::new(&MemorySource::new(), SourceErrorKind::Unavailable, u32::MAX);
    let tries = Arc::clone(&late.tries);
    let story = eventually("it waits", async || tries.load(SeqCst) > 2);
    assert_eq!(
        consumer(late)
            .run(async {
                story.await;
            })
            .await
            .unwrap(),
        Drained::Clean
    );
}

#[tokio::test(start_paused = true)]
async fn what_only_a_person_can_mend_ends_a_consumer_at_its_start() {
    let late = Late::new(&MemorySource::new(), SourceErrorKind::Configuration, 1);
    let ended = consumer(late.clone()).run(std::future::pending()).await;
    assert!(matches!(ended, Err(RunError::Source { .. })), "{ended:?}");
    assert_eq!(late.tries.load(SeqCst), 1);
}
