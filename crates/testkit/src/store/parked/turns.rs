//! Whoever waits for its turn gets it: a store may remember which rows are behind others, and must not forget to wake
//! them, whatever happens at the same moment.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox_core::parked::{Park, ParkLease, ParkStore, Parking, Waits};
use oncebox_core::{Store, Transaction};
use tokio::task::JoinSet;

use super::steps::{
    LEASE, LEASE_AND_MORE, NOW, add, end, in_order, lease, put_back_under, receipts, release, text, texts, verdict,
};
use crate::eventually;
use crate::store::steps::{begin, commit, consumer};
use crate::store::{Setup, StoreFixture};

/// A row that leases have found behind another comes when that one is given back, tried again and ended.
pub async fn a_row_that_was_found_behind_keeps_its_turn<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let rows = ["a1", "a2", "a3"].map(|text| in_order(billing, "a", text, NOW));
    add(store, &rows).await;
    let first = lease(store, billing).await;
    assert!(lease(store, billing).await.is_empty(), "two are behind");
    release(store, &receipts(&first), Duration::ZERO).await;
    let again = lease(store, billing).await;
    assert_eq!(texts(&again), ["a1"]);
    // An end that is rolled back wakes nobody.
    let mut tx = begin(store).await;
    tx.end_parked(&receipts(&again)).await.expect("a leased row can be ended");
    tx.rollback().await;
    assert!(lease(store, billing).await.is_empty());
    end(store, &receipts(&again)).await.expect("a leased row can be ended");
    let second = lease(store, billing).await;
    assert_eq!(texts(&second), ["a2"]);
    put_back_under(store, second[0].receipt, verdict(Waits::Gap(LEASE), 1), "a")
        .await
        .expect("a leased row can be put back");
    let third = lease(store, billing).await;
    assert_eq!(texts(&third), ["a3"]);
    // The one that waited for a gap is before it again, and then gone.
    setup.advance(LEASE_AND_MORE).await;
    let second = lease(store, billing).await;
    assert!(texts(&second).contains(&"a2".to_owned()));
    let found = second.iter().find(|leased| text(leased) == "a2").expect("it is there");
    put_back_under(store, found.receipt, verdict(NOW, 2), "a").await.expect("a leased row can be put back");
    setup.advance(LEASE_AND_MORE).await;
    let second = lease(store, billing).await;
    assert_eq!(texts(&second), ["a2"], "it is before the third");
    end(store, &receipts(&second)).await.expect("a leased row can be ended");
    assert_eq!(texts(&lease(store, billing).await), ["a3"]);
}

/// The first row ends in a transaction that is still open when the next one is parked, and when a lease looks: neither
/// sees the other, and still the next one comes. A store that runs one transaction at a time need not be asked.
pub async fn a_row_parked_while_the_first_ends_comes<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    if !store.capabilities().concurrent {
        return;
    }
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW)]).await;
    let first = lease(store, billing).await;
    let mut ending = begin(store).await;
    ending.end_parked(&receipts(&first)).await.expect("a leased row can be ended");
    add(store, &[in_order(billing, "a", "a2", Waits::Turn)]).await;
    assert!(lease(store, billing).await.is_empty(), "the first may yet come back");
    commit(ending).await;
    assert_eq!(texts(&lease(store, billing).await), ["a2"]);
}

/// A lease that has found a row behind another is still open when that one ends. Whoever waits for whom, the row comes.
pub async fn a_row_found_behind_while_the_first_ends_comes<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    if !store.capabilities().concurrent {
        return;
    }
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW)]).await;
    let first = lease(store, billing).await;
    add(store, &[in_order(billing, "a", "a2", Waits::Turn)]).await;
    let mut leasing = begin(store).await;
    let request = ParkLease { consumer: billing, max: 10, lease: LEASE };
    assert!(leasing.lease_parked(&request).await.expect("parked rows can be leased").is_empty());
    let mut tasks = JoinSet::new();
    let (other, rows) = (store.clone(), receipts(&first));
    tasks.spawn(async move { end(&other, &rows).await });
    // Gives the end the time to run into the open lease, if it does.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    commit(leasing).await;
    tasks.join_all().await.pop().expect("there was one task").expect("a leased row can be ended");
    assert_eq!(texts(&lease(store, billing).await), ["a2"]);
}

/// Rows are parked, leased and ended by many at once, and all come.
pub async fn rows_parked_while_others_end_all_come<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    const ROWS: usize = 25;
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let mut parking = JoinSet::new();
    for name in ["x", "y"] {
        let store = store.clone();
        parking.spawn(async move {
            for n in 0..ROWS {
                let parks: Vec<Park> =
                    ["a", "b"].iter().map(|key| in_order(billing, key, &format!("{key}-{name}{n}"), NOW)).collect();
                add(&store, &parks).await;
            }
        });
    }
    let mut running = JoinSet::new();
    for _ in 0..3 {
        let (store, seen) = (store.clone(), Arc::clone(&seen));
        running.spawn(async move {
            loop {
                let leased = lease(&store, billing).await;
                for one in &leased {
                    end(&store, &[one.receipt]).await.expect("a leased row can be ended");
                    seen.lock().expect("no task panicked").insert(text(one));
                }
                if leased.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    parking.join_all().await;
    eventually("all rows have come", async || seen.lock().expect("no task panicked").len() == 4 * ROWS).await;
}
