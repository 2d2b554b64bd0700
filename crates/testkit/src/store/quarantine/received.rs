//! What stored mode keeps of messages that were processed.

use std::time::Duration;

use oncebox_core::horizon::{Consumers, RETENTION_MIN, SweepReceived};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::queue::{Enqueue, Enqueued, Keep, LeaseRequest, QueueId, QueueSpec, QueueStore, QueueTx};
use oncebox_core::{Clock, ConsumerId, ConsumerName, StoreErrorKind, Transaction};

use super::history::let_retention_pass;
use super::steps::{LEASE, dead, far_future, message, park};
use crate::store::steps::{assert_kind, begin, commit, consumer, fingerprint, key};
use crate::store::{Setup, StoreFixture};

fn name(text: &str) -> ConsumerName {
    ConsumerName::new(text).expect("cases use sound names")
}

async fn receive<S: QueueStore>(store: &S, queue: QueueId, text: &str) -> Enqueued {
    let mut tx = begin(store).await;
    let row = Enqueue { message: message(text), lane: None, once: Some((key(text), fingerprint(7))) };
    let answer = tx.enqueue(queue, &[row]).await.expect("messages can be stored").remove(0);
    commit(tx).await;
    answer
}

/// Processes what waits.
async fn process<S: QueueStore>(store: &S, queue: QueueId, max: usize) -> usize {
    let mut tx = begin(store).await;
    let request = LeaseRequest { queue, max, lease: LEASE, lanes: None };
    let leased = tx.lease(&request).await.expect("rows can be leased");
    let receipts: Vec<_> = leased.iter().map(|leased| leased.receipt).collect();
    tx.settle(queue, &receipts, Keep::Processed).await.expect("what is leased can be settled");
    commit(tx).await;
    receipts.len()
}

async fn sweep<S: QuarantineStore>(store: &S, consumer: ConsumerId, of: &str, limit: usize) -> u64 {
    let mut tx = begin(store).await;
    let sweep = SweepReceived { consumer, name: &name(of), older_than: far_future(), limit };
    let swept = tx.sweep_received(sweep).await.expect("processed messages can be removed");
    commit(tx).await;
    swept
}

/// What was processed long ago goes, a bounded number at a time; what waits, and what has a message parked under its key,
/// stays, and so does what others received.
pub async fn processed_messages_of_stored_mode_go<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + QueueStore>,
{
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let queue = store.queue(&QueueSpec::received(&name("invoices"), false)).await.expect("a queue can be opened");
    let theirs = store.queue(&QueueSpec::received(&name("reports"), false)).await.expect("a queue can be opened");
    for text in ["1", "2", "parked", "4"] {
        assert_eq!(receive(store, queue, text).await, Enqueued::Added);
    }
    receive(store, theirs, "1").await;
    assert_eq!((process(store, queue, 10).await, process(store, theirs, 10).await), (4, 1));
    assert_eq!(receive(store, queue, "waits").await, Enqueued::Added);
    park(store, &[dead(ours, "parked")]).await;
    park(store, &[dead(other, "4")]).await;
    let_retention_pass(&setup).await;
    assert_eq!(sweep(store, ours, "invoices", 2).await, 2);
    assert_eq!(sweep(store, ours, "invoices", 10).await, 1, "another consumer's parked message holds nothing here");
    assert_eq!(sweep(store, ours, "invoices", 10).await, 0);
    assert_eq!(sweep(store, ours, "nobody", 10).await, 0);
    for (text, stored) in [("parked", Enqueued::Duplicate), ("waits", Enqueued::Duplicate), ("1", Enqueued::Added)] {
        assert_eq!(receive(store, queue, text).await, stored, "{text}");
    }
    assert_eq!(receive(store, theirs, "1").await, Enqueued::Duplicate);
    assert_eq!(process(store, queue, 10).await, 2, "what waited, and what came anew");
}

/// What was processed just now stays, whoever asks.
pub async fn young_processed_messages_stay<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + QueueStore>,
{
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let queue = store.queue(&QueueSpec::received(&name("invoices"), false)).await.expect("a queue can be opened");
    receive(store, queue, "1").await;
    process(store, queue, 10).await;
    let mut tx = begin(store).await;
    let oldest_kept = setup.clock.now() - RETENTION_MIN;
    let young = oldest_kept + Duration::from_secs(1);
    let invoices = name("invoices");
    let asked = SweepReceived { consumer: ours, name: &invoices, older_than: young, limit: 10 };
    assert_kind(tx.sweep_received(asked).await, StoreErrorKind::Refused);
    tx.rollback().await;
    let mut tx = begin(store).await;
    let allowed = SweepReceived { older_than: oldest_kept, ..asked };
    assert_eq!(tx.sweep_received(allowed).await.expect("processed messages can be removed"), 0);
    tx.rollback().await;
    assert_eq!(receive(store, queue, "1").await, Enqueued::Duplicate);
}
