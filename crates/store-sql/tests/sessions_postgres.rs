//! What a session of PostgreSQL may be like: its defaults, its role, and what it has lost.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, begin, claim, consumer, look, request};
use oncebox_core::{Claim, Ended, Store, StoreErrorKind, Transaction};
use oncebox_store_sql::{Migrate, Postgres};
use sqlx::{AssertSqlSafe, Executor, PgConnection};

async fn scalar(db: &mut PgConnection, sql: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(db).await.unwrap()
}

/// An administrator may have given the user or the database other defaults.
#[tokio::test]
async fn a_transaction_does_not_hang_on_the_defaults_of_its_user() {
    let Some(place) = PostgresPlace::or_skip("a_transaction_does_not_hang_on_the_defaults_of_its_user") else { return };
    place.open().await;
    for default in [
        "default_transaction_read_only]=on",
        "default_transaction_isolation]=serializable",
        "default_transaction_isolation]=repeatable%20read",
    ] {
        let url = format!("{}&options[{default}", place.url);
        let store = Postgres::builder(url).schema(&place.schema).connect().await.unwrap();
        let billing = consumer(&store, "billing").await;
        let mut tx = begin(&store).await;
        assert_eq!(scalar(tx.db(), "show transaction_read_only").await, "off", "{default}");
        assert_eq!(scalar(tx.db(), "show transaction_isolation").await, "read committed", "{default}");
        assert_eq!(claim(&mut tx, &request(billing, default)).await, Claim::Fresh);
        common::commit(tx).await;
    }
}

/// A user who may log in and work on the tables of a store, and nothing else; and its URL.
async fn poor_user(place: &PostgresPlace) -> (String, String) {
    place.open().await;
    let user = format!("u_{}", place.schema);
    place.run(&format!("create role {user} login")).await;
    allow(place, &user).await;
    let url = place.url.replace("//postgres@", &format!("//{user}@"));
    assert_ne!(url, place.url);
    (user, url)
}

async fn allow(place: &PostgresPlace, role: &str) {
    let schema = &place.schema;
    place
        .run(&format!(
            "grant usage on schema {schema} to {role}; grant all on all tables in schema {schema} to {role}; \
             grant all on all sequences in schema {schema} to {role}"
        ))
        .await;
}

async fn open(place: &PostgresPlace, url: String) -> Postgres {
    Postgres::builder(url).schema(&place.schema).migrate(Migrate::Check).connect().await.unwrap()
}

async fn doubt_is_resolved(store: &Postgres) {
    let billing = consumer(store, "billing").await;
    let mut tx = begin(store).await;
    assert_eq!(claim(&mut tx, &request(billing, "a")).await, Claim::Fresh);
    let pid = scalar(tx.db(), "select pg_backend_pid()::text").await;
    store.resolve(&tx.abandon()).await.unwrap();
    let alive = format!("select count(*)::text from pg_stat_activity where pid = {pid}");
    assert_eq!(scalar(begin(store).await.db(), &alive).await, "0");
    assert_eq!(look(store, &request(billing, "a")).await, Claim::Fresh);
}

/// Roles without pg_read_all_stats do not see when other users' processes started. One of those may have the pid of ours.
#[tokio::test]
async fn another_user_s_process_is_not_taken_for_ours() {
    let Some(place) = PostgresPlace::or_skip("another_user_s_process_is_not_taken_for_ours") else { return };
    let (_, url) = poor_user(&place).await;
    let store = open(&place, url).await;
    doubt_is_resolved(&store).await;
    let mut other = place.connection().await;
    let other: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    let mut ours = begin(&store).await;
    let started = "select coalesce(backend_start::text, 'hidden') from pg_stat_activity where pid = ";
    assert_eq!(scalar(ours.db(), &format!("{started}{other}")).await, "hidden");
    let lives = include_str!("../src/queries/postgres/session/lives.sql");
    let found = sqlx::query(lives).bind(other).bind(1_i64).fetch_all(ours.db()).await.unwrap();
    assert!(found.is_empty(), "a process of another user is waited for");
    // Our own is seen by the same statement.
    let own =
        "select (extract(epoch from backend_start) * 1000000)::int8 from pg_stat_activity where pid = pg_backend_pid()";
    let started: i64 = sqlx::query_scalar(own).fetch_one(ours.db()).await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(ours.db()).await.unwrap();
    assert_eq!(sqlx::query(lives).bind(pid).bind(started).fetch_all(ours.db()).await.unwrap().len(), 1);
}

/// The role that the options choose may not see the processes of the user that logs in.
#[tokio::test]
async fn a_doubt_is_resolved_whatever_role_the_options_choose() {
    let Some(place) = PostgresPlace::or_skip("a_doubt_is_resolved_whatever_role_the_options_choose") else { return };
    let (user, url) = poor_user(&place).await;
    let role = format!("r_{}", place.schema);
    place.run(&format!("create role {role}; grant {role} to {user}")).await;
    allow(&place, &role).await;
    let store = open(&place, format!("{url}&options[role]={role}")).await;
    assert_eq!(scalar(begin(&store).await.db(), "select current_user::text").await, role);
    doubt_is_resolved(&store).await;
}

/// Whatever runs in such a session fails, so it is closed.
#[tokio::test]
async fn a_session_that_lost_its_statements_is_not_used_again() {
    let Some(place) = PostgresPlace::or_skip("a_session_that_lost_its_statements_is_not_used_again") else { return };
    let store = place.open().await;
    let billing = consumer(&store, "billing").await;
    for ends in ["commit", "roll back"] {
        let mut tx = begin(&store).await;
        assert_eq!(claim(&mut tx, &request(billing, "a")).await, Claim::Fresh);
        tx.db().execute("deallocate all").await.unwrap();
        let session = if ends == "commit" {
            match tx.commit().await {
                Ended::RolledBack { session, error } => {
                    assert_eq!(error.kind(), StoreErrorKind::Stale, "{error}");
                    assert!(error.to_string().contains("pooler"), "{error}");
                    session
                }
                other => panic!("expected a rollback, got {other:?}"),
            }
        } else {
            tx.rollback().await
        };
        assert!(session.is_none(), "{ends}");
    }
    assert_eq!(look(&store, &request(billing, "a")).await, Claim::Fresh);
}
