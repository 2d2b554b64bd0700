//! Which queue is which, and how many lanes it has.

use std::collections::BTreeSet;

use oncebox_core::StoreErrorKind;
use oncebox_core::queue::{QueueSpec, QueueStore};
use tokio::task::JoinSet;

use super::steps::{
    LANES, LEASE_AND_MORE, add, hold, in_order, lease, lease_lanes, message, open, ordered, owner, receipts, settle,
    texts, unordered,
};
use crate::eventually::stays_pending;
use crate::store::steps::assert_kind;
use crate::store::{Setup, StoreFixture};

/// A name gets the same id each time, from any handle.
pub async fn a_queue_keeps_its_id<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let id = open(&setup.store, &unordered("payments")).await;
    let upper = open(&setup.store, &unordered("PAYMENTS")).await;
    assert_ne!(upper, id);
    assert_eq!(open(&setup.store, &unordered("payments")).await, id);
    let other = setup.fixture.reopen(&setup.store).await;
    assert_eq!(open(&other, &unordered("payments")).await, id);
}

/// Processes that start at the same time and open the same queue agree on its id and its lanes.
pub async fn a_queue_opened_by_many_at_once_gets_one_id<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let store = setup.store.clone();
        tasks.spawn(async move { open(&store, &ordered("payments")).await });
    }
    let ids: BTreeSet<_> = tasks.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let queue = open(&setup.store, &ordered("payments")).await;
    let held = hold(&setup.store, queue, owner(&setup.clock)).await;
    assert_eq!(held.lanes.len(), usize::from(LANES));
}

/// A message is leased from the queue that it was put into, and settled there.
pub async fn queues_stay_apart<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    add(store, &unordered("payments"), [message("payment")]).await;
    add(store, &unordered("parcels"), [message("parcel")]).await;
    let (payments, parcels) = (open(store, &unordered("payments")).await, open(store, &unordered("parcels")).await);
    let leased = lease(store, payments, 10).await;
    assert_eq!(texts(&leased), ["payment"]);
    assert_kind(settle(store, parcels, &receipts(&leased)).await, StoreErrorKind::Fenced);
    settle(store, payments, &receipts(&leased)).await.expect("a leased row can be settled");
    assert_eq!(texts(&lease(store, parcels, 10).await), ["parcel"]);
}

/// The number of lanes decides which lane a key is in, so it stays as long as there are messages in lanes.
pub async fn lanes_change_only_while_the_queue_is_empty<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let spec = ordered("payments");
    let queue = open(store, &spec).await;
    let doubled = QueueSpec { lanes: Some(LANES * 2), ..spec.clone() };
    let without = QueueSpec { lanes: None, ..spec.clone() };
    add(store, &spec, [in_order("a", "1")]).await;
    assert_kind(store.queue(&doubled).await, StoreErrorKind::Configuration);
    assert_kind(store.queue(&without).await, StoreErrorKind::Configuration);
    assert_eq!(open(store, &spec).await, queue, "the refusals changed nothing");

    let owner = owner(&setup.clock);
    let held = hold(store, queue, owner).await;
    let leased = lease_lanes(store, queue, &held.lanes).await;
    // A leased message is still in its lane.
    assert_kind(store.queue(&doubled).await, StoreErrorKind::Configuration);
    settle(store, queue, &receipts(&leased)).await.expect("a leased row can be settled");

    assert_eq!(open(store, &doubled).await, queue);
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(hold(store, queue, owner).await.lanes.len(), usize::from(LANES) * 2);
}

/// An owner from before a change of lanes holds nothing after it: epochs go on, they do not start again.
pub async fn lanes_held_before_a_change_lease_nothing_after_it<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let spec = ordered("payments");
    let queue = open(store, &spec).await;
    let before = hold(store, queue, owner(&setup.clock)).await;
    let fewer = QueueSpec { lanes: Some(LANES / 2), ..spec };
    open(store, &fewer).await;
    setup.advance(LEASE_AND_MORE).await;
    let after = hold(store, queue, owner(&setup.clock)).await;
    assert_eq!(after.lanes.len(), usize::from(LANES / 2));
    add(store, &fewer, [in_order("a", "1"), in_order("b", "2"), in_order("c", "3")]).await;
    assert!(lease_lanes(store, queue, &before.lanes).await.is_empty());
    assert_eq!(lease_lanes(store, queue, &after.lanes).await.len(), 3);
}

/// Who waits for something to be enqueued in this process is woken by the announcement, also if that came first.
pub async fn an_announcement_wakes_whoever_waits<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = setup.store.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { store.enqueued().await });
    if stays_pending(waiting.join_next()).await {
        setup.store.announce();
        // A store may leave everything to polling, and then never resolves.
        if stays_pending(waiting.join_next()).await {
            return;
        }
    }
    setup.store.announce();
    assert!(!stays_pending(setup.store.enqueued()).await, "an announcement between two waits was missed");
}
