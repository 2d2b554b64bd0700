//! A row belongs to a lane, and a lane to one relay at a time.

use oncebox_core::StoreErrorKind;
use oncebox_core::outbox::{LANES, OutboxStore, lane};
use oncebox_core::queue::{HeldLane, QueueStore};

use super::steps::{
    LEASE_AND_MORE, aside, emit, end, fetch, fetch_texts, hold, in_order, outgoing, receipts, set_aside, texts,
};
use crate::store::steps::assert_kind;
use crate::store::{Setup, StoreFixture};

/// The same for all who open it.
pub async fn the_outbox_has_one_queue_of_lanes<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = setup.store.outbox().await.expect("the outbox can be opened");
    let other = setup.fixture.reopen(&setup.store).await;
    assert_eq!(other.outbox().await.expect("the outbox can be opened"), queue);
    assert_eq!(hold(&other, &setup.clock).await.len(), usize::from(LANES));
}

/// Rows of other lanes are left alone, and so are those of lanes that are not held under that epoch, or no longer.
pub async fn a_fetch_returns_only_rows_of_lanes_that_are_held<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let rows: Vec<_> = (0..100).map(|n| in_order("orders", &format!("account-{n}"), &format!("{n}"))).collect();
    emit(store, &rows).await;
    let held = hold(store, &setup.clock).await;
    let (some, rest) = held.split_at(held.len() / 3);
    let mut came = 0;
    for lanes in [some, rest] {
        for row in fetch(store, lanes, 1000).await {
            assert!(lanes.contains(&row.receipt.lane));
            assert_eq!(row.receipt.lane.lane, lane(&row.outgoing));
            came += 1;
        }
    }
    assert_eq!(came, rows.len());
    assert!(fetch(store, &[], 1000).await.is_empty());
    let forged: Vec<HeldLane> = held.iter().map(|held| HeldLane { epoch: held.epoch + 1, ..*held }).collect();
    assert!(fetch(store, &forged, 1000).await.is_empty());
    setup.advance(LEASE_AND_MORE).await;
    assert!(fetch(store, &held, 1000).await.is_empty(), "the lease is over");
}

/// Whoever lost its lanes ends nothing: the new owner sends those rows again, with the same ids.
pub async fn a_stale_end_is_fenced_and_ends_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    emit(store, &[outgoing("orders", "1"), in_order("orders", "a", "2")]).await;
    let old = fetch(store, &hold(store, &setup.clock).await, 10).await;
    setup.advance(LEASE_AND_MORE).await;
    let lanes = hold(store, &setup.clock).await;
    assert_kind(end(store, &receipts(&old)).await, StoreErrorKind::Fenced);
    let new = fetch(store, &lanes, 10).await;
    assert_eq!(texts(&new), ["1", "2"]);
    end(store, &receipts(&new)).await.expect("the new owner can end them");
    assert_kind(end(store, &receipts(&old)).await, StoreErrorKind::Fenced);
    assert!(fetch(store, &lanes, 10).await.is_empty());
}

/// Nor does it set anything aside.
pub async fn a_stale_owner_sets_nothing_aside<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
    let old = fetch(store, &hold(store, &setup.clock).await, 10).await;
    setup.advance(LEASE_AND_MORE).await;
    let lanes = hold(store, &setup.clock).await;
    assert_kind(set_aside(store, old[0].receipt, "too large").await, StoreErrorKind::Fenced);
    assert_eq!(fetch_texts(store, &lanes).await, ["1", "2"]);
    assert!(aside(store).await.is_empty());
}

/// All or nothing.
pub async fn one_stale_lane_fences_the_whole_end<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    emit(store, &(0..20).map(|n| outgoing("orders", &format!("{n}"))).collect::<Vec<_>>()).await;
    let lanes = hold(store, &setup.clock).await;
    let mut rows = receipts(&fetch(store, &lanes, 100).await);
    rows[7].lane.epoch -= 1;
    assert_kind(end(store, &rows).await, StoreErrorKind::Fenced);
    assert_eq!(fetch(store, &lanes, 100).await.len(), 20);
}
