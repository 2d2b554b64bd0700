//! A look for an id reads the newest rows, and says where there are older ones.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{PostgresPlace, SqlitePlace, begin};
use oncebox_core::trail::{Beyond, LOOKED_AT_MAX, Trails, WhichOutbox, cause_in_headers};
use oncebox_core::{Store, Transaction};

/// The sought ones first, and then as many others as are looked at.
const FILL: &str = "
insert into {queues} (id, name) values (9, 'payments');
insert into {queue} (queue, visible_at, received_at, made_at, made_at_nanos, message_id, kind, payload)
select 9, 1, 0, 0, 0, case when n = 0 then {sought} end, {bytes}, {bytes} from {series};
insert into {parked} (consumer, state, key, fingerprint, scheme, owns_record, cause, reason, attempts, first_at, last_at,
    message_id, kind, payload, made_at, made_at_nanos)
select 1, 3, {bytes}, n, 0, 0, '', '', 0, 0, 0, case when n = 0 then {sought} end, {bytes}, {bytes}, 0, 0 from {series};
insert into {outbox} (state, lane, topic_hash, emitted_at, key, topic, message_id, headers, kind, payload, made_at, made_at_nanos)
select 3, 0, 0, 0, {bytes}, {bytes}, case when n = 0 then {sought} else {bytes} end, case when n = 0 then {header} end,
    {bytes}, {bytes}, 0, 0 from {series};
";

/// As it stands among the headers of what a handler emitted.
fn header() -> String {
    cause_in_headers("sought").bytes().map(|byte| format!("{byte:02x}")).collect()
}

async fn look<S: Store<Tx: Trails>>(store: &S) -> ([usize; 4], Beyond) {
    let mut tx = begin(store).await;
    let found = [
        tx.trail_queued("sought", 10).await.unwrap().len(),
        tx.trail_parked(&[], Some("sought"), 10).await.unwrap().len(),
        tx.trail_outbox(WhichOutbox::Id("sought"), 10).await.unwrap().len(),
        tx.trail_outbox(WhichOutbox::CausedBy("sought"), 10).await.unwrap().len(),
    ];
    let beyond = tx.trail_beyond().await.unwrap();
    tx.rollback().await;
    (found, beyond)
}

const NEWEST: [(&str, &str); 3] = [("queue", "id"), ("parked", "id"), ("outbox", "seq")];

const CUT: ([usize; 4], Beyond) = ([0; 4], Beyond { queued: true, parked: true, outbox: true });

#[tokio::test]
async fn older_rows_that_are_not_looked_at_are_told_on_sqlite() {
    let place = SqlitePlace::new();
    let store = place.open().await;
    let series = format!(
        "(with recursive c(n) as (select 0 union all select n + 1 from c where n < {LOOKED_AT_MAX}) select n from c)"
    );
    let mut script = FILL.replace("{series}", &series).replace("{bytes}", "x'00'");
    script = script.replace("{sought}", "cast('sought' as blob)");
    script = script.replace("{header}", &format!("x'{}'", header()));
    for table in ["queues", "queue", "parked", "outbox"] {
        script = script.replace(&format!("{{{table}}}"), &format!("oncebox_{table}"));
    }
    place.run(&script).await;
    assert_eq!(look(&store).await, CUT);
    for (table, id) in NEWEST {
        place.run(&format!("delete from oncebox_{table} where {id} = (select max({id}) from oncebox_{table})")).await;
    }
    assert_eq!(look(&store).await, ([1; 4], Beyond::default()));
}

#[tokio::test]
async fn older_rows_that_are_not_looked_at_are_told_on_postgres() {
    let test = "older_rows_that_are_not_looked_at_are_told_on_postgres";
    let Some(place) = PostgresPlace::or_skip(test) else { return };
    let store = place.open().await;
    let series = format!("generate_series(0, {LOOKED_AT_MAX}) as n");
    let mut script = FILL.replace("{series}", &series).replace("{bytes}", "''::bytea");
    script = script.replace("{sought}", "'sought'::bytea").replace("{header}", &format!("'\\x{}'::bytea", header()));
    for table in ["queues", "queue", "parked", "outbox"] {
        script = script.replace(&format!("{{{table}}}"), table);
    }
    place.run(&script).await;
    assert_eq!(look(&store).await, CUT);
    for (table, id) in NEWEST {
        place.run(&format!("delete from {table} where {id} = (select max({id}) from {table})")).await;
    }
    assert_eq!(look(&store).await, ([1; 4], Beyond::default()));
}
