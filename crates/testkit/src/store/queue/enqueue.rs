//! Putting messages in, in order and once.

use oncebox_core::Transaction;
use oncebox_core::queue::{Enqueue, Enqueued, Keep, QueueStore, QueueTx};
use tokio::task::JoinSet;

use super::steps::{LEASE_AND_MORE, add, enqueue, lease, message, open, receipts, settle_and, texts, unordered};
use crate::store::steps::{begin, fingerprint, key};
use crate::store::{Setup, StoreFixture};

/// A message that says `text`, to be added once under the key of `id`.
fn once(id: &str, text: &str, hash: i64) -> Enqueue {
    Enqueue { message: message(text), lane: None, once: Some((key(id), fingerprint(hash))) }
}

/// First in, first out: within one call and from one transaction to the next.
pub async fn what_was_enqueued_is_leased_in_order<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let spec = unordered("payments");
    let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    for batch in expected.chunks(10) {
        add(&setup.store, &spec, batch.iter().map(|text| message(text))).await;
    }
    let queue = open(&setup.store, &spec).await;
    let mut leased = Vec::new();
    for _ in 0..5 {
        leased.extend(texts(&lease(&setup.store, queue, 7).await));
    }
    assert_eq!(leased, expected);
}

/// A message whose transaction rolled back is not in the queue.
pub async fn an_enqueue_that_rolled_back_never_was<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &unordered("payments")).await;
    let mut tx = begin(&setup.store).await;
    let row = Enqueue { message: message("never mind"), lane: None, once: None };
    tx.enqueue(queue, &[row]).await.expect("a message can be enqueued");
    tx.rollback().await;
    assert!(lease(&setup.store, queue, 10).await.is_empty());
}

/// A message whose key the queue knows is not added: a duplicate if it is the same, a conflict if it is another.
pub async fn a_key_is_enqueued_once<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &unordered("payments")).await;
    let other = open(store, &unordered("parcels")).await;
    assert_eq!(enqueue(store, queue, &[once("a", "first", 1)]).await, [Enqueued::Added]);
    let again = [once("a", "again", 1), once("b", "second", 1), once("a", "another", 2)];
    let answers = enqueue(store, queue, &again).await;
    assert_eq!(answers, [Enqueued::Duplicate, Enqueued::Added, Enqueued::Conflict]);
    assert_eq!(texts(&lease(store, queue, 10).await), ["first", "second"]);
    assert_eq!(enqueue(store, other, &[once("a", "elsewhere", 1)]).await, [Enqueued::Added]);
}

/// The same key twice in one call is added once, and each answer is about its own message.
pub async fn a_key_twice_in_one_call_is_enqueued_once<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &unordered("payments")).await;
    let rows = [once("b", "1", 1), once("a", "2", 1), once("b", "3", 1), once("a", "4", 2)];
    let answers = enqueue(&setup.store, queue, &rows).await;
    assert_eq!(answers, [Enqueued::Added, Enqueued::Added, Enqueued::Duplicate, Enqueued::Conflict]);
    assert_eq!(texts(&lease(&setup.store, queue, 10).await), ["1", "2"]);
}

/// Of two transactions that add the same key at once, one adds it.
pub async fn a_key_enqueued_by_two_at_once_is_enqueued_once<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &unordered("payments")).await;
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let store = setup.store.clone();
        tasks.spawn(async move { enqueue(&store, queue, &[once("a", &n.to_string(), 1)]).await });
    }
    let answers: Vec<Enqueued> = tasks.join_all().await.concat();
    assert_eq!(answers.iter().filter(|answer| **answer == Enqueued::Added).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| **answer == Enqueued::Duplicate).count(), 7, "{answers:?}");
    assert_eq!(lease(&setup.store, queue, 10).await.len(), 1);
}

/// A row that is kept after it was processed still answers for its key, and is never leased again.
pub async fn a_key_stays_known_while_its_row_is_kept<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let queue = open(store, &unordered("payments")).await;
    enqueue(store, queue, &[once("a", "first", 1)]).await;
    let leased = lease(store, queue, 10).await;
    settle_and(store, queue, &receipts(&leased), Keep::Processed).await.expect("a leased row can be settled");
    let answers = enqueue(store, queue, &[once("a", "again", 1), once("a", "another", 2)]).await;
    assert_eq!(answers, [Enqueued::Duplicate, Enqueued::Conflict]);
    setup.advance(LEASE_AND_MORE).await;
    assert!(lease(store, queue, 10).await.is_empty());
}

/// A key whose transaction rolled back can be added.
pub async fn the_key_of_a_rolled_back_enqueue_is_free<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let queue = open(&setup.store, &unordered("payments")).await;
    let mut tx = begin(&setup.store).await;
    let answers = tx.enqueue(queue, &[once("a", "never mind", 1)]).await.expect("a message can be enqueued");
    assert_eq!(answers, [Enqueued::Added]);
    tx.rollback().await;
    assert_eq!(enqueue(&setup.store, queue, &[once("a", "first", 2)]).await, [Enqueued::Added]);
    assert_eq!(texts(&lease(&setup.store, queue, 10).await), ["first"]);
}
