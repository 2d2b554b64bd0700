//! What every store must do with versions: records that are locked before they are compared, and that go with their
//! transaction.

use std::collections::BTreeMap;

use oncebox_core::versions::{VersionStore, Versions};
use oncebox_core::{ConsumerId, Key, Store, Transaction};
use tokio::task::JoinSet;

use crate::store::steps::{begin, commit, consumer, key};
use crate::store::{Setup, StoreFixture};
use crate::{hostile, stays_pending};

/// Runs every case of the versions suite over a [`StoreFixture`](crate::store::StoreFixture) whose store keeps versions,
/// in a module `versions`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! versions_suite {
    ($fixture:expr) => {
        $crate::store_cases! { versions, $fixture, [
            an_aggregate_has_no_version_until_one_is_noted,
            a_version_that_rolled_back_never_was,
            the_largest_versions_come_back,
            versions_are_read_without_a_lock,
            many_aggregates_are_answered_in_the_order_asked_for,
            versions_belong_to_one_aggregate_of_one_consumer,
            a_second_lock_waits_and_learns_what_the_first_noted,
            a_first_version_is_noted_by_one_of_two,
            a_lock_of_a_new_aggregate_that_rolled_back_frees_it,
            locks_in_opposite_order_both_end,
            no_version_is_noted_twice,
        ] }
    };
}

async fn lock<T: Versions>(tx: &mut T, consumer: ConsumerId, aggregates: &[Key]) -> Vec<Option<u64>> {
    let versions = tx.lock_versions(consumer, aggregates).await.expect("versions can be locked");
    assert_eq!(versions.len(), aggregates.len(), "each aggregate gets an answer");
    versions
}

/// How far aggregates have come, as another transaction sees it.
async fn look<S: VersionStore>(store: &S, consumer: ConsumerId, aggregates: &[Key]) -> Vec<Option<u64>> {
    let mut tx = begin(store).await;
    let versions = lock(&mut tx, consumer, aggregates).await;
    tx.rollback().await;
    versions
}

async fn advance<S: VersionStore>(store: &S, consumer: ConsumerId, versions: &[(Key, u64)]) {
    let aggregates: Vec<Key> = versions.iter().map(|(aggregate, _)| aggregate.clone()).collect();
    let mut tx = begin(store).await;
    lock(&mut tx, consumer, &aggregates).await;
    tx.advance_versions(consumer, versions).await.expect("versions can be noted");
    commit(tx).await;
}

/// Nothing, also after it was locked; then what was noted last, in the same transaction too.
pub async fn an_aggregate_has_no_version_until_one_is_noted<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, a) = (consumer(store, "billing").await, [key("a")]);
    let mut tx = begin(store).await;
    assert_eq!(lock(&mut tx, billing, &a).await, [None]);
    commit(tx).await;
    assert_eq!(look(store, billing, &a).await, [None], "locked and left alone");
    let mut tx = begin(store).await;
    for version in [1, 2, 7] {
        lock(&mut tx, billing, &a).await;
        tx.advance_versions(billing, &[(key("a"), version)]).await.expect("versions can be noted");
        assert_eq!(lock(&mut tx, billing, &a).await, [Some(version)]);
    }
    commit(tx).await;
    assert_eq!(look(store, billing, &a).await, [Some(7)]);
    let other = setup.fixture.reopen(store).await;
    assert_eq!(look(&other, billing, &a).await, [Some(7)], "another process sees it too");
}

