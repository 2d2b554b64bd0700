//! Statements over a SQLite connection.

use std::fmt::Write;

use bytes::Bytes;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Row as _, SqlStr, SqliteConnection, TypeInfo, ValueRef};

use super::{Call, Cell, Column, Connection, Row, Value};

impl Connection for SqliteConnection {
    async fn execute(&mut self, call: Call<'_>) -> Result<u64, sqlx::Error> {
        let (sql, arguments) = (call.query.sql(), arguments(&call)?);
        Ok(sqlx::query_with(sql, arguments).execute(self).await?.rows_affected())
    }

    async fn fetch(&mut self, call: Call<'_>) -> Result<Vec<Row>, sqlx::Error> {
        let (sql, arguments) = (call.query.sql(), arguments(&call)?);
        let rows = sqlx::query_with(sql, arguments).fetch_all(self).await?;
        rows.iter().map(read).collect()
    }

    async fn script(&mut self, sql: SqlStr) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(sql).execute(self).await.map(drop)
    }
}

fn arguments(call: &Call<'_>) -> Result<SqliteArguments, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
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
    if !call.columns.is_empty() {
        arguments.add(json_rows(&call.columns)).map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The rows as a JSON array of arrays, bytes in hexadecimal: SQLite has no array parameters.
fn json_rows(columns: &[Column<'_>]) -> String {
    let rows = columns.first().map_or(0, Column::len);
    let mut json = String::from("[");
    for row in 0..rows {
        json.push_str(if row == 0 { "[" } else { ",[" });
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                json.push(',');
            }
            column.write_json(row, &mut json);
        }
        json.push(']');
    }
    json.push(']');
    json
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::I16(cells) => cells.len(),
            Self::I32(cells) => cells.len(),
            Self::I64(cells) => cells.len(),
            Self::Bytes(cells) => cells.len(),
        }
    }

    fn write_json(&self, row: usize, json: &mut String) {
        let number = match self {
            Self::I16(cells) => cells[row].map(i64::from),
            Self::I32(cells) => cells[row].map(i64::from),
            Self::I64(cells) => cells[row],
            Self::Bytes(cells) => return write_hex(cells[row], json),
        };
        match number {
            // Writing to a string does not fail.
            Some(number) => _ = write!(json, "{number}"),
            None => json.push_str("null"),
        }
    }
}

fn write_hex(bytes: Option<&[u8]>, json: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let Some(bytes) = bytes else { return json.push_str("null") };
    json.reserve(bytes.len() * 2 + 2);
    json.push('"');
    for byte in bytes {
        json.push(char::from(DIGITS[usize::from(byte >> 4)]));
        json.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    json.push('"');
}

fn read(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let cell = |at: usize| -> Result<Cell, sqlx::Error> {
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            return Ok(Cell::Null);
        }
        // The type of the value itself: an expression has no declared one.
        Ok(match value.type_info().name() {
            "INTEGER" | "BOOLEAN" => Cell::Int(row.try_get_unchecked(at)?),
            "BLOB" => Cell::Bytes(Bytes::copy_from_slice(row.try_get_unchecked(at)?)),
            _ => Cell::Text(row.try_get_unchecked(at)?),
        })
    };
    Ok(Row::new((0..row.len()).map(cell).collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_json() {
        let columns = [
            Column::from_iter([Some(1_i16), Some(-2)]),
            Column::from_iter([Some(&b"\x00\xff"[..]), None]),
            Column::from_iter([None, Some(i64::MIN)]),
        ];
        assert_eq!(json_rows(&columns), r#"[[1,"00ff",null],[-2,null,-9223372036854775808]]"#);
    }
}
