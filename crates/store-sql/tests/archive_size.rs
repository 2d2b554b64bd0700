//! An archived key takes a little more than its hash, and a look-up reads in pieces.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace};
use oncebox_core::archive::{Archives, BLOCK_KEYS_MAX};
use oncebox_core::horizon::{Consumers, Expiry};
use oncebox_core::{ConsumerId, Ended, Key, Session, Store, Timestamp, Transaction};
use sqlx::{AssertSqlSafe, Row};

const KEYS: i64 = 200_000;

/// What a key may take, its share of the row and of the index included.
const BYTES_MAX: f64 = 13.5;

/// Removes all records in steps of one block, and looks up some of their keys.
async fn archive_all<S: Store<Tx: Consumers + Archives>>(store: &S) {
    let mut step =
        Expiry::first(ConsumerId(1), Timestamp::from_second(1_000_000_000).unwrap(), BLOCK_KEYS_MAX).archiving();
    let mut gone = 0;
    loop {
        let mut tx = store.connect().await.unwrap().begin(common::LOCK_WAIT).await.unwrap();
        let expired = tx.expire(step).await.unwrap();
        assert!(matches!(tx.commit().await, Ended::Committed(_)));
        gone += expired.deleted;
        let Some(next) = expired.next else { break };
        step.from = next;
    }
    assert_eq!(gone, KEYS as u64);
    let key = |n: i64| Key::id(&n.to_string()).unwrap();
    let keys = [key(1), key(KEYS / 2), key(KEYS), key(KEYS + 1)];
    let mut tx = store.connect().await.unwrap().begin(common::LOCK_WAIT).await.unwrap();
    let found = tx.archived(ConsumerId(1), &keys).await.unwrap();
    tx.rollback().await;
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
}

#[allow(clippy::print_stdout, reason = "the figure is what this test is about")]
fn told(store: &str, bytes: i64) {
    let each = bytes as f64 / KEYS as f64;
    println!("{store}: {each:.2} bytes an archived key");
    assert!(each <= BYTES_MAX, "{each} bytes a key on {store}");
}

#[tokio::test]
async fn an_archived_key_takes_little_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    place
        .run(&format!(
            "insert into oncebox_consumers (id, name) values (1, 'invoices');
             with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {KEYS})
             insert into oncebox_inbox (consumer, key, fingerprint, scheme, processed_at)
             select 1, cast(x'02' || n as blob), n, 1, n from numbers"
        ))
        .await;
    archive_all(&store).await;
    let sql = "select sum(pgsize) from dbstat where name in ('oncebox_archive', 'oncebox_archive_consumer')";
    let pages = sqlx::query(sql).fetch_one(&mut place.connection().await).await;
    // Not every build of SQLite has this table.
    if let Ok(row) = pages {
        told("sqlite", row.get(0));
    }
}

#[tokio::test]
async fn an_archived_key_takes_little_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("an_archived_key_takes_little_on_postgres") else { return };
    let store = place.open().await;
    place
        .run(&format!(
            "insert into consumers (id, name) values (1, 'invoices');
             insert into inbox (consumer, key, fingerprint, scheme, processed_at)
             select 1, '\\x02'::bytea || n::text::bytea, n, 1, timestamptz 'epoch' + n * interval '1 microsecond'
             from generate_series(1, {KEYS}) as n"
        ))
        .await;
    archive_all(&store).await;
    let sql = AssertSqlSafe("select pg_total_relation_size('archive')");
    let bytes = sqlx::query_scalar(sql).fetch_one(&mut place.connection().await).await.unwrap();
    told("postgres", bytes);
}
