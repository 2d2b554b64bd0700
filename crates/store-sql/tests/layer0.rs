//! The inbox and the outbox on the user's own connection: they commit and roll back with it.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, begin, fingerprint};
use std::time::Duration;

use oncebox_core::horizon::Consumers;
use oncebox_core::identity::{Binding, Scheme};
use oncebox_core::outbox::{Outbox, OutboxStore};
use oncebox_core::{
    Claim, Code, Key, KeyStrategy, Message, MessageId, Outcome, OutcomeKind, Outgoing, StoreErrorKind, Transaction,
};
use oncebox_store_sql::SqlStore;
use oncebox_store_sql::dialect::Dialect;
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

/// The name of an inbox is bound to the way its keys are made, in the record that consumers have too.
async fn is_bound<D: Dialect>(store: SqlStore<D>, db: &mut D::Db) {
    let by_payment = || KeyStrategy::template("payment:{id}").unwrap();
    let own = store.inbox("own").await.unwrap();
    assert_eq!(store.inbox("own").await.unwrap().consumer(), own.consumer());
    let refused = store.inbox_by("own", KeyStrategy::MessageId).await.unwrap_err();
    assert_eq!(refused.code(), Code::IdentityChanged, "{refused}");
    let inbox = store.inbox_by("billing", by_payment()).await.unwrap().look_every(Duration::ZERO);
    assert!(store.inbox("billing").await.is_err() && store.inbox_by("billing", KeyStrategy::MessageId).await.is_err());
    assert!(store.inbox_by("billing", by_payment()).await.is_ok());

    let message = Message::new("paid").with_payload(r#"{"id":7}"#);
    assert_eq!(inbox.key_of(&message).unwrap(), by_payment().key(&message, None).unwrap());
    assert_eq!(inbox.claim_message(db, &message).await.unwrap(), Claim::Fresh);
    assert!(own.key_of(&message).is_err());
    // What changes while it is open is seen by the next claim.
    let mut tx = begin(&store).await;
    let other = Binding { scheme: Scheme::of_caller("other".to_owned()), was: None };
    tx.set_binding(inbox.consumer(), &other).await.unwrap();
    common::commit(tx).await;
    let refused = inbox.claim_message(db, &message).await.unwrap_err();
    assert_eq!(refused.code(), Code::IdentityChanged, "{refused}");
}

/// A message that is older than what is remembered is neither new nor a duplicate.
async fn reads_the_horizon<D: Dialect>(store: SqlStore<D>, db: &mut D::Db) {
    let inbox = store.inbox_by("billing", KeyStrategy::MessageId).await.unwrap();
    let made_ago = |id: &str, hours: u64| {
        let mut message = Message::new("paid").with_id(MessageId::new(id).unwrap());
        message.time -= Duration::from_secs(3_600 * hours);
        message
    };
    assert_eq!(inbox.claim_message(db, &made_ago("known", 9)).await.unwrap(), Claim::Fresh, "nothing is forgotten");
    let mut tx = begin(&store).await;
    let horizon = made_ago("checkpoint", 2).time;
    assert!(tx.set_checkpoint(inbox.consumer(), horizon).await.unwrap());
    common::commit(tx).await;
    let Claim::Forgotten { horizon: told } = inbox.claim_message(db, &made_ago("old", 9)).await.unwrap() else {
        panic!("nobody can tell whether it was handled")
    };
    assert_eq!(told.as_microsecond(), horizon.as_microsecond());
    assert!(matches!(inbox.claim_message(db, &made_ago("known", 9)).await.unwrap(), Claim::Duplicate(_)));
    assert_eq!(inbox.claim_message(db, &made_ago("young", 1)).await.unwrap(), Claim::Fresh);
    // It was not claimed: whoever knows better may claim it without saying when it was made.
    let old = made_ago("old", 9);
    let claim = inbox.claim(db, &inbox.key_of(&old).unwrap(), fingerprint(1)).await.unwrap();
    assert_eq!(claim, Claim::Fresh);
}

#[tokio::test]
async fn an_inbox_is_bound_to_the_way_its_keys_are_made() {
    let place = SqlitePlace::new();
    is_bound(place.open().await, &mut place.connection().await).await;
    let Some(place) = PostgresPlace::or_skip("an_inbox_is_bound_to_the_way_its_keys_are_made") else { return };
    is_bound(place.open().await, &mut place.connection().await).await;
}

#[tokio::test]
async fn a_claim_that_says_when_its_message_was_made_reads_the_horizon() {
    let place = SqlitePlace::new();
    reads_the_horizon(place.open().await, &mut place.connection().await).await;
    let Some(place) = PostgresPlace::or_skip("a_claim_that_says_when_its_message_was_made_reads_the_horizon") else {
        return;
    };
    reads_the_horizon(place.open().await, &mut place.connection().await).await;
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
