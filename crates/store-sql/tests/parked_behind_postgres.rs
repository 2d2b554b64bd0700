//! On PostgreSQL, rows are noted as waiting behind another while others end rows: nothing waits for that, and a row that
//! has become the first of its order key meanwhile is not noted.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, begin, commit, consumer, fingerprint};
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, Verdict, Waiting, Waits};
use oncebox_core::{ConsumerId, Key, Message, Session, Store};
use oncebox_store_sql::Postgres;
use oncebox_testkit::eventually;
use sqlx::{Connection, Executor, PgConnection};

const SHORT: Duration = Duration::from_secs(1);
const NOW: Waits = Waits::Retry(Duration::ZERO);
const LATER: Duration = Duration::from_secs(3600);

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn park(consumer: ConsumerId, order_key: &str, text: &str, waits: Waits) -> Park {
    Park {
        consumer,
        message: Arc::new(Message::new("noted").with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: false,
        order_key: Some(order_key.to_owned()),
        verdict: Verdict {
            waits,
            class: None,
            cause: Cause::new(None, "noted", "closed"),
            reason: "closed".to_owned(),
            attempts: 1,
        },
    }
}

async fn add(store: &Postgres, parks: &[Park]) {
    let mut tx = begin(store).await;
    assert!(tx.park(parks).await.unwrap().iter().all(|added| *added));
    commit(tx).await;
}

/// Gives up where it would wait for a lock.
async fn lease(store: &Postgres, consumer: ConsumerId, patience: Duration) -> Vec<String> {
    let mut tx = store.connect().await.unwrap().begin(patience).await.unwrap();
    let request = ParkLease { consumer, max: 10, lease: LATER };
    let leased = tx.lease_parked(&request).await.unwrap();
    commit(tx).await;
    leased.iter().map(|row| String::from_utf8_lossy(&row.message.payload).into_owned()).collect()
}

async fn run(connection: &mut PgConnection, sql: &'static str) {
    connection.execute(sql).await.unwrap();
}

async fn one_waits(place: &PostgresPlace) {
    let waiting = "pg_locks where not granted and relation = to_regclass('parked')";
    eventually("a lease that waits for the table", async || place.count(waiting).await > 0).await;
}

/// Between the look and the note, the row that it waited for is gone. What is left of its key is no reason: a row of another
/// consumer, one that waits for a gap, a later one, one of another key with the same hash.
#[tokio::test]
async fn a_row_that_became_the_first_meanwhile_is_not_noted_as_waiting() {
    let Some(place) = PostgresPlace::or_skip("a_row_that_became_the_first_meanwhile_is_not_noted_as_waiting") else {
        return;
    };
    let store = place.open().await;
    let (ours, other) = (consumer(&store, "invoices").await, consumer(&store, "reports").await);
    add(&store, &[park(other, "k", "another consumer's", Waits::Person)]).await;
    let rows = [
        park(ours, "k", "a gap", Waits::Gap(LATER)),
        park(ours, "j", "another key", Waits::Person),
        park(ours, "k", "the first", Waits::Person),
        park(ours, "k", "due", NOW),
        park(ours, "k", "later", Waits::Retry(LATER)),
    ];
    add(&store, &rows).await;
    place
        .run("update parked set order_hash = (select order_hash from parked where order_key = 'k'::bytea limit 1)")
        .await;

    let mut ends = place.connection().await;
    run(&mut ends, "begin").await;
    run(&mut ends, "lock table parked in share mode").await;
    let leased = lease(&store, ours, common::LOCK_WAIT);
    let ended = async {
        one_waits(&place).await;
        run(&mut ends, "delete from parked where payload = 'the first'::bytea").await;
        run(&mut ends, "commit").await;
    };
    let (at_once, ()) = tokio::join!(leased, ended);
    assert!(at_once.is_empty(), "it waited when it was looked for: {at_once:?}");
    assert_eq!(lease(&store, ours, SHORT).await, ["due"], "nothing would wake it any more");
    ends.close().await.unwrap();
}

/// A lease that waited for it could deadlock with a batch.
#[tokio::test]
async fn a_lease_passes_over_a_waiting_row_that_somebody_holds() {
    let Some(place) = PostgresPlace::or_skip("a_lease_passes_over_a_waiting_row_that_somebody_holds") else { return };
    let store = place.open().await;
    let ours = consumer(&store, "invoices").await;
    let rows = [park(ours, "k", "the first", Waits::Person), park(ours, "k", "due", NOW), park(ours, "j", "free", NOW)];
    add(&store, &rows).await;
    let mut holds = place.connection().await;
    run(&mut holds, "begin").await;
    run(&mut holds, "select from parked where payload = 'due'::bytea for update").await;
    assert_eq!(lease(&store, ours, SHORT).await, ["free"]);
    run(&mut holds, "rollback").await;
    holds.close().await.unwrap();
}

/// Two batches that name the same keys in opposite order would deadlock otherwise.
#[tokio::test]
async fn starts_are_forgotten_in_the_order_of_their_keys() {
    let Some(place) = PostgresPlace::or_skip("starts_are_forgotten_in_the_order_of_their_keys") else { return };
    let store = place.open().await;
    let ours = consumer(&store, "invoices").await;
    let mut tx = begin(&store).await;
    for text in ["b", "a"] {
        tx.note_start(ours, &key(text), Waiting::default()).await.unwrap();
    }
    commit(tx).await;
    let mut holds = place.connection().await;
    run(&mut holds, "begin").await;
    run(&mut holds, "select from starts order by key limit 1 for update").await;
    let forget = async {
        let mut tx = begin(&store).await;
        tx.forget_starts(&["b", "a"].map(|text| (ours, key(text)))).await.unwrap();
        commit(tx).await;
    };
    let other_is_free = async {
        let waiting = "pg_locks as waiting where not granted and exists (select from pg_locks as held \
             where held.pid = waiting.pid and held.relation = to_regclass('starts'))";
        eventually("a batch that waits for the first key", async || place.count(waiting).await > 0).await;
        let mut looks = place.connection().await;
        run(&mut looks, "select from starts order by key desc limit 1 for update nowait").await;
        looks.close().await.unwrap();
        run(&mut holds, "rollback").await;
    };
    tokio::join!(forget, other_is_free);
    assert_eq!(place.count("starts").await, 0);
    holds.close().await.unwrap();
}
