//! Lanes have one owner at a time, and an epoch that tells a late one.

use std::collections::BTreeSet;

use oncebox_core::queue::{HeldLane, HeldLanes, LaneRequest, QueueId, QueueStore, QueueTx};
use oncebox_core::source::LaneNumber;
use oncebox_core::{StoreErrorKind, Transaction};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::steps::{
    LANES, LEASE, LEASE_AND_MORE, add, hold, hold_as, in_order, lease_lanes, open, ordered, owner, receipts, settle,
};
use crate::store::steps::{assert_kind, begin, commit};
use crate::store::{Setup, StoreFixture};

const ALL: usize = LANES as usize;

fn numbers(held: &HeldLanes) -> BTreeSet<LaneNumber> {
    held.lanes.iter().map(|held| held.lane).collect()
}

fn epoch(held: &[HeldLane], lane: LaneNumber) -> i64 {
    held.iter().find(|held| held.lane == lane).expect("the lane is held").epoch
}

/// An owner that is alone holds every lane, and keeps each under the same epoch when it renews in time.
pub async fn a_single_owner_holds_all_lanes<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &ordered("payments")).await;
    let owner = owner(&setup.clock);
    let mut first = hold(&setup.store, queue, owner).await;
    assert_eq!((first.lanes.len(), first.share), (ALL, ALL));
    setup.advance(LEASE / 2).await;
    let mut renewed = hold(&setup.store, queue, owner).await;
    setup.advance(LEASE / 2 + LEASE / 4).await;
    assert_eq!(hold(&setup.store, queue, owner).await.lanes.len(), ALL, "renewing made the lease longer");
    first.lanes.sort();
    renewed.lanes.sort();
    assert_eq!(first.lanes, renewed.lanes);
}

/// A second owner gets what the first gives back down to a fair share, and none that the first still holds.
pub async fn two_owners_share_the_lanes_fairly<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &ordered("payments")).await;
    let (one, two) = (owner(&setup.clock), owner(&setup.clock));
    assert_eq!(hold(store, queue, one).await.lanes.len(), ALL);
    let nothing_free = hold(store, queue, two).await;
    assert_eq!((nothing_free.lanes.len(), nothing_free.share), (0, ALL / 2));

    let still_all = hold(store, queue, one).await;
    assert_eq!((still_all.lanes.len(), still_all.share), (ALL, ALL / 2), "lanes are given back, not taken away");
    let give_back: Vec<LaneNumber> = still_all.lanes.iter().map(|held| held.lane).take(ALL / 2).collect();
    let kept = hold_as(store, LaneRequest { queue, owner: one, lease: LEASE, give_back: give_back.clone() }).await;
    assert_eq!(kept.lanes.len(), ALL / 2, "what was given back is not taken again at once");

    let taken = hold(store, queue, two).await;
    assert_eq!(numbers(&taken), give_back.into_iter().collect());
    for lane in &taken.lanes {
        assert!(lane.epoch > epoch(&still_all.lanes, lane.lane), "a lane that changed hands has a higher epoch");
    }
    assert_eq!(hold(store, queue, one).await.lanes.len(), ALL / 2, "the first keeps its share");
}

/// Owners that ask at the same time never hold the same lane; asking again, they hold all lanes between them.
pub async fn a_lane_is_held_by_one_owner<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &ordered("payments")).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (store, owner) = (setup.store.clone(), owner(&setup.clock));
        tasks.spawn(async move { (owner, hold_until_it_passes(&store, queue, owner).await) });
    }
    let (owners, held): (Vec<Uuid>, Vec<Vec<HeldLane>>) = tasks.join_all().await.into_iter().unzip();
    assert_all_different(&held.concat());
    let mut held = Vec::new();
    for owner in owners {
        held.extend(hold(&setup.store, queue, owner).await.lanes);
    }
    assert_all_different(&held);
    assert_eq!(held.len(), ALL);
}

fn assert_all_different(held: &[HeldLane]) {
    let distinct: BTreeSet<LaneNumber> = held.iter().map(|held| held.lane).collect();
    assert_eq!(held.len(), distinct.len(), "a lane has two owners: {held:?}");
}

async fn hold_until_it_passes<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) -> Vec<HeldLane> {
    loop {
        let mut tx = begin(store).await;
        match tx.hold_lanes(&LaneRequest { queue, owner, lease: LEASE, give_back: vec![] }).await {
            Ok(held) => {
                commit(tx).await;
                return held.lanes;
            }
            Err(error) => {
                assert_kind::<()>(Err(error), StoreErrorKind::Contended);
                tx.rollback().await;
            }
        }
    }
}

