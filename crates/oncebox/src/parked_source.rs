//! What was set aside, as a source: rows that are due come again, through the same engine as everything else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::parked::{LeasedPark, ParkLease, ParkReceipt, Parking};
use oncebox_core::source::{Order, ParkedBefore, SourceCapabilities};
use oncebox_core::{
    ConsumerId, Coordinate, Delivery, Release, Source, SourceError, StoreError, StoreErrorKind, planted,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::own_session::OwnSession;
use crate::queue_source::ORIGIN;

/// The parked messages of one consumer. Several processes share them.
pub(crate) struct ParkedSource<S: ConsumerStore> {
    own: OwnSession<S>,
    consumer: ConsumerId,
    due: Arc<Due>,
    /// When a look found nothing and nothing was due since.
    looked: Mutex<Option<Instant>>,
    lease: Duration,
}

/// When something that this process parked is due, so that nobody polls in the meantime.
#[derive(Debug, Default)]
pub(crate) struct Due {
    next: Mutex<Option<Instant>>,
    changed: Notify,
}

/// How long to wait before looking again when nothing is due here: others may have parked something.
const POLL: Duration = Duration::from_secs(1);

impl Due {
    /// Something is due after this long.
    pub(crate) fn after(&self, delay: Duration) {
        let at = Instant::now() + delay;
        let mut next = self.next();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.changed.notify_one();
        }
    }

    /// Waits until something is due, at most `wait`, and says whether it is. Forgets it: whoever finds nothing looks
    /// again by polling.
    async fn wait(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            let changed = self.changed.notified();
            let until = self.next().map_or(deadline, |next| next.min(deadline));
            tokio::select! {
                biased;
                () = changed => continue,
                () = tokio::time::sleep_until(until) => {}
            }
            return self.next().take_if(|next| *next <= Instant::now()).is_some();
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<Instant>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: ConsumerStore> ParkedSource<S> {
    pub(crate) fn new(store: S, consumer: ConsumerId, due: Arc<Due>, lease: Duration) -> Self {
        Self { own: OwnSession::new(store), consumer, due, looked: Mutex::default(), lease }
    }

    /// How long not to look, after a look that found nothing.
    fn rest(&self) -> Duration {
        self.looked().map_or(Duration::ZERO, |at| POLL.saturating_sub(at.elapsed()))
    }

    fn looked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lease_rows(&self, max: usize) -> Result<Vec<LeasedPark>, StoreError> {
        let request = ParkLease { consumer: self.consumer, max, lease: self.lease };
        let leased = self.own.look(async |mut tx| {
            let leased = tx.lease_parked(&request).await;
            (tx, leased)
        });
        match leased.await {
            // Others are leasing too: look again.
            Err(error) if error.kind() == StoreErrorKind::Contended => Ok(Vec::new()),
            leased => leased,
        }
    }
}

pub(crate) fn delivery(leased: LeasedPark) -> Delivery<ParkReceipt> {
    let LeasedPark { receipt, message, fingerprint, attempts, parked_at, gap, .. } = leased;
    let origin = message.headers.iter().filter(|(name, _)| *name == ORIGIN).last();
    let coordinate = origin.map(|(_, origin)| Coordinate::new(origin));
    let mut delivery = Delivery::new(message, receipt);
    delivery.coordinate = coordinate;
    // Leases that ended with a verdict, or with the row given back, killed nobody.
    delivery.count = Some(receipt.leases());
    delivery.parked = Some(ParkedBefore { receipt, fingerprint, attempts, since: parked_at, gap });
    delivery
}

impl<S: ConsumerStore> Source<S> for ParkedSource<S> {
    type Receipt = ParkReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = SourceCapabilities::none("parked");
        // Of one order key only the first row is ever in hand.
        capabilities.order = Order::LeasedLanes;
        capabilities.lease = Some(self.lease);
        capabilities.counts = true;
        capabilities.coordinates = true;
        capabilities.settles_in_transaction = true;
        capabilities
    }

    async fn open(&self, _store: &S) -> Result<(), SourceError> {
        Ok(())
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<ParkReceipt>>, SourceError> {
        if self.rest().is_zero() {
            let leased = self.lease_rows(max).await?;
            if !leased.is_empty() {
                crashpoint("leased").await?;
                return Ok(leased.into_iter().map(delivery).collect());
            }
            *self.looked() = Some(Instant::now());
        }
        // No longer than asked for: a shutdown waits for it.
        if self.due.wait(wait.min(self.rest())).await {
            *self.looked() = None;
        }
        Ok(Vec::new())
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&ParkReceipt]) -> Result<(), StoreError> {
        if receipts.is_empty() || planted::is("parked-not-ended") {
            return Ok(());
        }
        let rows: Vec<ParkReceipt> = receipts.iter().map(|receipt| **receipt).collect();
        tx.end_parked(&rows).await
    }

    async fn ack(&self, _deliveries: Vec<Delivery<ParkReceipt>>) -> Result<(), SourceError> {
        // Ended in the message's own transaction; what waited behind them is due now.
        self.due.after(Duration::ZERO);
        Ok(())
    }

    async fn release(&self, deliveries: Vec<Delivery<ParkReceipt>>, release: Release) -> Result<(), SourceError> {
        let rows: Vec<ParkReceipt> = deliveries.iter().map(|delivery| **delivery.receipt()).collect();
        self.own
            .in_transaction(async |mut tx| {
                let released = tx.release_parked(&rows, release.delay).await;
                (tx, released)
            })
            .await?;
        self.due.after(release.delay);
        Ok(())
    }

    async fn extend(&self, receipts: &[Arc<ParkReceipt>]) -> Result<(), SourceError> {
        let rows: Vec<ParkReceipt> = receipts.iter().map(|receipt| **receipt).collect();
        self.own
            .in_transaction(async |mut tx| {
                let extended = tx.extend_parked(&rows, self.lease).await;
                (tx, extended)
            })
            .await?;
        Ok(())
    }
}
