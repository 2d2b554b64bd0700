//! What keeps the server from cleaning up, and how much has gathered.

use sqlx::PgConnection;

use super::super::finding::{Finding, Severity};

/// A transaction that is open for longer than this keeps vacuum from every row that was deleted since.
const OPEN_SECONDS_MAX: i64 = 15 * 60;

/// A slot that is so many transactions behind keeps about as many rows.
const SLOT_AGE_MAX: i64 = DEAD_MANY;

/// Dead rows are told where there are more than this, and more than live ones.
const DEAD_MANY: i64 = 100_000;

/// In a table whose rows come and go, so many are passed over by each look for the next row: a lease that takes 3 ms takes
/// tens of them.
const DEAD_SLOW: i64 = 20_000;

/// Tables that grow, and tables whose rows come and go.
const GROWING: [&str; 3] = ["archive", "inbox", "versions"];
const PASSING: [&str; 6] = ["counters", "lanes", "offsets", "outbox", "parked", "queue"];

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    tables: Vec<Table>,
    /// How long the oldest transaction is open, in seconds.
    oldest: i64,
    /// How many sessions do not show that.
    pub(super) hidden: i64,
    /// For how long a transaction has been prepared, in seconds.
    prepared: i64,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    name: String,
    live: i64,
    dead: i64,
}

/// A replication slot that keeps rows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    name: String,
    /// Transactions since.
    age: i64,
    is_used: bool,
}

pub(super) async fn look(db: &mut PgConnection, schema: &str) -> sqlx::Result<Seen> {
    let names: Vec<&str> = GROWING.into_iter().chain(PASSING).collect();
    let query = sqlx::query_as(include_str!("../queries/postgres/tables.sql")).bind(schema).bind(names);
    let tables: Vec<(String, i64, i64)> = query.fetch_all(&mut *db).await?;
    let tables = tables.into_iter().map(|(name, live, dead)| Table { name, live, dead }).collect();
    let query = sqlx::query_as(include_str!("../queries/postgres/sessions.sql"));
    let (oldest, hidden, prepared) = query.fetch_one(&mut *db).await?;
    let slots: Vec<(String, i64, bool)> =
        sqlx::query_as(include_str!("../queries/postgres/slots.sql")).fetch_all(db).await?;
    let slots = slots.into_iter().map(|(name, age, is_used)| Slot { name, age, is_used }).collect();
    Ok(Seen { tables, oldest, hidden, prepared, slots })
}

pub(super) fn checks(seen: &Seen) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.tables.iter().filter_map(bloat).collect();
    found.extend(open_transaction(seen));
    found.extend(prepared_transaction(seen));
    found.extend(seen.slots.iter().filter_map(slot));
    found
}

fn bloat(Table { name, live, dead }: &Table) -> Option<Finding> {
    let told_from = if PASSING.contains(&name.as_str()) { DEAD_SLOW } else { DEAD_MANY };
    if *dead < told_from || dead < live {
        return None;
    }
    let severity = if *dead < DEAD_MANY { Severity::Note } else { Severity::Warning };
    let evidence = format!("the table {name} has {dead} dead rows and {live} live ones");
    let fix = "see what keeps autovacuum away (a transaction that stays open, a replication slot), then vacuum it";
    Some(Finding::new("store.bloat", severity, "store", evidence, fix))
}

fn open_transaction(seen: &Seen) -> Option<Finding> {
    if seen.oldest < OPEN_SECONDS_MAX {
        return None;
    }
    let evidence = format!("a transaction has been open for {} minutes", seen.oldest / 60);
    let fix = "find it in pg_stat_activity by xact_start and end it: while it lives, no deleted row can be cleaned up";
    Some(Finding::new("store.open-transaction", Severity::Warning, "store", evidence, fix))
}

/// It outlives its session and a restart, so nobody sees it among the sessions.
fn prepared_transaction(seen: &Seen) -> Option<Finding> {
    if seen.prepared < OPEN_SECONDS_MAX {
        return None;
    }
    let evidence = format!("a transaction was prepared {} minutes ago, and nobody ended it", seen.prepared / 60);
    let fix = "find it in pg_prepared_xacts, and `commit prepared` or `rollback prepared` it: while it is there, it keeps its \
               locks, and no deleted row can be cleaned up";
    Some(Finding::new("store.prepared-transaction", Severity::Warning, "store", evidence, fix))
}

