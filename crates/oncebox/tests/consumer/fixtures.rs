//! The stores that the cases run on.

use std::sync::Arc;

use oncebox::memory::{MemoryDb, MemoryStore};
use oncebox::parked::Waits;
use oncebox::{Class, Failure, Session, Store, Transaction};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::StoreFixture;

use super::rig::{DEAD, EngineFixture, ParkedRow};
use super::sql::LOCK_WAIT;
use super::sql::fixtures::{PostgresFixture, SqliteFixture};

pub(crate) struct Memory;

impl StoreFixture for Memory {
    type Store = MemoryStore;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<MemoryStore> {
        Some(MemoryStore::with_clock(clock))
    }

    async fn write_effect(db: &mut MemoryDb, id: &str) -> Result<(), Failure> {
        Ok(db.append("effects", &id)?)
    }

    async fn effects(store: &MemoryStore) -> Vec<String> {
        store.with_db(|db| db.rows("effects")).await.unwrap()
    }

    async fn insert_unique(db: &mut MemoryDb, key: &str) -> Result<(), Failure> {
        Ok(db.insert("unique", key, &())?)
    }

    async fn swallow_error(db: &mut MemoryDb) {
        for _ in 0..2 {
            let _ = db.insert("unique", "twice", &());
        }
    }
}

impl EngineFixture for Memory {
    fn unique_constraint() -> &'static str {
        "unique"
    }

    async fn parked(store: &MemoryStore) -> Vec<ParkedRow> {
        let row = |park: oncebox::parked::Park| ParkedRow {
            id: park.message.id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
            state: if park.verdict.waits == Waits::Missing { DEAD } else { park.verdict.waits.code() },
            class: park.verdict.class,
            cause: park.verdict.cause.as_str().to_owned(),
            reason: park.verdict.reason,
            attempts: park.verdict.attempts,
        };
        store.parked().await.into_iter().map(row).collect()
    }
}

/// A parked row as SQL answers it.
type Answer = (Option<Vec<u8>>, i16, Option<i16>, String, String, i32);

fn row((id, state, class, cause, reason, attempts): Answer) -> ParkedRow {
    let id = String::from_utf8(id.unwrap_or_default()).unwrap();
    let class = class.map(|code| Class::from_code(code).unwrap());
    ParkedRow { id, state, class, cause, reason, attempts: attempts.try_into().unwrap() }
}

macro_rules! parked_rows {
    ($store:ident, $table:literal) => {{
        let mut tx = $store.connect().await.unwrap().begin(LOCK_WAIT).await.unwrap();
        let sql = concat!(
            "select message_id, cast(case when due_at is null then 3 else state end as smallint), class, cause, reason, ",
            "attempts from ",
            $table,
            " order by id"
        );
        let rows: Vec<Answer> = sqlx::query_as(sql).fetch_all(tx.db()).await.unwrap();
        tx.rollback().await;
        rows.into_iter().map(row).collect()
    }};
}

impl EngineFixture for SqliteFixture {
    fn unique_constraint() -> &'static str {
        "uniques.id"
    }

    async fn parked(store: &Self::Store) -> Vec<ParkedRow> {
        parked_rows!(store, "oncebox_parked")
    }
}

impl EngineFixture for PostgresFixture {
    fn unique_constraint() -> &'static str {
        "uniques_pkey"
    }

    async fn parked(store: &Self::Store) -> Vec<ParkedRow> {
        parked_rows!(store, "parked")
    }
}
