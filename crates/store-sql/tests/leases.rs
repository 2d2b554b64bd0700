//! Leases by the server's own clock, and lanes that change hands while a settlement is on its way.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, SqlitePlace, begin, commit};
use oncebox_core::queue::{
    Enqueue, HeldLane, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore, QueueTx,
};
use oncebox_core::{Clock, ConsumerName, Message, StoreErrorKind, SystemClock, Transaction};
use oncebox_testkit::{ManualClock, eventually, stays_pending};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);

async fn open<S: QueueStore>(store: &S, lanes: Option<u16>) -> (QueueSpec, QueueId) {
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes };
    let queue = store.queue(&spec).await.unwrap();
    (spec, queue)
}

async fn add<S: QueueStore>(store: &S, spec: &QueueSpec, queue: QueueId, order_keys: &[&str]) {
    let enqueue = |key: &&str| {
        let message = Message::new("paid").with_order_key(*key);
        Enqueue { lane: spec.lane(message.order_key.as_deref()), message, once: None }
    };
    let mut tx = begin(store).await;
    tx.enqueue(queue, &order_keys.iter().map(enqueue).collect::<Vec<_>>()).await.unwrap();
    commit(tx).await;
}

async fn lease<S: QueueStore>(store: &S, queue: QueueId, lease: Duration, lanes: Option<Vec<HeldLane>>) -> Vec<Leased> {
    let mut tx = begin(store).await;
    let leased = tx.lease(&LeaseRequest { queue, max: 100, lease, lanes }).await.unwrap();
    commit(tx).await;
    leased
}

async fn hold<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) -> Vec<HeldLane> {
    let mut tx = begin(store).await;
    let held = tx.hold_lanes(&LaneRequest { queue, owner, lease: LEASE, give_back: Vec::new() }).await.unwrap();
    commit(tx).await;
    held.lanes
}

/// No test clock here: a lease ends by the clock of the store.
async fn a_lease_ends_by_the_stores_clock<S: QueueStore>(store: S) {
    let (spec, queue) = open(&store, None).await;
    add(&store, &spec, queue, &["a", "b"]).await;
    assert_eq!(lease(&store, queue, Duration::from_millis(400), None).await.len(), 2);
    assert!(lease(&store, queue, LEASE, None).await.is_empty(), "they are leased");
    let again = eventually("their leases end", async || {
        let again = lease(&store, queue, LEASE, None).await;
        (!again.is_empty()).then_some(again)
    })
    .await;
    assert_eq!(again.iter().map(|leased| leased.receipt.fence).collect::<Vec<_>>(), [2, 2]);
}

#[tokio::test]
async fn a_lease_ends_by_the_clock_of_sqlite() {
    a_lease_ends_by_the_stores_clock(SqlitePlace::new().open().await).await;
}

#[tokio::test]
async fn a_lease_ends_by_the_clock_of_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_lease_ends_by_the_clock_of_postgres") else { return };
    a_lease_ends_by_the_stores_clock(place.open().await).await;
}

/// A takeover waits for a settlement that is on its way; a renewal does not.
#[tokio::test]
async fn a_lane_does_not_change_hands_under_a_settlement() {
    let Some(place) = PostgresPlace::or_skip("a_lane_does_not_change_hands_under_a_settlement") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let (spec, queue) = open(&store, Some(1)).await;
    add(&store, &spec, queue, &["a"]).await;
    let (owner, other) = (SystemClock.id(), SystemClock.id());
    let lanes = hold(&store, queue, owner).await;
    let leased = lease(&store, queue, LEASE, Some(lanes)).await;

    let mut settling = begin(&store).await;
    settling.settle(queue, &[leased[0].receipt], Keep::Nothing).await.unwrap();
    assert_eq!(hold(&store, queue, owner).await.len(), 1, "the owner renews beside it");
    clock.advance(LEASE * 2);
    assert!(hold(&store, queue, other).await.is_empty(), "nobody takes the lane before the settlement ends");
    commit(settling).await;
    assert_eq!(hold(&store, queue, other).await[0].epoch, leased[0].receipt.lane.unwrap().epoch + 1);
}

/// A row that is visible again but locked by its late settlement holds back the later rows of its order key.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_is_waited_for_in_order() {
    let Some(place) = PostgresPlace::or_skip("a_locked_row_is_waited_for_in_order") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let (spec, queue) = open(&store, Some(1)).await;
    add(&store, &spec, queue, &["a"]).await;
    let owner = SystemClock.id();
    let lanes = hold(&store, queue, owner).await;
    let first = lease(&store, queue, LEASE / 2, Some(lanes.clone())).await;
    add(&store, &spec, queue, &["a"]).await;
    clock.advance(LEASE * 2 / 3);

    // The first lease has run out. Its holder extends it late, while another lease is already waiting for the row.
    let mut late = begin(&store).await;
    late.extend(queue, &[first[0].receipt], LEASE).await.unwrap();
    let mut waiting = {
        let (store, lanes) = (store.clone(), lanes.clone());
        tokio::task::JoinSet::from_iter([async move { lease(&store, queue, LEASE, Some(lanes)).await }])
    };
    assert!(stays_pending(waiting.join_next()).await, "it waits for the row");
    commit(late).await;
    assert!(waiting.join_all().await.remove(0).is_empty(), "the second message waits behind the first");
}

#[tokio::test]
async fn a_fenced_settlement_commits_nothing() {
    let Some(place) = PostgresPlace::or_skip("a_fenced_settlement_commits_nothing") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let (spec, queue) = open(&store, None).await;
    add(&store, &spec, queue, &["a"]).await;
    let old = lease(&store, queue, LEASE, None).await;
    clock.advance(LEASE * 2);
    let new = lease(&store, queue, LEASE, None).await;
    let mut tx = begin(&store).await;
    let error = tx.settle(queue, &[old[0].receipt], Keep::Processed).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Fenced);
    tx.rollback().await.unwrap();
    let mut tx = begin(&store).await;
    tx.settle(queue, &[new[0].receipt], Keep::Processed).await.unwrap();
    commit(tx).await;
    assert_eq!(place.count("queue where processed_at is not null").await, 1);
}
