//! SQLite: how it keeps its journal, and how much of the file is empty.

use oncebox::sqlite::{Migrate, Sqlite};
use oncebox::{Session as _, Store as _, Transaction as _};

use super::finding::{Finding, Severity};
use super::store;

/// Free pages are told where there are more than this, and more than half.
const FREE_MIN: i64 = 25_000;

/// Looks at the store, and gives it back if it can be worked on. (Its version and `synchronous` are not looked at: the
/// store is compiled in, and sets it on each connection.)
pub(super) async fn examine(path: &str, found: &mut Vec<Finding>) -> Option<Sqlite> {
    if !std::path::Path::new(path).exists() {
        let fix = "run `oncebox schema up`, or `oncebox run`, which makes it";
        found.push(Finding::new("store.missing", Severity::Error, "store", format!("there is no file {path}"), fix));
        return None;
    }
    let builder = Sqlite::builder(path).migrate(Migrate::Check);
    let looked = builder.schema_check().await.map(|state| (state.applied, state.known));
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
            if let Ok((mode, free, all, there)) = seen {
                found.extend(store::indexes(&script, &there));
                found.extend([journal(&mode), bloat(free, all)].into_iter().flatten());
            }
            Some(opened)
        }
        Err(error) => {
            found.push(store::unreachable(&error));
            None
        }
    }
}

async fn look(db: &mut sqlx::SqliteConnection) -> sqlx::Result<(String, i64, i64, Vec<String>)> {
    let (mode, free, all) = sqlx::query_as(include_str!("queries/sqlite.sql")).fetch_one(&mut *db).await?;
    let there = sqlx::query_scalar("select name from sqlite_master where type = 'index'").fetch_all(db).await?;
    Ok((mode, free, all, there))
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

    #[test]
    fn a_file_that_is_mostly_empty_is_told() {
        assert!(bloat(30_000, 40_000).is_some());
        assert_eq!((bloat(30_000, 100_000), bloat(10, 12)), (None, None));
    }
}
