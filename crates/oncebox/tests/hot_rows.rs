//! Eight lanes that update the same hundred rows in random order. Batches of them deadlock, so the engine has to fall
//! back to one message per transaction and still get everything done, each once.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

#[path = "../../store-sql/tests/common/mod.rs"]
mod sql;

use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Message, Outcome};
use oncebox_store_sql::Postgres;
use oncebox_testkit::eventually_within;
use serde::{Deserialize, Serialize};

const ROWS: u64 = 100;
const MESSAGES: u64 = 3_000;

#[derive(Deserialize, Serialize)]
struct Credit {
    rows: Vec<i64>,
}

async fn credit(mut ctx: Context<Postgres>, credit: Credit) -> oncebox::Result<Outcome> {
    // Two rows each, in the order that the message names: the classic deadlock.
    for row in credit.rows {
        sqlx::query("update accounts set balance = balance + 1 where id = $1").bind(row).execute(ctx.db()).await?;
    }
    Ok(Outcome::applied())
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_lanes_on_a_hundred_hot_rows_make_progress() {
    let Some(place) = sql::PostgresPlace::or_skip("hot_rows::eight_lanes_on_a_hundred_hot_rows_make_progress") else {
        return;
    };
    let store = place.open().await;
    place.run("create table accounts (id bigint primary key, balance bigint not null default 0)").await;
    place.run(&format!("insert into accounts (id) select generate_series(0, {ROWS} - 1)")).await;

    let source = MemorySource::new();
    let mut seed = 42_u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((seed >> 33) % ROWS).unwrap()
    };
    source.send_all(
        (0..MESSAGES).map(|_| Message::new("credit").with_json(&Credit { rows: vec![next(), next()] }).unwrap()),
    );

    let consumer = Consumer::new("hot", store.clone(), source.clone()).on("credit", credit).lanes(8);
    let stats = consumer.stats();
    // One message per transaction manages thousands a second here; a batch that gives way to none would take minutes.
    let deadline = std::time::Duration::from_secs(60);
    let waited_on = source.clone();
    let done = eventually_within(deadline, "all are applied", async || waited_on.backlog() == 0);
    consumer.run(done).await.unwrap();

    let seen = stats.snapshot();
    assert!(seen.contended > 0, "the lanes never met: this test tests nothing");
    assert_eq!((seen.handled, seen.failures), (MESSAGES, 0), "a deadlock is nobody's failure");
    let total: i64 = sqlx::query_scalar("select sum(balance)::bigint from accounts")
        .fetch_one(&mut place.connection().await)
        .await
        .unwrap();
    assert_eq!(u64::try_from(total).unwrap(), 2 * MESSAGES, "every update once");
}
