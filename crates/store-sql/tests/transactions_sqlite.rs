//! What handlers do to a transaction on SQLite, and what is never committed because of it.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{SqlitePlace, begin, claim, commit, consumer, look, poll_once, request};
use oncebox_core::{Claim, ConsumerId, Ended, Session, Store, StoreErrorKind, Transaction};
use oncebox_store_sql::dialect::SqliteDialect;
use oncebox_store_sql::{SqlTx, Sqlite};
use sqlx::{Connection, Executor};

type Tx = SqlTx<SqliteDialect>;

struct Setup {
    place: SqlitePlace,
    store: Sqlite,
    consumer: ConsumerId,
}

impl Setup {
    async fn new() -> Self {
        let place = SqlitePlace::new();
        let store = place.open().await;
        let tables = "create table parents (id integer primary key);
            create table effects (id text, parent integer references parents deferrable initially deferred)";
        place.run(tables).await;
        let consumer = consumer(&store, "billing").await;
        Self { place, store, consumer }
    }

    /// A transaction that has claimed the key `a` and written an effect.
    async fn claimed(&self) -> Tx {
        let mut tx = begin(&self.store).await;
        assert_eq!(claim(&mut tx, &request(self.consumer, "a")).await, Claim::Fresh);
        tx.db().execute("insert into effects (id) values ('a')").await.unwrap();
        tx
    }

    async fn assert_nothing_is_there(&self) {
        assert_eq!(look(&self.store, &request(self.consumer, "a")).await, Claim::Fresh);
        assert_eq!(self.place.count("effects").await, 0);
    }

    /// A later transaction of the same store works.
    async fn assert_store_works(&self) {
        let mut tx = begin(&self.store).await;
        assert_eq!(claim(&mut tx, &request(self.consumer, "later")).await, Claim::Fresh);
        commit(tx).await;
        assert!(matches!(look(&self.store, &request(self.consumer, "later")).await, Claim::Duplicate(_)));
    }
}

async fn assert_lost(tx: Tx) {
    match tx.commit().await {
        Ended::RolledBack { error, .. } => assert_eq!(error.kind(), StoreErrorKind::TransactionLost, "{error}"),
        other => panic!("expected a rollback, got {other:?}"),
    }
}

#[tokio::test]
async fn a_handlers_own_commit_is_turned_into_a_rollback() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    let error = tx.db().execute("commit").await.unwrap_err();
    assert_eq!(setup.store.read_error(&error).unwrap().kind, StoreErrorKind::TransactionLost);
    assert!(tx.alive().is_err());
    // Not even with a transaction of its own.
    let _ = tx.db().execute("begin immediate").await;
    let _ = tx.db().execute("insert into effects (id) values ('b')").await;
    let _ = tx.db().execute("commit").await;
    assert_lost(tx).await;
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test]
async fn a_handlers_own_rollback_is_found_out() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    tx.db().execute("rollback").await.unwrap();
    assert_lost(tx).await;
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test]
async fn a_nested_commit_commits_nothing_by_itself() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    let mut nested = tx.db().begin().await.unwrap();
    nested.execute("insert into effects (id) values ('nested')").await.unwrap();
    nested.commit().await.unwrap();
    tx.alive().unwrap();
    drop(tx);
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test]
async fn a_nested_transaction_that_was_left_open_commits_nothing() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    std::mem::forget(tx.db().begin().await.unwrap());
    assert!(tx.alive().is_err());
    assert_lost(tx).await;
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

/// The driver rolls the whole transaction back a moment later, and reports success for the COMMIT that follows. What we
/// report is what is there, whoever wins that race.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_nested_begin_never_counts_as_committed() {
    let setup = Setup::new().await;
    let (mut lost, mut rows) = (0, 0);
    for round in 0..200 {
        let mut tx = begin(&setup.store).await;
        let asked = request(setup.consumer, &format!("round {round}"));
        claim(&mut tx, &asked).await;
        tx.db().execute("insert into effects (id) values ('a')").await.unwrap();
        drop(poll_once(Box::pin(tx.db().begin())).await);
        match tx.commit().await {
            Ended::Committed(_) => {
                rows += 1;
                assert!(matches!(look(&setup.store, &asked).await, Claim::Duplicate(_)));
            }
            Ended::RolledBack { error, .. } => {
                lost += 1;
                assert_eq!(error.kind(), StoreErrorKind::TransactionLost, "{error}");
                assert_eq!(look(&setup.store, &asked).await, Claim::Fresh);
            }
            Ended::Unknown { error, .. } => panic!("nothing is unknown here: {error}"),
        }
        assert_eq!(setup.place.count("effects").await, rows);
    }
    assert!(lost > 0, "no begin was cancelled in time; the test proves nothing");
    setup.assert_store_works().await;
}

#[tokio::test]
async fn a_statement_that_fails_aborts_nothing_else() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    tx.db().execute("select no_such_column").await.unwrap_err();
    tx.alive().unwrap();
    commit(tx).await;
    assert_eq!(setup.place.count("effects").await, 1);
}

