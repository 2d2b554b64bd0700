//! The inbox, beyond what the suites of the test kit ask of every store.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::HashSet;

use common::{PostgresPlace, SqlitePlace, begin, commit, consumer, fingerprint};
use oncebox_core::{Claim, ClaimRequest, Clock, Inbox, Key, Store};
use oncebox_testkit::ManualClock;

/// Texts that databases like to take for each other: case, trailing spaces, zero bytes, quotes, other Unicode forms.
fn hostile_ids(count: usize) -> Vec<String> {
    let parts = [
        "a",
        "A",
        " ",
        "\0",
        "'",
        "\"",
        "\\",
        "%",
        "_",
        "\u{e9}",
        "e\u{301}",
        "\u{df}",
        "ss",
        "\u{130}",
        "i",
        "\n",
        "\u{200b}",
        "\u{feff}",
        "00",
        "0",
        "null",
        "$1",
        "--",
        "\u{1f600}",
        "\u{fffd}",
        ";",
    ];
    let (clock, mut ids) = (ManualClock::seeded(7), HashSet::new());
    while ids.len() < count {
        let length = 1 + clock.random() % 12;
        ids.insert((0..length).map(|_| parts[clock.random() as usize % parts.len()]).collect::<String>());
    }
    ids.into_iter().collect()
}

async fn hostile_keys_stay_distinct<S: Store>(store: S) {
    let consumer = consumer(&store, "billing").await;
    let ids = hostile_ids(10_000);
    let request = |(at, id): (usize, &String)| ClaimRequest {
        consumer,
        key: Key::id(id).unwrap(),
        fingerprint: fingerprint(i64::try_from(at).unwrap()),
        id_hash: None,
    };
    let requests: Vec<ClaimRequest> = ids.iter().enumerate().map(request).collect();
    for batch in requests.chunks(1000) {
        let mut tx = begin(&store).await;
        let claims = tx.claim(batch).await.unwrap();
        assert!(claims.iter().all(|claim| *claim == Claim::Fresh), "two ids became one key");
        commit(tx).await;
    }
    let mut tx = begin(&store).await;
    let claims = tx.claim(&requests).await.unwrap();
    assert!(claims.iter().all(|claim| matches!(claim, Claim::Duplicate(_))), "a key was answered by another's record");
}

#[tokio::test]
async fn hostile_keys_stay_distinct_on_sqlite() {
    hostile_keys_stay_distinct(SqlitePlace::new().open().await).await;
}

#[tokio::test]
async fn hostile_keys_stay_distinct_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("hostile_keys_stay_distinct_on_postgres") else { return };
    hostile_keys_stay_distinct(place.open().await).await;
}

/// The keys lie in the index in the order of their bytes, and two batches take them in that order: no deadlock.
#[tokio::test(flavor = "multi_thread")]
async fn batches_in_opposite_order_do_not_deadlock() {
    let Some(place) = PostgresPlace::or_skip("batches_in_opposite_order_do_not_deadlock") else { return };
    let store = place.open().await;
    let consumer = consumer(&store, "billing").await;
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for backwards in [false, true] {
            let store = store.clone();
            tasks.spawn(async move {
                let mut batch: Vec<_> = (0..200).map(|n| common::request(consumer, &format!("{round}-{n}"))).collect();
                if backwards {
                    batch.reverse();
                }
                let mut tx = begin(&store).await;
                let claims = tx.claim(&batch).await.unwrap();
                commit(tx).await;
                claims.iter().filter(|claim| **claim == Claim::Fresh).count()
            });
        }
        assert_eq!(tasks.join_all().await.iter().sum::<usize>(), 200);
    }
}
