//! Stored mode: first into the table, then acknowledged, then handled from the table.
//!
//! ```text
//!  Source ─▶ front: a consumer whose handler stores each message once, under its key ─▶ commit ─▶ ack
//!                                      │
//!                          back: an ordinary consumer of that table
//! ```
//!
//! Both are the same engine, so batches, verdicts, outages and shutdown work alike. A crash between the front's commit
//! and its ack brings a redelivery, which finds its message stored.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::counters::Depth;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::queue::{Enqueue, Enqueued, QueueId, QueueSpec, QueueStore, QueueTx};
use oncebox_core::source::SourceCapabilities;
use oncebox_core::{
    ConsumerName, Coordinate, Delivery, Failure, Key, Message, Release, Source, SourceError, StoreError,
};

use super::DryRunner;
use super::builder::Consumer;
use super::engine::{Drained, Engine, RunError};
use super::identity::{Identity, Records};
use super::journal;
use super::order_by::by_message_key;
use super::parking;
use super::routes::{Route, Routes, Shape};
use super::setup::Setup;
use super::stats::Stats;
use super::stop::Stop;
use super::together::{Running, together};
use crate::context::Context;
use crate::handler::{Call, Erased, Outcomes};
use crate::queue_source::{ORIGIN, Queue};

/// A consumer in stored mode; see [`Consumer::stored`].
pub struct StoredConsumer<S: QueueStore, Src> {
    consumer: Consumer<S, Src>,
    front_stats: Arc<Stats>,
    lease: Duration,
}

impl<S: QueueStore, Src: Source<S>> StoredConsumer<S, Src> {
    pub(super) fn new(consumer: Consumer<S, Src>) -> Self {
        Self { consumer, front_stats: Arc::default(), lease: Queue::<S>::LEASE }
    }

    /// The live counters of handling.
    pub fn stats(&self) -> Arc<Stats> {
        self.consumer.stats()
    }

    /// The live counters of storing: here `handled` counts messages that were stored, or found stored.
    pub fn front_stats(&self) -> Arc<Stats> {
        Arc::clone(&self.front_stats)
    }

    /// Sets how long a stored message stays with the process that took it, unless extended.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Runs the handlers over what was set aside, and keeps nothing; see [`Consumer::dry_runner`].
    pub async fn dry_runner(&self) -> Result<DryRunner<S>, RunError>
    where
        S: QuarantineStore,
    {
        self.consumer.dry_runner().await
    }

    /// Runs until `shutdown` resolves, then finishes or gives back what is in hand.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Drained, RunError> {
        let Consumer { mut setup, source } = self.consumer;
        setup.bind().await?;
        let name = setup.check()?;
        let journal = setup.journal_writer();
        let spec = QueueSpec::received(&name, setup.order.is_kept());
        let (front, back) = split(setup, &name, spec.clone(), self.front_stats).await?;
        let queue = Queue::with_spec(back.store.clone(), spec).lease(self.lease).keeping_processed();
        let origins = front.identity.needs_coordinate();
        let source = Front { source, origins };
        let parked = back.parked();
        let front = Engine::start(front, source).await?;
        let back = Engine::start(back, queue).await?;

        let parked = Engine::start_parked(parked).await?;
        let stop = Stop::default();
        let flows = [
            Box::pin(front.run(stop.wait())) as Running<'_>,
            Box::pin(back.run(stop.wait())),
            Box::pin(parked.run(stop.wait())),
        ];
        journal::beside(journal, together(&stop, flows, shutdown)).await
    }
}

/// The consumer that stores and the consumer that handles.
async fn split<S: QueueStore>(
    mut back: Setup<S>,
    name: &ConsumerName,
    spec: QueueSpec,
    stats: Arc<Stats>,
) -> Result<(Setup<S>, Setup<S>), RunError> {
    let refused = |error: StoreError| RunError::Store { name: name.to_string(), error };
    let records = Records {
        own: back.store.consumer(name).await.map_err(refused)?,
        shared: back.store.consumer(&ConsumerName::global()).await.map_err(refused)?,
    };
    let queue = Queue::with_spec(back.store.clone(), spec);
    // Asked for here: inside a transaction, a store with one writer would wait for itself.
    let id = queue.id().await.map_err(refused)?;
    let handler = StoreFirst { queue, id, identity: back.identity.clone(), records, store: back.store.clone() };
    // Storing once under a key is idempotent by nature: it needs no claim.
    let route = Route { handler: Arc::new(handler), shape: Shape::Batch, claims: false };
    let front = back.front(Routes::all(route), stats);
    // The front makes sure that the order key of each message is what the order asks for.
    back.order = by_message_key(&back.order);
    Ok((front, back))
}

