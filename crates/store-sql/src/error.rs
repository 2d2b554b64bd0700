//! From a driver's error to ours.

use std::borrow::Cow;
use std::error::Error;

use oncebox_core::code::Code;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::store::DriverError;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgDatabaseError;

/// What a driver's error means. The reason names codes, constraints, tables and columns; never the driver's own text,
/// which may quote values.
pub(crate) fn read(error: &sqlx::Error) -> DriverError {
    use StoreErrorKind::{Corrupt, Refused, TransactionLost, Unavailable};
    let (kind, reason) = match error {
        sqlx::Error::Database(error) => {
            #[cfg(feature = "postgres")]
            if let Some(error) = error.try_downcast_ref::<PgDatabaseError>() {
                return read_postgres(error);
            }
            #[cfg(feature = "sqlite")]
            if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
                return read_sqlite(error.code().unwrap_or_default().parse().unwrap_or(1), error.message());
            }
            (Refused, Cow::from(format!("the database answered {}", error.code().unwrap_or_default())))
        }
        // An I/O error names a system call's failure, no data of ours.
        sqlx::Error::Io(error) => (Unavailable, format!("the connection failed ({error})").into()),
        sqlx::Error::Tls(_) => (Unavailable, "no secure connection could be made (TLS)".into()),
        sqlx::Error::WorkerCrashed => (Unavailable, "the connection's worker thread is gone".into()),
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => (Unavailable, "the pool has no connection".into()),
        sqlx::Error::Protocol(_) => (Unavailable, "the connection is out of step with the server".into()),
        sqlx::Error::BeginFailed => (TransactionLost, "the transaction is aborted".into()),
        sqlx::Error::InvalidSavePointStatement => (TransactionLost, "a transaction was open already".into()),
        sqlx::Error::Configuration(_) => (StoreErrorKind::Configuration, "a connection option is wrong".into()),
        sqlx::Error::RowNotFound => (Refused, "a row that must be there is not".into()),
        sqlx::Error::ColumnNotFound(column) => (Corrupt, format!("there is no column {column}").into()),
        sqlx::Error::ColumnDecode { index, .. } => (Corrupt, format!("column {index} has another type").into()),
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => (Refused, "a parameter cannot be sent".into()),
        _ => (Corrupt, "the driver could not make sense of the answer".into()),
    };
    DriverError { kind, reason: reason.into_owned(), unique: None }
}

/// The error of one of our own statements. What is a mistake in a handler's statement is a wrong schema in ours.
pub(crate) fn ours(attempted: impl Into<String>, error: sqlx::Error) -> StoreError {
    let DriverError { kind, mut reason, .. } = read(&error);
    let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
    let kind = match kind {
        // Ours are quick and right, so the server is in trouble.
        StoreErrorKind::Troubled => StoreErrorKind::Unavailable,
        // 42…: no such table or column, no privilege. 3F000: no such schema. SQLite's 1: no such table or column.
        StoreErrorKind::Refused | StoreErrorKind::Configuration
            if code.starts_with("42") || code == "3F000" || code == "1" =>
        {
            reason.push_str(match page(&code) {
                Some(Code::NoPrivilege) => "; grant it, or use another user",
                _ => "; are the tables of this store as its migrations made them?",
            });
            StoreErrorKind::Configuration
        }
        kind => kind,
    };
    let ours = StoreError::new(kind, attempted, reason).with_source(error);
    match page(&code) {
        Some(page) => ours.with_code(page),
        None => ours,
    }
}

/// The page of an error of one of our own statements that its kind alone does not tell.
fn page(code: &str) -> Option<Code> {
    match code {
        // PostgreSQL: no privilege, or no such user or password. SQLite: denied, read-only, cannot be opened.
        "42501" | "28000" | "28P01" | "3" | "8" | "14" | "23" | "264" | "520" | "776" | "1032" | "1288" | "1544" => {
            Some(Code::NoPrivilege)
        }
        "42P01" | "42703" | "3F000" | "1" => Some(Code::SchemaOld),
        _ => None,
    }
}

