//! Queues in one store have nothing to do with each other, and an owner of lanes nothing with another's.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, commit};
use oncebox_core::queue::{
    Enqueue, Enqueued, HeldLane, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore,
    QueueTx, RowReceipt,
};
use oncebox_core::{Clock, ConsumerName, Message, StoreErrorKind, Transaction};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);
const LANES: u16 = 8;
const ALL: usize = LANES as usize;

macro_rules! on_both_stores {
    ($($case:ident,)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::SqliteFixture::default(), super::$case).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::PostgresFixture::default(), super::$case).await;
                }
            )+
        }
    };
}

on_both_stores! {
    one_owner_in_two_queues_has_lanes_in_each,
    leaving_one_queue_leaves_the_other_alone,
    a_member_that_is_gone_from_one_queue_stays_in_the_other,
    a_member_that_is_gone_takes_no_other_along,
    a_member_that_renews_stays_a_member,
    an_epoch_of_one_queue_is_worth_nothing_in_another,
    other_lanes_outlive_a_change_of_lanes,
    messages_of_one_queue_hold_up_no_change_in_another,
    lanes_that_are_given_back_are_those_that_were_named,
    whoever_takes_lanes_takes_its_share,
    a_lane_of_another_owner_is_not_given_back,
    a_lane_that_was_given_back_leases_nothing,
    a_lane_that_ran_out_comes_back_with_a_higher_epoch,
    a_receipt_is_good_in_its_own_queue_alone,
    rows_of_another_queue_hold_up_no_order_key,
    what_is_done_to_a_row_in_hand_is_done_to_no_other,
    a_row_of_a_lane_comes_again_with_a_higher_fence,
    a_later_row_in_hand_holds_up_no_earlier_one,
    many_rows_behind_one_in_hand_leave_room_for_others,
    the_oldest_rows_of_lanes_come_first_and_no_more_than_asked_for,
    what_was_processed_and_kept_holds_up_no_change_of_lanes,
    a_key_is_known_to_its_own_queue_alone,
    whoever_gave_a_lane_back_does_nothing_to_its_rows,
}

fn spec(name: &str, lanes: Option<u16>) -> QueueSpec {
    QueueSpec { name: ConsumerName::new(name).unwrap(), lanes }
}

async fn open<S: QueueStore>(store: &S, name: &str) -> QueueId {
    store.queue(&spec(name, Some(LANES))).await.unwrap()
}

async fn hold<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) -> HeldLanes {
    hold_and(store, queue, owner, &[]).await
}

/// Holds, and gives back the lanes with these receipts.
async fn hold_and<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid, back: &[HeldLane]) -> HeldLanes {
    let mut tx = begin(store).await;
    let give_back = back.iter().map(|held| held.lane).collect();
    let held = tx.hold_lanes(&LaneRequest { queue, owner, lease: LEASE, give_back }).await.unwrap();
    commit(tx).await;
    held
}

async fn leave<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) {
    let mut tx = begin(store).await;
    tx.leave_lanes(queue, owner).await.unwrap();
    commit(tx).await;
}

async fn add<S: QueueStore>(store: &S, queue: QueueId, order_key: &str, text: &str) {
    let message =
        Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned()).with_order_key(order_key);
    let lane = spec("any", Some(LANES)).lane(Some(order_key));
    let mut tx = begin(store).await;
    tx.enqueue(queue, &[Enqueue { message, lane, once: None }]).await.unwrap();
    commit(tx).await;
}

async fn lease<S: QueueStore>(store: &S, queue: QueueId, lanes: &[HeldLane]) -> Vec<Leased> {
    let mut tx = begin(store).await;
    let leased = tx.lease(&LeaseRequest { queue, max: 100, lease: LEASE, lanes: Some(lanes.to_vec()) }).await.unwrap();
    commit(tx).await;
    leased
}

