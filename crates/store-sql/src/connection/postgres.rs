//! Statements over a PostgreSQL connection.

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments, Column as _, PgConnection, Row as _, SqlStr, TypeInfo};

use super::{Call, Cell, Column, Connection, Row, Value};

impl Connection for PgConnection {
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

fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
    let cell = |at: usize| -> Result<Cell, sqlx::Error> {
        let known = match row.columns()[at].type_info().name() {
            "INT2" => row.try_get::<Option<i16>, _>(at)?.map(|value| Cell::Int(value.into())),
            "INT4" => row.try_get::<Option<i32>, _>(at)?.map(|value| Cell::Int(value.into())),
            "INT8" => row.try_get::<Option<i64>, _>(at)?.map(Cell::Int),
            "BOOL" => row.try_get::<Option<bool>, _>(at)?.map(|value| Cell::Int(value.into())),
            "BYTEA" => row.try_get::<Option<&[u8]>, _>(at)?.map(|value| Cell::Bytes(Bytes::copy_from_slice(value))),
            _ => row.try_get::<Option<String>, _>(at)?.map(Cell::Text),
        };
        Ok(known.unwrap_or(Cell::Null))
    };
    Ok(Row::new((0..row.len()).map(cell).collect::<Result<_, _>>()?))
}
