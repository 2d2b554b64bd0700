//! A source that writes down what it hands out.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox::source::SourceCapabilities;
use oncebox::{ConsumerId, Delivery, Release, Source, SourceError, Store, StoreError};

use crate::journal::Journal;
use crate::verdict::Kind;

/// A source as one process sees it. It sits inside the faults, so what it writes down was truly handed out.
#[derive(Debug)]
pub(crate) struct Tap<Src> {
    inner: Src,
    process: u64,
    journal: Arc<Journal>,
    /// Which message each receipt in hand is for, by where it lies: a receipt tells no id.
    receipts: Mutex<HashMap<usize, String>>,
    /// Nothing goes wrong, so nothing may come again but what was released, which only a conflict is.
    once: Option<Arc<HashSet<String>>>,
}

impl<Src> Tap<Src> {
    pub(crate) fn new(inner: Src, process: u64, journal: Arc<Journal>) -> Self {
        Self { inner, process, journal, receipts: Mutex::default(), once: None }
    }

    /// Messages of these ids must not be delivered twice.
    pub(crate) fn once(mut self, ids: Arc<HashSet<String>>) -> Self {
        self.once = Some(ids);
        self
    }
}

impl<S: Store, Src: Source<S>> Source<S> for Tap<Src> {
    type Receipt = Src::Receipt;

    fn capabilities(&self) -> SourceCapabilities {
        self.inner.capabilities()
    }

    fn serve(&self, consumer: ConsumerId) {
        self.inner.serve(consumer);
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.inner.open(store).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<Src::Receipt>>, SourceError> {
        let deliveries = self.inner.receive(max, wait).await?;
        for delivery in &deliveries {
            let id = delivery.message.label().to_string();
            let place = delivery.coordinate.as_ref().map_or("", |place| place.as_str());
            let count = delivery.count.unwrap_or(0);
            self.journal.delivered(self.process, &id, place, count);
            self.receipts().insert(Arc::as_ptr(delivery.receipt()).addr(), id.clone());
            if count > 1 && self.once.as_ref().is_some_and(|ids| ids.contains(&id)) {
                let what = format!("{id} was delivered again, and nothing had gone wrong");
                self.journal.wrong(Kind::Lease, what);
            }
        }
        Ok(deliveries)
    }

    async fn done_in(&self, tx: &mut S::Tx, receipts: &[&Src::Receipt]) -> Result<Vec<bool>, StoreError> {
        self.inner.done_in(tx, receipts).await
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&Src::Receipt]) -> Result<(), StoreError> {
        self.inner.ack_in(tx, receipts).await?;
        let known = self.receipts();
        for id in receipts.iter().filter_map(|receipt| known.get(&std::ptr::from_ref(*receipt).addr())) {
            self.journal.settling(id);
        }
        Ok(())
    }

    async fn ack(&self, deliveries: Vec<Delivery<Src::Receipt>>) -> Result<(), SourceError> {
        for delivery in &deliveries {
            let place = delivery.coordinate.as_ref().map_or("nowhere", |place| place.as_str());
            self.journal.acknowledged(self.process, &delivery.message.label().to_string(), place);
        }
        self.inner.ack(deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<Src::Receipt>>, release: Release) -> Result<(), SourceError> {
        self.write("releases", &deliveries);
        self.inner.release(deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<Src::Receipt>]) -> Result<(), SourceError> {
        self.inner.extend(receipts).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

impl<Src> Tap<Src> {
    fn receipts(&self) -> MutexGuard<'_, HashMap<usize, String>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<R>(&self, what: &str, deliveries: &[Delivery<R>]) {
        for delivery in deliveries {
            let place = delivery.coordinate.as_ref().map_or("", |place| place.as_str());
            self.journal.note(format_args!(
                "process {} {what} {} from {place}",
                self.process,
                delivery.message.label()
            ));
        }
    }
}