/// Finds an error of sqlx in a chain of errors.
pub(crate) fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e sqlx::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<sqlx::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The session's prepared statements are gone, or are there although this session has not made them.
#[cfg(feature = "postgres")]
const SESSION_LOST: &str = "the session's prepared statements are not its own: something ran DEALLOCATE or DISCARD, or a \
    pooler in transaction mode stands in between; connect to the server itself, or use the pooler's session mode";

#[cfg(feature = "postgres")]
fn read_postgres(error: &PgDatabaseError) -> DriverError {
    use StoreErrorKind::{Configuration, Contended, Corrupt, Refused, Stale, TransactionLost, Troubled, Unavailable};
    let code = error.code();
    // Whatever isn't known to be the fault of a statement or its values is the server's: unknown codes are.
    let (kind, what) = match (&code[..2.min(code.len())], code) {
        (_, "40001") => (Contended, "concurrent transactions could not be put in order"),
        (_, "40P01") => (Contended, "a deadlock was broken"),
        (_, "55P03") => (Contended, "a lock was not free in time"),
        // Another session has what this one needs: it is closed, and what ran here runs again.
        (_, "0A000") => (Stale, "the table has changed under a prepared statement, or the server lacks a feature"),
        (_, "26000" | "42P05") => (Stale, SESSION_LOST),
        (_, "57014") => (Troubled, "the statement took too long and was cancelled"),
        (_, "25P02") => (TransactionLost, "a statement failed and its error was swallowed"),
        (_, "25P01") => (TransactionLost, "the transaction has ended"),
        (_, "25P03") => (Troubled, "the transaction was idle for too long and was ended"),
        ("57", _) => (Unavailable, "the server is going down or coming up"),
        (_, "25006") => (Unavailable, "the server takes no writes"),
        ("08", _) => (Unavailable, "the connection failed"),
        (_, "53300") => (Unavailable, "the server has no connection left"),
        (_, "53100") => (Unavailable, "the server's disk is full"),
        ("53", _) => (Unavailable, "the server is short of a resource"),
        ("58", _) => (Unavailable, "the server has trouble with its own system"),
        ("28", _) => (Configuration, "the server refuses this user or password"),
        (_, "3D000") => (Configuration, "there is no such database"),
        (_, "23505") => (Refused, "a unique constraint was violated"),
        (_, "23503") => (Refused, "a foreign key constraint was violated"),
        (_, "23502") => (Refused, "a value must not be null"),
        (_, "23514") => (Refused, "a check constraint was violated"),
        ("23", _) => (Refused, "a constraint was violated"),
        ("22", _) => (Refused, "a value does not fit its type"),
        ("44", _) => (Refused, "a view's check option was violated"),
        ("P0", _) => (Refused, "a function or a trigger raised an error"),
        // The database was changed around the statement, and it will not do before that is changed back.
        (_, "42501") if error.routine() == Some("aclcheck_error") => (Configuration, "this user lacks a privilege"),
        // A policy of row-level security, or a trigger: the row is to blame.
        (_, "42501") => (Refused, "a policy or a trigger forbids it"),
        (_, "42P01") => (Configuration, "there is no such table"),
        (_, "42703") => (Configuration, "there is no such column"),
        (_, "42883") => (Configuration, "there is no such function"),
        (_, "3F000") => (Configuration, "there is no such schema"),
        ("42", _) => (Refused, "the statement is wrong"),
        (_, "XX001" | "XX002") => (Corrupt, "the server reports damaged data"),
        ("XX", _) => (Troubled, "the server reports an internal error"),
        _ => (Troubled, "the server could not run the statement"),
    };
    let mut reason = format!("{what} (SQLSTATE {code}");
    let names = [("constraint", error.constraint()), ("table", error.table()), ("column", error.column())];
    for (label, name) in names.into_iter().filter_map(|(label, name)| Some((label, name?))) {
        reason.push_str(&format!(", {label} {name}"));
    }
    reason.push(')');
    let unique = (code == "23505").then(|| error.constraint().unwrap_or_default().to_owned());
    DriverError { kind, reason, unique }
}

