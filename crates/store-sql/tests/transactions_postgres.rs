//! What handlers do to a transaction on PostgreSQL, and what is never committed because of it.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{PostgresPlace, begin, claim, consumer, fingerprint, look, poll_once, request};
use oncebox_core::{Claim, ConsumerId, Ended, Inbox, Session, Store, StoreErrorKind, Transaction};
use oncebox_store_sql::{Postgres, SqlTx};
use oncebox_testkit::stays_pending;
use sqlx::{Connection, Executor};

type Tx = SqlTx<oncebox_store_sql::dialect::PostgresDialect>;

struct Setup {
    place: PostgresPlace,
    store: Postgres,
    consumer: ConsumerId,
}

impl Setup {
    async fn new(test: &str) -> Option<Self> {
        let place = PostgresPlace::or_skip(test)?;
        let store = place.open().await;
        place.run("create table effects (id text, parent int)").await;
        let consumer = consumer(&store, "billing").await;
        Some(Self { place, store, consumer })
    }

    /// A transaction that has claimed the key `a` and written an effect.
    async fn claimed(&self) -> Tx {
        let mut tx = begin(&self.store).await;
        assert_eq!(claim(&mut tx, &request(self.consumer, "a")).await, Claim::Fresh);
        tx.db().execute("insert into effects values ('a')").await.unwrap();
        tx
    }

    async fn assert_nothing_is_there(&self) {
        assert_eq!(look(&self.store, &request(self.consumer, "a")).await, Claim::Fresh);
        assert_eq!(self.place.count("effects").await, 0);
    }
}

async fn assert_lost(tx: Tx, why: &str) -> Option<impl Session<Tx = Tx>> {
    match tx.commit().await {
        Ended::RolledBack { session, error } => {
            assert_eq!(error.kind(), StoreErrorKind::TransactionLost, "{error}");
            assert!(error.to_string().contains(why), "{error}");
            session
        }
        other => panic!("expected a rollback, got {other:?}"),
    }
}

