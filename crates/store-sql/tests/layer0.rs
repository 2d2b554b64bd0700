//! The inbox and the outbox on the user's own connection: they commit and roll back with it.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, begin, fingerprint};
use oncebox_core::outbox::{Outbox, OutboxStore};
use oncebox_core::{Claim, Key, Message, MessageId, Outcome, OutcomeKind, Outgoing, StoreErrorKind, Transaction};
use oncebox_testkit::stays_pending;
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

fn placed(id: &str) -> Outgoing {
    let message = Message::new("order.placed").with_id(MessageId::new(id).unwrap()).with_order_key("order-17");
    Outgoing { topic: "orders".to_owned(), message: message.into() }
}

async fn unsent<S: OutboxStore>(store: &S) -> u64 {
    let mut tx = begin(store).await;
    let backlog = tx.outbox_backlog().await.unwrap();
    tx.rollback().await;
    backlog.unsent
}

#[tokio::test]
async fn rows_emitted_in_the_users_transaction_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let emitter = store.emitter();
    let mut connection = place.connection().await;

    let mut tx = connection.begin_with("begin immediate").await.unwrap();
    emitter.emit(&mut tx, &[placed("1")]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(unsent(&store).await, 0);

    let mut tx = connection.begin_with("begin immediate").await.unwrap();
    emitter.emit(&mut tx, &[placed("1"), placed("2")]).await.unwrap();
    assert_eq!(emitter.emit(&mut tx, &[placed("2")]).await.unwrap_err().kind(), StoreErrorKind::Refused);
    emitter.emit(&mut tx, &[]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(unsent(&store).await, 2);

    assert!(stays_pending(store.emitted()).await, "nobody can know that the user has committed");
    emitter.clone().committed();
    assert!(!stays_pending(store.emitted()).await);
}

#[tokio::test]
async fn rows_emitted_in_the_users_transaction_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("rows_emitted_in_the_users_transaction_on_postgres") else { return };
    let store = place.open().await;
    let emitter = store.emitter();
    let mut connection = place.connection().await;

    let mut tx = connection.begin().await.unwrap();
    tx.execute("create table mine (id int)").await.unwrap();
    emitter.emit(&mut tx, &[placed("1")]).await.unwrap();
    assert_eq!(unsent(&store).await, 0, "it is not committed");
    tx.commit().await.unwrap();
    assert_eq!(unsent(&store).await, 1);

    let mut tx = connection.begin().await.unwrap();
    emitter.emit(&mut tx, &[placed("2")]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(unsent(&store).await, 1);
}
