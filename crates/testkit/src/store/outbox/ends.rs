//! How rows end that the broker has.

use std::time::Duration;

use oncebox_core::outbox::{Backlog, KeepSent, Outbox};
use oncebox_core::queue::QueueStore;
use oncebox_core::{Clock, Timestamp, Transaction};

use super::steps::{
    aside, backlog, drain, emit, end, end_and, fetch, fetch_texts, hold, in_order, outgoing, receipts, refuse,
};
use crate::store::steps::{begin, commit};
use crate::store::{Setup, StoreFixture};

/// Not from this handle, nor from another.
pub async fn a_row_that_was_sent_never_comes_again<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2"), outgoing("orders", "3")]).await;
    let rows = fetch(store, &lanes, 10).await;
    end(store, &[rows[0].receipt, rows[2].receipt]).await.expect("rows of ours can be ended");
    end(store, &[]).await.expect("nothing can be ended");
    assert_eq!(fetch_texts(store, &lanes).await, ["2"]);
    let other = setup.fixture.reopen(store).await;
    assert_eq!(fetch_texts(&other, &lanes).await, ["2"]);
}

/// A relay that dies before its commit sends again.
pub async fn an_end_that_rolled_back_leaves_the_row<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2")]).await;
    let rows = receipts(&fetch(store, &lanes, 10).await);
    for keep in [KeepSent::Nothing, KeepSent::Sent] {
        let mut tx = begin(store).await;
        tx.end_sent(&rows, keep).await.expect("rows of ours can be ended");
        tx.rollback().await;
        assert_eq!(fetch_texts(store, &lanes).await, ["1", "2"]);
    }
}

/// A relay that did not hear the answer to its commit ends them again.
pub async fn a_row_that_is_ended_twice_is_no_error<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    for keep in [KeepSent::Nothing, KeepSent::Sent] {
        emit(store, &[outgoing("orders", "1"), outgoing("orders", "2")]).await;
        let rows = receipts(&fetch(store, &lanes, 10).await);
        end_and(store, &rows[..1], keep).await.expect("a row of ours can be ended");
        end_and(store, &rows, keep).await.expect("what is gone already is no error");
        assert!(fetch(store, &lanes, 10).await.is_empty());
    }
}

/// A row that stays after it was sent is no longer in the way of anything.
pub async fn a_row_that_is_kept_is_out_of_the_way<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    for _ in 0..3 {
        emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
        let rows = receipts(&fetch(store, &lanes, 10).await);
        end_and(store, &rows, KeepSent::Sent).await.expect("rows of ours can be ended");
        assert!(fetch(store, &lanes, 10).await.is_empty());
        assert_eq!(backlog(store).await, Backlog::default());
        assert!(aside(store).await.is_empty());
    }
    emit(store, &[in_order("orders", "a", "3")]).await;
    assert_eq!(drain(store, &lanes, 10).await, ["3"]);
}

async fn sweep<S: QueueStore>(store: &S, before: Timestamp, max: usize) -> u64 {
    let mut tx = begin(store).await;
    let swept = tx.sweep_sent(before, max).await.expect("what was sent can be removed");
    commit(tx).await;
    swept
}

/// Up to a number and a time, each once; what was sent later stays. A sweep that rolled back never was.
pub async fn what_was_sent_long_ago_is_swept_a_few_at_a_time<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let send = async |texts: std::ops::Range<usize>| {
        emit(store, &texts.map(|n| outgoing("orders", &n.to_string())).collect::<Vec<_>>()).await;
        let rows = receipts(&fetch(store, &lanes, 100).await);
        end_and(store, &rows, KeepSent::Sent).await.expect("rows of ours can be ended");
    };
    send(0..10).await;
    setup.advance(Duration::from_secs(5)).await;
    let between = setup.clock.now();
    setup.advance(Duration::from_secs(5)).await;
    send(10..13).await;
    assert_eq!(sweep(store, between, 0).await, 0);
    let mut tx = begin(store).await;
    assert_eq!(tx.sweep_sent(between, 100).await.expect("what was sent can be removed"), 10);
    tx.rollback().await;
    for swept in [4, 4, 2, 0] {
        assert_eq!(sweep(store, between, 4).await, swept);
    }
    setup.advance(Duration::from_secs(1)).await;
    assert_eq!(sweep(store, setup.clock.now(), 100).await, 3);
    assert_eq!(sweep(store, Timestamp::MAX, 100).await, 0);
}

/// Whatever its age and whatever it waits for.
pub async fn a_sweep_leaves_what_is_not_sent<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let rows =
        [in_order("orders", "a", "1"), in_order("orders", "a", "2"), outgoing("orders", "3"), outgoing("orders", "4")];
    emit(store, &rows).await;
    let aside_row = refuse(store, &lanes, "1").await;
    assert_eq!(fetch_texts(store, &lanes).await, ["3", "4"], "the second waits behind the first");
    let sent = super::steps::receipt(&fetch(store, &lanes, 10).await, "3");
    end_and(store, &[sent], KeepSent::Sent).await.expect("a row of ours can be ended");
    setup.advance(Duration::from_secs(5)).await;
    assert_eq!(sweep(store, setup.clock.now(), 100).await, 1);
    assert_eq!(sweep(store, Timestamp::MAX, 100).await, 0);
    let left = backlog(store).await;
    assert_eq!((left.unsent, left.aside), (2, 1));
    assert_eq!(super::steps::retry(store, &[aside_row]).await, [true]);
    let mut came = drain(store, &lanes, 10).await;
    came.sort_unstable();
    assert_eq!(came, ["1", "2", "4"]);
}

/// Rows to publish, those that wait among them; rows that are set aside; the age of the oldest.
pub async fn the_backlog_counts_what_is_left<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    assert_eq!(backlog(store).await, Backlog::default());
    let first = setup.clock.now();
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
    setup.advance(Duration::from_secs(5)).await;
    emit(store, &[in_order("orders", "a", "3"), outgoing("orders", "4")]).await;
    let all = backlog(store).await;
    assert_eq!((all.unsent, all.aside), (4, 0));
    // A store may keep microseconds.
    assert_eq!(all.oldest.map(|time| time.as_microsecond()), Some(first.as_microsecond()));

    refuse(store, &lanes, "1").await;
    assert_eq!(fetch_texts(store, &lanes).await, ["4"], "the rest waits");
    let left = backlog(store).await;
    assert_eq!((left.unsent, left.aside), (3, 1));
    assert_eq!(left.oldest.map(|time| time.as_microsecond()), Some(first.as_microsecond()));

    assert_eq!(drain(store, &lanes, 10).await, ["4"]);
    super::steps::skip(store, &[aside(store).await[0].row]).await;
    assert_eq!(drain(store, &lanes, 10).await, ["2", "3"]);
    assert_eq!(backlog(store).await, Backlog::default());
}
