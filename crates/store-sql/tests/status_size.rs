//! What `oncebox status` asks costs the same however large the tables are. `ONCEBOX_TEST_STATUS_ROWS=100000000` measures.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]
#![allow(clippy::print_stdout, reason = "it also measures")]

mod common;

use std::env;
use std::time::Duration;

use common::{PostgresPlace, SqlitePlace, begin};
use oncebox_core::counters::Counters;
use oncebox_core::depths::{DepthStore, Depths};
use oncebox_core::{ConsumerId, Transaction};
use sqlx::{AssertSqlSafe, Row};
use tokio::time::Instant;

fn rows() -> usize {
    env::var("ONCEBOX_TEST_STATUS_ROWS").map_or(200_000, |rows| rows.parse().unwrap())
}

/// The best of some: the first fills caches.
async fn look<S: DepthStore>(store: &S) -> Duration
where
    S::Tx: Counters,
{
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let mut tx = begin(store).await;
        let began = Instant::now();
        tx.read_counters().await.unwrap();
        assert!(tx.queue_depth("payments").await.unwrap().unwrap().is_more);
        let parked = tx.parked_depth(ConsumerId(1)).await.unwrap();
        assert!(parked.waiting_is_more && parked.dead_is_more, "{parked:?}");
        assert!(!tx.lane_depths().await.unwrap().is_empty());
        best = best.min(began.elapsed());
        tx.rollback().await;
    }
    best
}

/// One statement for each table; `$rows` of each, most of them done.
const FILL: &str = "
insert into {queues} (id, name) values (9, 'payments');
insert into {queue} (queue, visible_at, received_at, made_at, made_at_nanos, kind, payload)
select 9, case when n % 10 = 0 then n end, 0, 0, 0, {bytes}, {bytes} from {series};
insert into {parked} (consumer, state, first_at, last_at, made_at, made_at_nanos, fingerprint, scheme, owns_record, attempts,
    key, kind, payload, cause, reason, due_at, behind)
select 1, case when n % 2 = 0 then 3 else 0 end, n, n, 0, 0, n, 0, 1, 1, {bytes}, {bytes}, {bytes}, 'c', 'r',
    case when n % 2 = 1 then n end, case when n % 4 = 1 then 1 else 0 end from {series};
insert into {outbox} (emitted_at, made_at, topic_hash, lane, state, made_at_nanos, key, topic, message_id, kind, payload)
select 0, 0, 1, n % 64, case when n % 10 = 0 then 0 else 3 end, 0, {unique}, {bytes}, {bytes}, {bytes}, {bytes} from {series};
";

#[tokio::test]
async fn a_look_is_cheap_in_large_tables_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let series = format!(
        "(with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select n from c)",
        rows()
    );
    let mut script =
        FILL.replace("{series}", &series).replace("{bytes}", "x'00'").replace("{unique}", "cast(n as blob)");
    for table in ["queues", "queue", "parked", "outbox"] {
        script = script.replace(&format!("{{{table}}}"), &format!("oncebox_{table}"));
    }
    place.run(&script).await;
    let took = look(&store).await;
    println!("SQLite, {} rows in each table: a look takes {took:?}", rows());
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test]
async fn a_look_is_cheap_in_large_tables_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("a_look_is_cheap_in_large_tables_on_postgres") else { return };
    let store = place.open().await;
    let series = format!("generate_series(1, {}) as n", rows());
    let mut script = FILL.replace("{series}", &series).replace("{bytes}", "''::bytea");
    script = script.replace("{unique}", "n::text::bytea");
    for table in ["queues", "queue", "parked", "outbox"] {
        script = script.replace(&format!("{{{table}}}"), table);
    }
    place.run(&script).await;
    place.run("vacuum analyze").await;
    let took = look(&store).await;
    println!("PostgreSQL, {} rows in each table: a look takes {took:?}", rows());
    assert!(took < Duration::from_secs(1), "{took:?}");

    // No plan reads a table from end to end.
    let plans = [
        (include_str!("../src/queries/postgres/depths/queue.sql"), "null, 'payments', 10001, 10000000"),
        (include_str!("../src/queries/postgres/depths/parked.sql"), "1, 10001"),
        (include_str!("../src/queries/postgres/depths/lanes.sql"), "null, 1000, 64, 'the outbox'"),
    ];
    let mut db = place.connection().await;
    for (file, arguments) in plans {
        let statement = file.replace("{schema}", &place.schema);
        let script = format!("deallocate all; set plan_cache_mode = force_generic_plan; prepare p as {statement}");
        sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut db).await.unwrap();
        let explain = AssertSqlSafe(format!("explain execute p ({arguments})"));
        let plan = sqlx::raw_sql(explain).fetch_all(&mut db).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let reads_all = ["queue", "parked", "outbox"].map(|table| format!("Seq Scan on {table}"));
        let whole =
            |step: &String| reads_all.iter().any(|scan| step.ends_with(scan) || step.contains(&format!("{scan} ")));
        assert!(!plan.iter().any(whole), "{statement}\n{plan:#?}");
    }
}
