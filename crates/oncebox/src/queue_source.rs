//! A queue in the store itself: the embedded source.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use oncebox_core::counters::Depth;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::queue::{
    Enqueue, HeldLane, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore, QueueTx,
    RowReceipt,
};
use oncebox_core::source::{LaneNumber, Order, SourceCapabilities};
use oncebox_core::store::InvalidName;
use oncebox_core::{
    Clock, ConsumerName, Coordinate, Delivery, Message, Release, Source, SourceError, SourceErrorKind, StoreError,
    StoreErrorKind, SystemClock,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::own_session::OwnSession;

/// A queue in a store. Its rows are settled in the message's own transaction, so there is no gap between commit and
/// acknowledgement. Several processes share it.
pub struct Queue<S: QueueStore> {
    store: S,
    spec: QueueSpec,
    lease: Duration,
    keep: Keep,
    owner: Uuid,
    shared: Mutex<Shared>,
    /// The queue's own connection, for everything but settling.
    own: OwnSession<S>,
}

#[derive(Default)]
struct Shared {
    id: Option<QueueId>,
    held: HeldLanes,
    /// When the lanes were last renewed.
    renewed: Option<Instant>,
    /// How long to wait before looking again; grows while nothing is there.
    poll: Option<Duration>,
    /// What is out, by lane, so that a lane is given back only when nothing of it is in hand.
    out: HashMap<LaneNumber, Vec<Weak<QueueReceipt>>>,
}

/// One lease of one row.
#[derive(Debug)]
pub struct QueueReceipt {
    row: RowReceipt,
    /// Settled in a transaction; if that committed, there is nothing left to do.
    settled: AtomicBool,
    /// Given back: a heartbeat that still knows it must leave it alone.
    released: AtomicBool,
}

/// Names the origin of a stored-mode message, where its key is its coordinate.
pub(crate) const ORIGIN: &str = "oncebox-origin";

/// How long to wait before looking again when nothing was there.
const POLL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// Shorter leases would end before anyone could renew them.
const LEASE_MIN: Duration = Duration::from_millis(100);

impl<S: QueueStore> Queue<S> {
    /// How long a delivery stays with whoever received it, unless extended.
    pub const LEASE: Duration = Duration::from_secs(30);

    /// A queue without order: whoever is free takes the next message.
    pub fn new(store: S, name: &str) -> Result<Self, InvalidName> {
        Ok(Self::with_spec(store, QueueSpec { name: ConsumerName::new(name)?, lanes: None }))
    }

    /// A queue that keeps order per order key, by leased lanes.
    pub fn ordered(store: S, name: &str) -> Result<Self, InvalidName> {
        let lanes = Some(QueueSpec::LANES);
        Ok(Self::with_spec(store, QueueSpec { name: ConsumerName::new(name)?, lanes }))
    }

    pub(crate) fn with_spec(store: S, spec: QueueSpec) -> Self {
        Self {
            own: OwnSession::new(store.clone()),
            store,
            spec,
            lease: Self::LEASE,
            keep: Keep::Nothing,
            owner: SystemClock.id(),
            shared: Mutex::default(),
        }
    }

    /// Sets the lease. Shorter: a dead process's messages come again sooner. Longer: fewer renewals.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(LEASE_MIN);
        self
    }

    /// Keeps settled rows, marked processed.
    #[must_use]
    pub(crate) fn keeping_processed(mut self) -> Self {
        self.keep = Keep::Processed;
        self
    }

    /// Adds messages at the end, in order, in a transaction of their own. Durable when it returns. After an error they
    /// may be there or not; sending them again is safe, because their ids make them duplicates.
    pub async fn send(&self, messages: impl IntoIterator<Item = Message>) -> Result<(), StoreError> {
        let queue = self.id().await?;
        let rows: Vec<Enqueue> = messages.into_iter().map(|message| self.row(message)).collect();
        self.own
            .in_transaction(async |mut tx| {
                let added = tx.enqueue(queue, &rows).await;
                (tx, added.map(|_| ()))
            })
            .await?;
        self.store.announce();
        Ok(())
    }

    fn row(&self, message: Message) -> Enqueue {
        Enqueue { lane: self.lane_of(&message), message, once: None }
    }

    /// The lane that a message belongs to.
    pub(crate) fn lane_of(&self, message: &Message) -> Option<LaneNumber> {
        self.spec.lane(message.order_key.as_deref())
    }

    /// The queue's id, made known at the first use.
    pub(crate) async fn id(&self) -> Result<QueueId, StoreError> {
        if let Some(id) = self.shared().id {
            return Ok(id);
        }
        let id = self.store.queue(&self.spec).await?;
        self.shared().id = Some(id);
        Ok(id)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews lanes at a quarter of the lease, takes a fair share, gives back what is too much.
    async fn keep_lanes(&self, queue: QueueId) -> Result<(), StoreError> {
        let give_back = {
            let shared = self.shared();
            if self.spec.lanes.is_none() || shared.renewed.is_some_and(|then| then.elapsed() < self.lease / 4) {
                return Ok(());
            }
            shared.surplus().filter(|lane| !shared.is_out(*lane)).collect()
        };
        let request = LaneRequest { queue, owner: self.owner, lease: self.lease, give_back };
        // The lease runs from before the question was asked.
        let asked = Instant::now();
        let held = self
            .own
            .in_transaction(async |mut tx| {
                let held = tx.hold_lanes(&request).await;
                (tx, held)
            })
            .await?;
        let mut shared = self.shared();
        shared.held = held;
        shared.renewed = Some(asked);
        Ok(())
    }

    async fn lease_rows(&self, queue: QueueId, max: usize) -> Result<Vec<Leased>, StoreError> {
        self.keep_lanes(queue).await?;
        let lanes = self.spec.lanes.map(|_| self.shared().usable());
        if lanes.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let request = LeaseRequest { queue, max, lease: self.lease, lanes };
        self.own
            .in_transaction(async |mut tx| {
                let leased = tx.lease(&request).await;
                (tx, leased)
            })
            .await
    }

    fn delivery(&self, leased: Leased) -> Delivery<QueueReceipt> {
        let Leased { message, receipt } = leased;
        let origin = message.headers.iter().filter(|(name, _)| *name == ORIGIN).last();
        let coordinate = match origin {
            Some((_, origin)) if self.keep == Keep::Processed => Coordinate::new(origin),
            _ => Coordinate::new(format!("{}/{}", self.spec, receipt.row)),
        };
        let receipt = QueueReceipt { row: receipt, settled: AtomicBool::new(false), released: AtomicBool::new(false) };
        let (lane, count) = (receipt.row.lane.map(|held| held.lane), receipt.row.fence);
        let mut delivery = Delivery::new(message, receipt);
        delivery.coordinate = Some(coordinate);
        delivery.count = u32::try_from(count).ok();
        delivery.lane = lane;
        if let Some(lane) = lane {
            self.shared().out.entry(lane).or_default().push(Arc::downgrade(delivery.receipt()));
        }
        delivery
    }
}

impl Shared {
    /// Lanes beyond the fair share.
    fn surplus(&self) -> impl Iterator<Item = LaneNumber> {
        self.held.lanes.iter().skip(self.held.share).map(|held| held.lane)
    }

    /// Lanes to lease from: those that are to be given back dry out first.
    fn usable(&mut self) -> Vec<HeldLane> {
        self.out.values_mut().for_each(|out| out.retain(|receipt| receipt.strong_count() > 0));
        self.out.retain(|_, out| !out.is_empty());
        self.held.lanes.iter().take(self.held.share).copied().collect()
    }

    fn is_out(&self, lane: LaneNumber) -> bool {
        self.out.get(&lane).is_some_and(|out| out.iter().any(|receipt| receipt.strong_count() > 0))
    }
}

impl<S: QueueStore> Source<S> for Queue<S> {
    type Receipt = QueueReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("queue");
        capabilities.order = if self.spec.lanes.is_some() { Order::LeasedLanes } else { Order::None };
        capabilities.lease = Some(self.lease);
        capabilities.counts = true;
        capabilities.coordinates = true;
        capabilities.settles_in_transaction = true;
        capabilities
    }

    fn destination(&self) -> &str {
        self.spec.name.as_str()
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        if store.identity() != self.store.identity() {
            let why = "it lives in another database than the consumer's store, so it cannot settle in the consumer's \
                       transactions; open both on one store";
            return Err(SourceError::new(SourceErrorKind::Configuration, format!("open {}", self.spec), why));
        }
        self.id().await?;
        Ok(())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<QueueReceipt>>, SourceError> {
        let queue = self.id().await?;
        let deadline = Instant::now() + wait;
        loop {
            let leased = match self.lease_rows(queue, max).await {
                // Others are leasing too: look again.
                Err(error) if error.kind() == StoreErrorKind::Contended => Vec::new(),
                leased => leased?,
            };
            let now = Instant::now();
            if !leased.is_empty() || now >= deadline {
                if !leased.is_empty() {
                    self.shared().poll = None;
                    crashpoint("leased").await?;
                }
                return Ok(leased.into_iter().map(|leased| self.delivery(leased)).collect());
            }
            let poll = self.shared().poll.unwrap_or(POLL.0);
            let announced = tokio::time::timeout(poll.min(deadline - now), self.store.enqueued()).await.is_ok();
            self.shared().poll = if announced { None } else { Some((poll * 2).min(POLL.1)) };
        }
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&QueueReceipt]) -> Result<(), StoreError> {
        if receipts.is_empty() {
            return Ok(());
        }
        let rows: Vec<RowReceipt> = receipts.iter().map(|receipt| receipt.row).collect();
        tx.settle(self.id().await?, &rows, self.keep).await?;
        receipts.iter().for_each(|receipt| receipt.settled.store(true, Relaxed));
        Ok(())
    }

    async fn ack(&self, deliveries: Vec<Delivery<QueueReceipt>>) -> Result<(), SourceError> {
        let open = deliveries.iter().filter(|delivery| !delivery.receipt().settled.load(Relaxed));
        let rows: Vec<RowReceipt> = open.map(|delivery| delivery.receipt().row).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let (queue, keep) = (self.id().await?, self.keep);
        for row in rows {
            // One by one: a row that has a new owner must not keep the others from being settled.
            let settled = self
                .own
                .in_transaction(async |mut tx| {
                    let settled = tx.settle(queue, &[row], keep).await;
                    (tx, settled)
                })
                .await;
            match settled {
                Err(error) if error.kind() != StoreErrorKind::Fenced => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn release(&self, deliveries: Vec<Delivery<QueueReceipt>>, release: Release) -> Result<(), SourceError> {
        let queue = self.id().await?;
        deliveries.iter().for_each(|delivery| delivery.receipt().released.store(true, SeqCst));
        let rows: Vec<RowReceipt> = deliveries.iter().map(|delivery| delivery.receipt().row).collect();
        self.own
            .in_transaction(async |mut tx| {
                let released = tx.release(queue, &rows, release.delay, release.reason.as_deref()).await;
                (tx, released)
            })
            .await?;
        self.store.announce();
        Ok(())
    }

    async fn extend(&self, receipts: &[Arc<QueueReceipt>]) -> Result<(), SourceError> {
        let queue = self.id().await?;
        self.keep_lanes(queue).await?;
        self.own
            .in_transaction(async |mut tx| {
                // Looked at with the connection in hand: what is released later is released after this.
                let ours = receipts.iter().filter(|receipt| !receipt.released.load(SeqCst));
                let rows: Vec<RowReceipt> = ours.map(|receipt| receipt.row).collect();
                let extended = tx.extend(queue, &rows, self.lease).await;
                (tx, extended)
            })
            .await?;
        Ok(())
    }

    /// Where they wait; whoever looks counts them there.
    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        Ok(Some(Depth { place: Some(self.spec.to_string()), ..Depth::default() }))
    }

    async fn close(&self) {
        if self.spec.lanes.is_none() {
            return;
        }
        if let Ok(queue) = self.id().await {
            // If it can't be told, the lanes are free when their leases run out.
            let _ = self
                .own
                .in_transaction(async |mut tx| {
                    let left = tx.leave_lanes(queue, self.owner).await;
                    (tx, left)
                })
                .await;
        }
    }
}

impl<S: QueueStore> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("queue", &self.spec.to_string())
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
