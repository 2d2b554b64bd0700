//! Statements over a PostgreSQL connection.

use bytes::Bytes;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgColumn, PgRow};
use sqlx::{Arguments, Column as _, PgConnection, Row as _, SqlStr, TypeInfo, ValueRef as _};

use super::{Call, Cell, Column, Connection, Row, Value};

impl Connection for PgConnection {
    async fn execute(&mut self, call: Call<'_>) -> Result<u64, sqlx::Error> {
        let (sql, arguments) = (call.query.sql(), arguments(&call)?);
        Ok(sqlx::query_with(sql, arguments).execute(self).await?.rows_affected())
    }

    async fn fetch(&mut self, call: Call<'_>) -> Result<Vec<Row>, sqlx::Error> {
        let (sql, arguments) = (call.query.sql(), arguments(&call)?);
        let rows = sqlx::query_with(sql, arguments).fetch_all(self).await?;
        read_all(&rows)
    }

    async fn script(&mut self, sql: SqlStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(self).await.map(drop)
    }
}

fn arguments(call: &Call<'_>) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for value in &call.values {
        match value {
            Value::I16(value) => arguments.add(value),
            Value::I32(value) => arguments.add(value),
            Value::I64(value) => arguments.add(value),
            Value::Bytes(value) => arguments.add(value),
            Value::Text(value) => arguments.add(value),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    for column in &call.columns {
        match column {
            Column::I16(cells) => arguments.add(cells),
            Column::I32(cells) => arguments.add(cells),
            Column::I64(cells) => arguments.add(cells),
            Column::Bytes(cells) => arguments.add(cells),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// How the values of a column are read.
#[derive(Clone, Copy)]
enum Kind {
    Int,
    Bytes,
    Text,
}

fn kind(column: &PgColumn) -> Kind {
    match column.type_info().name() {
        "INT2" | "INT4" | "INT8" | "BOOL" => Kind::Int,
        "BYTEA" => Kind::Bytes,
        _ => Kind::Text,
    }
}

/// The rows of one answer, which all have the same columns.
fn read_all(rows: &[PgRow]) -> Result<Vec<Row>, sqlx::Error> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let kinds: Vec<Kind> = first.columns().iter().map(kind).collect();
    rows.iter().map(|row| read(row, &kinds)).collect()
}

fn read(row: &PgRow, kinds: &[Kind]) -> Result<Row, sqlx::Error> {
    let cell = |(at, kind): (usize, &Kind)| -> Result<Cell, sqlx::Error> {
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        // What a statement with parameters returns is always in the binary form: numbers with their highest byte first.
        let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
        Ok(match kind {
            Kind::Int => Cell::Int(int(bytes).map_err(sqlx::Error::Decode)?),
            Kind::Bytes => Cell::Bytes(Bytes::copy_from_slice(bytes)),
            Kind::Text => {
                Cell::Text(std::str::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(error.into()))?.into())
            }
        })
    };
    Ok(Row::new(kinds.iter().enumerate().map(cell).collect::<Result<_, _>>()?))
}

fn int(bytes: &[u8]) -> Result<i64, BoxDynError> {
    Ok(match bytes {
        [bool] => i64::from(*bool),
        [a, b] => i16::from_be_bytes([*a, *b]).into(),
        [a, b, c, d] => i32::from_be_bytes([*a, *b, *c, *d]).into(),
        _ => i64::from_be_bytes(bytes.try_into()?),
    })
}
