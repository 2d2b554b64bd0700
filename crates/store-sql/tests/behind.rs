//! Rows that wait behind dead ones are looked at once, not at each lease. `ONCEBOX_TEST_ROWS_BEHIND=100000` measures.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]
#![allow(clippy::print_stdout, reason = "it also measures")]

mod common;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use common::{LOCK_WAIT, PostgresPlace, SqlitePlace, begin, commit, consumer, fingerprint};
use oncebox_core::parked::{Cause, LeasedPark, Park, ParkLease, Parking, Verdict, Waits};
use oncebox_core::quarantine::{Quarantine, QuarantineStore};
use oncebox_core::{Class, ConsumerId, Key, Message, Session};
use tokio::time::Instant;

/// Keys with a dead head.
const KEYS: usize = 500;

fn park(consumer: ConsumerId, key: usize, n: usize, waits: Waits) -> Park {
    let id = format!("{key}-{n}");
    let cause = Cause::new(Some(Class::Permanent), "paid", "closed");
    let verdict = Verdict { waits, class: Some(Class::Permanent), cause, reason: "closed".to_owned(), attempts: 1 };
    Park {
        consumer,
        message: Arc::new(Message::new("paid").with_payload(id.clone())),
        key: Key::id(&id).unwrap(),
        fingerprint: fingerprint(7),
        owns_record: false,
        order_key: Some(format!("account-{key}")),
        verdict,
    }
}

/// On one connection, as a consumer does: a new one would prepare its statements first.
async fn lease<S: QuarantineStore>(idle: &mut Option<S::Session>, consumer: ConsumerId) -> (Vec<LeasedPark>, Duration) {
    let mut tx = idle.take().unwrap().begin(LOCK_WAIT).await.unwrap();
    let request = ParkLease { consumer, max: 100, lease: Duration::from_secs(60) };
    let begun = Instant::now();
    let leased = tx.lease_parked(&request).await.unwrap();
    let took = begun.elapsed();
    *idle = Some(commit(tx).await);
    (leased, took)
}

/// All rows but the dead heads are found to be behind, and then none is looked at again, until one comes to the front.
async fn rows_behind_dead_ones_are_looked_at_once<S: QuarantineStore>(store: S, looked_at: impl AsyncFn() -> i64) {
    let rows: usize = env::var("ONCEBOX_TEST_ROWS_BEHIND").map_or(5_000, |rows| rows.parse().unwrap());
    let consumer = consumer(&store, "billing").await;
    let heads: Vec<Park> = (0..KEYS).map(|key| park(consumer, key, 0, Waits::Person)).collect();
    let behind: Vec<Park> = (KEYS..KEYS + rows).map(|n| park(consumer, n % KEYS, n / KEYS, Waits::Turn)).collect();
    for some in [&heads, &behind].into_iter().flat_map(|parks| parks.chunks(500)) {
        let mut tx = begin(&store).await;
        tx.park(some).await.unwrap();
        commit(tx).await;
    }
    let mut idle = Some(store.connect().await.unwrap());
    let (mut leases, mut longest) = (0, Duration::ZERO);
    let (first, took) = lease::<S>(&mut idle, consumer).await;
    assert!(first.is_empty());
    while looked_at().await > 0 {
        longest = longest.max(lease::<S>(&mut idle, consumer).await.1);
        leases += 1;
        assert!(leases <= rows, "rows behind dead ones are looked at again and again");
    }
    let mut times = Vec::new();
    for _ in 0..20 {
        times.push(lease::<S>(&mut idle, consumer).await.1);
    }
    times.sort_unstable();
    println!("{rows} rows: first lease {took:?}, {leases} more to note all, longest {longest:?}, then {:?}", times[10]);

    // The first of one key is discarded: the next one comes, and no other.
    let head = {
        let mut tx = begin(&store).await;
        let head = tx.page(consumer, 0, 1).await.unwrap().remove(0);
        assert_eq!(tx.discard(&[head.row], "a test").await.unwrap(), [true]);
        commit(tx).await;
        head
    };
    assert_eq!(head.order_key.as_deref(), Some("account-0"));
    for n in 1..=3 {
        let (leased, took) = lease::<S>(&mut idle, consumer).await;
        let texts: Vec<&[u8]> = leased.iter().map(|leased| &leased.message.payload[..]).collect();
        assert_eq!(texts, [format!("0-{n}").as_bytes()], "after {took:?}");
        let mut tx = begin(&store).await;
        tx.end_parked(&[leased[0].receipt]).await.unwrap();
        commit(tx).await;
    }
}

#[tokio::test]
async fn rows_behind_dead_ones_are_looked_at_once_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let looked_at = async || place.count("oncebox_parked where behind = 0 and due_at is not null").await;
    rows_behind_dead_ones_are_looked_at_once(store, looked_at).await;
}

#[tokio::test]
async fn rows_behind_dead_ones_are_looked_at_once_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("rows_behind_dead_ones_are_looked_at_once_on_postgres") else { return };
    let store = place.open().await;
    let looked_at = async || place.count("parked where behind = 0 and due_at is not null").await;
    rows_behind_dead_ones_are_looked_at_once(store, looked_at).await;
}
