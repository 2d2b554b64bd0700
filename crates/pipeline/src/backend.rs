//! What differs between stores: how a statement is prepared, and how values of a message are bound.

use std::future::Future;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use oncebox::counters::CounterStore;
use oncebox::decimal::Decimal;
use oncebox::depths::DepthStore;
use oncebox::postgres::Postgres;
use oncebox::quarantine::QuarantineStore;
use oncebox::queue::QueueStore;
use oncebox::sqlite::Sqlite;
use oncebox::{Store, Transaction};
use sqlx::postgres::types::Oid;
use sqlx::{AssertSqlSafe, Either, Executor, PgConnection, SqlSafeStr as _, SqliteConnection, Statement as _};

use crate::payload::Value;
use crate::sql::{Path, Statement};

/// A connection in a message's transaction.
pub(crate) type Db<S> = <<S as Store>::Tx as Transaction>::Db;

/// A statement that the server has seen.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    sql: Arc<str>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) expect: Option<u64>,
    /// It answers with rows, which are what `expect` counts.
    answers: bool,
}

/// What is bound at one place.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) path: Path,
    /// The server takes JSON there.
    is_json: bool,
}

/// A store that statements of a file can run on.
pub(crate) trait Backend: QueueStore + QuarantineStore + CounterStore + DepthStore {
    /// Shows a statement to the server, which finds what is wrong with it.
    fn prepare(db: &mut Db<Self>, statement: &Statement) -> impl Future<Output = Result<Prepared, sqlx::Error>> + Send;

    /// Runs a list of statements of the user's own.
    fn script(db: &mut Db<Self>, script: String) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Runs it, and answers how many rows it touched.
    fn execute(
        db: &mut Db<Self>,
        prepared: &Prepared,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// What a database says of a statement at the start, when there are no values in it. The driver's own text adds where in
/// the server's source that was, as "at line 1188", which looks like a line of the file.
pub(crate) fn says(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

impl Backend for Postgres {
    /// The server says which type each parameter has. Values are bound as texts and cast to it there, so that every type
    /// is possible, and numbers keep their digits.
    async fn prepare(db: &mut PgConnection, statement: &Statement) -> Result<Prepared, sqlx::Error> {
        let untyped = statement.render(|number| format!("${number}"));
        let seen = db.prepare(AssertSqlSafe(untyped).into_sql_str()).await?;
        let answers = !seen.columns().is_empty();
        let oids: Vec<Oid> = match seen.parameters() {
            Some(Either::Left(types)) => types.iter().map(|info| info.oid().unwrap_or(TEXT)).collect(),
            _ => Vec::new(),
        };
        let types: Vec<String> =
            sqlx::query_scalar(include_str!("queries/parameter_types.sql")).bind(oids).fetch_all(&mut *db).await?;
        let kind = |number: usize| types.get(number - 1).map_or("text", String::as_str);
        let sql = statement.render(|number| format!("(${number}::text)::{}", kind(number)));
        // As it will run: what a cast can't do is found now.
        db.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await?;
        let parameters = statement.parameters.iter().enumerate().map(|(place, path)| Parameter {
            path: path.clone(),
            is_json: matches!(kind(place + 1), "json" | "jsonb"),
        });
        Ok(Prepared { sql: sql.into(), parameters: parameters.collect(), expect: statement.expect, answers })
    }

    async fn script(db: &mut PgConnection, script: String) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(script)).execute(db).await.map(drop)
    }

    async fn execute(db: &mut PgConnection, prepared: &Prepared, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&prepared.sql)));
        for (value, parameter) in values.into_iter().zip(&prepared.parameters) {
            query = query.bind(if parameter.is_json { value.into_json() } else { value.into_text() });
        }
        // The server counts what a SELECT answers, too.
        Ok(query.execute(db).await?.rows_affected())
    }
}

/// The type `text`, for a parameter that has none.
const TEXT: Oid = Oid(25);

impl Backend for Sqlite {
    async fn prepare(db: &mut SqliteConnection, statement: &Statement) -> Result<Prepared, sqlx::Error> {
        let sql = statement.render(|number| format!("${number}"));
        let seen = db.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await?;
        let answers = !seen.columns().is_empty();
        let parameters = statement.parameters.iter().map(|path| Parameter { path: path.clone(), is_json: false });
        Ok(Prepared { sql: sql.into(), parameters: parameters.collect(), expect: statement.expect, answers })
    }

    async fn script(db: &mut SqliteConnection, script: String) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(AssertSqlSafe(script)).execute(db).await.map(drop)
    }

    async fn execute(db: &mut SqliteConnection, prepared: &Prepared, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&prepared.sql)));
        for value in values {
            query = match value {
                Value::Null => query.bind(None::<i64>),
                Value::Boolean(value) => query.bind(i64::from(value)),
                Value::Number(digits) => match (digits.parse::<i64>(), Decimal::exact_float(&digits)) {
                    (Ok(number), _) => query.bind(number),
                    (Err(_), Some(number)) if digits.contains(['.', 'e', 'E']) => query.bind(number),
                    // More digits than SQLite has numbers for stay digits.
                    _ => query.bind(digits),
                },
                Value::Text(text) | Value::Compound(text) => query.bind(text),
            };
        }
        if !prepared.answers {
            return Ok(query.execute(db).await?.rows_affected());
        }
        // A SELECT changes nothing, and SQLite then tells how much the statement before it has changed.
        let mut rows = query.fetch(db);
        let mut count = 0;
        while rows.try_next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}