fn slot(Slot { name, age, is_used }: &Slot) -> Option<Finding> {
    if *age < SLOT_AGE_MAX {
        return None;
    }
    let (who, fix) = if *is_used {
        let fix =
            "look for a long query on the standby that uses it, which hot_standby_feedback makes this server wait for";
        ("its standby", fix)
    } else {
        ("nobody uses it, and it", "drop it with pg_drop_replication_slot if its standby does not come back")
    };
    let evidence = format!(
        "the replication slot {name} is {age} transactions behind: {who} keeps every row that was deleted since from being \
         cleaned up"
    );
    Some(Finding::new("store.slot", Severity::Warning, "store", evidence, fix))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sound() -> Seen {
        let table = |name: &str, live, dead| Table { name: name.to_owned(), live, dead };
        let tables =
            vec![table("inbox", 1_000_000, 200_000), table("outbox", 5, 10_000), table("queue", 50_000, 30_000)];
        let slots = vec![Slot { name: "s".to_owned(), age: 1_000, is_used: true }];
        Seen { tables, oldest: 60, hidden: 0, prepared: 60, slots }
    }

    #[test]
    fn a_sound_server_has_no_findings() {
        assert_eq!(checks(&sound()), []);
    }

    #[test]
    fn dead_rows_are_told_of_every_table_by_what_they_cost_there() {
        let judged = |name: &str, dead| bloat(&Table { name: name.to_owned(), live: 10, dead });
        let found = judged("inbox", 200_000).unwrap();
        assert_eq!(found.evidence, "the table inbox has 200000 dead rows and 10 live ones");
        assert_eq!(judged("inbox", 30_000), None);
        for name in ["outbox", "queue", "parked"] {
            assert_eq!(judged(name, 30_000).unwrap().severity, Severity::Note);
            assert_eq!(judged(name, 200_000).unwrap().severity, Severity::Warning);
            assert_eq!(judged(name, 10_000), None);
        }
    }

    #[test]
    fn transactions_that_stay_are_told() {
        let open = open_transaction(&Seen { oldest: 3_600, ..sound() }).unwrap();
        assert_eq!(
            (open.severity, open.evidence.as_str()),
            (Severity::Warning, "a transaction has been open for 60 minutes")
        );
        let prepared = prepared_transaction(&Seen { prepared: 3_600, ..sound() }).unwrap();
        assert_eq!(
            (prepared.check, prepared.evidence.as_str()),
            ("store.prepared-transaction", "a transaction was prepared 60 minutes ago, and nobody ended it")
        );
    }

    #[test]
    fn slots_that_hold_vacuum_back_are_told() {
        let judged = |is_used| slot(&Slot { name: "s".to_owned(), age: 150_000, is_used }).unwrap();
        assert!(judged(true).evidence.starts_with("the replication slot s is 150000 transactions behind: its standby"));
        assert!(judged(false).fix.starts_with("drop it"));
    }

    /// How long the oldest transaction is open is seen; whose is not ours counts, and ours does not.
    #[tokio::test]
    async fn a_transaction_that_stays_open_is_seen_by_those_who_may() {
        use sqlx::Connection as _;
        let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
            return oncebox_testkit::skipped(
                "doctor::postgres::a_transaction_that_stays_open_is_seen_by_those_who_may",
            );
        };
        let name = format!("open{}", oncebox::Clock::id(&oncebox::SystemClock).simple());
        let sql = |sql: String| sqlx::AssertSqlSafe(sql);
        let mut server = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sql(format!("create database {name}"))).execute(&mut server).await.unwrap();
        sqlx::raw_sql(sql(format!("create role {name}"))).execute(&mut server).await.unwrap();
        let url = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
        let mut ours = PgConnection::connect(&url).await.unwrap();
        let mut other = PgConnection::connect(&url).await.unwrap();
        assert_eq!(look(&mut ours, "oncebox").await.unwrap().oldest, 0);
        sqlx::raw_sql("begin").execute(&mut other).await.unwrap();
        let seen = async || look(&mut ours, "oncebox").await.unwrap().oldest >= 2;
        oncebox_testkit::eventually("it is open for two seconds", seen).await;
        sqlx::raw_sql(sql(format!("set role {name}"))).execute(&mut ours).await.unwrap();
        let hidden = look(&mut ours, "oncebox").await.unwrap();
        assert_eq!((hidden.oldest, hidden.hidden), (0, 1), "a user who may not see it");
        sqlx::raw_sql(sql(format!("reset role; grant pg_read_all_stats to {name}; set role {name}")))
            .execute(&mut ours)
            .await
            .unwrap();
        let shown = look(&mut ours, "oncebox").await.unwrap();
        assert!(shown.oldest >= 2 && shown.hidden == 0, "{shown:?}");
        other.close().await.unwrap();
        ours.close().await.unwrap();
        sqlx::raw_sql(sql(format!("drop database {name}"))).execute(&mut server).await.unwrap();
        sqlx::raw_sql(sql(format!("drop role {name}"))).execute(&mut server).await.unwrap();
    }

    /// It outlives the session that made it.
    #[tokio::test]
    async fn a_prepared_transaction_is_seen() {
        use sqlx::Connection as _;
        let test = "doctor::postgres::a_prepared_transaction_is_seen";
        let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else { return oncebox_testkit::skipped(test) };
        let mut server = PgConnection::connect(&url).await.unwrap();
        let max: String = sqlx::query_scalar("select current_setting('max_prepared_transactions')")
            .fetch_one(&mut server)
            .await
            .unwrap();
        if max == "0" {
            return oncebox_testkit::skipped(test);
        }
        let name = format!("prepared{}", oncebox::Clock::id(&oncebox::SystemClock).simple());
        let sql = |sql: String| sqlx::AssertSqlSafe(sql);
        sqlx::raw_sql(sql(format!("create database {name}"))).execute(&mut server).await.unwrap();
        let mut db = PgConnection::connect(&format!("{}/{name}", url.rsplit_once('/').unwrap().0)).await.unwrap();
        assert_eq!(look(&mut db, "oncebox").await.unwrap().prepared, 0);
        for one in ["begin".to_owned(), "create table t ()".to_owned(), format!("prepare transaction '{name}'")] {
            sqlx::raw_sql(sql(one)).execute(&mut db).await.unwrap();
        }
        let seen = async || look(&mut db, "oncebox").await.unwrap().prepared >= 1;
        oncebox_testkit::eventually("it is there for a second", seen).await;
        sqlx::raw_sql(sql(format!("rollback prepared '{name}'"))).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
        sqlx::raw_sql(sql(format!("drop database {name}"))).execute(&mut server).await.unwrap();
    }
}