/// Whoever only looks is answered in the order asked for, waits for nobody who has them locked, and adds nothing.
pub async fn versions_are_read_without_a_lock<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    advance(store, billing, &[(key("a"), 7), (key("b"), u64::MAX)]).await;
    let asked = [key("b"), key("new"), key("a")];
    let read = async |store: &F::Store| {
        let mut tx = begin(store).await;
        let versions = tx.read_versions(billing, &asked).await.expect("versions can be read");
        assert!(tx.read_versions(billing, &[]).await.expect("nothing can be read").is_empty());
        tx.rollback().await;
        versions
    };
    assert_eq!(read(store).await, [Some(u64::MAX), None, Some(7)]);
    // Where transactions run one at a time, nobody can look meanwhile.
    if store.capabilities().concurrent {
        let mut locker = begin(store).await;
        lock(&mut locker, billing, &asked).await;
        assert_eq!(read(store).await, [Some(u64::MAX), None, Some(7)], "it waited for a lock");
        locker.rollback().await;
    }
}

/// Neither a first version nor a later one.
pub async fn a_version_that_rolled_back_never_was<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    advance(store, billing, &[(key("b"), 4)]).await;
    let both = [key("a"), key("b")];
    let mut tx = begin(store).await;
    assert_eq!(lock(&mut tx, billing, &both).await, [None, Some(4)]);
    tx.advance_versions(billing, &[(key("a"), 1), (key("b"), 5)]).await.expect("versions can be noted");
    tx.rollback().await;
    assert_eq!(look(store, billing, &both).await, [None, Some(4)]);
}

/// A version is an unsigned number of 64 bits, whatever the store counts in. Zero is not nothing.
pub async fn the_largest_versions_come_back<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let large = [0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX - 1, u64::MAX];
    let versions: Vec<(Key, u64)> = large.iter().map(|version| (key(&version.to_string()), *version)).collect();
    advance(store, billing, &versions).await;
    let aggregates: Vec<Key> = versions.into_iter().map(|(aggregate, _)| aggregate).collect();
    assert_eq!(look(store, billing, &aggregates).await, large.map(Some));
}

/// Known and new ones mixed, in no order of their own.
pub async fn many_aggregates_are_answered_in_the_order_asked_for<F: StoreFixture<Store: VersionStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let known: BTreeMap<u64, Key> = (0..500).filter(|n| n % 3 == 0).map(|n| (n, key(&n.to_string()))).collect();
    let versions: Vec<(Key, u64)> = known.iter().map(|(n, aggregate)| (aggregate.clone(), *n)).collect();
    advance(store, billing, &versions).await;
    let asked: Vec<u64> = (0..500).map(|n| n * 7 % 500).collect();
    let aggregates: Vec<Key> = asked.iter().map(|n| key(&n.to_string())).collect();
    let expected: Vec<Option<u64>> = asked.iter().map(|n| known.contains_key(n).then_some(*n)).collect();
    assert_eq!(look(store, billing, &aggregates).await, expected);
    assert!(look(store, billing, &[]).await.is_empty(), "nothing is answered with nothing");
}

/// Other consumers have come as far as they have, and names that look alike are not the same.
pub async fn versions_belong_to_one_aggregate_of_one_consumer<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let aggregates: Vec<Key> = hostile::TEXTS.iter().filter_map(|name| Key::parts([name.as_bytes()]).ok()).collect();
    let versions: Vec<(Key, u64)> = aggregates.iter().cloned().zip(1..).collect();
    advance(store, billing, &versions).await;
    let expected: Vec<Option<u64>> = versions.iter().map(|(_, version)| Some(*version)).collect();
    assert_eq!(look(store, billing, &aggregates).await, expected);
    assert!(look(store, shipping, &aggregates).await.iter().all(Option::is_none));
    let mut tx = begin(store).await;
    let read = tx.read_versions(shipping, &aggregates).await.expect("versions can be read");
    tx.rollback().await;
    assert!(read.iter().all(Option::is_none), "another consumer's versions were read");
    let others: Vec<(Key, u64)> = aggregates.iter().cloned().zip(1000..).collect();
    advance(store, shipping, &others).await;
    assert_eq!(look(store, billing, &aggregates).await, expected, "another consumer has come further");
}

