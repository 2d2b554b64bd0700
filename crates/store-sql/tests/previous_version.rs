//! A process of the previous version beside a newer schema: its statements still run, and no column has come that it would
//! have to fill.
//!
//! `previous/` holds the statements of the version before this one, as that version had them. With each release they are
//! replaced by those that were released, and `PREVIOUS` by the migration that came last with them.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;

use common::{PostgresPlace, SqlitePlace};
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

/// The last migration that the previous version knew.
const PREVIOUS: &str = "0012";

/// The statements of a file, each with its name.
fn statements(file: &str) -> impl Iterator<Item = (&str, &str)> {
    file.split("-- @ ").skip(1).map(|block| block.split_once('\n').unwrap())
}

/// The migrations of the previous version, oldest first.
fn migrations(dialect: &str) -> String {
    let folder = format!("{}/src/migrations/{dialect}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| &path.file_name().unwrap().to_str().unwrap()[..4] <= PREVIOUS).collect();
    files.sort();
    files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn statements_of_the_previous_version_run_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("statements_of_the_previous_version_run_on_postgres") else { return };
    place.open().await;
    let mut db = place.connection().await;
    let mut refused = Vec::new();
    for (name, statement) in statements(include_str!("previous/postgres.sql")) {
        let statement = statement.replace("{schema}", &format!("\"{}\"", place.schema));
        if let Err(error) = db.prepare(AssertSqlSafe(statement).into_sql_str()).await {
            refused.push(format!("{name}: {error}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[tokio::test]
async fn statements_of_the_previous_version_run_on_sqlite() {
    let place = SqlitePlace::new();
    place.open().await;
    let mut db = place.connection().await;
    let mut refused = Vec::new();
    for (name, statement) in statements(include_str!("previous/sqlite.sql")) {
        if let Err(error) = db.prepare(AssertSqlSafe(statement.to_owned()).into_sql_str()).await {
            refused.push(format!("{name}: {error}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// A column: its type, and whether a row may be inserted without it.
type Columns = BTreeMap<(String, String), (String, bool)>;

/// Compares tables that both versions know.
fn assert_fits(before: &Columns, now: &Columns) {
    for (name, (kind, _)) in before {
        let (still, _) = now.get(name).unwrap_or_else(|| panic!("{name:?} is gone, and the previous version uses it"));
        // What it has prepared would no longer fit.
        assert_eq!(still, kind, "{name:?} has another type");
    }
    for (name, (_, optional)) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        let known = before.keys().any(|(table, _)| *table == name.0);
        assert!(!known || *optional, "{name:?} must be filled, and the previous version does not know it");
    }
}

#[tokio::test]
async fn columns_of_the_previous_version_are_as_they_were_on_postgres() {
    const COLUMNS: &str = "select table_name::text, column_name::text, data_type::text, \
        is_nullable = 'YES' or column_default is not null or is_identity = 'YES' \
        from information_schema.columns where table_schema = $1";
    let Some(place) = PostgresPlace::or_skip("columns_of_the_previous_version_are_as_they_were_on_postgres") else {
        return;
    };
    place.open().await;
    let old = format!("{}_old", place.schema);
    let mut script = migrations("postgres").replace("{schema}", &old);
    script.insert_str(0, &format!("create schema {old}; set search_path = {old};\n"));
    place.run(&script).await;
    let mut db = place.connection().await;
    let mut columns = async |schema: &str| -> Columns {
        let rows: Vec<(String, String, String, bool)> =
            sqlx::query_as(COLUMNS).bind(schema).fetch_all(&mut db).await.unwrap();
        rows.into_iter().map(|(table, name, kind, optional)| ((table, name), (kind, optional))).collect()
    };
    let (before, now) = (columns(&old).await, columns(&place.schema).await);
    assert!(before.len() > 50, "{}", before.len());
    assert_fits(&before, &now);
    place.run(&format!("drop schema {old} cascade")).await;
}

#[tokio::test]
async fn columns_of_the_previous_version_are_as_they_were_on_sqlite() {
    const COLUMNS: &str = "select t.name, c.name, lower(c.type), c.\"notnull\" = 0 or c.dflt_value is not null or c.pk > 0 \
        from sqlite_master as t join pragma_table_info(t.name) as c where t.type = 'table' and t.name like 'oncebox_%'";
    async fn columns(place: &SqlitePlace) -> Columns {
        let rows: Vec<(String, String, String, bool)> =
            sqlx::query_as(COLUMNS).fetch_all(&mut place.connection().await).await.unwrap();
        rows.into_iter().map(|(table, name, kind, optional)| ((table, name), (kind, optional))).collect()
    }
    let (old, new) = (SqlitePlace::new(), SqlitePlace::new());
    old.run(&migrations("sqlite")).await;
    new.open().await;
    let (before, now) = (columns(&old).await, columns(&new).await);
    assert!(before.len() > 50, "{}", before.len());
    assert_fits(&before, &now);
}
