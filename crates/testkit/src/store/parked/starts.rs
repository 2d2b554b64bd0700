//! Starts: how often a message was about to be handled by a process that did not survive it.

use std::collections::BTreeSet;

use oncebox_core::parked::{ParkStore, Parking, Waiting};
use oncebox_core::{ConsumerId, Transaction};
use tokio::task::JoinSet;

use crate::store::steps::{begin, commit, consumer, key};
use crate::store::{Setup, StoreFixture};

async fn note<S: ParkStore>(store: &S, consumer: ConsumerId, id: &str) -> u32 {
    note_after(store, consumer, id, Waiting::default()).await
}

async fn note_after<S: ParkStore>(store: &S, consumer: ConsumerId, id: &str, waited: Waiting) -> u32 {
    let mut tx = begin(store).await;
    let starts = tx.note_start(consumer, &key(id), waited).await.expect("a start can be noted");
    commit(tx).await;
    starts
}

async fn note_wait<S: ParkStore>(store: &S, consumer: ConsumerId, id: &str) -> Waiting {
    let mut tx = begin(store).await;
    let waiting = tx.note_wait(consumer, &key(id)).await.expect("a wait can be noted");
    commit(tx).await;
    waiting
}

async fn forget<S: ParkStore>(store: &S, consumer: ConsumerId, ids: &[&str]) {
    let keys: Vec<_> = ids.iter().map(|id| (consumer, key(id))).collect();
    let mut tx = begin(store).await;
    tx.forget_starts(&keys).await.expect("starts can be forgotten");
    commit(tx).await;
}

/// Each start is one more.
pub async fn starts_are_counted_over_transactions<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    for starts in 1..=3 {
        assert_eq!(note(&setup.store, billing, "a").await, starts);
    }
    let other = setup.fixture.reopen(&setup.store).await;
    assert_eq!(note(&other, billing, "a").await, 4, "another process sees them too");
}

/// A start that was not committed was no start.
pub async fn a_start_that_rolled_back_is_not_counted<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    let mut tx = begin(&setup.store).await;
    assert_eq!(tx.note_start(billing, &key("a"), Waiting::default()).await.expect("a start can be noted"), 1);
    tx.rollback().await;
    assert_eq!(note(&setup.store, billing, "a").await, 1);
}

/// After they were forgotten, counting begins anew. Forgetting what was never noted does no harm, and forgetting that
/// rolled back forgets nothing.
pub async fn forgotten_starts_begin_anew<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    note(store, billing, "a").await;
    note(store, billing, "b").await;
    forget(store, billing, &["b", "never noted", "a"]).await;
    assert_eq!(note(store, billing, "a").await, 1);
    assert_eq!(note(store, billing, "b").await, 1);
    let mut tx = begin(store).await;
    tx.forget_starts(&[(billing, key("a"))]).await.expect("starts can be forgotten");
    tx.rollback().await;
    assert_eq!(note(store, billing, "a").await, 2);
}

/// Counts belong to one key of one consumer.
pub async fn starts_of_other_keys_and_consumers_stay_apart<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    for (consumer, id) in [(billing, "a"), (billing, "b"), (shipping, "a")] {
        assert_eq!(note(store, consumer, id).await, 1);
    }
    forget(store, billing, &["a"]).await;
    assert_eq!(note(store, billing, "a").await, 1);
    assert_eq!(note(store, billing, "b").await, 2);
    assert_eq!(note(store, shipping, "a").await, 2);
}

/// Of many starts at once none is lost.
pub async fn starts_noted_at_once_are_all_counted<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let store = setup.store.clone();
        tasks.spawn(async move { note(&store, billing, "a").await });
    }
    let counts: BTreeSet<u32> = tasks.join_all().await.into_iter().collect();
    assert_eq!(counts, (1..=10).collect());
}

/// A wait leaves the count as it is. One that came to no start clears it: a process died that did nothing with the
/// message.
pub async fn a_death_while_waiting_clears_the_starts<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for starts in 0..3 {
        let waited = note_wait(store, billing, "a").await;
        assert_eq!(waited, Waiting { starts, waits: 1 });
        assert_eq!(note_after(store, billing, "a", waited).await, starts + 1);
    }
    note(store, billing, "b").await;
    note_wait(store, billing, "a").await;
    let waited = note_wait(store, billing, "a").await;
    assert_eq!(waited, Waiting { starts: 3, waits: 2 });
    assert_eq!(note_after(store, billing, "a", waited).await, 1, "the process before died while waiting");
    assert_eq!(note_wait(store, billing, "b").await.starts, 1, "of another message nothing is known");
    forget(store, billing, &["a"]).await;
    assert_eq!(note_wait(store, billing, "a").await, Waiting { starts: 0, waits: 1 });
}

/// Two processes that have copies of one message in hand wait at the same time: each comes to its start, and both count.
pub async fn those_who_wait_at_the_same_time_clear_nothing<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    note(store, billing, "a").await;
    for starts in [1, 3] {
        let (first, second) = (note_wait(store, billing, "a").await, note_wait(store, billing, "a").await);
        assert_eq!((first, second), (Waiting { starts, waits: 1 }, Waiting { starts, waits: 2 }));
        assert_eq!(note_after(store, billing, "a", first).await, starts + 1);
        assert_eq!(note_after(store, billing, "a", second).await, starts + 2, "the first came to its start");
    }
    let (_dead, second) = (note_wait(store, billing, "a").await, note_wait(store, billing, "a").await);
    let third = note_wait(store, billing, "a").await;
    assert_eq!(
        note_after(store, billing, "a", second).await,
        6,
        "somebody else waits: nothing is known of those before"
    );
    assert_eq!(note_after(store, billing, "a", third).await, 7);
}
