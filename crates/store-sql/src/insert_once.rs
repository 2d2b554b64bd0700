//! Inserting a row of yours unless it is there.
//!
//! The obvious way, inserting and catching the unique violation, aborts a PostgreSQL transaction. This one does not,
//! and when the row is there it says whether it holds what you meant to write.

use std::fmt;
use std::future::Future;

use sqlx::error::BoxDynError;
use sqlx::{Arguments, AssertSqlSafe, Database, Encode, Row, SqlSafeStr, SqlStr, Type};

use crate::name::{Identifier, InvalidIdentifier};

/// A row that is neither inserted nor found has vanished in between.
const TRIES_MAX: usize = 3;

/// A row to insert unless one with its key is there.
///
/// The key columns need a unique constraint of exactly these columns, and the other columns need an equality (`json`
/// has none; `jsonb` does). A violation of another constraint is an error, as with any insert.
#[must_use = "nothing is inserted until it runs"]
pub struct InsertOnce<'v, C: OnceConnection> {
    table: String,
    columns: Vec<Column<'v, C>>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once<R> {
    /// It is inserted; this is the row.
    Inserted(R),
    /// It was there, and says the same.
    Existing(R),
    /// Another row is there under its key.
    Conflict {
        /// That row.
        existing: R,
        /// The columns in which it differs.
        differs: Vec<String>,
    },
}

/// Why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InsertOnceError {
    /// A table or a column has a name that can't be written into a statement.
    #[error("cannot insert once: a name is wrong")]
    Name(#[from] InvalidIdentifier),
    /// No key column was given.
    #[error("cannot insert once into {0}: it needs at least one key column")]
    NoKey(String),
    /// Others insert and delete the row at the same time. Roll back and try again.
    #[error("cannot insert once into {0}: the row was neither inserted nor found")]
    Vanished(String),
    /// The database refused.
    #[error("cannot insert once into {0}: the database refused")]
    Database(String, #[source] sqlx::Error),
}

type Bind<'v, C> = Box<
    dyn Fn(&mut <<C as OnceConnection>::Database as Database>::Arguments) -> Result<(), BoxDynError> + Send + Sync + 'v,
>;

struct Column<'v, C: OnceConnection> {
    name: String,
    key: bool,
    bind: Bind<'v, C>,
}

impl<'v, C: OnceConnection> InsertOnce<'v, C> {
    /// A row of `table` or `schema.table`.
    pub fn into(table: impl Into<String>) -> Self {
        Self { table: table.into(), columns: Vec::new() }
    }

    /// A column that is part of the key.
    pub fn key<T>(self, name: impl Into<String>, value: T) -> Self
    where
        T: Encode<'v, C::Database> + Type<C::Database> + Clone + Send + Sync + 'v,
    {
        self.column(name.into(), true, value)
    }

    /// Any other column. If a row is there already, its value is compared.
    pub fn value<T>(self, name: impl Into<String>, value: T) -> Self
    where
        T: Encode<'v, C::Database> + Type<C::Database> + Clone + Send + Sync + 'v,
    {
        self.column(name.into(), false, value)
    }

    fn column<T>(mut self, name: String, key: bool, value: T) -> Self
    where
        T: Encode<'v, C::Database> + Type<C::Database> + Clone + Send + Sync + 'v,
    {
        self.columns.push(Column { name, key, bind: Box::new(move |arguments| arguments.add(value.clone())) });
        self
    }

    /// Inserts it, or finds what is there. Neither commits nor rolls back; a row that is there aborts nothing.
    pub async fn run(self, db: &mut C) -> Result<Once<<C::Database as Database>::Row>, InsertOnceError> {
        let statements = Statements::new(&self)?;
        let failed = |error| InsertOnceError::Database(self.table.clone(), error);
        for _ in 0..TRIES_MAX {
            if let Some(row) = db.first(statements.insert.clone(), self.arguments()?).await.map_err(failed)? {
                return Ok(Once::Inserted(row));
            }
            // A second statement, with a snapshot that sees the winner of a race.
            if let Some(row) = db.first(statements.find.clone(), self.arguments()?).await.map_err(failed)? {
                return self.compare(row).map_err(failed);
            }
        }
        Err(InsertOnceError::Vanished(self.table))
    }

    fn arguments(&self) -> Result<<C::Database as Database>::Arguments, InsertOnceError> {
        let mut arguments = <C::Database as Database>::Arguments::default();
        for column in &self.columns {
            let encoded = (column.bind)(&mut arguments).map_err(sqlx::Error::Encode);
            encoded.map_err(|error| InsertOnceError::Database(self.table.clone(), error))?;
        }
        Ok(arguments)
    }

