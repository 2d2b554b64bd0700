//! How rows end that the broker has.

use oncebox_core::outbox::{Backlog, KeepSent, Outbox};
use oncebox_core::queue::QueueStore;
use oncebox_core::{Clock, Transaction};

use super::steps::{
    aside, backlog, drain, emit, end, end_and, fetch, fetch_texts, hold, in_order, outgoing, receipts, refuse,
};
use crate::store::steps::begin;
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

/// Rows to publish, those that wait among them; rows that are set aside; the age of the oldest.
pub async fn the_backlog_counts_what_is_left<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    assert_eq!(backlog(store).await, Backlog::default());
    let first = setup.clock.now();
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
    setup.advance(std::time::Duration::from_secs(5)).await;
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
