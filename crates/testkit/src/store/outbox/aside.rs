//! Rows that the broker refuses are set aside, for people to decide.

use oncebox_core::outbox::{AsideRow, Outbox};
use oncebox_core::queue::QueueStore;
use oncebox_core::{Clock, Transaction};

use super::steps::{
    aside, drain, emit, fetch, fetch_texts, hold, in_order, outgoing, refuse, retry, set_aside, skip, texts,
};
use crate::store::steps::begin;
use crate::store::{Setup, StoreFixture};

fn said(rows: &[AsideRow]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(&row.message.payload).into_owned()).collect()
}

/// It does not come again, and it is there with topic, message, reason and time.
pub async fn a_refused_row_is_set_aside_with_its_reason<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2")]).await;
    let rows = fetch(store, &lanes, 10).await;
    set_aside(store, rows[0].receipt, "it is \u{e9} \0 too 'large'").await.expect("a row of ours can be set aside");
    assert_eq!(fetch_texts(store, &lanes).await, ["2"]);
    let found = aside(store).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].row, found[0].topic.as_str()), (rows[0].receipt.row, "orders"));
    assert_eq!(found[0].message, rows[0].outgoing.message);
    // One character no text column holds; the rest stays.
    assert_eq!(found[0].reason.replace('\0', ""), "it is \u{e9}  too 'large'");
    assert_eq!(found[0].since.as_microsecond(), setup.clock.now().as_microsecond());
}

/// Page by page, oldest first.
pub async fn what_is_set_aside_is_paged<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..9).map(|n| outgoing("orders", &format!("{n}"))).collect::<Vec<_>>()).await;
    for row in fetch(store, &lanes, 7).await {
        set_aside(store, row.receipt, "no").await.expect("a row of ours can be set aside");
    }
    let mut tx = begin(store).await;
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = tx.page_aside(after, 3).await.expect("what is set aside can be read");
        let Some(last) = page.last() else { break };
        after = last.row;
        pages.push(said(&page));
    }
    tx.rollback().await;
    assert_eq!(pages, [vec!["0", "1", "2"], vec!["3", "4", "5"], vec!["6"]]);
}

/// It comes again, in its old place.
pub async fn a_row_that_is_set_aside_can_be_tried_again<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2"), outgoing("orders", "3")]).await;
    let row = refuse(store, &lanes, "2").await;
    assert_eq!(retry(store, &[row]).await, [true]);
    assert_eq!(retry(store, &[row]).await, [false], "it is not set aside any more");
    assert!(aside(store).await.is_empty());
    assert_eq!(drain(store, &lanes, 10).await, ["1", "2", "3"]);
}

/// It is gone for good.
pub async fn a_row_that_is_set_aside_can_be_skipped<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2")]).await;
    let row = refuse(store, &lanes, "1").await;
    assert_eq!(skip(store, &[row]).await, [true]);
    assert_eq!(skip(store, &[row]).await, [false]);
    assert_eq!(retry(store, &[row]).await, [false]);
    assert!(aside(store).await.is_empty());
    assert_eq!(drain(store, &lanes, 10).await, ["2"]);
}

/// Answers come in the order of the question, and nothing else is touched.
pub async fn what_is_not_set_aside_is_neither_tried_again_nor_skipped<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2"), outgoing("orders", "3")]).await;
    let all = fetch(store, &lanes, 10).await;
    let first = refuse(store, &lanes, "1").await;
    assert_eq!(fetch_texts(store, &lanes).await, ["3"]);
    let (waits, unsent) = (all[1].receipt.row, all[2].receipt.row);
    assert_eq!(skip(store, &[unsent, waits, 987_654]).await, [false, false, false]);
    assert_eq!(retry(store, &[waits, first, unsent]).await, [false, true, false]);
    assert_eq!(skip(store, &[]).await, Vec::<bool>::new());
    assert_eq!(texts(&fetch(store, &lanes, 10).await), ["1", "2", "3"]);
}

/// Acts are part of their transaction.
pub async fn an_act_that_rolled_back_changes_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
    let rows = fetch(store, &lanes, 10).await;
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(rows[0].receipt, "no".to_owned())]).await.expect("a row of ours can be set aside");
    tx.rollback().await;
    assert_eq!(fetch_texts(store, &lanes).await, ["1", "2"]);
    let row = refuse(store, &lanes, "1").await;
    for skips in [true, false] {
        let mut tx = begin(store).await;
        let done = if skips { tx.skip_aside(&[row]).await } else { tx.retry_aside(&[row]).await };
        assert_eq!(done.expect("a row that is set aside can be acted on"), [true]);
        tx.rollback().await;
        assert_eq!(fetch_texts(store, &lanes).await, Vec::<String>::new());
        assert_eq!(said(&aside(store).await), ["1"]);
    }
}
