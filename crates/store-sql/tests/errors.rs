//! What drivers' errors become, and what never appears in one.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::error::Error;

use common::{PostgresPlace, SqlitePlace, begin};
use oncebox_core::{Store, StoreErrorKind, Transaction};
use oncebox_store_sql::{Postgres, Sqlite};
use sqlx::Executor;

/// Everything that a log could print of an error.
fn all_of(error: &(dyn Error + 'static)) -> String {
    let mut shown = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(source) = next {
        shown.push_str(&format!(" {source}"));
        next = source.source();
    }
    shown
}

#[tokio::test]
async fn a_closed_port_is_unavailable_and_no_secret_is_shown() {
    // Bound and dropped: nobody listens there now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://CANARY-user:CANARY-password@127.0.0.1:{port}/shop?password=CANARY-again");
    let builder = Postgres::builder(&url);
    assert!(!format!("{builder:?}").contains("CANARY"));
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let expected = format!("cannot connect to postgres at 127.0.0.1:{port}/shop: ");
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(!all_of(&error).contains("CANARY"), "{}", all_of(&error));
}

#[tokio::test]
async fn a_wrong_setting_is_told_apart_from_an_outage() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return oncebox_testkit::skipped("a_wrong_setting_is_told_apart_from_an_outage");
    };
    let nowhere = url.replace("/postgres", "/no_such_database");
    let error = Postgres::connect(nowhere.replace("postgres://no_such_database@", "postgres://postgres@")).await;
    assert_eq!(error.unwrap_err().kind(), StoreErrorKind::Configuration);
    let error = Postgres::builder(&url).schema("bad-name").connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert_eq!(Postgres::connect("mysql://h/d").await.unwrap_err().kind(), StoreErrorKind::Configuration);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_a_wrong_setting() {
    let place = SqlitePlace::new();
    std::fs::write(place.path(), "this is no database, whatever its name says; it is long enough to be read as one")
        .unwrap();
    assert_eq!(Sqlite::open(place.path()).await.unwrap_err().kind(), StoreErrorKind::Configuration);
    let nowhere = place.folder.path().join("no/such/folder/x.db");
    let error = Sqlite::open(nowhere.to_str().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
}

const CASES: &str = "create table parents (id integer primary key);
    create table rows (id integer primary key, name text not null, size integer check (size > 0),
        parent integer references parents, constraint rows_name unique (name));
    insert into parents values (1);
    insert into rows values (1, 'CANARY', 1, 1)";

/// Statement, kind, and what the reason names.
const REFUSED: &[(&str, &str, &str)] = &[
    ("insert into rows values (2, 'CANARY', 1, 1)", "unique", "23505"),
    ("insert into rows values (2, 'b', 1, 99)", "foreign key", "23503"),
    ("insert into rows values (2, null, 1, 1)", "null", "23502"),
    ("insert into rows values (2, 'b', -1, 1)", "check", "23514"),
    // What is around a statement, and no message can help.
    ("select * from no_such_table", "no such table", "42P01"),
    ("insert into rows (no_such_column) values (1)", "no such column", "42703"),
    ("select no_such_column from rows", "no such column", "42703"),
];

#[tokio::test]
async fn refusals_of_postgres_are_read_without_values() {
    let Some(place) = PostgresPlace::or_skip("refusals_of_postgres_are_read_without_values") else { return };
    let store = place.open().await;
    place.run(CASES).await;
    for (statement, what, code) in REFUSED {
        let error = begin(&store).await.db().execute(*statement).await.unwrap_err();
        let read = store.read_error(&error).unwrap();
        let around = ["42P01", "42703"].contains(code);
        assert_eq!(read.kind, if around { StoreErrorKind::Configuration } else { StoreErrorKind::Refused }, "{code}");
        assert!(read.reason.contains(what) && read.reason.contains(code), "{}", read.reason);
        assert!(!read.reason.contains("CANARY"), "{}", read.reason);
        assert_eq!(read.unique.as_deref(), (*code == "23505").then_some("rows_name"));
    }
    for (code, kind) in [
        ("40001", StoreErrorKind::Contended),
        ("40P01", StoreErrorKind::Contended),
        ("55P03", StoreErrorKind::Contended),
        ("57P01", StoreErrorKind::Unavailable),
        ("57P03", StoreErrorKind::Unavailable),
        ("08006", StoreErrorKind::Unavailable),
        ("53300", StoreErrorKind::Unavailable),
        ("53100", StoreErrorKind::Unavailable),
        ("58030", StoreErrorKind::Unavailable),
        ("25006", StoreErrorKind::Unavailable),
        ("25P02", StoreErrorKind::TransactionLost),
        ("25P01", StoreErrorKind::TransactionLost),
        ("28P01", StoreErrorKind::Configuration),
        ("3D000", StoreErrorKind::Configuration),
        ("42501", StoreErrorKind::Refused),
        ("42883", StoreErrorKind::Configuration),
        ("3F000", StoreErrorKind::Configuration),
        ("42601", StoreErrorKind::Refused),
        ("57014", StoreErrorKind::Troubled),
        ("25P03", StoreErrorKind::Troubled),
        ("55000", StoreErrorKind::Troubled),
        ("54000", StoreErrorKind::Troubled),
        ("HV000", StoreErrorKind::Troubled),
        ("ZZ999", StoreErrorKind::Troubled),
        ("0A000", StoreErrorKind::Stale),
        ("26000", StoreErrorKind::Stale),
        ("42P05", StoreErrorKind::Stale),
        ("44000", StoreErrorKind::Refused),
        ("22001", StoreErrorKind::Refused),
        ("XX000", StoreErrorKind::Troubled),
        ("XX001", StoreErrorKind::Corrupt),
        ("P0001", StoreErrorKind::Refused),
    ] {
        let raise = format!("do $$ begin raise exception 'CANARY' using errcode = '{code}'; end $$");
        let error = begin(&store).await.db().execute(sqlx::AssertSqlSafe(raise)).await.unwrap_err();
        let read = store.read_error(&error).unwrap();
        assert_eq!(read.kind, kind, "{code}");
        assert!(read.reason.contains(code) && !read.reason.contains("CANARY"), "{}", read.reason);
    }
}

/// One SQLSTATE stands for a privilege that nobody has, and for a row that a policy forbids.
#[tokio::test]
async fn a_missing_privilege_is_told_from_a_forbidden_row() {
    let Some(place) = PostgresPlace::or_skip("a_missing_privilege_is_told_from_a_forbidden_row") else { return };
    let store = place.open().await;
    let role = format!("r_{}", place.schema);
    place
        .run(&format!(
            "create role {role}; create table secrets (id integer); create table tenants (id integer);
             alter table tenants enable row level security; create policy own on tenants using (id = 1);
             grant insert on tenants to {role}; grant usage on schema {} to {role}",
            place.schema
        ))
        .await;
    for (statement, kind) in [
        ("insert into secrets values (1)", StoreErrorKind::Configuration),
        ("insert into tenants values (2)", StoreErrorKind::Refused),
    ] {
        let mut tx = begin(&store).await;
        tx.db().execute(sqlx::AssertSqlSafe(format!("set local role {role}"))).await.unwrap();
        let error = tx.db().execute(statement).await.unwrap_err();
        let read = store.read_error(&error).unwrap();
        assert_eq!(read.kind, kind, "{statement}: {}", read.reason);
        assert!(read.reason.contains("42501"), "{}", read.reason);
    }
}

#[tokio::test]
async fn refusals_of_sqlite_are_read_without_values() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    place.run(CASES).await;
    for (statement, what, code) in REFUSED {
        let error = begin(&store).await.db().execute(*statement).await.unwrap_err();
        let read = store.read_error(&error).unwrap();
        let around = ["42P01", "42703"].contains(code);
        assert_eq!(read.kind, if around { StoreErrorKind::Configuration } else { StoreErrorKind::Refused }, "{code}");
        assert!(read.reason.contains(what) && !read.reason.contains("CANARY"), "{}", read.reason);
        assert_eq!(read.unique.as_deref(), (*code == "23505").then_some("rows.name"));
    }
}

#[tokio::test]
async fn our_own_missing_table_is_a_wrong_schema() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    place.run("drop table oncebox_consumers").await;
    let name = oncebox_core::ConsumerName::new("billing").unwrap();
    assert_eq!(store.consumer(&name).await.unwrap_err().kind(), StoreErrorKind::Configuration);
    let Some(place) = PostgresPlace::or_skip("our_own_missing_table_is_a_wrong_schema") else { return };
    let store = place.open().await;
    place.run("drop table consumers").await;
    assert_eq!(store.consumer(&name).await.unwrap_err().kind(), StoreErrorKind::Configuration);
}
