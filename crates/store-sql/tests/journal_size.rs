//! An entry of the journal takes what is told to people who switch it on.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{PostgresPlace, SqlitePlace};
use oncebox_core::journal::{
    DeliveryEnd, ENTRY_BYTES_POSTGRES, ENTRY_BYTES_SQLITE, JournalEntry, JournalStore, Journals, Told,
};
use oncebox_core::{ConsumerId, Ended, Key, Session, Transaction};
use sqlx::{AssertSqlSafe, Row};

const ENTRIES: u64 = 100_000;

/// Deliveries that were applied, each of a message whose id is a UUID in the order of time, written by a thousand.
async fn fill<S: JournalStore>(store: &S) {
    let key = |n: u64| {
        // Time first, then what a hash would make of the number, as a UUIDv7 has it.
        let (time, rest) = (0x0190_0000_7000 + n / 10, n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let digits = format!("{time:012x}7000{:016x}", 0x8000_0000_0000_0000 | rest >> 2);
        let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
        Key::id(&format!("{a}-{b}-{c}-{d}-{e}")).unwrap()
    };
    let told = Told {
        end: DeliveryEnd::Applied,
        cause: None,
        attempt: Some(1),
        was_parked: false,
        handler_millis: Some(3),
        coordinate: None,
    };
    let mut session = Some(store.connect().await.unwrap());
    for first in (0..ENTRIES).step_by(1_000) {
        let entry = |n| JournalEntry {
            consumer: ConsumerId(1),
            ago: Duration::from_micros(1_000 - (n - first)),
            key: key(n),
            id_hash: None,
            told: told.clone(),
        };
        let entries: Vec<JournalEntry> = (first..first + 1_000).map(entry).collect();
        assert_eq!(entries[0].key.as_bytes().len(), 17, "a UUID is kept as one");
        let mut tx = session.take().unwrap().begin(common::LOCK_WAIT).await.unwrap();
        tx.add_to_journal("worker-7f9c-x2x1q/17", &entries).await.unwrap();
        let Ended::Committed(back) = tx.commit().await else { panic!("not committed") };
        session = Some(back);
    }
}

#[allow(clippy::print_stdout, reason = "the figure is what this test is about")]
fn told(store: &str, bytes: i64, max: u32) {
    let each = bytes as f64 / ENTRIES as f64;
    println!("{store}: {each:.1} bytes an entry");
    assert!(each <= f64::from(max), "{each} bytes an entry on {store}");
    assert!(each >= 0.8 * f64::from(max), "{each} bytes an entry on {store}: tell less");
}

#[tokio::test]
async fn an_entry_takes_what_is_told_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    fill(&store).await;
    let sql = "select sum(pgsize) from dbstat where name like 'oncebox_journal%'";
    let pages = sqlx::query(sql).fetch_one(&mut place.connection().await).await;
    // Not every build of SQLite has this table.
    if let Ok(row) = pages {
        told("sqlite", row.get(0), ENTRY_BYTES_SQLITE);
    }
}

#[tokio::test]
async fn an_entry_takes_what_is_told_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("an_entry_takes_what_is_told_on_postgres") else { return };
    let store = place.open().await;
    fill(&store).await;
    let sql = AssertSqlSafe("select pg_total_relation_size('journal')");
    let bytes = sqlx::query_scalar(sql).fetch_one(&mut place.connection().await).await.unwrap();
    told("postgres", bytes, ENTRY_BYTES_POSTGRES);
}
