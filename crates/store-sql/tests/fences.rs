//! A fence starts over where the next one would not fit its column; only its being equal counts.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, SqlitePlace, begin, commit, consumer, fingerprint};
use oncebox_core::parked::{Cause, Park, ParkLease, ParkReceipt, ParkStore, Parking, PutBack, Verdict, Waits};
use oncebox_core::{Class, ConsumerId, Key, Message};

fn verdict() -> Verdict {
    let (waits, class) = (Waits::Retry(Duration::ZERO), Some(Class::Transient));
    Verdict { waits, class, cause: Cause::new(class, "paid", "closed"), reason: "closed".to_owned(), attempts: 1 }
}

async fn lease<S: ParkStore>(store: &S, consumer: ConsumerId) -> ParkReceipt {
    let mut tx = begin(store).await;
    let request = ParkLease { consumer, max: 1, lease: Duration::ZERO };
    let leased = tx.lease_parked(&request).await.unwrap();
    commit(tx).await;
    leased[0].receipt
}

async fn the_last_fence_is_followed_by_another<S: ParkStore>(store: S, set: impl AsyncFn(i32)) {
    let billing = consumer(&store, "billing").await;
    let park = Park {
        consumer: billing,
        message: Arc::new(Message::new("paid")),
        key: Key::id("a").unwrap(),
        fingerprint: fingerprint(7),
        owns_record: false,
        order_key: None,
        verdict: verdict(),
    };
    let mut tx = begin(&store).await;
    tx.park(&[park]).await.unwrap();
    commit(tx).await;
    for gives_back in [false, true] {
        // In hand and taken over again, then given up by its owner.
        for fence in [i32::MAX, i32::MAX - 1, i32::MAX - 1_023] {
            set(fence).await;
            let (stale, ours) = (lease(&store, billing).await, lease(&store, billing).await);
            assert_ne!(stale, ours, "{fence}");
            // The last fences of all, in hand.
            set(fence - 1).await;
            let ours = lease(&store, billing).await;
            let mut tx = begin(&store).await;
            if gives_back {
                tx.put_back(&[PutBack::new(ours, verdict())]).await.unwrap();
            } else {
                tx.release_parked(&[ours], Duration::ZERO).await.unwrap();
            }
            commit(tx).await;
            let next = lease(&store, billing).await;
            assert_ne!(next, ours, "{fence}");
        }
    }
}

#[tokio::test]
async fn the_last_fence_is_followed_by_another_on_sqlite() {
    let place = SqlitePlace::new();
    let set = async |fence: i32| place.run(&format!("update oncebox_parked set fence = {fence}")).await;
    the_last_fence_is_followed_by_another(place.open().await, set).await;
}

#[tokio::test]
async fn the_last_fence_is_followed_by_another_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("the_last_fence_is_followed_by_another_on_postgres") else { return };
    let set = async |fence: i32| place.run(&format!("update parked set fence = {fence}")).await;
    the_last_fence_is_followed_by_another(place.open().await, set).await;
}