/// Stores messages once, each under its key.
struct StoreFirst<S: QueueStore> {
    queue: Queue<S>,
    id: QueueId,
    identity: Identity,
    records: Records,
    store: S,
}

impl<S: QueueStore> Erased<S> for StoreFirst<S> {
    fn prepare(&self, messages: &[Arc<Message>]) -> Result<Call<S>, (usize, Failure)> {
        let row = |(place, message): (usize, &Arc<Message>)| {
            let origin = origin(message);
            let claims = self.identity.claims(self.records, message, origin.as_ref());
            let once = match claims {
                Ok(claims) => (claims.first.key, claims.first.fingerprint),
                // Stored all the same: whoever handles it finds that it has no key, in its order.
                Err(failure) => {
                    let stand_in = parking::stand_in(message, origin.as_ref()).map_err(|_| (place, failure))?;
                    (stand_in, self.identity.fingerprinter.fingerprint(message))
                }
            };
            let message = Message::clone(message);
            let lane = self.queue.lane_of(&message);
            Ok(Enqueue { message, lane, once: Some(once) })
        };
        let rows = messages.iter().enumerate().map(row).collect::<Result<Vec<_>, _>>()?;
        let (queue, store) = (self.id, self.store.clone());
        Ok(Box::new(move |ctx| Box::pin(store_all(ctx, queue, store, rows))))
    }
}

async fn store_all<S: QueueStore>(
    mut ctx: Context<S>,
    queue: QueueId,
    store: S,
    rows: Vec<Enqueue>,
) -> Result<Outcomes, Failure> {
    let stored = ctx.tx().enqueue(queue, &rows).await?;
    if stored.contains(&Enqueued::Conflict) {
        let Ok([row]) = <[Enqueue; 1]>::try_from(rows) else {
            // Stored now, it would come after its neighbours: alone it keeps its place.
            return Err(Failure::permanent("another message with different content was stored under its key"));
        };
        // Stored beside the other: whoever handles it finds the conflict, in its order.
        ctx.tx().enqueue(queue, &[beside(row)?]).await?;
    }
    ctx.after_commit(async move { store.announce() });
    Ok(Outcomes::Applied)
}

/// A row under its key and what it says together.
fn beside(row: Enqueue) -> Result<Enqueue, Failure> {
    let once = match row.once {
        Some((key, fingerprint)) => {
            let says = [fingerprint.scheme().to_be_bytes().as_slice(), &fingerprint.hash().to_be_bytes()].concat();
            Some((Key::parts([&b"conflict"[..], key.as_bytes(), &says])?, fingerprint))
        }
        None => None,
    };
    Ok(Enqueue { once, ..row })
}

fn origin(message: &Message) -> Option<Coordinate> {
    message.headers.iter().filter(|(name, _)| *name == ORIGIN).last().map(|(_, origin)| Coordinate::new(origin))
}

/// The source of the front: writes on each message what would be lost once it is stored, its coordinate, where that is
/// its key.
struct Front<Src> {
    source: Src,
    origins: bool,
}

impl<Src> Front<Src> {
    fn annotate<R>(&self, delivery: &mut Delivery<R>) {
        let Some(origin) = delivery.coordinate.as_ref().filter(|_| self.origins) else { return };
        let mut message = Message::clone(&delivery.message);
        // A coordinate that is no header text leaves the message without one, and so without a key: refused there.
        let _ = message.headers.add(ORIGIN, origin.as_str());
        delivery.message = Arc::new(message);
    }
}

impl<S: ConsumerStore, Src: Source<S>> Source<S> for Front<Src> {
    type Receipt = Src::Receipt;

    fn capabilities(&self) -> SourceCapabilities {
        self.source.capabilities()
    }

    fn destination(&self) -> &str {
        self.source.destination()
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.source.open(store).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<Src::Receipt>>, SourceError> {
        let mut deliveries = self.source.receive(max, wait).await?;
        deliveries.iter_mut().for_each(|delivery| self.annotate(delivery));
        Ok(deliveries)
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&Src::Receipt]) -> Result<(), StoreError> {
        self.source.ack_in(tx, receipts).await
    }

    async fn ack(&self, deliveries: Vec<Delivery<Src::Receipt>>) -> Result<(), SourceError> {
        self.source.ack(deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<Src::Receipt>>, release: Release) -> Result<(), SourceError> {
        self.source.release(deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<Src::Receipt>]) -> Result<(), SourceError> {
        self.source.extend(receipts).await
    }

    fn backlog(&self) -> impl Future<Output = Result<Option<Depth>, SourceError>> + Send {
        self.source.backlog()
    }

    async fn close(&self) {
        self.source.close().await;
    }
}

impl<S: QueueStore, Src> fmt::Debug for StoredConsumer<S, Src> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredConsumer").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
