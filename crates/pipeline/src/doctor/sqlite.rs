//! SQLite: how it keeps its journal, and how much of the file is empty.

use oncebox::sqlite::{Migrate, Sqlite};
use oncebox::{Session as _, Store as _, Transaction as _};

use super::finding::{Finding, Severity};
use super::store;

/// Free pages are told where there are more than this, and more than half.
const FREE_MIN: i64 = 25_000;

/// `synchronous` from which on a commit is on the disk when it returns.
const FULL: i64 = 2;

/// Looks at the store, and gives it back if it can be worked on. (Its version is not looked at: the store refuses one that
/// is too old.)
pub(super) async fn examine(path: &str, found: &mut Vec<Finding>) -> Option<Sqlite> {
    if !std::path::Path::new(path).exists() {
        let fix = "run `oncebox schema up`, or `oncebox run`, which makes it";
        found.push(Finding::new("store.missing", Severity::Error, "store", format!("there is no file {path}"), fix));
        return None;
    }
    let builder = Sqlite::builder(path).look_only();
    let looked = builder.schema_check().await;
    if !store::has_tables(looked, found) {
        return None;
    }
    let script = builder.schema_print().unwrap_or_default();
    let looked = async {
        let opened = builder.open().await?;
        let mut tx = opened.connect().await?.begin(store::LOCK_WAIT).await?;
        let seen = look(tx.db()).await;
        tx.rollback().await;
        Ok((opened, seen))
    };
    match looked.await {
        Ok((opened, seen)) => {
            if let Ok((Seen { mode, synchronous, free, all }, there)) = seen {
                found.extend(store::indexes(&script, &there));
                found.extend([journal(&mode), durable(synchronous), bloat(free, all)].into_iter().flatten());
            }
            found.extend(unwritable(path).await);
            Some(opened)
        }
        Err(error) => {
            found.push(store::unreachable(&error));
            None
        }
    }
}

/// Tries to write, on a connection of its own: the other one only looks.
async fn unwritable(path: &str) -> Option<Finding> {
    match Sqlite::builder(path).busy_timeout(store::LOCK_WAIT).migrate(Migrate::Check).open().await {
        Ok(writer) => store::unwritable(&writer).await,
        Err(error) => store::told(error),
    }
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    mode: String,
    synchronous: i64,
    free: i64,
    all: i64,
}

async fn look(db: &mut sqlx::SqliteConnection) -> sqlx::Result<(Seen, Vec<String>)> {
    let query = sqlx::query_as(include_str!("queries/sqlite.sql"));
    let (mode, synchronous, free, all) = query.fetch_one(&mut *db).await?;
    let there = sqlx::query_scalar("select name from sqlite_master where type = 'index'").fetch_all(db).await?;
    Ok((Seen { mode, synchronous, free, all }, there))
}

fn durable(synchronous: i64) -> Option<Finding> {
    let evidence = format!("synchronous is {synchronous}: messages are acknowledged before their effects are on disk");
    let fix = "let nothing change it: the store sets it to full on each connection";
    (synchronous < FULL).then(|| Finding::new("store.synchronous", Severity::Error, "store", evidence, fix))
}

fn journal(mode: &str) -> Option<Finding> {
    if mode == "wal" {
        return None;
    }
    let evidence = format!("its journal mode is {mode}: readers and the writer wait for each other");
    let fix = "put the file on a local disk, where the write-ahead log works";
    Some(Finding::new("store.journal", Severity::Warning, "store", evidence, fix))
}

fn bloat(free: i64, all: i64) -> Option<Finding> {
    if free < FREE_MIN || free * 2 < all {
        return None;
    }
    let evidence = format!("{free} of {all} pages of the file are empty");
    let fix = "they are used again; to give them back, stop everything and run `vacuum` in the sqlite3 shell";
    Some(Finding::new("store.bloat", Severity::Note, "store", evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_makes_everyone_wait_is_told() {
        assert!(journal("delete").is_some_and(|found| found.evidence.contains("is delete")));
        assert_eq!(journal("wal"), None);
    }

    #[tokio::test]
    async fn a_file_that_may_not_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db").display().to_string();
        drop(Sqlite::open(&path).await.unwrap());
        assert_eq!(unwritable(&path).await, None);
        let told = unwritable(&format!("sqlite:{path}?mode=ro")).await.unwrap();
        assert_eq!((told.check, told.severity), ("store.unwritable", Severity::Error));
        assert!(told.evidence.contains("the file is read-only"), "{told:?}");
        // What was tried is not kept.
        let store = Sqlite::open(&path).await.unwrap();
        let mut tx = store.connect().await.unwrap().begin(store::LOCK_WAIT).await.unwrap();
        let records: i64 = sqlx::query_scalar("select count(*) from oncebox_inbox").fetch_one(tx.db()).await.unwrap();
        assert_eq!(records, 0);
    }

    /// What a connection was told is what is seen.
    #[tokio::test]
    async fn a_connection_that_does_not_wait_for_the_disk_is_told() {
        use sqlx::Connection as _;
        let mut db = sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
        for (setting, expected) in [("off", true), ("normal", true), ("full", false), ("extra", false)] {
            let pragma = format!("pragma synchronous = {setting}");
            sqlx::raw_sql(sqlx::AssertSqlSafe(pragma)).execute(&mut db).await.unwrap();
            let (seen, _) = look(&mut db).await.unwrap();
            assert_eq!(durable(seen.synchronous).is_some(), expected, "{setting}: {seen:?}");
        }
    }

    #[test]
    fn a_file_that_is_mostly_empty_is_told() {
        assert!(bloat(30_000, 40_000).is_some());
        assert_eq!((bloat(30_000, 100_000), bloat(10, 12)), (None, None));
    }
}
