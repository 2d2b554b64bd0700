//! A row is inserted unless it is there, and nothing is aborted.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace};
use oncebox_store_sql::{InsertOnce, InsertOnceError, Once, OnceConnection};
use sqlx::{Connection, Row};

const TABLE: &str = "create table payments (
    provider text not null, reference text not null, amount bigint not null, note text, unique (provider, reference))";

async fn pay<C>(db: &mut C, amount: i64, note: Option<&str>) -> Once<<C::Database as sqlx::Database>::Row>
where
    C: OnceConnection,
    for<'v> &'v str: sqlx::Encode<'v, C::Database> + sqlx::Type<C::Database>,
    for<'v> Option<&'v str>: sqlx::Encode<'v, C::Database> + sqlx::Type<C::Database>,
    for<'v> i64: sqlx::Encode<'v, C::Database> + sqlx::Type<C::Database>,
{
    let payment = InsertOnce::into("payments").key("provider", "stripe").key("reference", "tx_1");
    payment.value("amount", amount).value("note", note).run(db).await.unwrap()
}

#[tokio::test]
async fn a_row_is_inserted_once_on_sqlite() {
    let place = SqlitePlace::new();
    drop(place.open().await);
    place.run(TABLE).await;
    let mut connection = place.connection().await;
    let mut tx = connection.begin().await.unwrap();
    let Once::Inserted(row) = pay(&mut *tx, 100, None).await else { panic!("it is new") };
    assert_eq!(row.get::<i64, _>("amount"), 100);
    let Once::Existing(row) = pay(&mut *tx, 100, None).await else { panic!("it is the same") };
    assert_eq!(row.get::<String, _>("reference"), "tx_1");
    let Once::Conflict { existing, differs } = pay(&mut *tx, 101, Some("x")).await else { panic!("it differs") };
    assert_eq!(differs, ["amount", "note"]);
    assert_eq!(existing.get::<i64, _>("amount"), 100);
    tx.commit().await.unwrap();
    assert_eq!(place.count("payments").await, 1);
}

#[tokio::test]
async fn a_row_is_inserted_once_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_row_is_inserted_once_on_postgres") else { return };
    drop(place.open().await);
    place.run(TABLE).await;
    let mut connection = place.connection().await;
    let mut tx = connection.begin().await.unwrap();
    let Once::Inserted(row) = pay(&mut *tx, 100, None).await else { panic!("it is new") };
    assert_eq!(row.get::<i64, _>("amount"), 100);
    let Once::Existing(row) = pay(&mut *tx, 100, None).await else { panic!("it is the same") };
    assert_eq!(row.get::<String, _>("reference"), "tx_1");
    let Once::Conflict { existing, differs } = pay(&mut *tx, 101, Some("x")).await else { panic!("it differs") };
    assert_eq!(differs, ["amount", "note"]);
    assert_eq!(existing.get::<i64, _>("amount"), 100);
    // The transaction is alive, and a schema may be named.
    let table = format!("{}.payments", place.schema);
    let other = InsertOnce::into(table).key("provider", "stripe").key("reference", "tx_2").value("amount", 5_i64);
    assert!(matches!(other.run(&mut *tx).await.unwrap(), Once::Inserted(_)));
    tx.commit().await.unwrap();
    assert_eq!(place.count("payments").await, 2);
}

#[tokio::test]
async fn names_are_checked_before_anything_runs() {
    let place = SqlitePlace::new();
    drop(place.open().await);
    place.run(TABLE).await;
    let mut db = place.connection().await;
    let hostile = InsertOnce::into("payments").key("provider\" = '' --", 1_i64);
    assert!(matches!(hostile.run(&mut db).await, Err(InsertOnceError::Name(_))));
    let keyless = InsertOnce::into("payments").value("amount", 1_i64);
    assert!(matches!(keyless.run(&mut db).await, Err(InsertOnceError::NoKey(_))));
    let wrong = InsertOnce::into("nowhere").key("provider", 1_i64);
    assert!(matches!(wrong.run(&mut db).await, Err(InsertOnceError::Database(..))));
}
