//! Offsets in the store: what was handled is known by one number for each partition, which commits with the effects.
//!
//! ```text
//!  assigned ─▶ take over in the store, under a new epoch ─▶ begin at the store's offset
//!  message's transaction: lock the offset · below it: done · handle · move it on, from where it was ─▶ commit
//!  commit in the group: afterwards, for those who watch its lag
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncebox_core::counters::Depth;
use oncebox_core::offsets::{HeldLog, OffsetStep, OffsetStore, Offsets};
use oncebox_core::source::{LaneNumber, SourceCapabilities};
use oncebox_core::{
    ConsumerId, Delivery, Release, Source, SourceError, SourceErrorKind, StoreError, StoreErrorKind, planted,
};
use tokio::runtime::Handle;

use super::ledger::{StoreLedger, log};
use super::partitions::KafkaReceipt;
use super::{KafkaSource, poller};

/// A topic, read in a consumer group, whose offsets are kept in the consumer's store; made by
/// [`KafkaSource::offsets_in_store`].
///
/// The next offset of each partition commits in the transaction of the messages before it. So a message needs no record of
/// its own, and a crash between that commit and the broker's knowing of it repeats nothing: reading begins at the store's
/// offset, whatever the group's is. An owner that does not know yet that its partition has moved on can commit nothing.
///
/// It tells messages apart by their place alone: what a producer sends twice is handled twice. It needs
/// `key(KeyStrategy::Coordinate)` on the consumer, which says so, and goes with neither `order_by`, `versioned`, business
/// keys nor stored mode. Each partition is handled in its order by one lane; a message that fails is set aside with a record
/// of its own, and those behind it go on.
#[derive(Debug)]
pub struct OffsetsInStore {
    source: KafkaSource,
    consumer: OnceLock<ConsumerId>,
}

impl OffsetsInStore {
    pub(super) fn new(source: KafkaSource) -> Self {
        Self { source, consumer: OnceLock::new() }
    }

    /// Goes on at the group's offset in partitions for which the store has none: for the first run after a consumer that
    /// kept its offsets in the group has stopped, and has been told so (a consumer that was killed may have done more than
    /// the group knows, and that is done again). Where the group has none either, `start_from` says where to begin.
    #[must_use]
    pub fn adopt_group_offsets(mut self) -> Self {
        self.source = self.source.with(|config| config.adopts_group = true);
        self
    }

    fn consumer(&self) -> ConsumerId {
        self.consumer.get().copied().unwrap_or(ConsumerId(0))
    }

    fn held(&self, receipt: &KafkaReceipt) -> HeldLog {
        HeldLog { log: log(&self.source.config.topic, receipt.partition), epoch: receipt.held }
    }

    /// Gives up a partition that has a new owner in the store, and joins the group anew: the store's owner and the group's
    /// must be the same in the end. Of several partitions nobody knows which it was; then they are tried one by one.
    fn heed(&self, error: StoreError, receipts: &[&KafkaReceipt]) -> StoreError {
        let one = receipts.windows(2).all(|pair| pair[0].partition == pair[1].partition);
        if let Some(receipt) = receipts.first().filter(|_| one && error.kind() == StoreErrorKind::Fenced) {
            let mut state = self.source.shared.state();
            if state.partitions.lose(receipt) {
                tracing::info!(
                    topic = %self.source.config.topic, partition = receipt.partition,
                    "another process has taken this partition over in the store; joining the group anew"
                );
                state.must_rebuild = true;
            }
            drop(state);
            self.source.shared.tell_thread();
        }
        error
    }

    /// One step for each partition, over records that follow each other.
    fn steps(&self, receipts: &[&KafkaReceipt]) -> Result<Vec<OffsetStep>, StoreError> {
        let mut steps: BTreeMap<i32, OffsetStep> = BTreeMap::new();
        let mut sorted = receipts.to_vec();
        sorted.sort_unstable_by_key(|receipt| (receipt.partition, receipt.offset));
        for receipt in sorted {
            let KafkaReceipt { partition, offset, from, witness, .. } = *receipt;
            let held = self.held(receipt);
            match steps.get_mut(&partition) {
                None => drop(steps.insert(partition, OffsetStep { held, from, to: offset + 1, witness })),
                Some(step) if step.to == from && step.held == held => {
                    (step.to, step.witness) = (offset + 1, witness);
                }
                Some(step) => {
                    let (log, to) = (&step.held.log, step.to);
                    let why = format!(
                        "of partition {log}, what follows offset {to} is not done, and something after it is; nothing was \
                         committed; start the consumer again, and it goes on from the store's offset"
                    );
                    return Err(StoreError::new(StoreErrorKind::Corrupt, "advance offsets", why));
                }
            }
        }
        Ok(steps.into_values().collect())
    }
}

impl<S: OffsetStore> Source<S> for OffsetsInStore {
    type Receipt = KafkaReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        let mut capabilities = Source::<S>::capabilities(&self.source);
        capabilities.settles_in_transaction = true;
        capabilities.offsets_in_store = true;
        capabilities
    }

    fn serve(&self, consumer: ConsumerId) {
        self.consumer.get_or_init(|| consumer);
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        let KafkaSource { config, shared } = &self.source;
        let Some(consumer) = self.consumer.get().copied() else {
            let reason = "it belongs to no consumer; hand it to one, which opens it";
            return Err(config.error(SourceErrorKind::Configuration, "open", reason));
        };
        let ledger =
            StoreLedger { store: store.clone(), consumer, topic: config.topic.clone(), runtime: Handle::current() };
        poller::start(Arc::clone(config), Arc::clone(shared), Some(Arc::new(ledger))).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<KafkaReceipt>>, SourceError> {
        let mut deliveries = Source::<S>::receive(&self.source, max, wait).await?;
        for delivery in &mut deliveries {
            delivery.lane = Some(LaneNumber(delivery.receipt().partition));
        }
        Ok(deliveries)
    }

    async fn done_in(&self, tx: &mut S::Tx, receipts: &[&KafkaReceipt]) -> Result<Vec<bool>, StoreError> {
        let held: BTreeSet<HeldLog> = receipts.iter().map(|receipt| self.held(receipt)).collect();
        let held: Vec<HeldLog> = held.into_iter().collect();
        let next = tx.lock_offsets(self.consumer(), &held).await.map_err(|error| self.heed(error, receipts))?;
        let next: BTreeMap<HeldLog, i64> = held.into_iter().zip(next).collect();
        let is_done =
            |receipt: &&KafkaReceipt| next.get(&self.held(receipt)).is_some_and(|next| receipt.offset < *next);
        Ok(receipts.iter().map(is_done).collect())
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&KafkaReceipt]) -> Result<(), StoreError> {
        if planted::is("offset-not-advanced") {
            return Ok(());
        }
        let steps = self.steps(receipts)?;
        tx.advance_offsets(self.consumer(), &steps).await.map_err(|error| self.heed(error, receipts))
    }

    async fn ack(&self, deliveries: Vec<Delivery<KafkaReceipt>>) -> Result<(), SourceError> {
        Source::<S>::ack(&self.source, deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<KafkaReceipt>>, release: Release) -> Result<(), SourceError> {
        Source::<S>::release(&self.source, deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<KafkaReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.source, receipts).await
    }

    async fn backlog(&self) -> Result<Option<Depth>, SourceError> {
        Source::<S>::backlog(&self.source).await
    }

    async fn close(&self) {
        Source::<S>::close(&self.source).await;
    }
}
