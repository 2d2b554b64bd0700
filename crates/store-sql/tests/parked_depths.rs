//! Messages that wait for a person are counted on their own: an outage with more retries than are counted does not hide them.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, SqlitePlace, begin, commit, consumer, fingerprint};
use oncebox_core::counters::Depth;
use oncebox_core::depths::{DepthStore, Depths, ParkedDepth};
use oncebox_core::memory::MemoryStore;
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, Verdict, Waits};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{Class, ConsumerId, Key, Message, Transaction};

fn park(consumer: ConsumerId, id: &str, order_key: Option<&str>, waits: Waits) -> Park {
    let cause = Cause::new(Some(Class::Transient), "paid", "closed");
    let verdict = Verdict { waits, class: Some(Class::Transient), cause, reason: "closed".to_owned(), attempts: 1 };
    Park {
        consumer,
        message: Arc::new(Message::new("paid")),
        key: Key::id(id).unwrap(),
        fingerprint: fingerprint(7),
        owns_record: false,
        order_key: order_key.map(str::to_owned),
        verdict,
    }
}

async fn put<S: QuarantineStore>(store: &S, parks: &[Park]) {
    for some in parks.chunks(1_000) {
        let mut tx = begin(store).await;
        tx.park(some).await.unwrap();
        commit(tx).await;
    }
}

async fn depth<S: QuarantineStore + DepthStore>(store: &S, consumer: ConsumerId) -> ParkedDepth {
    let mut tx = begin(store).await;
    let depth = tx.parked_depth(consumer).await.unwrap();
    tx.rollback().await;
    depth
}

async fn many_retries_hide_no_dead_message<S: QuarantineStore + DepthStore>(store: S) {
    let billing = consumer(&store, "billing").await;
    let other = consumer(&store, "other").await;
    put(&store, &[park(other, "theirs", None, Waits::Person)]).await;
    let head = park(billing, "head", Some("account-1"), Waits::Person);
    let behind = (0..9).map(|n| park(billing, &format!("behind-{n}"), Some("account-1"), Waits::Turn));
    put(&store, &[head].into_iter().chain(behind).collect::<Vec<_>>()).await;
    assert_eq!(depth(&store, billing).await, ParkedDepth::counted(9, 1));
    // A lease finds those that stand behind a dead one and looks at them no more; they go on waiting.
    let mut tx = begin(&store).await;
    let request = ParkLease { consumer: billing, max: 100, lease: Duration::from_secs(60) };
    assert!(tx.lease_parked(&request).await.unwrap().is_empty());
    commit(tx).await;
    assert_eq!(depth(&store, billing).await, ParkedDepth::counted(9, 1));

    let retry = |n| park(billing, &format!("retry-{n}"), None, Waits::Retry(Duration::from_secs(3_600)));
    put(&store, &(0..10_500).map(retry).collect::<Vec<_>>()).await;
    put(&store, &(0..100).map(|n| park(billing, &format!("dead-{n}"), None, Waits::Person)).collect::<Vec<_>>()).await;
    let expected = ParkedDepth { waiting: Depth::COUNTED_MAX, waiting_is_more: true, dead: 101, dead_is_more: false };
    assert_eq!(depth(&store, billing).await, expected);
    assert_eq!(depth(&store, other).await, ParkedDepth::counted(0, 1));

    // Who waits for a version goes on when it comes; who gave it up needs a person, whoever else did.
    let hour = Duration::from_secs(3_600);
    put(&store, &[park(other, "gap", Some("account-2"), Waits::Gap(hour))]).await;
    put(&store, &[park(billing, "gave-up", Some("account-2"), Waits::Missing)]).await;
    assert_eq!(depth(&store, other).await, ParkedDepth::counted(1, 1));
    assert_eq!(depth(&store, billing).await, ParkedDepth { dead: 102, ..expected });
}

#[tokio::test]
async fn many_retries_hide_no_dead_message_on_sqlite() {
    let place = SqlitePlace::new();
    many_retries_hide_no_dead_message(place.open().await).await;
}

#[tokio::test]
async fn many_retries_hide_no_dead_message_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("many_retries_hide_no_dead_message_on_postgres") else { return };
    many_retries_hide_no_dead_message(place.open().await).await;
}

#[tokio::test]
async fn many_retries_hide_no_dead_message_in_memory() {
    many_retries_hide_no_dead_message(MemoryStore::new()).await;
}