/// Lanes taken, renewed or left in a transaction that rolled back are as they were, and so is the share.
pub async fn lanes_held_in_a_rolled_back_transaction_are_not_held<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &ordered("payments")).await;
    let (one, two) = (owner(&setup.clock), owner(&setup.clock));
    let mut tx = begin(store).await;
    let request = LaneRequest { queue, owner: one, lease: LEASE, give_back: vec![] };
    assert_eq!(tx.hold_lanes(&request).await.expect("lanes can be held").lanes.len(), ALL);
    tx.rollback().await;
    let held = hold(store, queue, two).await;
    assert_eq!((held.lanes.len(), held.share), (ALL, ALL));

    let mut tx = begin(store).await;
    tx.leave_lanes(queue, two).await.expect("lanes can be left");
    tx.rollback().await;
    let other = hold(store, queue, one).await;
    assert_eq!((other.lanes.len(), other.share), (0, ALL / 2));
}

/// A lease takes from the lanes that are named, and only under their present epoch.
pub async fn a_lease_takes_only_from_lanes_that_are_held<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    let keys: Vec<String> = (0..20).map(|n| format!("account-{n}")).collect();
    add(store, &spec, keys.iter().map(|key| in_order(key, key))).await;
    let held = hold(store, queue, owner(&setup.clock)).await;
    assert!(lease_lanes(store, queue, &[]).await.is_empty());
    let forged: Vec<HeldLane> = held.lanes.iter().map(|held| HeldLane { epoch: held.epoch + 1, ..*held }).collect();
    assert!(lease_lanes(store, queue, &forged).await.is_empty());

    let (some, rest) = held.lanes.split_at(ALL / 2);
    let mut leased = 0;
    for lanes in [some, rest] {
        for row in lease_lanes(store, queue, lanes).await {
            let lane = row.receipt.lane.expect("a row of an ordered queue is leased in its lane");
            assert!(lanes.contains(&lane));
            assert_eq!(Some(lane.lane), spec.lane(row.message.order_key.as_deref()));
            leased += 1;
        }
    }
    assert_eq!(leased, keys.len());
}

/// A lane whose lease ran out leases nothing, even before someone else takes it.
pub async fn an_expired_lane_leases_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    add(store, &spec, [in_order("a", "1")]).await;
    let owner = owner(&setup.clock);
    let expired = hold(store, queue, owner).await;
    setup.advance(LEASE_AND_MORE).await;
    assert!(lease_lanes(store, queue, &expired.lanes).await.is_empty());
    let renewed = hold(store, queue, owner).await;
    assert_eq!(lease_lanes(store, queue, &renewed.lanes).await.len(), 1);
}

/// Lanes of an owner that is gone go to whoever asks next, with a higher epoch.
pub async fn expired_lanes_are_taken_over_with_a_higher_epoch<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &ordered("payments")).await;
    let gone = hold(store, queue, owner(&setup.clock)).await;
    setup.advance(LEASE_AND_MORE).await;
    let next = hold(store, queue, owner(&setup.clock)).await;
    assert_eq!((next.lanes.len(), next.share), (ALL, ALL), "one that is gone has no share");
    for lane in &next.lanes {
        assert!(lane.epoch > epoch(&gone.lanes, lane.lane));
    }
}

/// An owner whose lanes were taken over can neither lease nor settle in them, although its rows were leased in time.
pub async fn the_old_owner_leases_and_settles_nothing_after_a_takeover<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    let (one, two) = (owner(&setup.clock), owner(&setup.clock));
    let old = hold(store, queue, one).await;
    // Late in the lane's lease: the row's own lease outlives it, so only the epoch tells.
    setup.advance(LEASE - LEASE / 10).await;
    add(store, &spec, [in_order("a", "1")]).await;
    let leased = receipts(&lease_lanes(store, queue, &old.lanes).await);
    assert_eq!(leased.len(), 1);
    setup.advance(LEASE / 5).await;
    let new = hold(store, queue, two).await;
    assert_eq!(new.lanes.len(), ALL);

    assert_kind(settle(store, queue, &leased).await, StoreErrorKind::Fenced);
    add(store, &spec, [in_order("b", "2")]).await;
    assert!(lease_lanes(store, queue, &old.lanes).await.is_empty());
    assert_eq!(hold(store, queue, one).await.lanes, [], "the lanes have a new owner");
    assert_eq!(lease_lanes(store, queue, &new.lanes).await.len(), 1);
}

/// An owner that leaves gives all its lanes and its share to the others, without waiting for its leases to end.
pub async fn lanes_that_were_left_can_be_taken_at_once<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &ordered("payments")).await;
    let (one, two) = (owner(&setup.clock), owner(&setup.clock));
    let left = hold(store, queue, one).await;
    let mut tx = begin(store).await;
    tx.leave_lanes(queue, one).await.expect("lanes can be left");
    commit(tx).await;
    let taken = hold(store, queue, two).await;
    assert_eq!((taken.lanes.len(), taken.share), (ALL, ALL));
    for lane in &taken.lanes {
        assert!(lane.epoch > epoch(&left.lanes, lane.lane));
    }
}
