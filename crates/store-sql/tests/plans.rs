//! Statements find their rows by an index, however many others there are.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace};
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
    (include_str!("../src/queries/sqlite/parked/settle.sql"), "SEARCH parked USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/settle.sql"), "SEARCH inbox USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/parked/settle.sql"), "oncebox_parked_once (consumer=? AND key=?"),
    (include_str!("../src/queries/sqlite/parked/end.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/places.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
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
    (include_str!("../src/queries/sqlite/quarantine/elsewhere.sql"), "oncebox_parked_once (consumer=? AND key=?"),
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
        "oncebox_inbox_processed_at (consumer=? AND processed_at>? AND processed_at<?)",
    ),
    (
        include_str!("../src/queries/sqlite/horizon/old.sql"),
        "oncebox_inbox_processed_at (consumer=? AND processed_at<?)",
    ),
    (include_str!("../src/queries/sqlite/horizon/old.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (
        include_str!("../src/queries/sqlite/horizon/sweep_received.sql"),
        "oncebox_queue_processed (queue=? AND processed_at>? AND processed_at<?)",
    ),
    (include_str!("../src/queries/sqlite/horizon/sweep_received.sql"), "oncebox_parked_once (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/horizon/sweep_received.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/archive/read.sql"), "oncebox_archive_consumer (consumer=? AND id>?)"),
    (include_str!("../src/queries/sqlite/archive/size.sql"), "oncebox_archive_consumer (consumer=?)"),
    (include_str!("../src/queries/sqlite/archive/sweep.sql"), "oncebox_archive_consumer (consumer=?)"),
    (include_str!("../src/queries/sqlite/journal/read.sql"), "oncebox_journal_key (key=?)"),
    (include_str!("../src/queries/sqlite/journal/read.sql"), "oncebox_journal_id (id_hash=?)"),
    (include_str!("../src/queries/sqlite/journal/sweep.sql"), "oncebox_journal_age (consumer=? AND at<?)"),
    (include_str!("../src/queries/sqlite/journal/sweep.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/parked/count_gaps.sql"), "oncebox_parked_gaps (consumer=? AND order_hash=?)"),
    (include_str!("../src/queries/sqlite/parked/wake_gaps.sql"), "oncebox_parked_gaps (consumer=? AND order_hash=?)"),
    (include_str!("../src/queries/sqlite/versions/lock.sql"), "USING PRIMARY KEY (consumer=? AND aggregate=?)"),
    (include_str!("../src/queries/sqlite/versions/advance.sql"), "USING PRIMARY KEY (consumer=? AND aggregate=?)"),
    (include_str!("../src/queries/sqlite/offsets/lock.sql"), "USING PRIMARY KEY (consumer=? AND log=?)"),
    (include_str!("../src/queries/sqlite/offsets/begin.sql"), "USING PRIMARY KEY (consumer=? AND log=?)"),
    (include_str!("../src/queries/sqlite/offsets/advance.sql"), "USING PRIMARY KEY (consumer=? AND log=?)"),
    (include_str!("../src/queries/sqlite/outbox/pick.sql"), "USING COVERING INDEX oncebox_outbox_unsent (seq>?)"),
    (include_str!("../src/queries/sqlite/outbox/read.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/read.sql"), "oncebox_outbox_blocking (order_hash=? AND seq<?)"),
    (include_str!("../src/queries/sqlite/outbox/set_behind.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/set_behind.sql"), "oncebox_outbox_blocking (order_hash=? AND seq<?)"),
    (include_str!("../src/queries/sqlite/outbox/pick_without.sql"), "COVERING INDEX oncebox_outbox_unsent (seq>?)"),
    (include_str!("../src/queries/sqlite/outbox/wake_behind.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (
        include_str!("../src/queries/sqlite/outbox/wake_behind.sql"),
        "oncebox_outbox_blocking (order_hash=? AND seq>? AND seq<?)",
    ),
    (include_str!("../src/queries/sqlite/outbox/wake_behind.sql"), "oncebox_outbox_blocking (order_hash=? AND seq>?)"),
    (include_str!("../src/queries/sqlite/outbox/fence.sql"), "USING PRIMARY KEY (queue=? AND lane=?)"),
    (include_str!("../src/queries/sqlite/outbox/delete.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/keep.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/set_aside.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/page.sql"), "oncebox_outbox_held_back (state=? AND seq>?)"),
    (include_str!("../src/queries/sqlite/outbox/retry.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/skip.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/sweep.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/outbox/sweep.sql"), "INDEX oncebox_outbox_sent (settled_at<?)"),
    (include_str!("../src/queries/sqlite/trail/records.sql"), "USING PRIMARY KEY (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/trail/parked_by_key.sql"), "oncebox_parked_once (consumer=? AND key=?)"),
    (include_str!("../src/queries/sqlite/trail/outbox_row.sql"), "USING INTEGER PRIMARY KEY (rowid=?)"),
    (include_str!("../src/queries/sqlite/trail/outbox_after.sql"), "USING INTEGER PRIMARY KEY (rowid>?)"),
    (include_str!("../src/queries/sqlite/counters/write.sql"), "USING PRIMARY KEY (process=? AND part=?)"),
    (include_str!("../src/queries/sqlite/depths/queue.sql"), "oncebox_queue_visible (queue=? AND visible_at>?)"),
    (include_str!("../src/queries/sqlite/depths/queue.sql"), "oncebox_queue_visible (queue=? AND visible_at<?)"),
    (include_str!("../src/queries/sqlite/depths/parked.sql"), "oncebox_parked_due (consumer=? AND due_at>?)"),
    (include_str!("../src/queries/sqlite/depths/parked.sql"), "oncebox_parked_behind (consumer=?)"),
    (include_str!("../src/queries/sqlite/depths/parked.sql"), "oncebox_parked_dead (consumer=?)"),
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

/// Each statement of the outbox with arguments, and the index that PostgreSQL must find its rows by, whatever they are.
const OUTBOX_PLANS: &[(&str, &str, &[&str])] = &[
    (
        include_str!("../src/queries/postgres/outbox/pick.sql"),
        "null, 'the outbox', 100, 16, '{1,2}', '{1,1}', '{0,7}'",
        &["using outbox_unsent", "Index Cond: ((lane = held.lane) AND (seq > held.after))"],
    ),
    (
        include_str!("../src/queries/postgres/outbox/pick_without.sql"),
        "null, 'the outbox', 100, 16, '{1,2}', '{1,1}', '{0,7}', '{5,null}'",
        &[
            "using outbox_by_topic",
            "(lane = topics.lane) AND (topic_hash = topics.topic_hash) AND (seq > topics.after)",
        ],
    ),
    (
        include_str!("../src/queries/postgres/outbox/read.sql"),
        "'{1,2}'",
        &["outbox_pkey", "Scan using outbox_blocking", "Index Cond: ((order_hash = "],
    ),
    (
        include_str!("../src/queries/postgres/outbox/set_behind.sql"),
        "'{1,2}'",
        &["outbox_pkey", "Scan using outbox_blocking", "Index Cond: ((order_hash = "],
    ),
    (include_str!("../src/queries/postgres/outbox/keep_lanes.sql"), "'the outbox', '{1,2}'", &["outbox_pkey"]),
    (
        include_str!("../src/queries/postgres/outbox/wake_behind.sql"),
        "200, '{1,2}'",
        &["outbox_pkey", "Index Scan using outbox_blocking", "Index Cond: ((order_hash = "],
    ),
    (include_str!("../src/queries/postgres/outbox/delete.sql"), "'{1,2}'", &["outbox_pkey"]),
    (include_str!("../src/queries/postgres/outbox/keep.sql"), "null, '{1,2}'", &["outbox_pkey"]),
    (include_str!("../src/queries/postgres/outbox/set_aside.sql"), "null, '{1}', '{a}'", &["outbox_pkey"]),
    (include_str!("../src/queries/postgres/outbox/page.sql"), "0, 10", &["Index Cond: ((state = 2) AND (seq > "]),
    (include_str!("../src/queries/postgres/outbox/retry.sql"), "'{1,2}'", &["outbox_pkey"]),
    (include_str!("../src/queries/postgres/outbox/skip.sql"), "'{1,2}'", &["outbox_pkey"]),
    (
        include_str!("../src/queries/postgres/outbox/sweep.sql"),
        "1000, 100",
        &["outbox_pkey", "using outbox_sent", "Index Cond: (settled_at < "],
    ),
];

/// With plans for any arguments, as a connection uses them after a while, on a table that is full, and on one that the
/// server knows nothing of.
#[tokio::test]
async fn statements_of_the_outbox_on_postgres_use_their_index() {
    let Some(place) = PostgresPlace::or_skip("statements_of_the_outbox_on_postgres_use_their_index") else { return };
    drop(place.open().await);
    place
        .run(
            "insert into outbox (emitted_at, made_at, topic_hash, order_hash, lane, state, made_at_nanos, key, topic, \
             order_key, message_id, kind, payload) \
             select 0, 0, n % 10, n % 500, n % 64, case when n % 100 = 0 then 2 when n % 50 = 0 then 1 else 0 end, 0, \
             n::text::bytea, 't', 'k', n::text::bytea, 'noted', 'x' from generate_series(1, 20000) as n; \
             insert into outbox (emitted_at, made_at, topic_hash, lane, state, settled_at, made_at_nanos, key, topic, \
             message_id, kind, payload) \
             select 0, 0, 1, n % 64, 3, n, 0, n::text::bytea, 't', n::text::bytea, 'noted', 'x' \
             from generate_series(1, 100000) as n; \
             insert into queues (id, name, lanes) values (1, 'the outbox', 64); \
             insert into lanes (queue, lane) select 1, n from generate_series(0, 63) as n",
        )
        .await;
    let mut db = place.connection().await;
    for analysed in [false, true] {
        if analysed {
            place.run("vacuum analyze outbox").await;
        }
        for (file, arguments, expected) in OUTBOX_PLANS {
            let statement = file.replace("{schema}", &place.schema);
            let script = format!("deallocate all; set plan_cache_mode = force_generic_plan; prepare p as {statement}");
            sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await.unwrap();
            let explain = AssertSqlSafe(format!("explain execute p ({arguments})"));
            let rows = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
            for index in *expected {
                assert!(plan.iter().any(|step| step.contains(index)), "{index}\n{statement}\n{plan:#?}");
            }
            assert!(!plan.iter().any(|step| step.contains("Seq Scan on outbox")), "{statement}\n{plan:#?}");
        }
    }
}

/// A step of expiry on PostgreSQL reads its own pages, whatever the server knows of the table.
#[tokio::test]
async fn expiry_on_postgres_reads_a_part_of_the_table() {
    let Some(place) = PostgresPlace::or_skip("expiry_on_postgres_reads_a_part_of_the_table") else { return };
    drop(place.open().await);
    place
        .run(
            "insert into consumers (id, name) values (1, 'invoices'); \
             insert into inbox (fingerprint, consumer, scheme, key, processed_at) \
             select n, 1, 1, n::text::bytea, timestamptz 'epoch' from generate_series(1, 50000) as n",
        )
        .await;
    let mut db = place.connection().await;
    let statement = include_str!("../src/queries/postgres/horizon/expire.sql").replace("{schema}", &place.schema);
    for (analysed, plans) in [(false, "force_generic_plan"), (true, "force_generic_plan"), (true, "force_custom_plan")]
    {
        if analysed {
            place.run("vacuum analyze inbox").await;
        }
        let script = format!("deallocate all; set plan_cache_mode = {plans}; prepare p as {statement}");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await.unwrap();
        let explain = AssertSqlSafe("explain execute p (1, 1000, 100, 0)");
        let rows = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        for part in ["Tid Range Scan on inbox", "Tid Scan on inbox"] {
            assert!(plan.iter().any(|step| step.contains(part)), "{part}\n{plan:#?}");
        }
        assert!(!plan.iter().any(|step| step.contains("Seq Scan on inbox")), "{plan:#?}");
    }
}

/// Retention on PostgreSQL finds what stored mode processed, blocks of the archive and entries of the journal by their
/// indexes.
#[tokio::test]
async fn sweeps_on_postgres_use_their_index() {
    let Some(place) = PostgresPlace::or_skip("sweeps_on_postgres_use_their_index") else { return };
    drop(place.open().await);
    place
        .run(
            "insert into queues (id, name) values (1, 'received invoices'); \
             insert into queue (queue, visible_at, processed_at, made_at, made_at_nanos, received_at, key, kind, payload) \
             select 1, case when n % 2 = 0 then n end, case when n % 2 = 1 then n end, 0, 0, 0, n::text::bytea, 't', 'x' \
             from generate_series(1, 50000) as n; \
             insert into archive (consumer, first_at, last_at, keys, scheme, hashes) \
             select n % 3, n, n, 1, 1, '' from generate_series(1, 50000) as n; \
             insert into journal (at, id_hash, consumer, ended, was_parked, key, process) \
             select n, n, n % 3, 0, 0, n::text::bytea, 'h/1' from generate_series(1, 50000) as n",
        )
        .await;
    place.run("vacuum analyze queue, archive, journal").await;
    let mut db = place.connection().await;
    let plans: [(&str, &str, &[&str]); 6] = [
        (
            include_str!("../src/queries/postgres/horizon/sweep_received.sql"),
            "1, 'received invoices', 1000, 100",
            &["using queue_processed", "queue_pkey"],
        ),
        (include_str!("../src/queries/postgres/archive/read.sql"), "1, 100, 64", &["using archive_pkey"]),
        (include_str!("../src/queries/postgres/archive/sweep.sql"), "1, 1000, 100", &["archive_pkey"]),
        (include_str!("../src/queries/postgres/archive/size.sql"), "1", &["archive"]),
        (
            include_str!("../src/queries/postgres/journal/sweep.sql"),
            "1, 1000, 100",
            &["Tid Scan on journal", "using journal_pkey"],
        ),
        (
            include_str!("../src/queries/postgres/journal/read.sql"),
            "101, null, 7, '{abc}'",
            &["using journal_key", "using journal_id"],
        ),
    ];
    for (file, arguments, expected) in plans {
        let statement = file.replace("{schema}", &place.schema);
        let script = format!("deallocate all; set plan_cache_mode = force_generic_plan; prepare p as {statement}");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await.unwrap();
        let explain = AssertSqlSafe(format!("explain execute p ({arguments})"));
        let rows = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        for index in expected {
            assert!(plan.iter().any(|step| step.contains(index)), "{index}\n{statement}\n{plan:#?}");
        }
        for table in ["queue", "journal"] {
            let scan = format!("Seq Scan on {table} ");
            assert!(!plan.iter().any(|step| step.contains(&scan)), "{statement}\n{plan:#?}");
        }
    }
}