/// `code` is SQLite's extended result code; its low byte is the primary one.
#[cfg(feature = "sqlite")]
fn read_sqlite(code: i32, message: &str) -> DriverError {
    use StoreErrorKind::{Configuration, Contended, Corrupt, Refused, TransactionLost, Troubled, Unavailable};
    let (kind, what) = match (code & 0xff, code) {
        (5, _) => (Contended, "another process holds the database"),
        (6, _) => (Contended, "another connection holds the table"),
        (9, _) => (Contended, "the statement was interrupted"),
        (_, 531) => (TransactionLost, "the handler ran COMMIT itself; it was turned into a rollback"),
        (10, _) => (Unavailable, "reading or writing the file failed"),
        (15, _) => (Unavailable, "the file's locks do not work"),
        (13, _) => (Unavailable, "the disk is full"),
        (7, _) => (Unavailable, "memory is short"),
        (14, _) => (Configuration, "the file cannot be opened"),
        (8, _) => (Configuration, "the file is read-only"),
        (3 | 23, _) => (Configuration, "access to the file was denied"),
        (26, _) => (Configuration, "the file is not a SQLite database"),
        (11, _) => (Corrupt, "the file is damaged"),
        (_, 1555 | 2067) => (Refused, "a unique constraint was violated"),
        (_, 787) => (Refused, "a foreign key constraint was violated"),
        (_, 1299) => (Refused, "a value must not be null"),
        (_, 275) => (Refused, "a check constraint was violated"),
        (19, _) => (Refused, "a constraint was violated"),
        (18 | 20 | 25, _) => (Refused, "a value does not fit"),
        // Somebody has changed the database around the statement.
        (1, _) if message.starts_with("no such table") => (Configuration, "there is no such table"),
        (1, _) if message.contains("no such column") || message.contains("has no column") => {
            (Configuration, "there is no such column")
        }
        (1, _) if message.starts_with("no such function") => (Configuration, "there is no such function"),
        (1, _) => (Refused, "the statement was refused"),
        // 2 internal, 4 aborted, 15 locking protocol, 17 schema changed, 21 misuse, 22 large files, …: never a value's fault.
        _ => (Troubled, "SQLite could not run the statement"),
    };
    // SQLite gives a constraint no name of its own, only "UNIQUE constraint failed: payments.provider, payments.ref".
    let columns = message.split_once("constraint failed: ").map(|(_, columns)| columns.to_owned());
    let unique = columns.filter(|_| matches!(code, 1555 | 2067));
    let on = unique.as_ref().map_or(String::new(), |columns| format!(", on {columns}"));
    DriverError { kind, reason: format!("{what} (SQLite {code}{on})"), unique }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_behind_others() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] sqlx::Error);
        let io = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        assert_eq!(read(find(&Outer(io())).unwrap()).kind, StoreErrorKind::Unavailable);
        assert!(find(&std::io::Error::from(std::io::ErrorKind::Other)).is_none());
        assert_eq!(ours("x", io()).kind(), StoreErrorKind::Unavailable);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_codes_become_kinds() {
        use StoreErrorKind::{Configuration, Contended, Corrupt, Refused, TransactionLost, Troubled, Unavailable};
        let cases = [
            (5, Contended),
            (261, Contended),
            (517, Contended),
            (6, Contended),
            (9, Contended),
            (531, TransactionLost),
            (10, Unavailable),
            (4874, Unavailable),
            (13, Unavailable),
            (7, Unavailable),
            (14, Configuration),
            (8, Configuration),
            (23, Configuration),
            (26, Configuration),
            (11, Corrupt),
            (1555, Refused),
            (2067, Refused),
            (787, Refused),
            (1299, Refused),
            (275, Refused),
            (19, Refused),
            (20, Refused),
            (1, Refused),
            (2, Troubled),
            (4, Troubled),
            (15, Unavailable),
            (17, Troubled),
            (21, Troubled),
            (22, Troubled),
            (1000, Troubled),
        ];
        for (code, kind) in cases {
            assert_eq!(read_sqlite(code, "").kind, kind, "{code}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_unique_constraint_is_named_by_its_columns() {
        let error = read_sqlite(2067, "UNIQUE constraint failed: payments.provider, payments.ref");
        assert_eq!(error.unique.as_deref(), Some("payments.provider, payments.ref"));
        assert!(error.reason.contains("payments.ref"), "{}", error.reason);
        assert_eq!(read_sqlite(1299, "NOT NULL constraint failed: payments.ref").unique, None);
    }
}