async fn settle<S: QueueStore>(store: &S, queue: QueueId, rows: &[RowReceipt]) -> Result<(), StoreErrorKind> {
    let mut tx = begin(store).await;
    let done = tx.settle(queue, rows, Keep::Nothing).await;
    match &done {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    done.map_err(|error| error.kind())
}

fn receipts(leased: &[Leased]) -> Vec<RowReceipt> {
    leased.iter().map(|leased| leased.receipt).collect()
}

/// A process that serves two queues has all lanes of each, and renews them queue by queue.
async fn one_owner_in_two_queues_has_lanes_in_each<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let owner = setup.clock.id();
    let first = hold(store, payments, owner).await;
    assert_eq!((first.lanes.len(), first.share), (ALL, ALL));
    let second = hold(store, invoices, owner).await;
    assert_eq!((second.lanes.len(), second.share), (ALL, ALL), "members and lanes are counted for each queue");
    assert_eq!(hold(store, payments, owner).await.lanes, first.lanes);
    // Only payments is renewed: the lanes of invoices run out by themselves.
    setup.advance(LEASE / 2).await;
    hold(store, payments, owner).await;
    setup.advance(LEASE / 2 + LEASE / 10).await;
    let other = hold(store, invoices, setup.clock.id()).await;
    assert_eq!((other.lanes.len(), other.share), (ALL, ALL));
    assert_eq!(hold(store, payments, owner).await.lanes, first.lanes);
}

/// A process that leaves one queue keeps what it has in the other, lanes and share; and takes nobody else's along.
async fn leaving_one_queue_leaves_the_other_alone<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let (one, two) = (setup.clock.id(), setup.clock.id());
    let in_payments = hold(store, payments, one).await;
    let in_invoices = hold(store, invoices, one).await;
    add(store, payments, "a", "1").await;
    leave(store, payments, one).await;
    assert!(lease(store, payments, &in_payments.lanes).await.is_empty());
    let other = hold(store, invoices, two).await;
    assert_eq!((other.lanes.len(), other.share), (0, ALL / 2));
    assert_eq!(hold(store, invoices, one).await.lanes, in_invoices.lanes);
    leave(store, invoices, two).await;
    let alone = hold(store, invoices, one).await;
    assert_eq!((alone.lanes, alone.share), (in_invoices.lanes, ALL));
}

/// Membership runs out queue by queue.
async fn a_member_that_is_gone_from_one_queue_stays_in_the_other<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let (one, two) = (setup.clock.id(), setup.clock.id());
    hold(store, payments, one).await;
    hold(store, invoices, one).await;
    setup.advance(LEASE / 2).await;
    hold(store, payments, one).await;
    setup.advance(LEASE / 2 + LEASE / 10).await;
    // It is gone from invoices and alive in payments.
    assert_eq!(hold(store, payments, two).await.share, ALL / 2, "gone elsewhere");
    assert_eq!(hold(store, invoices, two).await.share, ALL);
    assert_eq!(hold(store, payments, two).await.share, ALL / 2, "forgotten elsewhere");
}

/// Of three members one is gone: the other two share.
async fn a_member_that_is_gone_takes_no_other_along<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let (gone, one, two) = (setup.clock.id(), setup.clock.id(), setup.clock.id());
    hold(store, payments, gone).await;
    setup.advance(LEASE / 2).await;
    hold(store, payments, one).await;
    setup.advance(LEASE / 2 + LEASE / 10).await;
    assert_eq!(hold(store, payments, two).await.share, ALL / 2);
}

/// A member that renews in time counts as long as it does.
async fn a_member_that_renews_stays_a_member<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let (one, two) = (setup.clock.id(), setup.clock.id());
    for _ in 0..3 {
        hold(store, payments, one).await;
        setup.advance(LEASE / 2).await;
    }
    let late = hold(store, payments, two).await;
    assert_eq!((late.lanes.len(), late.share), (0, ALL / 2));
}

