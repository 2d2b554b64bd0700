//! PostgreSQL: what it was told to survive, and what keeps it from cleaning up.

use oncebox::horizon::Consumers as _;
use oncebox::postgres::{Migrate, Postgres};
use oncebox::{Clock as _, Session as _, Store as _, SystemClock, Transaction as _};

use super::finding::{Finding, Severity};
use super::store;
use crate::file::StoreSpec;

/// A transaction that is open for longer than this keeps vacuum from every row that was deleted since.
const OPEN_SECONDS_MAX: i64 = 15 * 60;

/// Dead rows are told where there are more than this, and more than live ones.
const DEAD_MIN: i64 = 100_000;

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    fsync: String,
    synchronous_commit: String,
    full_page_writes: String,
    live: i64,
    dead: i64,
    /// How long the oldest transaction is open, in seconds.
    oldest: i64,
}

/// Looks at the store, and gives it back if it can be worked on.
pub(super) async fn examine(url: &str, spec: &StoreSpec, found: &mut Vec<Finding>) -> Option<Postgres> {
    let schema = spec.schema.as_deref().unwrap_or("oncebox");
    let builder = Postgres::builder(url).schema(schema).migrate(Migrate::Check);
    let looked = builder.schema_check().await.map(|state| (state.applied, state.known));
    if !store::has_tables(looked, found) {
        return None;
    }
    let script = builder.schema_print().unwrap_or_default();
    let looked = async {
        let opened = builder.connect().await?;
        let mut tx = opened.connect().await?.begin(store::LOCK_WAIT).await?;
        let theirs = tx.store_time().await?;
        let seen = look(tx.db(), schema).await;
        tx.rollback().await;
        Ok((opened, theirs, seen))
    };
    match looked.await {
        Ok((opened, theirs, seen)) => {
            found.extend(store::skew(SystemClock.now(), theirs));
            match seen {
                Ok((seen, there)) => {
                    found.extend(store::indexes(&script, &there));
                    found.extend(
                        [fsync(&seen), synchronous_commit(&seen), full_page_writes(&seen)].into_iter().flatten(),
                    );
                    found.extend([bloat(&seen), open_transaction(&seen)].into_iter().flatten());
                }
                Err(_) => found.push(Finding::new(
                    "store.unseen",
                    Severity::Note,
                    "store",
                    "this user may not see the settings or statistics of the server",
                    "grant it pg_monitor to have them checked",
                )),
            }
            Some(opened)
        }
        Err(error) => {
            found.push(store::unreachable(&error));
            None
        }
    }
}

async fn look(db: &mut sqlx::PgConnection, schema: &str) -> sqlx::Result<(Seen, Vec<String>)> {
    let query = sqlx::query_as(include_str!("queries/postgres.sql")).bind(schema);
    let (fsync, synchronous_commit, full_page_writes, live, dead, oldest) = query.fetch_one(&mut *db).await?;
    let indexes = sqlx::query_scalar(include_str!("queries/postgres_indexes.sql")).bind(schema);
    let there = indexes.fetch_all(db).await?;
    Ok((Seen { fsync, synchronous_commit, full_page_writes, live, dead, oldest }, there))
}

fn setting(check: &'static str, name: &str, value: &str, so: &str) -> Finding {
    let evidence = format!("{name} is {value}: {so}");
    Finding::new(check, Severity::Error, "store", evidence, format!("set {name} = on"))
}

fn fsync(seen: &Seen) -> Option<Finding> {
    let so = "what was committed may be lost, and the database damaged, when the power goes";
    (seen.fsync != "on").then(|| setting("store.fsync", "fsync", &seen.fsync, so))
}

fn synchronous_commit(seen: &Seen) -> Option<Finding> {
    let so = "messages are acknowledged before their effects are on disk";
    let is_off = seen.synchronous_commit == "off";
    is_off.then(|| setting("store.synchronous-commit", "synchronous_commit", &seen.synchronous_commit, so))
}

