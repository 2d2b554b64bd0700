//! What is parked, and how often.

use std::time::Duration;

use oncebox_core::parked::{Park, ParkStore, Parking};
use oncebox_core::{Fingerprint, Transaction};
use tokio::task::JoinSet;

use super::steps::{add, lease, message, park, parked, texts};
use crate::store::steps::{begin, consumer, fingerprint};
use crate::store::{Setup, StoreFixture};

/// A message that is parked already is not parked again, and the one that is there stays as it is.
pub async fn a_message_is_parked_once<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "a")]).await;
    let again = Park { message: message("changed").into(), ..parked(billing, "a") };
    assert_eq!(park(store, &[again]).await, [false]);
    assert_eq!(texts(&lease(store, billing).await), ["a"]);
    assert_eq!(park(store, &[parked(billing, "a"), parked(billing, "b")]).await, [false, true], "also while in hand");
}

/// Another message under the same key is kept too: it is never dropped for a duplicate.
pub async fn another_content_is_parked_beside_it<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let other = Park {
        fingerprint: fingerprint(8),
        owns_record: false,
        message: message("other").into(),
        ..parked(billing, "a")
    };
    let scheme = Park {
        fingerprint: Fingerprint::from_stored(2, 7),
        owns_record: false,
        message: message("other scheme").into(),
        ..parked(billing, "a")
    };
    add(store, &[parked(billing, "a"), other, scheme]).await;
    assert_eq!(texts(&lease(store, billing).await), ["a", "other", "other scheme"]);
}

/// The same message twice in one call.
pub async fn the_same_twice_in_one_call_is_parked_once<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let parks = [parked(billing, "a"), parked(billing, "b"), parked(billing, "a")];
    assert_eq!(park(store, &parks).await, [true, true, false]);
    assert_eq!(lease(store, billing).await.len(), 2);
}

/// Of many that park one message at once, one does.
pub async fn a_message_parked_by_two_at_once_is_parked_once<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move { park(&store, &[parked(billing, "a")]).await });
    }
    let added = tasks.join_all().await.concat();
    assert_eq!(added.iter().filter(|added| **added).count(), 1);
    assert_eq!(lease(store, billing).await.len(), 1);
}

/// What was parked in a transaction that rolled back is not there, and can be parked later.
pub async fn parking_that_rolled_back_never_was<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut tx = begin(store).await;
    assert_eq!(tx.park(&[parked(billing, "a")]).await.expect("messages can be parked"), [true]);
    tx.rollback().await;
    assert!(lease(store, billing).await.is_empty());
    add(store, &[parked(billing, "a")]).await;
    assert_eq!(texts(&lease(store, billing).await), ["a"]);
}

/// One key parked in two consumers is two rows, and each leases its own.
pub async fn parked_rows_of_consumers_stay_apart<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    add(store, &[parked(billing, "a"), parked(shipping, "a"), parked(shipping, "b")]).await;
    assert_eq!(texts(&lease(store, billing).await), ["a"]);
    assert_eq!(texts(&lease(store, shipping).await), ["a", "b"]);
}

/// Nothing asked, nothing done.
pub async fn empty_calls_are_answered_with_nothing<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    let mut tx = begin(&setup.store).await;
    assert!(tx.park(&[]).await.expect("nothing can be parked").is_empty());
    assert!(tx.is_blocked(billing, &[]).await.expect("no keys can be looked up").is_empty());
    tx.end_parked(&[]).await.expect("no rows can be ended");
    tx.put_back(&[]).await.expect("no rows can be put back");
    tx.release_parked(&[], Duration::ZERO).await.expect("no rows can be released");
    tx.extend_parked(&[], Duration::ZERO).await.expect("no leases can be extended");
    tx.forget_starts(&[]).await.expect("no starts can be forgotten");
    tx.rollback().await;
}
