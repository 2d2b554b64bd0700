//! The inbox on the user's own connection: it commits and rolls back with it.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, fingerprint};
use oncebox_core::{Claim, Key, Outcome, OutcomeKind, StoreErrorKind};
use sqlx::{Connection, Executor};

#[tokio::test]
async fn a_claim_in_the_users_transaction_on_sqlite() {
    let place = SqlitePlace::new();
    let inbox = place.open().await.inbox("billing").await.unwrap();
    let key = Key::id("a").unwrap();
    let mut connection = place.connection().await;

    let mut tx = connection.begin_with("begin immediate").await.unwrap();
    assert_eq!(inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap(), Claim::Fresh);
    tx.rollback().await.unwrap();

    let mut tx = connection.begin_with("begin immediate").await.unwrap();
    assert_eq!(inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap(), Claim::Fresh);
    let outcome = Outcome::applied().with_json(&42).unwrap();
    inbox.record(&mut tx, &key, &outcome).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = connection.begin_with("begin immediate").await.unwrap();
    let Claim::Duplicate(earlier) = inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap() else {
        panic!("it was claimed before")
    };
    assert_eq!(earlier.outcome.json::<i32>(), Some(42));
    assert!(matches!(inbox.claim(&mut tx, &key, fingerprint(2)).await.unwrap(), Claim::Conflict(_)));
}

#[tokio::test]
async fn a_claim_in_the_users_transaction_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_claim_in_the_users_transaction_on_postgres") else { return };
    let inbox = place.open().await.inbox("billing").await.unwrap();
    let key = Key::id("a").unwrap();
    let mut connection = place.connection().await;

    let mut tx = connection.begin().await.unwrap();
    assert_eq!(inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap(), Claim::Fresh);
    inbox.unclaim(&mut tx, &key).await.unwrap();
    assert_eq!(inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap(), Claim::Fresh);
    inbox.record(&mut tx, &key, &Outcome::rejected("no funds")).await.unwrap();
    tx.execute("create table mine (id int)").await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = connection.begin().await.unwrap();
    let Claim::Duplicate(earlier) = inbox.claim(&mut tx, &key, fingerprint(1)).await.unwrap() else {
        panic!("it was claimed before")
    };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Rejected);
    assert_eq!(inbox.clone().consumer(), inbox.consumer());
}

#[tokio::test]
async fn a_consumer_needs_a_sound_name() {
    let store = SqlitePlace::new().open().await;
    assert_eq!(store.inbox("two words").await.unwrap_err().kind(), StoreErrorKind::Configuration);
}
