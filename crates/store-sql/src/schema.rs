//! Migrations: plain files, forward only, checked at start.
//!
//! A process of the previous version keeps working beside a newer schema, so a database that knows more migrations than
//! we do is fine, as long as those we know are the same.

use oncebox_core::code::Code;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::time::{Clock, SystemClock};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::connection::{Call, Connection};
use crate::dialect::Dialect;
use crate::error::ours;
use crate::queries::SchemaQueries;
use crate::transaction::{SHORT_WAIT, finish};

/// One step of the schema. Its file never changes once it was released.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

impl Migration {
    /// The tables that it makes, without their schema.
    fn tables(&self) -> impl Iterator<Item = &'static str> {
        let name = |line: &'static str| line.strip_prefix("create table ")?.split([' ', '(']).next();
        self.sql.lines().filter_map(name).map(|name| name.rsplit_once('.').map_or(name, |(_, name)| name))
    }

    fn checksum(&self) -> String {
        Sha256::digest(self.sql.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What to do about a schema that is missing or older than this version needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Migrate {
    /// Bring it up to date.
    #[default]
    Apply,
    /// Fail: someone else applies migrations.
    Check,
}

/// How far the schema of a database is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaState {
    /// The newest version that was applied; 0 if there is none.
    pub applied: i32,
    /// The newest version that this program knows.
    pub known: i32,
    /// Tables that were made and are gone.
    pub missing: Vec<String>,
}

impl SchemaState {
    /// Whether every migration that this program needs was applied.
    pub fn is_current(&self) -> bool {
        self.applied >= self.known
    }
}

/// Everything that [`migrate`] runs, for those who apply it by hand. The identity is made here, anew for each call.
pub(crate) fn print<D: Dialect>(dialect: &D, queries: &SchemaQueries) -> String {
    let mut script = queries.create.sql().as_str().to_owned();
    for migration in D::MIGRATIONS {
        let Migration { version, name, sql } = migration;
        script.push_str(&format!("\n-- {version:04}_{name}\n{}", dialect.in_schema(sql)));
        let note = queries.note.sql().as_str().trim_end().replace("$1", &version.to_string());
        let note = note.replace("$2", &format!("'{name}'")).replace("$3", &format!("'{}'", migration.checksum()));
        script.push_str(&format!("{note};\n"));
    }
    let identify = queries.identify.sql().as_str().trim_end().replace("$1", &format!("'{}'", SystemClock.id()));
    script.push_str(&format!("\n{identify};\n"));
    script
}

/// Compares the schema with what this program knows.
pub(crate) async fn check<D: Dialect>(dialect: &D, queries: &SchemaQueries) -> Result<SchemaState, StoreError> {
    let mut open = dialect.begin(dialect.connect().await?, SHORT_WAIT).await?;
    let mut state = state(dialect, queries, D::db(&mut open)).await;
    if let Ok(state) = &mut state
        && state.applied > 0
    {
        match missing(dialect, queries, D::db(&mut open), state.applied).await {
            Ok(missing) => state.missing = missing,
            Err(error) => {
                dialect.rollback(open).await;
                return Err(error);
            }
        }
    }
    dialect.rollback(open).await;
    state
}

/// Tables of migrations that were applied, and that are not there.
async fn missing<D: Dialect>(
    dialect: &D,
    queries: &SchemaQueries,
    db: &mut D::Db,
    applied: i32,
) -> Result<Vec<String>, StoreError> {
    let attempted = "look for the tables";
    let mut there = Vec::new();
    for mut row in Call::new(attempted, &queries.tables).value(dialect.schema()).fetch(db).await? {
        there.push(row.text()?);
    }
    let made = D::MIGRATIONS.iter().filter(|migration| migration.version <= applied).flat_map(Migration::tables);
    Ok(made.filter(|name| !there.iter().any(|there| there == name)).map(str::to_owned).collect())
}

/// Brings the schema up to date. Safe to call from many processes at once, and again.
pub(crate) async fn migrate<D: Dialect>(dialect: &D, queries: &SchemaQueries) -> Result<(), StoreError> {
    // The common case needs no lock, and no privilege to create anything.
    if check(dialect, queries).await?.is_current() {
        return Ok(());
    }
    let mut open = dialect.begin(dialect.connect().await?, SHORT_WAIT).await?;
    let done = apply(dialect, queries, D::db(&mut open)).await;
    finish(dialect, open, done).await
}

async fn apply<D: Dialect>(dialect: &D, queries: &SchemaQueries, db: &mut D::Db) -> Result<(), StoreError> {
    let attempted = "apply migrations";
    if let Some(lock) = &queries.lock {
        Call::new(attempted, lock).value(dialect.schema()).execute(db).await?;
    }
    db.script(queries.create.sql()).await.map_err(|error| ours(attempted, error))?;
    let from = state(dialect, queries, db).await?.applied;
    for migration in D::MIGRATIONS.iter().filter(|migration| migration.version > from) {
        let sql = AssertSqlSafe(dialect.in_schema(migration.sql)).into_sql_str();
        let what = || format!("apply migration {} ({}) to {}", migration.version, migration.name, dialect.place());
        db.script(sql).await.map_err(|error| ours(what(), error))?;
        let note = Call::new(attempted, &queries.note).value(migration.version).value(migration.name);
        note.value(migration.checksum().as_str()).execute(db).await?;
    }
    let identity = SystemClock.id().to_string();
    Call::new(attempted, &queries.identify).value(identity.as_str()).execute(db).await?;
    Ok(())
}

async fn state<D: Dialect>(dialect: &D, queries: &SchemaQueries, db: &mut D::Db) -> Result<SchemaState, StoreError> {
    let attempted = "read which migrations were applied";
    let known = D::MIGRATIONS.last().map_or(0, |migration| migration.version);
    if Call::new(attempted, &queries.exists).value(dialect.schema()).fetch(db).await?.is_empty() {
        return Ok(SchemaState { applied: 0, known, missing: Vec::new() });
    }
    let mut applied = 0;
    for mut row in Call::new(attempted, &queries.applied).fetch(db).await? {
        let (version, name, checksum): (i32, String, String) = (row.int()?, row.text()?, row.text()?);
        let Some(migration) = D::MIGRATIONS.iter().find(|migration| migration.version == version) else {
            if applied < known {
                return Err(skipped(dialect, applied + 1, version));
            }
            applied = version;
            continue;
        };
        if migration.checksum() != checksum {
            let why = format!(
                "migration {version} ({name}) is not the one that this program knows; it was changed after it was \
                 applied, or another program owns these tables"
            );
            return Err(wrong(dialect, why));
        }
        if version != applied + 1 {
            return Err(skipped(dialect, applied + 1, version));
        }
        applied = version;
    }
    Ok(SchemaState { applied, known, missing: Vec::new() })
}

fn skipped<D: Dialect>(dialect: &D, missing: i32, found: i32) -> StoreError {
    wrong(dialect, format!("migration {missing} was never applied, but {found} was"))
}

fn wrong<D: Dialect>(dialect: &D, why: String) -> StoreError {
    let attempted = format!("use the tables of {} in {}", dialect.schema(), dialect.place());
    StoreError::new(StoreErrorKind::Configuration, attempted, why).with_code(Code::SchemaOther)
}

/// The error for a schema that is older than this program.
pub(crate) fn outdated<D: Dialect>(dialect: &D, state: &SchemaState) -> StoreError {
    let SchemaState { applied, known, .. } = state;
    let why = match applied {
        0 => "there are none yet; make them with `oncebox schema up`".to_owned(),
        _ => {
            format!("they have version {applied} and {known} is needed; bring them up to date with `oncebox schema up`")
        }
    };
    wrong(dialect, why).with_code(Code::SchemaOld)
}
