//! Tables are made once, whoever comes first, and recognised ever after.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace};
use oncebox_core::Code;
use oncebox_core::{Store, StoreError, StoreErrorKind};
use oncebox_store_sql::{Migrate, Postgres, Sqlite};
use sqlx::Connection as _;
use tokio::task::JoinSet;

async fn all<S: Store>(mut starts: JoinSet<Result<S, StoreError>>) {
    let mut identities = Vec::new();
    while let Some(store) = starts.join_next().await {
        identities.push(store.unwrap().unwrap().identity().to_owned());
    }
    identities.dedup();
    assert_eq!(identities.len(), 1, "all see one database: {identities:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_processes_start_at_once_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("ten_processes_start_at_once_on_postgres") else { return };
    let mut starts = JoinSet::new();
    for _ in 0..10 {
        starts.spawn(Postgres::builder(&place.url).schema(&place.schema).connect());
    }
    all(starts).await;
    assert_eq!(place.count("migrations").await, NEWEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_processes_start_at_once_on_sqlite() {
    let place = SqlitePlace::new();
    let mut starts = JoinSet::new();
    for _ in 0..10 {
        starts.spawn(Sqlite::open(place.path()));
    }
    all(starts).await;
    assert_eq!(place.count("oncebox_migrations").await, NEWEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_given_at_once_are_all_different() {
    async fn give<S: Store>(store: S) {
        let mut given = JoinSet::new();
        for n in 0..20 {
            let store = store.clone();
            given.spawn(async move { common::consumer(&store, &format!("consumer-{}", n % 10)).await });
        }
        let mut ids = given.join_all().await;
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    }
    give(SqlitePlace::new().open().await).await;
    let Some(place) = PostgresPlace::or_skip("ids_given_at_once_are_all_different") else { return };
    give(place.open().await).await;
}

/// The newest migration.
const NEWEST: i64 = 15;

#[tokio::test]
async fn a_store_is_opened_again_as_it_was() {
    let place = SqlitePlace::new();
    let (identity, billing) = {
        let store = place.open().await;
        (store.identity().to_owned(), common::consumer(&store, "billing").await)
    };
    let store = Sqlite::builder(format!("sqlite:{}", place.path())).migrate(Migrate::Check).open().await.unwrap();
    assert_eq!(store.identity(), identity);
    assert_eq!(common::consumer(&store, "billing").await, billing);
    assert!(store.schema_check().await.unwrap().is_current());
}

/// What it was is on record in other systems: in metrics, and in what applications keep beside it.
#[tokio::test]
async fn an_upgrade_leaves_the_identity() {
    const LAST: &str = "delete from migrations where version = 15; alter table parked drop column apart";
    let place = SqlitePlace::new();
    let identity = place.open().await.identity().to_owned();
    place.run(&LAST.replace("migrations", "oncebox_migrations").replace("parked", "oncebox_parked")).await;
    assert_eq!(place.open().await.identity(), identity);

    let Some(place) = PostgresPlace::or_skip("an_upgrade_leaves_the_identity") else { return };
    let identity = place.open().await.identity().to_owned();
    place.run(LAST).await;
    assert_eq!(place.open().await.identity(), identity);
}

/// A service keeps the messages beside its own tables.
#[tokio::test]
async fn a_file_with_tables_of_its_own_becomes_a_store() {
    let place = SqlitePlace::new();
    place.run("create table payments (id integer primary key, name text, value text)").await;
    let store = place.open().await;
    assert!(store.schema_check().await.unwrap().is_current());
}

#[tokio::test]
async fn a_schema_with_tables_of_its_own_becomes_a_store() {
    let Some(place) = PostgresPlace::or_skip("a_schema_with_tables_of_its_own_becomes_a_store") else { return };
    let mut connection = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let schema = &place.schema;
    let own = format!("create schema {schema}; create table {schema}.payments (id int8 primary key)");
    sqlx::raw_sql(sqlx::AssertSqlSafe(own)).execute(&mut connection).await.unwrap();
    assert!(place.open().await.schema_check().await.unwrap().is_current());
}

#[tokio::test]
async fn a_check_makes_nothing() {
    let place = SqlitePlace::new();
    let error = Sqlite::builder(place.path()).migrate(Migrate::Check).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert_eq!(error.code(), Code::SchemaOld);
    assert!(error.to_string().contains("there are none yet; make them with `oncebox schema up`"), "{error}");
    let Some(place) = PostgresPlace::or_skip("a_check_makes_nothing") else { return };
    let builder = Postgres::builder(&place.url).schema(&place.schema).migrate(Migrate::Check);
    assert_eq!(builder.connect().await.unwrap_err().kind(), StoreErrorKind::Configuration);
}

/// A version says what was made. Somebody may have dropped it since.
#[tokio::test]
async fn tables_that_are_gone_are_named() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    assert_eq!(store.schema_check().await.unwrap().missing, Vec::<String>::new());
    place.run("drop table oncebox_counters; drop table oncebox_parked").await;
    assert_eq!(store.schema_check().await.unwrap().missing, ["oncebox_parked", "oncebox_counters"]);
    let Some(place) = PostgresPlace::or_skip("tables_that_are_gone_are_named") else { return };
    let store = place.open().await;
    assert_eq!(store.schema_check().await.unwrap().missing, Vec::<String>::new());
    place.run(&format!("drop table {}.counters", place.schema)).await;
    assert_eq!(store.schema_check().await.unwrap().missing, ["counters"]);
}

#[tokio::test]
async fn a_newer_schema_is_accepted_if_it_begins_as_ours() {
    let place = SqlitePlace::new();
    drop(place.open().await);
    let later = format!("migrations (version, name, checksum) values ({}, 'later', 'x')", NEWEST + 1);
    place.run(&format!("insert into oncebox_{later}")).await;
    assert_eq!(i64::from(place.open().await.schema_check().await.unwrap().applied), NEWEST + 1);
    let Some(place) = PostgresPlace::or_skip("a_newer_schema_is_accepted_if_it_begins_as_ours") else { return };
    drop(place.open().await);
    place.run(&format!("insert into {later}")).await;
    assert_eq!(i64::from(place.open().await.schema_check().await.unwrap().applied), NEWEST + 1);
}

#[tokio::test]
async fn a_migration_that_was_changed_or_left_out_is_refused() {
    let moved = format!("update oncebox_migrations set version = 99 where version = {NEWEST}");
    let missing = format!("migration {NEWEST} was never applied, but 99 was");
    for (change, expected) in [
        ("update oncebox_migrations set checksum = 'x' where version = 2", "migration 2 (queue) is not the one"),
        (&moved, &missing),
    ] {
        let place = SqlitePlace::new();
        drop(place.open().await);
        place.run(change).await;
        let error = Sqlite::open(place.path()).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// What is printed for review is what is run: a database made by hand from it passes the check.
#[tokio::test]
async fn the_printed_schema_makes_the_same_tables() {
    let made = SqlitePlace::new();
    let script = Sqlite::builder(made.path()).schema_print().unwrap();
    let by_hand = SqlitePlace::new();
    by_hand.run(&script).await;
    assert!(by_hand.open().await.schema_check().await.unwrap().is_current());

    let Some(place) = PostgresPlace::or_skip("the_printed_schema_makes_the_same_tables") else { return };
    let builder = Postgres::builder(&place.url).schema(&place.schema);
    assert_eq!(builder.schema_check().await.unwrap().applied, 0);
    place.run(&builder.schema_print().unwrap()).await;
    assert!(place.open().await.schema_check().await.unwrap().is_current());
}
