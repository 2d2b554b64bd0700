//! Statements find their rows by an index, however many others there are.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::SqlitePlace;
use sqlx::{AssertSqlSafe, Row};

/// Each statement with what SQLite's plan for it must say.
const PLANS: &[(&str, &str)] = &[
    (include_str!("../src/queries/sqlite/inbox/read.sql"), "SEARCH inbox USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/inbox/record.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/inbox/unclaim.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/queue/read_keys.sql"), "USING INDEX oncebox_queue_once (queue=? AND key=?)"),
    (include_str!("../src/queries/sqlite/queue/lease.sql"), "oncebox_queue_visible (queue=? AND visible_at<?)"),
    (include_str!("../src/queries/sqlite/queue/pick_in_lanes.sql"), "USING INDEX oncebox_queue_ordered (queue=?)"),
    (
        include_str!("../src/queries/sqlite/queue/pick_in_lanes.sql"),
        "oncebox_queue_blocking (queue=? AND order_hash=? AND visible_at>?)",
    ),
    (include_str!("../src/queries/sqlite/queue/take_picked.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/queue/delete.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/queue/keep.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/queue/release.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/queue/extend.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/inbox/find_parked.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/inbox/reclaim.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (
        include_str!("../src/queries/sqlite/parked/is_blocked.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=?)",
    ),
    (
        include_str!("../src/queries/sqlite/parked/count_blocking.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=?)",
    ),
    (include_str!("../src/queries/sqlite/parked/pick.sql"), "oncebox_parked_due (consumer=? AND due_at<?)"),
    (
        include_str!("../src/queries/sqlite/parked/pick.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=? AND id<?)",
    ),
    (include_str!("../src/queries/sqlite/parked/find_behind.sql"), "oncebox_parked_due (consumer=? AND due_at<?)"),
    (
        include_str!("../src/queries/sqlite/parked/find_behind.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=? AND id<?)",
    ),
    (include_str!("../src/queries/sqlite/parked/set_behind.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/wake_next.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (
        include_str!("../src/queries/sqlite/parked/wake_next.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=? AND id>?)",
    ),
    (include_str!("../src/queries/sqlite/parked/take.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/end.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/put_back.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/release.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/extend.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/forget_starts.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/quarantine/page.sql"), "oncebox_parked_paging (consumer=? AND id>?)"),
    (
        include_str!("../src/queries/sqlite/quarantine/page.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=? AND id<?)",
    ),
    (include_str!("../src/queries/sqlite/quarantine/find_records.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/quarantine/lock_rows.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/quarantine/lock_records.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/quarantine/reject.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/quarantine/withdraw.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/quarantine/delete.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/quarantine/revive.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/quarantine/annotate.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/replays/on_their_way.sql"), "oncebox_parked_replay (replay=?)"),
    (
        include_str!("../src/queries/sqlite/replays/on_their_way.sql"),
        "oncebox_parked_blocking (consumer=? AND order_hash=? AND id<?)",
    ),
    (
        include_str!("../src/queries/sqlite/horizon/expire.sql"),
        "oncebox_inbox_processed_at (consumer=? AND processed_at<?)",
    ),
    (include_str!("../src/queries/sqlite/parked/count_gaps.sql"), "oncebox_parked_gaps (consumer=? AND order_hash=?)"),
    (include_str!("../src/queries/sqlite/parked/wake_gaps.sql"), "oncebox_parked_gaps (consumer=? AND order_hash=?)"),
    (include_str!("../src/queries/sqlite/versions/lock.sql"), "USING PRIMARY KEY (consumer=? AND aggregate=?)"),
    (include_str!("../src/queries/sqlite/versions/advance.sql"), "USING PRIMARY KEY (consumer=? AND aggregate=?)"),
];

#[tokio::test]
async fn statements_on_sqlite_use_their_index() {
    let place = SqlitePlace::new();
    drop(place.open().await);
    let mut db = place.connection().await;
    for (statement, expected) in PLANS {
        let sql = AssertSqlSafe(format!("explain query plan\n{statement}"));
        let rows = sqlx::query(sql).fetch_all(&mut db).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(plan.iter().any(|step| step.contains(expected)), "{statement}\n{plan:#?}");
        let scans = plan.iter().any(|step| step.starts_with("SCAN oncebox_"));
        assert!(!scans, "{statement}\n{plan:#?}");
    }
}
