//! The partitions as one process sees them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox::source::{Coordinate, Order, SourceCapabilities};
use oncebox::{Clock, Delivery, Message, Release, Source, SourceError, Store};
use tokio::time::{Instant, sleep};

use crate::clock::VirtualClock;
use crate::partitions::{Owner, Partitions, Receipt};

/// How often a process without messages asks again.
const LOOK: Duration = Duration::from_millis(20);

/// Partitions, and the clock by which delays run. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    shared: Arc<Mutex<Partitions<Message>>>,
    clock: Arc<VirtualClock>,
}

impl Shelf {
    pub(crate) fn new(partitions: usize, clock: Arc<VirtualClock>) -> Self {
        Self { shared: Arc::new(Mutex::new(Partitions::new(partitions))), clock }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Partitions<Message>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send(&self, message: Message) {
        let key = message.order_key.clone();
        self.lock().send(message, key);
    }

    /// The end of a reader that takes part from now on, until this value is dropped.
    pub(crate) fn reader(&self, owner: Owner) -> Reader {
        self.lock().join(owner);
        Reader { shelf: self.clone(), owner }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_microsecond()).unwrap_or(0)
    }
}

/// A process that reads. Like a connection, it ends with its process.
#[derive(Debug)]
pub(crate) struct Reader {
    shelf: Shelf,
    owner: Owner,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shelf.lock().leave(self.owner);
    }
}

impl<S: Store> Source<S> for Reader {
    type Receipt = Receipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("partitions");
        capabilities.order = Order::Broker;
        capabilities.counts = true;
        capabilities.coordinates = true;
        capabilities
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<Receipt>>, SourceError> {
        let deadline = Instant::now() + wait;
        loop {
            let taken = self.shelf.lock().receive(self.owner, max, self.shelf.now());
            let now = Instant::now();
            if taken.is_empty() && now < deadline {
                sleep(LOOK.min(deadline - now)).await;
                continue;
            }
            let delivery = |(receipt, message): (Receipt, Message)| {
                let mut delivery = Delivery::new(message, receipt);
                delivery.coordinate = Some(Coordinate::new(format!("{}/{}", receipt.partition, receipt.place)));
                delivery.count = Some(receipt.count);
                delivery
            };
            return Ok(taken.into_iter().map(delivery).collect());
        }
    }

    async fn ack(&self, deliveries: Vec<Delivery<Receipt>>) -> Result<(), SourceError> {
        let mut shelf = self.shelf.lock();
        for delivery in deliveries {
            shelf.ack(delivery.receipt());
        }
        Ok(())
    }

    async fn release(&self, deliveries: Vec<Delivery<Receipt>>, release: Release) -> Result<(), SourceError> {
        let visible_at = self.shelf.now() + u64::try_from(release.delay.as_micros()).unwrap_or(u64::MAX / 4);
        let mut shelf = self.shelf.lock();
        for delivery in deliveries {
            shelf.release(delivery.receipt(), visible_at);
        }
        Ok(())
    }

    async fn extend(&self, _receipts: &[Arc<Receipt>]) -> Result<(), SourceError> {
        Ok(())
    }
}
