//! A record takes at most 120 bytes on PostgreSQL, its index entries included.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::PostgresPlace;
use sqlx::AssertSqlSafe;

const ROWS: i64 = 1_000_000;

/// A million records with keys of UUIDv7 as the inbox keeps them: a tag byte, then time-ordered bytes.
#[tokio::test]
async fn a_record_takes_at_most_120_bytes() {
    let Some(place) = PostgresPlace::or_skip("a_record_takes_at_most_120_bytes") else { return };
    drop(place.open().await);
    let fill = format!(
        "insert into inbox (consumer, key, fingerprint, scheme)
         select 1,
             '\\x01'::bytea || substring(int8send(1767225600000 + n / 10) from 3)
                 || substring(decode(md5(n::text), 'hex') from 1 for 10),
             hashtextextended(n::text, 0), 1
         from generate_series(1, {ROWS}) as n"
    );
    place.run(&fill).await;
    place.run("vacuum analyze inbox").await;
    let length: i32 = scalar(&place, "select max(length(key)) from inbox").await;
    assert_eq!(length, 17);
    let bytes: i64 = scalar(&place, "select pg_total_relation_size('inbox')").await;
    let (table, indexes): (i64, i64) = (
        scalar(&place, "select pg_table_size('inbox')").await,
        scalar(&place, "select pg_indexes_size('inbox')").await,
    );
    let each = |bytes: i64| bytes as f64 / ROWS as f64;
    #[allow(clippy::print_stdout, reason = "the figure is what this test is about")]
    {
        println!("bytes a record: {:.1} (table {:.1}, indexes {:.1})", each(bytes), each(table), each(indexes));
    }
    assert!(each(bytes) <= 120.0, "{} bytes a record", each(bytes));
}

async fn scalar<T>(place: &PostgresPlace, sql: &'static str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut place.connection().await).await.unwrap()
}
