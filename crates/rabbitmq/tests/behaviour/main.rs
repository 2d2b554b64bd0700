//! What is particular to RabbitMQ.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

#[path = "../common/mod.rs"]
mod common;

mod backlog;
mod consumer;
mod foreign;
mod inspecting;
mod opening;
mod publishing;
mod receiving;

use std::time::Duration;

use oncebox_core::memory::MemoryStore;
use oncebox_core::{Delivery, Release, Source, SourceError};
use oncebox_rabbitmq::{RabbitReceipt, RabbitSource};

/// The source's methods, with a store that plays no part.
trait Plain {
    async fn start(self) -> RabbitSource;
    async fn try_open(&self) -> Result<(), SourceError>;
    async fn take(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<RabbitReceipt>>, SourceError>;
    async fn settle(&self, deliveries: Vec<Delivery<RabbitReceipt>>);
    async fn give_back(&self, deliveries: Vec<Delivery<RabbitReceipt>>, delay: Duration);
    async fn end(&self);
}

impl Plain for RabbitSource {
    async fn start(self) -> RabbitSource {
        self.try_open().await.unwrap();
        self
    }

    async fn try_open(&self) -> Result<(), SourceError> {
        Source::open(self, &MemoryStore::new()).await
    }

    async fn take(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<RabbitReceipt>>, SourceError> {
        Source::<MemoryStore>::receive(self, max, wait).await
    }

    async fn settle(&self, deliveries: Vec<Delivery<RabbitReceipt>>) {
        Source::<MemoryStore>::ack(self, deliveries).await.unwrap();
    }

    async fn give_back(&self, deliveries: Vec<Delivery<RabbitReceipt>>, delay: Duration) {
        Source::<MemoryStore>::release(self, deliveries, Release { delay, reason: None }).await.unwrap();
    }

    async fn end(&self) {
        Source::<MemoryStore>::close(self).await;
    }
}

fn texts(deliveries: &[Delivery<RabbitReceipt>]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned()).collect()
}

/// Long enough for what must come.
const COMES: Duration = Duration::from_secs(20);
/// How long to wait for what must not come. A right source never makes it fail.
const NOTHING: Duration = Duration::from_millis(200);

/// Receives until `count` came.
async fn take_all(source: &RabbitSource, count: usize) -> Vec<Delivery<RabbitReceipt>> {
    let mut got = Vec::new();
    while got.len() < count {
        let more = source.take(count - got.len(), COMES).await.unwrap();
        assert!(!more.is_empty(), "waited in vain; so far {:?}", texts(&got));
        got.extend(more);
    }
    got
}