#[tokio::test]
async fn a_swallowed_error_commits_nothing() {
    let Some(setup) = Setup::new("a_swallowed_error_commits_nothing").await else { return };
    let mut tx = setup.claimed().await;
    tx.db().execute("select 1 / 0").await.unwrap_err();
    tx.alive().unwrap();
    let session = assert_lost(tx, "its error was swallowed").await.expect("the connection is sound");
    session.begin(common::LOCK_WAIT).await.unwrap().rollback().await.unwrap();
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_nested_commit_commits_nothing_by_itself() {
    let Some(setup) = Setup::new("a_nested_commit_commits_nothing_by_itself").await else { return };
    let mut tx = setup.claimed().await;
    let mut nested = tx.db().begin().await.unwrap();
    nested.execute("insert into effects values ('nested')").await.unwrap();
    nested.commit().await.unwrap();
    tx.alive().unwrap();
    drop(tx);
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_nested_transaction_that_was_left_open_commits_nothing() {
    let Some(setup) = Setup::new("a_nested_transaction_that_was_left_open_commits_nothing").await else { return };
    let mut tx = setup.claimed().await;
    std::mem::forget(tx.db().begin().await.unwrap());
    assert!(tx.alive().is_err());
    assert_lost(tx, "left open").await;
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_cancelled_nested_begin_is_noticed() {
    let Some(setup) = Setup::new("a_cancelled_nested_begin_is_noticed").await else { return };
    let mut tx = setup.claimed().await;
    // It waits behind a slow statement that was cancelled before, so it can't be done at once.
    assert!(poll_once(Box::pin(tx.db().execute("select pg_sleep(0.1)"))).await.is_none());
    assert!(poll_once(Box::pin(tx.db().begin())).await.is_none());
    assert_eq!(tx.alive().unwrap_err().kind(), StoreErrorKind::TransactionLost);
    assert_lost(tx, "rolled back").await;
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_handlers_own_commit_is_found_out() {
    let Some(setup) = Setup::new("a_handlers_own_commit_is_found_out").await else { return };
    for statements in ["commit", "commit; begin", "rollback; begin", "commit and chain"] {
        let mut tx = begin(&setup.store).await;
        claim(&mut tx, &request(setup.consumer, statements)).await;
        sqlx::raw_sql(statements).execute(tx.db()).await.unwrap();
        // Before a rollback, which would roll back nothing, and at the seal alike.
        let breach = tx.verify().await.unwrap_err();
        assert_eq!(breach.kind(), StoreErrorKind::Breached, "{breach}");
        assert!(breach.to_string().contains("the claims of 1 keys may be committed"), "{breach}");
        match tx.commit().await {
            Ended::RolledBack { error, .. } => assert_eq!(error.kind(), StoreErrorKind::Breached, "{error}"),
            other => panic!("expected a breach, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_handler_cannot_make_its_commit_less_durable() {
    let Some(setup) = Setup::new("a_handler_cannot_make_its_commit_less_durable").await else { return };
    assert!(setup.store.capabilities().durable);
    let mut tx = setup.claimed().await;
    tx.db().execute("set local synchronous_commit = off").await.unwrap();
    assert_lost(tx, "synchronous_commit").await;
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_cancelled_query_poisons_nothing() {
    let Some(setup) = Setup::new("a_cancelled_query_poisons_nothing").await else { return };
    let mut session = setup.store.connect().await.unwrap();
    for round in 0..50 {
        let mut tx = session.begin(common::LOCK_WAIT).await.unwrap();
        claim(&mut tx, &request(setup.consumer, "a")).await;
        {
            let mut query = Box::pin(tx.db().execute("insert into effects select 'a' from generate_series(1, 1000)"));
            for _ in 0..round % 5 {
                if poll_once(&mut query).await.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        session = tx.rollback().await.expect("it can be rolled back");
    }
    let mut tx = session.begin(common::LOCK_WAIT).await.unwrap();
    assert_eq!(claim(&mut tx, &request(setup.consumer, "b")).await, Claim::Fresh);
    common::commit(tx).await;
    assert!(matches!(look(&setup.store, &request(setup.consumer, "b")).await, Claim::Duplicate(_)));
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_key_that_is_held_too_long_is_contended() {
    let Some(setup) = Setup::new("a_key_that_is_held_too_long_is_contended").await else { return };
    let holder = setup.claimed().await;
    let mut waiter = setup.store.connect().await.unwrap().begin(Duration::from_millis(50)).await.unwrap();
    let error = waiter.claim(&[request(setup.consumer, "a")]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}");
    assert!(waiter.rollback().await.is_some());
    holder.rollback().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_key_is_answered_by_its_holders_fate() {
    let Some(setup) = Setup::new("who_waits_for_a_key_is_answered_by_its_holders_fate").await else { return };
    for commits in [false, true] {
        let holder = setup.claimed().await;
        let mut waiter = begin(&setup.store).await;
        let asked = request(setup.consumer, "a");
        let mut waiting = tokio::task::JoinSet::from_iter([async move { claim(&mut waiter, &asked).await }]);
        assert!(stays_pending(waiting.join_next()).await, "it waits for the holder");
        if commits {
            common::commit(holder).await;
        } else {
            holder.rollback().await.unwrap();
        }
        let answer = waiting.join_all().await.remove(0);
        assert_eq!(matches!(answer, Claim::Duplicate(_)), commits, "{answer:?}");
        assert_eq!(answer == Claim::Fresh, !commits, "{answer:?}");
    }
}

/// The server process dies under the transaction: never reported as committed, and resolved to the end.
#[tokio::test]
async fn a_backend_that_was_ended_never_counts_as_committed() {
    let Some(setup) = Setup::new("a_backend_that_was_ended_never_counts_as_committed").await else { return };
    let mut tx = setup.claimed().await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(tx.db()).await.unwrap();
    let mut other = setup.place.connection().await;
    sqlx::query("select pg_terminate_backend($1)").bind(pid).execute(&mut other).await.unwrap();
    match tx.commit().await {
        Ended::Unknown { doubt, .. } => setup.store.resolve(&doubt).await.unwrap(),
        Ended::RolledBack { error, .. } => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}"),
        Ended::Committed(_) => panic!("nobody can have committed this"),
    }
    setup.assert_nothing_is_there().await;
}

/// A deferred trigger ends the backend from inside COMMIT: FATAL, so nobody knows. After resolving, a claim tells.
#[tokio::test]
async fn a_backend_that_dies_in_commit_is_unknown_and_resolved() {
    let Some(setup) = Setup::new("a_backend_that_dies_in_commit_is_unknown_and_resolved").await else { return };
    let die = "create function die() returns trigger language plpgsql as
        $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
        create constraint trigger die after insert on effects deferrable initially deferred
        for each row execute function die()";
    setup.place.run(die).await;
    match setup.claimed().await.commit().await {
        Ended::Unknown { doubt, error } => {
            assert_eq!(error.kind(), StoreErrorKind::Unavailable);
            setup.store.resolve(&doubt).await.unwrap();
            setup.store.resolve(&doubt).await.unwrap();
        }
        other => panic!("expected an unknown end, got {other:?}"),
    }
    setup.assert_nothing_is_there().await;
}

#[tokio::test]
async fn a_deferred_constraint_at_commit_rolls_back_and_keeps_the_connection() {
    let name = "a_deferred_constraint_at_commit_rolls_back_and_keeps_the_connection";
    let Some(setup) = Setup::new(name).await else { return };
    let tables = "create table parents (id int primary key);
        alter table effects add foreign key (parent) references parents deferrable initially deferred";
    setup.place.run(tables).await;
    let mut tx = setup.claimed().await;
    tx.db().execute("update effects set parent = 1").await.unwrap();
    match tx.commit().await {
        Ended::RolledBack { session: Some(session), error } => {
            assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
            session.begin(common::LOCK_WAIT).await.unwrap().rollback().await.unwrap();
        }
        other => panic!("expected a rollback with its connection, got {other:?}"),
    }
    setup.assert_nothing_is_there().await;
}

/// An abandoned transaction may be in the middle of a statement; after resolving, its key is free at once.
#[tokio::test]
async fn an_abandoned_transaction_is_ended_on_the_server() {
    let Some(setup) = Setup::new("an_abandoned_transaction_is_ended_on_the_server").await else { return };
    let mut tx = setup.claimed().await;
    assert!(poll_once(Box::pin(tx.db().execute("select pg_sleep(600)"))).await.is_none());
    let doubt = tx.abandon();
    setup.store.resolve(&doubt).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_millis(100)).await.unwrap();
    assert_eq!(claim(&mut tx, &request(setup.consumer, "a")).await, Claim::Fresh);
}

#[tokio::test]
async fn the_same_key_twice_in_a_batch_is_refused() {
    let Some(setup) = Setup::new("the_same_key_twice_in_a_batch_is_refused").await else { return };
    let mut tx = begin(&setup.store).await;
    let mut twice = [request(setup.consumer, "a"), request(setup.consumer, "a")];
    twice[1].fingerprint = fingerprint(8);
    assert_eq!(tx.claim(&twice).await.unwrap_err().kind(), StoreErrorKind::Refused);
}

#[tokio::test]
async fn limits_are_set_on_each_session() {
    let Some(place) = PostgresPlace::or_skip("limits_are_set_on_each_session") else { return };
    let builder = Postgres::builder(&place.url).schema(&place.schema);
    let store = builder.statement_timeout(Duration::from_millis(150)).connect().await.unwrap();
    let mut tx = begin(&store).await;
    let error = tx.db().execute("select pg_sleep(10)").await.unwrap_err();
    let read = store.read_error(&error).unwrap();
    assert!(read.reason.contains("57014"), "{}", read.reason);
    let name: String = sqlx::query_scalar("select application_name from pg_stat_activity where pid = pg_backend_pid()")
        .fetch_one(begin(&store).await.db())
        .await
        .unwrap();
    assert_eq!(name, "oncebox");
}
