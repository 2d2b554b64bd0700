//! A source without leases, as most brokers are: what is neither settled nor released never comes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::{MemoryReceipt, MemorySource};
use oncebox::source::SourceCapabilities;
use oncebox::{Delivery, Message, Release, Source, SourceError, Store, StoreError};
use oncebox_testkit::ManualClock;

/// Clones are the same source.
#[derive(Clone)]
pub(crate) struct Unleased {
    pub(crate) source: MemorySource,
    /// Settlements in a transaction that panic, from here on.
    panics: Arc<AtomicUsize>,
}

impl Unleased {
    pub(crate) fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        // By a clock that stands still no lease ever ends.
        let source = MemorySource::with_clock(Arc::new(ManualClock::new()), Duration::from_secs(3600));
        source.send_all(messages);
        Self { source, panics: Arc::default() }
    }

    /// The next settlements panic, as a source with a bug would.
    pub(crate) fn panic(&self, times: usize) {
        self.panics.store(times, SeqCst);
    }
}

impl<S: Store> Source<S> for Unleased {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = Source::<S>::capabilities(&self.source);
        capabilities.lease = None;
        capabilities
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.source.open(store).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        Source::<S>::receive(&self.source, max, wait).await
    }

    async fn ack_in(&self, _: &mut S::Tx, _: &[&MemoryReceipt]) -> Result<(), StoreError> {
        let panics = self.panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!panics, "the case said so");
        Ok(())
    }

    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        Source::<S>::ack(&self.source, deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        // Delays are counted by a clock that stands still.
        let release = Release { delay: Duration::ZERO, ..release };
        Source::<S>::release(&self.source, deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.source, receipts).await
    }
}