/// The lanes of two queues have the same numbers, and often the same epochs: a takeover in one is judged by its own.
async fn an_epoch_of_one_queue_is_worth_nothing_in_another<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let (one, two) = (setup.clock.id(), setup.clock.id());
    let old = hold(store, payments, one).await;
    let same = hold(store, invoices, one).await;
    assert_eq!(old.lanes, same.lanes, "the case needs equal epochs");
    setup.advance(LEASE - LEASE / 10).await;
    add(store, payments, "a", "1").await;
    let leased = receipts(&lease(store, payments, &old.lanes).await);
    assert_eq!(leased.len(), 1);
    hold(store, invoices, one).await;
    setup.advance(LEASE / 5).await;
    assert_eq!(hold(store, payments, two).await.lanes.len(), ALL, "payments has a new owner, invoices the old one");

    assert_eq!(settle(store, payments, &leased).await, Err(StoreErrorKind::Fenced));
    let mut tx = begin(store).await;
    tx.extend(payments, &leased, LEASE * 10).await.unwrap();
    tx.release(payments, &leased, LEASE * 10, None).await.unwrap();
    commit(tx).await;
    add(store, payments, "b", "2").await;
    assert!(lease(store, payments, &old.lanes).await.is_empty());
    setup.advance(LEASE - LEASE / 10).await;
    let new = hold(store, payments, two).await;
    assert_eq!(lease(store, payments, &new.lanes).await.len(), 2, "the old owner neither extended nor delayed its row");
}

/// One queue gets another number of lanes; those of others stay as they are, and so do their owners.
async fn other_lanes_outlive_a_change_of_lanes<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let (owner, another) = (setup.clock.id(), setup.clock.id());
    let held = hold(store, payments, owner).await;
    for lanes in [4, 2] {
        let narrow = store.queue(&spec("narrow", Some(lanes))).await.unwrap();
        open(store, "payments").await;
        let narrow = hold(store, narrow, another).await;
        assert_eq!(narrow.lanes.len(), usize::from(lanes), "opening another queue made lanes here");
        setup.advance(LEASE / 3).await;
        assert_eq!(hold(store, payments, owner).await.lanes, held.lanes);
    }
    let third = open(store, "third").await;
    let lanes = hold(store, third, owner).await.lanes;
    assert_eq!(lanes, held.lanes, "a new queue begins with the first epoch, whatever others came to");
}

/// A queue that is empty can change its lanes, however full another one is.
async fn messages_of_one_queue_hold_up_no_change_in_another<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    add(store, payments, "a", "1").await;
    store.queue(&spec("narrow", Some(4))).await.unwrap();
    store.queue(&spec("narrow", Some(2))).await.unwrap();
    assert!(store.queue(&spec("payments", Some(4))).await.is_err());
}

/// Giving back some lanes leaves the others as they are, in this queue and in others.
async fn lanes_that_are_given_back_are_those_that_were_named<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let owner = setup.clock.id();
    let before = hold(store, payments, owner).await.lanes;
    let elsewhere = hold(store, invoices, owner).await.lanes;
    let (back, kept) = before.split_at(3);
    assert_eq!(hold_and(store, payments, owner, back).await.lanes, kept, "the rest is kept under its epochs");
    assert_eq!(hold(store, invoices, owner).await.lanes, elsewhere);
}

/// Where more lanes are free than its share, the rest is left for others.
async fn whoever_takes_lanes_takes_its_share<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let (one, two, three) = (setup.clock.id(), setup.clock.id(), setup.clock.id());
    hold(store, payments, one).await;
    hold(store, payments, two).await;
    hold(store, payments, three).await;
    leave(store, payments, one).await;
    let taken = hold(store, payments, two).await;
    assert_eq!((taken.lanes.len(), taken.share), (ALL / 2, ALL / 2));
}

/// Whoever gives back a lane that has gone to another gives back nothing.
async fn a_lane_of_another_owner_is_not_given_back<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let (one, two) = (setup.clock.id(), setup.clock.id());
    let old = hold(store, payments, one).await.lanes;
    setup.advance(LEASE + LEASE / 10).await;
    let new = hold(store, payments, two).await.lanes;
    hold_and(store, payments, one, &old).await;
    add(store, payments, "a", "1").await;
    assert_eq!(lease(store, payments, &new).await.len(), 1);
    assert_eq!(hold(store, payments, two).await.lanes, new);
}