    /// The comparisons stand behind the columns of the table.
    fn compare(
        &self,
        existing: <C::Database as Database>::Row,
    ) -> Result<Once<<C::Database as Database>::Row>, sqlx::Error> {
        let values: Vec<&Column<'v, C>> = self.columns.iter().filter(|column| !column.key).collect();
        let first = existing.len() - values.len();
        let mut differs = Vec::new();
        for (at, column) in values.iter().enumerate() {
            if !C::is_true(&existing, first + at)? {
                differs.push(column.name.clone());
            }
        }
        Ok(if differs.is_empty() { Once::Existing(existing) } else { Once::Conflict { existing, differs } })
    }
}

struct Statements {
    insert: SqlStr,
    find: SqlStr,
}

impl Statements {
    fn new<C: OnceConnection>(row: &InsertOnce<'_, C>) -> Result<Self, InsertOnceError> {
        let table = row.table.split('.').map(Identifier::new).collect::<Result<Vec<_>, _>>()?;
        let table = table.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
        let (mut names, mut marks) = (Vec::new(), Vec::new());
        let (mut keys, mut matches, mut compared) = (Vec::new(), Vec::new(), Vec::new());
        for (at, column) in row.columns.iter().enumerate() {
            let (name, mark) = (Identifier::new(column.name.as_str())?.to_string(), format!("${}", at + 1));
            if column.key {
                matches.push(format!("existing.{name} = {mark}"));
                keys.push(name.clone());
            } else {
                compared.push(format!(", existing.{name} {} {mark} as same_{at}", C::SAME));
            }
            names.push(name);
            marks.push(mark);
        }
        if keys.is_empty() {
            return Err(InsertOnceError::NoKey(row.table.clone()));
        }
        let (names, marks, keys) = (names.join(", "), marks.join(", "), keys.join(", "));
        let insert =
            format!("insert into {table} ({names}) values ({marks}) on conflict ({keys}) do nothing returning *");
        let (compared, matches) = (compared.concat(), matches.join(" and "));
        let find = format!("select existing.*{compared} from {table} as existing where {matches}");
        // Names are checked, values are bound.
        Ok(Self { insert: AssertSqlSafe(insert).into_sql_str(), find: AssertSqlSafe(find).into_sql_str() })
    }
}

/// A connection that can insert once. Not for implementing outside this crate.
pub trait OnceConnection: Send + Sized {
    /// Its database.
    type Database: Database<Connection = Self>;

    /// The operator that compares two values of which either may be null.
    #[doc(hidden)]
    const SAME: &'static str;

    /// Runs a statement and returns its first row.
    #[doc(hidden)]
    fn first(
        &mut self,
        sql: SqlStr,
        arguments: <Self::Database as Database>::Arguments,
    ) -> impl Future<Output = Result<Option<<Self::Database as Database>::Row>, sqlx::Error>> + Send;

    #[doc(hidden)]
    fn is_true(row: &<Self::Database as Database>::Row, at: usize) -> Result<bool, sqlx::Error>;
}

#[cfg(feature = "postgres")]
impl OnceConnection for sqlx::PgConnection {
    type Database = sqlx::Postgres;

    const SAME: &'static str = "is not distinct from";

    async fn first(
        &mut self,
        sql: SqlStr,
        arguments: sqlx::postgres::PgArguments,
    ) -> Result<Option<sqlx::postgres::PgRow>, sqlx::Error> {
        sqlx::query_with(sql, arguments).fetch_optional(self).await
    }

    fn is_true(row: &sqlx::postgres::PgRow, at: usize) -> Result<bool, sqlx::Error> {
        row.try_get(at)
    }
}

#[cfg(feature = "sqlite")]
impl OnceConnection for sqlx::SqliteConnection {
    type Database = sqlx::Sqlite;

    const SAME: &'static str = "is";

    async fn first(
        &mut self,
        sql: SqlStr,
        arguments: sqlx::sqlite::SqliteArguments,
    ) -> Result<Option<sqlx::sqlite::SqliteRow>, sqlx::Error> {
        sqlx::query_with(sql, arguments).fetch_optional(self).await
    }

    fn is_true(row: &sqlx::sqlite::SqliteRow, at: usize) -> Result<bool, sqlx::Error> {
        row.try_get(at)
    }
}

impl<C: OnceConnection> fmt::Debug for InsertOnce<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        f.debug_struct("InsertOnce").field("table", &self.table).field("columns", &names).finish()
    }
}