/// Locks one aggregate in a task of its own, and answers what it found.
fn lock_beside<S: VersionStore>(store: &S, consumer: ConsumerId, aggregate: &Key) -> JoinSet<Option<u64>> {
    let (store, aggregate) = (store.clone(), aggregate.clone());
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut tx = begin(&store).await;
        let found = lock(&mut tx, consumer, &[aggregate]).await.remove(0);
        tx.rollback().await;
        found
    });
    task
}

/// Two can't both find the same version and both be next.
pub async fn a_second_lock_waits_and_learns_what_the_first_noted<F: StoreFixture<Store: VersionStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    advance(store, billing, &[(key("a"), 1)]).await;
    let mut first = begin(store).await;
    assert_eq!(lock(&mut first, billing, &[key("a")]).await, [Some(1)]);
    let mut second = lock_beside(store, billing, &key("a"));
    assert!(stays_pending(second.join_next()).await, "the second was answered while the first was open");
    first.advance_versions(billing, &[(key("a"), 2)]).await.expect("versions can be noted");
    commit(first).await;
    assert_eq!(second.join_all().await, [Some(2)]);
}

/// Where there is no record yet, the second waits all the same.
pub async fn a_first_version_is_noted_by_one_of_two<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut first = begin(store).await;
    assert_eq!(lock(&mut first, billing, &[key("a")]).await, [None]);
    let mut second = lock_beside(store, billing, &key("a"));
    assert!(stays_pending(second.join_next()).await, "the second was answered while the first was open");
    first.advance_versions(billing, &[(key("a"), 1)]).await.expect("versions can be noted");
    commit(first).await;
    assert_eq!(second.join_all().await, [Some(1)]);
}

/// And finds nothing if the first rolled back.
pub async fn a_lock_of_a_new_aggregate_that_rolled_back_frees_it<F: StoreFixture<Store: VersionStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut first = begin(store).await;
    assert_eq!(lock(&mut first, billing, &[key("a")]).await, [None]);
    let mut second = lock_beside(store, billing, &key("a"));
    assert!(stays_pending(second.join_next()).await, "the second was answered while the first was open");
    first.rollback().await;
    assert_eq!(second.join_all().await, [None]);
}

/// Batches that lock the same aggregates in opposite order wait for each other, new ones and known ones.
pub async fn locks_in_opposite_order_both_end<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    const AGGREGATES: u64 = 50;
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for round in 0..6 {
        // Every other round meets the aggregates of the one before.
        let aggregates: Vec<Key> = (0..AGGREGATES).map(|n| key(&format!("{}-{n}", round / 2))).collect();
        let mut tasks = JoinSet::new();
        for turned in [false, true] {
            let (store, mut aggregates) = (store.clone(), aggregates.clone());
            if turned {
                aggregates.reverse();
            }
            tasks.spawn(async move {
                let mut tx = begin(&store).await;
                let found = tx.lock_versions(billing, &aggregates).await.expect("opposite orders do not deadlock");
                let next =
                    aggregates.into_iter().zip(found.into_iter().map(|found| found.map_or(1, |found| found + 1)));
                tx.advance_versions(billing, &next.collect::<Vec<_>>()).await.expect("versions can be noted");
                commit(tx).await;
            });
        }
        tasks.join_all().await;
        let expected = Some(2 * (round % 2 + 1));
        assert!(look(store, billing, &aggregates).await.iter().all(|found| *found == expected), "none got lost");
    }
}

/// Of many that are next at once, each is next to another.
pub async fn no_version_is_noted_twice<F: StoreFixture<Store: VersionStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut tx = begin(&store).await;
            let next = lock(&mut tx, billing, &[key("a")]).await[0].map_or(1, |found| found + 1);
            tx.advance_versions(billing, &[(key("a"), next)]).await.expect("versions can be noted");
            commit(tx).await;
            next
        });
    }
    let mut noted = tasks.join_all().await;
    noted.sort_unstable();
    assert_eq!(noted, (1..=10).collect::<Vec<_>>());
}