/// From the moment on at which a lane is given back, its old epoch leases nothing.
async fn a_lane_that_was_given_back_leases_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let owner = setup.clock.id();
    let before = hold(store, payments, owner).await.lanes;
    hold_and(store, payments, owner, &before).await;
    add(store, payments, "a", "1").await;
    assert!(lease(store, payments, &before).await.is_empty());
}

/// A lane that ran out may have been anybody's since: even its old owner gets it under a new epoch.
async fn a_lane_that_ran_out_comes_back_with_a_higher_epoch<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let owner = setup.clock.id();
    let before = hold(store, payments, owner).await.lanes;
    setup.advance(LEASE + LEASE / 10).await;
    let after = hold(store, payments, owner).await.lanes;
    assert_eq!(after.len(), before.len());
    assert!(before.iter().zip(&after).all(|(before, after)| after.epoch > before.epoch), "{before:?} {after:?}");
}

/// A receipt that is shown to another queue changes nothing there, nor where it came from.
async fn a_receipt_is_good_in_its_own_queue_alone<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = store.queue(&spec("payments", None)).await.unwrap();
    let invoices = store.queue(&spec("invoices", None)).await.unwrap();
    let message = Message::made_by(&ManualClock::new(), "noted").with_payload("1");
    let mut tx = begin(store).await;
    tx.enqueue(payments, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
    let request = LeaseRequest { queue: payments, max: 10, lease: LEASE, lanes: None };
    let rows = receipts(&tx.lease(&request).await.unwrap());
    commit(tx).await;
    assert_eq!(settle(store, invoices, &rows).await, Err(StoreErrorKind::Fenced));
    let mut tx = begin(store).await;
    assert_eq!(tx.settle(invoices, &rows, Keep::Processed).await.unwrap_err().kind(), StoreErrorKind::Fenced);
    tx.rollback().await;
    let mut tx = begin(store).await;
    tx.release(invoices, &rows, Duration::ZERO, None).await.unwrap();
    assert!(tx.lease(&request).await.unwrap().is_empty(), "another queue released it");
    tx.extend(invoices, &rows, LEASE * 10).await.unwrap();
    commit(tx).await;
    setup.advance(LEASE + LEASE / 10).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.lease(&request).await.unwrap().len(), 1, "another queue extended it");
    tx.rollback().await;
}

/// An order key means something else in each queue.
async fn rows_of_another_queue_hold_up_no_order_key<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (payments, invoices) = (open(store, "payments").await, open(store, "invoices").await);
    let owner = setup.clock.id();
    let lanes = hold(store, payments, owner).await.lanes;
    add(store, payments, "a", "1").await;
    add(store, invoices, "a", "2").await;
    assert_eq!(lease(store, payments, &lanes).await.len(), 1);
    let lanes = hold(store, invoices, owner).await.lanes;
    assert_eq!(lease(store, invoices, &lanes).await.len(), 1);
}

