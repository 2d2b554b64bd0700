//! Who keeps which records, and which store it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use oncebox_core::Store;
use tokio::task::JoinSet;

use crate::clock::ManualClock;
use crate::store::steps::{assert_duplicate, claim_and_commit, consumer, look, request};
use crate::store::{Setup, StoreFixture};

/// A name gets the same id each time, from any handle.
pub async fn a_consumer_keeps_its_id<F: StoreFixture>(setup: Setup<F>) {
    let id = consumer(&setup.store, "billing").await;
    consumer(&setup.store, "shipping").await;
    assert_eq!(consumer(&setup.store, "billing").await, id);
    let other = setup.fixture.reopen(&setup.store).await;
    assert_eq!(consumer(&other, "billing").await, id);
}

/// Names that differ in case or in a sign are different consumers.
pub async fn different_names_get_different_ids<F: StoreFixture>(setup: Setup<F>) {
    let longest = "n".repeat(100);
    let names = ["billing", "Billing", "BILLING", "billing.", "**", "'", "\\", "%", "_", "a", "b", &longest];
    let mut ids = BTreeSet::new();
    for name in names {
        assert!(ids.insert(consumer(&setup.store, name).await), "consumer {name} got the id of another");
    }
}

/// Processes that start at the same time and register the same consumer agree on its id.
pub async fn a_consumer_registered_by_many_at_once_gets_one_id<F: StoreFixture>(setup: Setup<F>) {
    let mut tasks = JoinSet::new();
    for n in 0..10 {
        let store = setup.store.clone();
        // Two names at once: ids must neither differ for one name nor be the same for both.
        tasks.spawn(async move { (n % 2, consumer(&store, ["billing", "shipping"][n % 2]).await) });
    }
    let ids: BTreeSet<_> = tasks.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 2, "one id for each name: {ids:?}");
    let different: BTreeSet<_> = ids.iter().map(|(_, id)| id).collect();
    assert_eq!(different.len(), 2, "no id for two names: {ids:?}");
}

/// Two handles on one store say that they are one, and are: what one commits, the other finds.
pub async fn two_handles_on_one_store_are_one_store<F: StoreFixture>(setup: Setup<F>) {
    let other = setup.fixture.reopen(&setup.store).await;
    assert_eq!(setup.store.identity(), other.identity());
    let request = request(consumer(&setup.store, "billing").await, "a");
    claim_and_commit(&setup.store, &request).await;
    assert_duplicate(&look(&other, &request).await);
}

/// Two stores say that they are two, even if they were set up alike; a queue in one is never settled in the other.
pub async fn two_fresh_stores_are_two_stores<F: StoreFixture>(setup: Setup<F>) {
    let clock = Arc::new(ManualClock::new());
    let other = setup.fixture.fresh(clock).await.expect("a store that could be had once can be had again");
    assert_ne!(setup.store.identity(), other.identity());
}
