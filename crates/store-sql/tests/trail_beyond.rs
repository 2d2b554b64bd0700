//! A look for an id reads the newest rows, and says where there are older ones.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, begin};
use oncebox_core::trail::{Beyond, LOOKED_AT_MAX, Trails};
use oncebox_core::{Store, Transaction};

/// The sought one first, and then as many others as are looked at.
const FILL: &str = "
insert into {queues} (id, name) values (9, 'payments');
insert into {queue} (queue, visible_at, received_at, made_at, made_at_nanos, message_id, kind, payload)
select 9, 1, 0, 0, 0, case when n = 0 then {sought} end, {bytes}, {bytes} from {series};
";

async fn look<S: Store<Tx: Trails>>(store: &S) -> (usize, Beyond) {
    let mut tx = begin(store).await;
    let found = tx.trail_queued("sought", 10).await.unwrap().len();
    let beyond = tx.trail_beyond().await.unwrap();
    tx.rollback().await;
    (found, beyond)
}

const CUT: (usize, Beyond) = (0, Beyond { queued: true, parked: false, outbox: false });

#[tokio::test]
async fn older_rows_that_are_not_looked_at_are_told_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let series = format!(
        "(with recursive c(n) as (select 0 union all select n + 1 from c where n < {LOOKED_AT_MAX}) select n from c)"
    );
    let mut script = FILL.replace("{series}", &series).replace("{bytes}", "x'00'");
    script = script.replace("{sought}", "cast('sought' as blob)");
    place.run(&script.replace("{queues}", "oncebox_queues").replace("{queue}", "oncebox_queue")).await;
    assert_eq!(look(&store).await, CUT);
    place.run("delete from oncebox_queue where id = (select max(id) from oncebox_queue)").await;
    assert_eq!(look(&store).await, (1, Beyond::default()));
}

#[tokio::test]
async fn older_rows_that_are_not_looked_at_are_told_on_postgres() {
    let test = "older_rows_that_are_not_looked_at_are_told_on_postgres";
    let Some(place) = PostgresPlace::or_skip(test) else { return };
    let store = place.open().await;
    let series = format!("generate_series(0, {LOOKED_AT_MAX}) as n");
    let mut script = FILL.replace("{series}", &series).replace("{bytes}", "''::bytea");
    script = script.replace("{sought}", "'sought'::bytea").replace("{queues}", "queues").replace("{queue}", "queue");
    place.run(&script).await;
    assert_eq!(look(&store).await, CUT);
    place.run("delete from queue where id = (select max(id) from queue)").await;
    assert_eq!(look(&store).await, (1, Beyond::default()));
}