/// Two rows in hand have the same fence: one is extended, released, kept or ended, and the other is not.
async fn what_is_done_to_a_row_in_hand_is_done_to_no_other<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    for (name, lanes) in [("ordered", Some(LANES)), ("unordered", None)] {
        let queue = store.queue(&spec(name, lanes)).await.unwrap();
        let owner = setup.clock.id();
        for (order_key, text) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")] {
            let message = Message::made_by(&ManualClock::new(), "noted").with_payload(text).with_order_key(order_key);
            let lane = spec(name, lanes).lane(Some(order_key));
            let mut tx = begin(store).await;
            tx.enqueue(queue, &[Enqueue { message, lane, once: None }]).await.unwrap();
            commit(tx).await;
        }
        let lease = async || {
            let lanes = if lanes.is_some() { Some(hold(store, queue, owner).await.lanes) } else { None };
            let mut tx = begin(store).await;
            let leased = tx.lease(&LeaseRequest { queue, max: 100, lease: LEASE, lanes }).await.unwrap();
            commit(tx).await;
            leased
        };
        let rows = receipts(&lease().await);
        assert_eq!(rows.len(), 5);
        let mut tx = begin(store).await;
        tx.extend(queue, &rows[..1], LEASE * 3).await.unwrap();
        tx.settle(queue, &rows[1..2], Keep::Nothing).await.unwrap();
        tx.settle(queue, &rows[2..3], Keep::Processed).await.unwrap();
        tx.release(queue, &rows[3..4], Duration::ZERO, None).await.unwrap();
        commit(tx).await;
        assert_eq!(receipts(&lease().await).iter().map(|row| row.row).collect::<Vec<_>>(), [rows[3].row], "{name}");
        setup.advance(LEASE / 2).await;
        hold(store, queue, owner).await;
        setup.advance(LEASE / 2 + LEASE / 10).await;
        let again: Vec<_> = receipts(&lease().await).iter().map(|row| row.row).collect();
        assert_eq!(again, [rows[3].row, rows[4].row], "{name}: the first is extended, the next two are done");
    }
}

/// The lane is still ours and has its epoch: only the fence tells a late settlement of the row's first lease.
async fn a_row_of_a_lane_comes_again_with_a_higher_fence<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let owner = setup.clock.id();
    add(store, payments, "a", "1").await;
    let lanes = hold(store, payments, owner).await.lanes;
    let first = receipts(&lease(store, payments, &lanes).await);
    setup.advance(LEASE / 2).await;
    hold(store, payments, owner).await;
    setup.advance(LEASE / 2 + LEASE / 10).await;
    assert_eq!(hold(store, payments, owner).await.lanes, lanes, "the case needs the same epochs");
    let second = receipts(&lease(store, payments, &lanes).await);
    assert!(second[0].row == first[0].row && second[0].fence > first[0].fence);
    assert_eq!(settle(store, payments, &first).await, Err(StoreErrorKind::Fenced));
    let mut tx = begin(store).await;
    tx.release(payments, &first, Duration::ZERO, None).await.unwrap();
    commit(tx).await;
    assert!(lease(store, payments, &lanes).await.is_empty(), "the old lease released it");
    assert_eq!(settle(store, payments, &second).await, Ok(()));
}

/// Of two rows of a key in hand the first comes back at once; the second is in hand still.
async fn a_later_row_in_hand_holds_up_no_earlier_one<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    add(store, payments, "a", "1").await;
    add(store, payments, "a", "2").await;
    let lanes = hold(store, payments, setup.clock.id()).await.lanes;
    let rows = receipts(&lease(store, payments, &lanes).await);
    assert_eq!(rows.len(), 2);
    let mut tx = begin(store).await;
    tx.release(payments, &rows[..1], Duration::ZERO, None).await.unwrap();
    commit(tx).await;
    assert_eq!(receipts(&lease(store, payments, &lanes).await)[0].row, rows[0].row);
}

/// However many wait behind the head of one order key, a lease of a few finds the other keys.
async fn many_rows_behind_one_in_hand_leave_room_for_others<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, "payments").await;
    let lanes = hold(store, queue, setup.clock.id()).await.lanes;
    add(store, queue, "busy", "head").await;
    assert_eq!(lease(store, queue, &lanes).await.len(), 1);
    for n in 0..6 {
        add(store, queue, "busy", &format!("behind {n}")).await;
    }
    add(store, queue, "free", "other").await;
    let mut tx = begin(store).await;
    let few = LeaseRequest { queue, max: 3, lease: LEASE, lanes: Some(lanes) };
    let leased = tx.lease(&few).await.unwrap();
    commit(tx).await;
    let texts: Vec<_> = leased.iter().map(|leased| leased.message.payload.clone()).collect();
    assert_eq!(texts, ["other"]);
}

