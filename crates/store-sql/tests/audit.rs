//! The audit log can be added to and read, and nothing else, by whatever client.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, begin, commit};
use oncebox_core::audit::{Action, Audits};
use oncebox_core::quarantine::QuarantineStore;
use sqlx::AssertSqlSafe;

async fn add_entry<S: QuarantineStore>(store: &S) {
    let action = Action {
        who: "ada".to_owned(),
        why: "a test".to_owned(),
        verb: "parked.note".to_owned(),
        consumer: None,
        replay: None,
        messages: 1,
        detail: "{}".to_owned(),
    };
    let mut tx = begin(store).await;
    tx.audit(&action).await.unwrap();
    commit(tx).await;
}

#[tokio::test]
async fn the_audit_log_refuses_to_be_changed() {
    let place = SqlitePlace::new();
    add_entry(&place.open().await).await;
    for sql in ["update oncebox_audit set who = 'eve'", "delete from oncebox_audit"] {
        let refused = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut place.connection().await).await;
        assert!(refused.unwrap_err().to_string().contains("append-only"));
    }
    assert_eq!(place.count("oncebox_audit").await, 1);
    let Some(place) = PostgresPlace::or_skip("the_audit_log_refuses_to_be_changed") else { return };
    add_entry(&place.open().await).await;
    for sql in ["update audit set who = 'eve'", "delete from audit", "truncate audit"] {
        let refused = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut place.connection().await).await;
        assert!(refused.unwrap_err().to_string().contains("append-only"));
    }
    assert_eq!(place.count("audit").await, 1);
}
