//! What the roles need of a connection: run one statement with parameters, fetch rows.
//!
//! The trait stands between the roles and sqlx's `Database` generics, which would otherwise spread over every function
//! in this crate. Values are few (numbers, bytes, text), so an enum says it all.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::future::Future;

use bytes::Bytes;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::time::Timestamp;
use sqlx::SqlStr;

use crate::error::ours;
use crate::queries::Query;

/// A connection to a database.
pub trait Connection: Send {
    /// Runs a statement and returns how many rows it changed.
    fn execute(&mut self, call: Call<'_>) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Runs a statement and returns its rows.
    fn fetch(&mut self, call: Call<'_>) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;

    /// Runs several statements that take no parameters and return nothing.
    fn script(&mut self, sql: SqlStr) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// A statement with its parameters: first the single values, then the columns of a set.
///
/// PostgreSQL takes each column as an array; SQLite takes all columns together as one JSON array of rows.
#[derive(Debug)]
pub struct Call<'v> {
    query: &'v Query,
    values: Vec<Value<'v>>,
    columns: Vec<Column<'v>>,
    attempted: &'static str,
}

impl<'v> Call<'v> {
    /// A call of `query`; `attempted` completes "cannot …" in its error.
    pub(crate) fn new(attempted: &'static str, query: &'v Query) -> Self {
        Self { query, values: Vec::new(), columns: Vec::new(), attempted }
    }

    /// Adds a single value.
    pub(crate) fn value(mut self, value: impl Into<Value<'v>>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Adds a column. All columns of a call have the same length.
    pub(crate) fn column<T>(mut self, cells: impl IntoIterator<Item = T>) -> Self
    where
        Column<'v>: FromIterator<T>,
    {
        self.columns.push(cells.into_iter().collect());
        self
    }

    /// Runs it and returns how many rows it changed.
    pub(crate) async fn execute(self, db: &mut impl Connection) -> Result<u64, StoreError> {
        let attempted = self.attempted;
        db.execute(self).await.map_err(|error| ours(attempted, error))
    }

    /// Runs it and returns its rows.
    pub(crate) async fn fetch(self, db: &mut impl Connection) -> Result<Vec<Row>, StoreError> {
        let attempted = self.attempted;
        db.fetch(self).await.map_err(|error| ours(attempted, error))
    }
}

/// A single parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'v> {
    /// `int2`.
    I16(i16),
    /// `int4`.
    I32(Option<i32>),
    /// `int8`.
    I64(Option<i64>),
    /// `bytea` or `blob`.
    Bytes(&'v [u8]),
    /// `text`.
    Text(Option<&'v str>),
}

impl From<i16> for Value<'_> {
    fn from(value: i16) -> Self {
        Self::I16(value)
    }
}

impl From<Option<i32>> for Value<'_> {
    fn from(value: Option<i32>) -> Self {
        Self::I32(value)
    }
}

impl From<i32> for Value<'_> {
    fn from(value: i32) -> Self {
        Self::I32(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::I64(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::I64(Some(value))
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(value: &'v [u8]) -> Self {
        Self::Bytes(value)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(value: &'v str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'v> From<Option<&'v str>> for Value<'v> {
    fn from(value: Option<&'v str>) -> Self {
        Self::Text(value)
    }
}

/// One column of a set of rows.
#[derive(Debug)]
pub(crate) enum Column<'v> {
    /// `int2`.
    I16(Vec<Option<i16>>),
    /// `int4`.
    I32(Vec<Option<i32>>),
    /// `int8`.
    I64(Vec<Option<i64>>),
    /// `bytea` or `blob`.
    Bytes(Vec<Option<&'v [u8]>>),
}

impl FromIterator<Option<i16>> for Column<'_> {
    fn from_iter<I: IntoIterator<Item = Option<i16>>>(cells: I) -> Self {
        Self::I16(cells.into_iter().collect())
    }
}

impl FromIterator<Option<i32>> for Column<'_> {
    fn from_iter<I: IntoIterator<Item = Option<i32>>>(cells: I) -> Self {
        Self::I32(cells.into_iter().collect())
    }
}

impl FromIterator<Option<i64>> for Column<'_> {
    fn from_iter<I: IntoIterator<Item = Option<i64>>>(cells: I) -> Self {
        Self::I64(cells.into_iter().collect())
    }
}

impl<'v> FromIterator<Option<&'v [u8]>> for Column<'v> {
    fn from_iter<I: IntoIterator<Item = Option<&'v [u8]>>>(cells: I) -> Self {
        Self::Bytes(cells.into_iter().collect())
    }
}

/// A row that came back, read from left to right.
#[derive(Debug)]
pub struct Row {
    cells: std::vec::IntoIter<Cell>,
}

/// One value of a row.
#[derive(Debug)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Bytes(Bytes),
    Text(String),
}

impl Row {
    fn new(cells: Vec<Cell>) -> Self {
        Self { cells: cells.into_iter() }
    }

    /// The next value, a number that may be null.
    pub(crate) fn int_or_null<N: TryFrom<i64>>(&mut self) -> Result<Option<N>, StoreError> {
        match self.cells.next() {
            Some(Cell::Null) => Ok(None),
            Some(Cell::Int(value)) => N::try_from(value).map(Some).map_err(|_| corrupt("a number out of its range")),
            _ => Err(corrupt("something else than a number")),
        }
    }

    /// The next value, a number.
    pub(crate) fn int<N: TryFrom<i64>>(&mut self) -> Result<N, StoreError> {
        self.int_or_null()?.ok_or_else(|| corrupt("no number"))
    }

    /// The next value, bytes that may be null.
    pub(crate) fn bytes_or_null(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.cells.next() {
            Some(Cell::Null) => Ok(None),
            Some(Cell::Bytes(bytes)) => Ok(Some(bytes)),
            _ => Err(corrupt("something else than bytes")),
        }
    }

    /// The next value, bytes.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        self.bytes_or_null()?.ok_or_else(|| corrupt("no bytes"))
    }

    /// The next value, a text that may be null.
    pub(crate) fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        match self.cells.next() {
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(text)) => Ok(Some(text)),
            _ => Err(corrupt("something else than text")),
        }
    }

    /// The next value, a text.
    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.text_or_null()?.ok_or_else(|| corrupt("no text"))
    }

    /// The next value, a time in microseconds since 1970 that may be null.
    pub(crate) fn time_or_null(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let micros = self.int_or_null()?;
        micros.map(Timestamp::from_microsecond).transpose().map_err(|_| corrupt("a time that no timestamp can hold"))
    }

    /// The next value, a time in microseconds since 1970.
    pub(crate) fn time(&mut self) -> Result<Timestamp, StoreError> {
        self.time_or_null()?.ok_or_else(|| corrupt("no time"))
    }
}

/// What the store returned makes no sense.
pub(crate) fn corrupt(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "read a row", format!("the store returned {what}"))
}
