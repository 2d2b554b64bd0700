//! A source whose calls go wrong by a plan.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::counters::Depth;
use oncebox_core::source::SourceCapabilities;
use oncebox_core::{ConsumerId, Delivery, Release, Source, SourceError, SourceErrorKind, Store, StoreError};

use super::plan::{Fault, FaultPlan};
use super::store::injected;

/// A source whose calls go wrong by a [`FaultPlan`]. A lost acknowledgement makes a redelivery all by itself.
#[derive(Clone, Debug)]
pub struct FaultySource<Src> {
    inner: Src,
    plan: FaultPlan,
}

impl<Src> FaultySource<Src> {
    /// Wraps a source.
    pub fn new(source: Src, plan: FaultPlan) -> Self {
        Self { inner: source, plan }
    }

    /// The source inside, on which nothing goes wrong.
    pub fn inner(&self) -> &Src {
        &self.inner
    }

    /// Makes a settling call as the fault says.
    async fn settle(
        &self,
        call: &'static str,
        inner: impl Future<Output = Result<(), SourceError>> + Send,
    ) -> Result<(), SourceError> {
        match self.plan.next(call).await {
            None | Some(Fault::Delay(_) | Fault::Repeat) => inner.await,
            Some(Fault::AfterDoing) => inner.await.and(Err(away(call))),
            Some(Fault::Lost) => Ok(()),
            Some(_) => Err(away(call)),
        }
    }
}

fn away(call: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, call, "a test said so")
}

impl<S: Store, Src: Source<S>> Source<S> for FaultySource<Src> {
    type Receipt = Src::Receipt;

    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn destination(&self) -> &str {
        self.inner.destination()
    }

    fn serve(&self, consumer: ConsumerId) {
        self.inner.serve(consumer);
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        match self.plan.next("open").await {
            None | Some(Fault::Delay(_) | Fault::Repeat) => self.inner.open(store).await,
            // What is half open could not be opened again.
            Some(_) => Err(away("open")),
        }
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<Self::Receipt>>, SourceError> {
        match self.plan.next("receive").await {
            None | Some(Fault::Delay(_)) => self.inner.receive(max, wait).await,
            Some(Fault::Repeat) => {
                let mut first = self.inner.receive(max, wait).await?;
                // Asked again for what is left of the bound, at once: what it returns is out all the same.
                if let Some(left) = max.checked_sub(first.len()).filter(|left| *left > 0) {
                    first.extend(self.inner.receive(left, Duration::ZERO).await?);
                }
                Ok(first)
            }
            // Dropped deliveries come again when their lease is over.
            Some(Fault::AfterDoing) => self.inner.receive(max, wait).await.and(Err(away("receive"))),
            Some(Fault::Lost) => self.inner.receive(max, wait).await.map(|_| Vec::new()),
            Some(_) => Err(away("receive")),
        }
    }

    async fn done_in(&self, tx: &mut S::Tx, receipts: &[&Self::Receipt]) -> Result<Vec<bool>, StoreError> {
        self.inner.done_in(tx, receipts).await
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&Self::Receipt]) -> Result<(), StoreError> {
        match self.plan.next("ack-in").await {
            None | Some(Fault::Delay(_) | Fault::Repeat) => self.inner.ack_in(tx, receipts).await,
            Some(fault @ Fault::AfterDoing) => {
                self.inner.ack_in(tx, receipts).await.and(Err(injected("ack in a transaction", fault)))
            }
            Some(fault) => Err(injected("ack in a transaction", fault)),
        }
    }

    async fn ack(&self, deliveries: Vec<Delivery<Self::Receipt>>) -> Result<(), SourceError> {
        self.settle("ack", self.inner.ack(deliveries)).await
    }

    async fn release(&self, deliveries: Vec<Delivery<Self::Receipt>>, release: Release) -> Result<(), SourceError> {
        self.settle("release", self.inner.release(deliveries, release)).await
    }

    async fn extend(&self, receipts: &[Arc<Self::Receipt>]) -> Result<(), SourceError> {
        self.settle("extend", self.inner.extend(receipts)).await
    }

    fn backlog(&self) -> impl Future<Output = Result<Option<Depth>, SourceError>> + Send {
        self.inner.backlog()
    }

    fn close(&self) -> impl Future<Output = ()> + Send {
        self.inner.close()
    }
}
