//! Rows are part of the transaction that emits them.

use oncebox_core::outbox::Outbox;
use oncebox_core::queue::QueueStore;
use oncebox_core::{Message, Outgoing, StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use super::steps::{drain, emit, fetch_texts, hold, in_order, outgoing, refuse, try_emit};
use crate::eventually::stays_pending;
use crate::store::steps::{assert_kind, begin, commit};
use crate::store::{Setup, StoreFixture};

/// What is emitted is there once the business write is.
pub async fn rows_are_emitted_with_the_business_write<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let mut tx = begin(store).await;
    F::write_effect(tx.db(), "paid").await.expect("the business can write");
    tx.emit(&[outgoing("orders", "1"), outgoing("orders", "2")]).await.expect("rows can be emitted");
    tx.emit(&[]).await.expect("nothing can be emitted");
    commit(tx).await;
    assert_eq!(F::effects(store).await, ["paid"]);
    assert_eq!(fetch_texts(store, &lanes).await, ["1", "2"]);
}

/// What is emitted is gone with the business write.
pub async fn rows_emitted_in_a_rolled_back_transaction_never_were<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let mut tx = begin(store).await;
    F::write_effect(tx.db(), "paid").await.expect("the business can write");
    tx.emit(&[outgoing("orders", "1")]).await.expect("rows can be emitted");
    tx.rollback().await;
    assert_eq!(F::effects(store).await, Vec::<String>::new());
    assert_eq!(fetch_texts(store, &lanes).await, Vec::<String>::new());
    emit(store, &[outgoing("orders", "1")]).await;
    assert_eq!(fetch_texts(store, &lanes).await, ["1"], "the id is free");
}

/// A message that fails in a batch takes along what it emitted, and nothing of the others.
pub async fn rows_emitted_since_the_mark_go_with_it<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let mut tx = begin(store).await;
    tx.emit(&[outgoing("orders", "1")]).await.expect("rows can be emitted");
    tx.mark().await.expect("a mark can be set");
    tx.emit(&[outgoing("orders", "2")]).await.expect("rows can be emitted");
    tx.back_to_mark().await.expect("the mark is there");
    tx.emit(&[outgoing("orders", "3")]).await.expect("rows can be emitted");
    commit(tx).await;
    assert_eq!(fetch_texts(store, &lanes).await, ["1", "3"]);
}

/// Two messages with one id would be one downstream: the second is refused, by its id, and nothing of its transaction
/// commits.
pub async fn an_id_that_is_not_sent_yet_is_refused<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "order-17")]).await;
    let again = [outgoing("orders", "new"), outgoing("other", "order-17")];
    let error = try_emit(store, &again).await.expect_err("the id is taken");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("two messages with the id order-17"), "{error}");
    assert_eq!(fetch_texts(store, &lanes).await, ["order-17"]);
}

/// The same within one call.
pub async fn an_id_twice_in_one_call_is_refused<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let twice = [outgoing("orders", "a"), outgoing("orders", "b"), outgoing("other", "a")];
    assert_kind(try_emit(store, &twice).await, StoreErrorKind::Refused);
    assert_eq!(fetch_texts(store, &lanes).await, Vec::<String>::new());
    // Ids are compared as they are.
    emit(store, &[outgoing("orders", "a"), outgoing("orders", "A"), outgoing("orders", "a ")]).await;
    assert_eq!(fetch_texts(store, &lanes).await, ["a", "A", "a "]);
}

/// A row that is set aside is not sent yet, and neither is one that waits behind it.
pub async fn an_id_that_is_set_aside_is_refused<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[in_order("orders", "a", "1"), in_order("orders", "a", "2")]).await;
    refuse(store, &lanes, "1").await;
    assert_eq!(fetch_texts(store, &lanes).await, Vec::<String>::new());
    for text in ["1", "2"] {
        assert_kind(try_emit(store, &[outgoing("orders", text)]).await, StoreErrorKind::Refused);
    }
}

/// What was sent is over: a later message may have its id.
pub async fn an_id_is_free_once_its_row_was_sent<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    for _ in 0..2 {
        emit(store, &[outgoing("orders", "order-17")]).await;
        assert_eq!(drain(store, &lanes, 10).await, ["order-17"]);
    }
}

/// Without an id nobody downstream could tell a duplicate; without a topic nobody knows where to.
pub async fn what_has_no_id_or_no_topic_is_refused<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let without_id = Message::received("noted", "x".into(), Message::new("noted").time);
    let without_id = Outgoing { topic: "orders".to_owned(), message: without_id.into() };
    assert_kind(try_emit(store, &[without_id]).await, StoreErrorKind::Refused);
    assert_kind(try_emit(store, &[outgoing("", "x")]).await, StoreErrorKind::Refused);
}

/// A relay in the same process need not wait for its next look.
pub async fn a_commit_that_emitted_wakes_whoever_waits<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = setup.store.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { oncebox_core::outbox::OutboxStore::emitted(&store).await });
    let mut tx = begin(&setup.store).await;
    tx.emit(&[outgoing("orders", "1")]).await.expect("rows can be emitted");
    assert!(stays_pending(waiting.join_next()).await, "nothing is committed yet");
    commit(tx).await;
    assert!(!stays_pending(waiting.join_next()).await, "the commit went unnoticed");
}

/// Others do not wake it.
pub async fn a_commit_that_emitted_nothing_wakes_nobody<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = setup.store.clone();
    let mut tx = begin(&store).await;
    F::write_effect(tx.db(), "paid").await.expect("the business can write");
    commit(tx).await;
    let mut tx = begin(&store).await;
    tx.emit(&[outgoing("orders", "1")]).await.expect("rows can be emitted");
    tx.rollback().await;
    assert!(stays_pending(oncebox_core::outbox::OutboxStore::emitted(&store)).await);
}

/// Who emits on a connection of its own says so, and whoever waits is woken, also if the word came first.
pub async fn an_announcement_of_rows_wakes_whoever_waits<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    use oncebox_core::outbox::OutboxStore;
    setup.store.announce_emitted();
    assert!(!stays_pending(setup.store.emitted()).await, "an announcement between two waits was missed");
    let clone = setup.store.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { clone.emitted().await });
    assert!(stays_pending(waiting.join_next()).await);
    setup.store.announce_emitted();
    assert!(!stays_pending(waiting.join_next()).await);
}