#[tokio::test]
async fn a_deferred_constraint_at_commit_rolls_back() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    tx.db().execute("update effects set parent = 1").await.unwrap();
    match tx.commit().await {
        Ended::RolledBack { session: Some(_), error } => assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}"),
        other => panic!("expected a rollback, got {other:?}"),
    }
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_statement_ends_and_frees_the_file() {
    let setup = Setup::new().await;
    let mut tx = setup.claimed().await;
    {
        let endless = "insert into effects (id) with recursive n(i) as (select 1 union all select i + 1 from n)
            select i from n where i < 0";
        let _ = tokio::time::timeout(Duration::from_millis(50), tx.db().execute(endless)).await.unwrap_err();
    }
    let doubt = tx.abandon();
    setup.store.resolve(&doubt).await.unwrap();
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test]
async fn a_cancelled_query_poisons_nothing() {
    let setup = Setup::new().await;
    for _ in 0..50 {
        let mut tx = setup.claimed().await;
        let query = tx.db().execute("insert into effects (id) values ('b')");
        let _ = tokio::time::timeout(Duration::ZERO, query).await;
        tx.rollback().await.unwrap();
    }
    setup.assert_nothing_is_there().await;
    setup.assert_store_works().await;
}

#[tokio::test]
async fn another_process_that_holds_the_file_is_contended() {
    let setup = Setup::new().await;
    let mut other = setup.place.connection().await;
    other.execute("begin immediate").await.unwrap();
    let store = Sqlite::builder(setup.place.path()).busy_timeout(Duration::from_millis(50));
    let store = store.open().await;
    // Opening reads in a write transaction, so it waits too.
    assert_eq!(store.unwrap_err().kind(), StoreErrorKind::Contended);
    other.execute("rollback").await.unwrap();
    let store = Sqlite::builder(setup.place.path()).busy_timeout(Duration::from_millis(50)).open().await.unwrap();
    other.execute("begin immediate").await.unwrap();
    let error = store.connect().await.unwrap().begin(Duration::from_millis(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}");
    other.execute("rollback").await.unwrap();
    store.connect().await.unwrap().begin(Duration::from_millis(1)).await.unwrap().rollback().await.unwrap();
}

#[tokio::test]
async fn durability_is_as_configured() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    assert!(store.capabilities().durable && store.capabilities().shared && !store.capabilities().concurrent);
    let level: i64 = sqlx::query_scalar("pragma synchronous").fetch_one(begin(&store).await.db()).await.unwrap();
    assert_eq!(level, 2);
    let store = Sqlite::builder(place.path()).synchronous_normal_may_lose_acknowledged_messages().open().await.unwrap();
    assert!(!store.capabilities().durable);
    let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(begin(&store).await.db()).await.unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn who_only_looks_waits_for_nobody_and_writes_nothing() {
    let setup = Setup::new().await;
    let writes = setup.claimed().await;
    let looks = Sqlite::builder(setup.place.path()).look_only().open().await.unwrap();
    let mut tx = begin(&looks).await;
    let seen: i64 = sqlx::query_scalar("select count(*) from effects").fetch_one(tx.db()).await.unwrap();
    commit(writes).await;
    let then: i64 = sqlx::query_scalar("select count(*) from effects").fetch_one(tx.db()).await.unwrap();
    assert_eq!((seen, then), (0, 0), "one look sees one state");
    let refused = tx.db().execute("insert into effects (id) values ('b')").await.unwrap_err();
    assert!(refused.to_string().contains("readonly"), "{refused}");
    tx.rollback().await;
    let mut tx = begin(&looks).await;
    let seen: i64 = sqlx::query_scalar("select count(*) from effects").fetch_one(tx.db()).await.unwrap();
    assert_eq!(seen, 1);
    tx.rollback().await;
}

/// SQLite opens a file that it may not write, and says so only when something is written.
#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused_at_once() {
    let place = SqlitePlace::new();
    drop(place.open().await);
    let error = Sqlite::open(format!("sqlite:{}?mode=ro", place.path())).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (StoreErrorKind::Configuration, oncebox_core::Code::NoPrivilege),
        "{error}"
    );
    assert!(error.to_string().contains("the file is read-only"), "{error}");
    Sqlite::builder(format!("sqlite:{}?mode=ro", place.path())).look_only().open().await.expect("it can be looked at");
}

/// A process that goes on writing into a file that has no name any more acknowledges what the next one does not find.
#[tokio::test]
async fn a_file_that_was_moved_or_replaced_is_noticed() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let billing = consumer(&store, "billing").await;
    let mut tx = begin(&store).await;
    claim(&mut tx, &request(billing, "a")).await;
    commit(tx).await;

    let moved = format!("{}.moved", place.path());
    std::fs::rename(place.path(), &moved).unwrap();
    let error = store.connect().await.unwrap().begin(common::LOCK_WAIT).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("moved or deleted"), "{error}");
    assert!(!std::path::Path::new(&place.path()).exists(), "no other file is made in its place");
    std::fs::rename(&moved, place.path()).unwrap();
    assert!(matches!(look(&store, &request(billing, "a")).await, Claim::Duplicate(_)), "it is back");

    std::fs::rename(place.path(), &moved).unwrap();
    std::fs::copy(&moved, place.path()).unwrap();
    let error = store.connect().await.unwrap().begin(common::LOCK_WAIT).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("another file"), "{error}");
}

/// What is committed into a file that has lost its name is gone with the next start: nobody may acknowledge it.
#[tokio::test]
async fn a_file_that_is_replaced_in_the_middle_of_a_transaction_commits_nothing_for_sure() {
    let setup = Setup::new().await;
    let path = setup.place.path();
    let tx = setup.claimed().await;
    std::fs::copy(&path, format!("{path}.backup")).unwrap();
    std::fs::rename(&path, format!("{path}.moved")).unwrap();
    std::fs::rename(format!("{path}.backup"), &path).unwrap();
    match tx.commit().await {
        Ended::Unknown { error, .. } => assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error}"),
        other => panic!("expected an unknown end, got {other:?}"),
    }
}
