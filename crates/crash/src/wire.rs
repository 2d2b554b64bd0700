//! The worker's side of the broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncebox::source::{Order, SourceCapabilities};
use oncebox::{Delivery, Release, Source, SourceError, SourceErrorKind, Store};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::broker::{self, Answer, Ask};
use crate::row::SourceKind;

/// Messages from the broker of the matrix.
pub(crate) struct Wire {
    addr: SocketAddr,
    /// Whether keys have one owner at a time, and deliveries are counted.
    kind: SourceKind,
    stream: Mutex<Option<TcpStream>>,
}

/// How often an idle broker is asked.
const POLL: Duration = Duration::from_millis(10);

impl Wire {
    pub(crate) fn new(addr: SocketAddr, kind: SourceKind) -> Self {
        Self { addr, kind, stream: Mutex::new(None) }
    }

    async fn ask(&self, ask: Ask) -> Result<Answer, SourceError> {
        let failed = |error: anyhow::Error| {
            SourceError::new(SourceErrorKind::Unavailable, "talk to the broker", error.to_string())
        };
        let mut stream = self.stream.lock().await;
        let mut open = match stream.take() {
            Some(open) => open,
            None => TcpStream::connect(self.addr).await.map_err(|error| failed(error.into()))?,
        };
        broker::write(&mut open, &ask).await.map_err(failed)?;
        let answer = broker::read(&mut open).await.map_err(failed)?;
        *stream = Some(open);
        Ok(answer)
    }
}

impl<S: Store> Source<S> for Wire {
    type Receipt = u64;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("crash broker");
        capabilities.counts = self.kind == SourceKind::Broker;
        if self.kind == SourceKind::Partitions {
            capabilities.order = Order::Broker;
        }
        capabilities
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        self.ask(Ask::Receive(0)).await.map(|_| ())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<u64>>, SourceError> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let answer = self.ask(Ask::Receive(max)).await?;
            if answer.is_empty() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(POLL).await;
                continue;
            }
            let delivery = |(tag, count, order): (u64, u32, crate::feed::Order)| {
                let made = order.message().map_err(|error| {
                    SourceError::new(SourceErrorKind::Unavailable, "read a message", error.to_string())
                })?;
                let mut delivery = Delivery::new(made, tag);
                let came_before = count > 1;
                match self.kind {
                    SourceKind::Broker => delivery.count = Some(count),
                    // It only knows that a message came before.
                    SourceKind::Uncounted => {
                        delivery.count = came_before.then_some(2);
                        delivery.is_uncounted = came_before;
                    }
                    // Partitions are logs, which count nothing.
                    _ => {}
                }
                Ok(delivery)
            };
            return answer.into_iter().map(delivery).collect();
        }
    }

    async fn ack(&self, deliveries: Vec<Delivery<u64>>) -> Result<(), SourceError> {
        let tags = deliveries.iter().map(|delivery| **delivery.receipt()).collect();
        self.ask(Ask::Ack(tags)).await.map(|_| ())
    }

    async fn release(&self, deliveries: Vec<Delivery<u64>>, release: Release) -> Result<(), SourceError> {
        // A broker that gives it to the next one at once: the worst that brokers do.
        let _ = release;
        let tags = deliveries.iter().map(|delivery| **delivery.receipt()).collect();
        self.ask(Ask::Release(tags)).await.map(|_| ())
    }

    async fn extend(&self, _receipts: &[Arc<u64>]) -> Result<(), SourceError> {
        Ok(())
    }
}