fn full_page_writes(seen: &Seen) -> Option<Finding> {
    let so = "a page that was half written when the power went can't be mended";
    (seen.full_page_writes != "on")
        .then(|| setting("store.full-page-writes", "full_page_writes", &seen.full_page_writes, so))
}

fn bloat(seen: &Seen) -> Option<Finding> {
    if seen.dead < DEAD_MIN || seen.dead < seen.live {
        return None;
    }
    let evidence = format!("the inbox has {} dead rows and {} live ones", seen.dead, seen.live);
    let fix = "see what keeps autovacuum away (a transaction that stays open, a replication slot), then vacuum it";
    Some(Finding::new("store.bloat", Severity::Warning, "store", evidence, fix))
}

fn open_transaction(seen: &Seen) -> Option<Finding> {
    if seen.oldest < OPEN_SECONDS_MAX {
        return None;
    }
    let evidence = format!("a transaction has been open for {} minutes", seen.oldest / 60);
    let fix = "find it in pg_stat_activity by xact_start and end it: while it lives, no deleted row can be cleaned up";
    Some(Finding::new("store.open-transaction", Severity::Warning, "store", evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Seen {
        let on = || "on".to_owned();
        Seen {
            fsync: on(),
            synchronous_commit: on(),
            full_page_writes: on(),
            live: 1_000_000,
            dead: 200_000,
            oldest: 60,
        }
    }

    #[test]
    fn a_sound_server_has_no_findings() {
        let seen = sound();
        let all =
            [fsync(&seen), synchronous_commit(&seen), full_page_writes(&seen), bloat(&seen), open_transaction(&seen)];
        assert!(all.iter().all(Option::is_none), "{all:?}");
    }

    #[test]
    fn each_setting_that_loses_data_is_an_error() {
        let off = || "off".to_owned();
        let found = [
            fsync(&Seen { fsync: off(), ..sound() }),
            synchronous_commit(&Seen { synchronous_commit: off(), ..sound() }),
            full_page_writes(&Seen { full_page_writes: off(), ..sound() }),
        ];
        assert!(
            found.iter().flatten().all(|one| one.severity == Severity::Error && one.evidence.contains(" is off: "))
        );
        assert_eq!(found.iter().flatten().count(), 3);
    }

    /// How long the oldest transaction is open is seen; whose is not ours counts, and ours does not.
    #[tokio::test]
    async fn a_transaction_that_stays_open_is_seen() {
        use sqlx::Connection as _;
        let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
            return oncebox_testkit::skipped("doctor::postgres::a_transaction_that_stays_open_is_seen");
        };
        let name = format!("open{}", oncebox::Clock::id(&SystemClock).simple());
        let create = |verb: &str| sqlx::AssertSqlSafe(format!("{verb} database {name}"));
        let mut server = sqlx::PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(create("create")).execute(&mut server).await.unwrap();
        let url = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
        let mut ours = sqlx::PgConnection::connect(&url).await.unwrap();
        let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
        assert_eq!(look(&mut ours, "oncebox").await.unwrap().0.oldest, 0);
        sqlx::raw_sql("begin").execute(&mut other).await.unwrap();
        let seen = async || look(&mut ours, "oncebox").await.unwrap().0.oldest >= 2;
        oncebox_testkit::eventually("it is open for two seconds", seen).await;
        other.close().await.unwrap();
        ours.close().await.unwrap();
        sqlx::raw_sql(create("drop")).execute(&mut server).await.unwrap();
    }

    #[test]
    fn dead_rows_and_open_transactions_are_warnings() {
        let bloated = bloat(&Seen { live: 10, ..sound() }).unwrap();
        assert_eq!(bloated.evidence, "the inbox has 200000 dead rows and 10 live ones");
        let open = open_transaction(&Seen { oldest: 3_600, ..sound() }).unwrap();
        assert_eq!(
            (open.severity, open.evidence.as_str()),
            (Severity::Warning, "a transaction has been open for 60 minutes")
        );
    }
}