/// Whatever lanes they are in.
async fn the_oldest_rows_of_lanes_come_first_and_no_more_than_asked_for<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    let texts: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    for text in &texts {
        add(store, payments, text, text).await;
    }
    let lanes = Some(hold(store, payments, setup.clock.id()).await.lanes);
    let mut came = Vec::new();
    for expected in [4, 4, 1] {
        let mut tx = begin(store).await;
        let request = LeaseRequest { queue: payments, max: 4, lease: LEASE, lanes: lanes.clone() };
        let leased = tx.lease(&request).await.unwrap();
        commit(tx).await;
        assert_eq!(leased.len(), expected);
        let mut rows: Vec<_> = leased.iter().map(|row| (row.receipt.row, row.message.payload.clone())).collect();
        rows.sort();
        came.extend(rows.into_iter().map(|(_, text)| String::from_utf8_lossy(&text).into_owned()));
    }
    assert_eq!(came, texts);
}

/// They are kept for their keys alone.
async fn what_was_processed_and_kept_holds_up_no_change_of_lanes<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let payments = open(store, "payments").await;
    add(store, payments, "a", "1").await;
    let lanes = hold(store, payments, setup.clock.id()).await.lanes;
    let rows = receipts(&lease(store, payments, &lanes).await);
    assert!(store.queue(&spec("payments", Some(4))).await.is_err(), "it is in hand");
    let mut tx = begin(store).await;
    tx.settle(payments, &rows, Keep::Processed).await.unwrap();
    commit(tx).await;
    store.queue(&spec("payments", Some(4))).await.unwrap();
}

/// Other lanes of the one that gave it back have the epoch under which it held this one.
async fn whoever_gave_a_lane_back_does_nothing_to_its_rows<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, "payments").await;
    let (one, two) = (setup.clock.id(), setup.clock.id());
    let lanes = hold(store, queue, one).await.lanes;
    add(store, queue, "a", "1").await;
    let row = receipts(&lease(store, queue, &lanes).await);
    let lane = lanes.iter().find(|held| Some(held.lane) == spec("payments", Some(LANES)).lane(Some("a"))).unwrap();
    hold_and(store, queue, one, &[*lane]).await;
    let theirs = hold(store, queue, two).await.lanes;
    assert!(theirs.iter().any(|held| held.lane == lane.lane && held.epoch > lane.epoch), "{theirs:?}");
    let mut tx = begin(store).await;
    tx.release(queue, &row, Duration::ZERO, None).await.unwrap();
    commit(tx).await;
    assert!(lease(store, queue, &theirs).await.is_empty(), "its lease is not over");
    let mut tx = begin(store).await;
    tx.extend(queue, &row, LEASE * 10).await.unwrap();
    commit(tx).await;
    setup.advance(LEASE + LEASE / 10).await;
    let theirs = hold(store, queue, two).await.lanes;
    assert_eq!(lease(store, queue, &theirs).await.len(), 1, "its lease is over");
}

/// What another queue has under the same key is another message.
async fn a_key_is_known_to_its_own_queue_alone<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queues = [open(store, "payments").await, open(store, "invoices").await];
    let enqueue = async |queue, text: &str, hash| {
        let message = Message::made_by(&ManualClock::new(), "noted");
        let once = Some((oncebox_core::Key::id(text).unwrap(), common::fingerprint(hash)));
        let mut tx = begin(store).await;
        let answer = tx.enqueue(queue, &[Enqueue { message, lane: None, once }]).await.unwrap()[0];
        commit(tx).await;
        answer
    };
    for text in ["k", "l"] {
        assert_eq!(enqueue(queues[0], text, 7).await, Enqueued::Added);
        assert_eq!(enqueue(queues[1], text, 8).await, Enqueued::Added);
        assert_eq!(enqueue(queues[0], text, 7).await, Enqueued::Duplicate);
        assert_eq!(enqueue(queues[1], text, 8).await, Enqueued::Duplicate);
        assert_eq!(enqueue(queues[0], text, 8).await, Enqueued::Conflict);
        assert_eq!(enqueue(queues[1], text, 7).await, Enqueued::Conflict);
    }
}
