//! What an adapter supplies so that the source suite can run on it, and the steps that cases are made of.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::source::{Order, SourceCapabilities};
use oncebox_core::{Clock, Delivery, Ended, Message, Release, Session, Source, Store, StoreError, Transaction};

use crate::clock::ManualClock;
use crate::eventually::eventually;
use crate::skip::skipped;

/// Gives each case a source of its own, with a store beside it.
pub trait SourceFixture: Send + Sync + 'static {
    /// The store that the source is opened with: the one it lives in, or any, such as the memory store.
    type Store: Store;
    /// The source under test.
    type Source: Source<Self::Store>;

    /// An empty source that shares nothing with any other, so that cases run side by side: a queue or a topic of its
    /// own. Its leases run by `clock`; a broker that can't be told the time implements [`advance`](Self::advance).
    ///
    /// `None` if the server is not there: the case is skipped, and [`skipped`](crate::skipped) notes its name.
    fn fresh(&self, clock: Arc<ManualClock>) -> impl Future<Output = Option<(Self::Store, Self::Source)>> + Send;

    /// Puts messages into the source, in order, as a producer would. They are there when it returns.
    fn send(
        &self,
        store: &Self::Store,
        source: &Self::Source,
        messages: Vec<Message>,
    ) -> impl Future<Output = ()> + Send;

    /// The source as the next process finds it after this one died with deliveries in hand: nothing is given back, its
    /// connections are cut. Already open. `None`: for a source whose leases tell that story already.
    fn after_a_crash(
        &self,
        store: &Self::Store,
        source: Self::Source,
    ) -> impl Future<Output = Option<Self::Source>> + Send {
        let _ = (store, source);
        std::future::ready(None)
    }

    /// Lets time pass for leases and delays. By default moves the clock that `fresh` got; where time can't be moved,
    /// wait it out.
    fn advance(&self, source: &Self::Source, clock: &ManualClock, by: Duration) -> impl Future<Output = ()> + Send {
        let _ = source;
        clock.advance(by);
        std::future::ready(())
    }
}

/// What a case calls a delivery of the fixture's source.
pub(super) type DeliveryOf<F> =
    Delivery<<<F as SourceFixture>::Source as Source<<F as SourceFixture>::Store>>::Receipt>;

/// A fresh source with its store and its clock, as each case gets it.
pub struct Setup<F: SourceFixture> {
    /// Whose it is.
    pub fixture: F,
    /// What its leases run by.
    pub clock: Arc<ManualClock>,
    /// What it was opened with.
    pub store: F::Store,
    /// The source under test.
    pub source: F::Source,
}

/// Runs one case on a fresh, open source, or notes under `name` that it was skipped. The suite's macro calls this.
pub async fn run<F, C, Case>(name: &str, fixture: F, case: C)
where
    F: SourceFixture,
    C: FnOnce(Setup<F>) -> Case,
    Case: Future<Output = ()>,
{
    let clock = Arc::new(ManualClock::new());
    match fixture.fresh(Arc::clone(&clock)).await {
        Some((store, source)) => {
            source.open(&store).await.expect("a source can be opened with its store");
            case(Setup { fixture, clock, store, source }).await;
        }
        None => skipped(name),
    }
}

/// How long a case waits for what should not come. A right source never makes it fail.
const NOTHING_COMES: Duration = Duration::from_millis(150);

impl<F: SourceFixture> Setup<F> {
    pub(super) fn capabilities(&self) -> SourceCapabilities {
        self.source.capabilities()
    }

    pub(super) fn keeps_order(&self) -> bool {
        self.capabilities().order != Order::None
    }

    /// Messages that say `texts`, made by the setup's clock.
    pub(super) fn messages(&self, texts: &[&str]) -> Vec<Message> {
        texts.iter().map(|text| self.message(text)).collect()
    }

    pub(super) fn message(&self, text: &str) -> Message {
        Message::made_by(&*self.clock as &dyn Clock, "noted").with_payload(text.to_owned())
    }

    pub(super) async fn send(&self, messages: Vec<Message>) {
        self.fixture.send(&self.store, &self.source, messages).await;
    }

    /// Lets time pass for leases and delays.
    pub async fn advance(&self, by: Duration) {
        self.fixture.advance(&self.source, &self.clock, by).await;
    }

    /// Lets a lease run out, if deliveries have one.
    pub(super) async fn let_leases_end(&self) {
        if let Some(lease) = self.capabilities().lease {
            self.advance(lease + Duration::from_secs(1)).await;
        }
    }

    pub(super) async fn receive(&self, max: usize, wait: Duration) -> Vec<DeliveryOf<F>> {
        self.source.receive(max, wait).await.expect("a source that is there can be received from")
    }

    /// Receives until `count` deliveries came, in however many calls.
    pub(super) async fn receive_all(&self, count: usize) -> Vec<DeliveryOf<F>> {
        let mut got = Vec::new();
        eventually(&format!("{count} deliveries come"), async || {
            got.extend(self.receive(count, NOTHING_COMES).await);
            got.len() >= count
        })
        .await;
        assert_eq!(got.len(), count, "more came than were sent");
        got
    }

    pub(super) async fn receive_one(&self) -> DeliveryOf<F> {
        self.receive_all(1).await.remove(0)
    }

    #[track_caller]
    pub(super) fn assert_none(got: &[DeliveryOf<F>]) {
        assert!(got.is_empty(), "expected nothing, and {:?} came", texts(got));
    }

    /// Fails if something comes.
    pub(super) async fn assert_nothing_comes(&self) {
        Self::assert_none(&self.receive(10, NOTHING_COMES).await);
    }

    /// Settles as the engine does: in a transaction where the source can, and then with the source.
    pub(super) async fn ack(&self, deliveries: Vec<DeliveryOf<F>>) -> Result<(), StoreError> {
        if self.capabilities().settles_in_transaction {
            let mut tx = self.begin().await;
            if let Err(error) = self.ack_in(&mut tx, &deliveries).await {
                tx.rollback().await;
                return Err(error);
            }
            assert!(matches!(tx.commit().await, Ended::Committed(_)), "a sound transaction commits");
        }
        // A lost lease is a future duplicate here, and no error.
        let _ = self.source.ack(deliveries).await;
        Ok(())
    }

    pub(super) async fn ack_in(
        &self,
        tx: &mut <F::Store as Store>::Tx,
        deliveries: &[DeliveryOf<F>],
    ) -> Result<(), StoreError> {
        let receipts: Vec<_> = deliveries.iter().map(|delivery| &**delivery.receipt()).collect();
        self.source.ack_in(tx, &receipts).await
    }

    pub(super) async fn begin(&self) -> <F::Store as Store>::Tx {
        let session = self.store.connect().await.expect("a store that is there can be connected to");
        session.begin(Duration::from_secs(10)).await.expect("a fresh connection can begin a transaction")
    }

    pub(super) async fn release(&self, deliveries: Vec<DeliveryOf<F>>, delay: Duration) {
        let release = Release { delay, reason: Some("the case said so".to_owned()) };
        self.source.release(deliveries, release).await.expect("deliveries can be released");
    }
}

impl<F: SourceFixture> fmt::Debug for Setup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What deliveries say.
pub(super) fn texts<R>(deliveries: &[Delivery<R>]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned()).collect()
}
