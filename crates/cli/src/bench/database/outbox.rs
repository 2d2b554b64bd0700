//! An outbox as it is written by hand: a table, and a poller that takes rows out of it in the transaction in which it
//! publishes them. It keeps no order between pollers, has no lanes, sets nothing aside, and holds a transaction open while it
//! waits for the broker.

use std::future::Future;

use oncebox::Outgoing;
use sqlx::{PgConnection, SqliteConnection};

use super::Statements;

/// A row of it: id, order key, payload.
pub(in crate::bench) type HandRow = (String, Option<String>, Vec<u8>);

/// Its statements.
pub(in crate::bench) trait HandOutbox: Statements {
    /// Empties it, and puts these rows into it.
    fn fill_by_hand(&mut self, rows: &[Outgoing]) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Takes the oldest rows out of it that nobody else has taken.
    fn take_by_hand(&mut self, max: i64) -> impl Future<Output = sqlx::Result<Vec<HandRow>>> + Send;
}

fn id(row: &Outgoing) -> &str {
    row.message.id.as_ref().map_or("", |id| id.as_str())
}

impl HandOutbox for PgConnection {
    async fn fill_by_hand(&mut self, rows: &[Outgoing]) -> sqlx::Result<()> {
        sqlx::raw_sql("truncate hand_outbox").execute(&mut *self).await?;
        for rows in rows.chunks(1_000) {
            let ids: Vec<&str> = rows.iter().map(id).collect();
            let keys: Vec<Option<&str>> = rows.iter().map(|row| row.message.order_key.as_deref()).collect();
            let payloads: Vec<&[u8]> = rows.iter().map(|row| &row.message.payload[..]).collect();
            let insert = "insert into hand_outbox (id, order_key, payload)
                select * from unnest($1::text[], $2::text[], $3::bytea[])";
            sqlx::query(insert).bind(ids).bind(keys).bind(payloads).execute(&mut *self).await?;
        }
        sqlx::raw_sql("vacuum analyze hand_outbox").execute(&mut *self).await?;
        sqlx::raw_sql("checkpoint").execute(self).await.map(drop)
    }

    async fn take_by_hand(&mut self, max: i64) -> sqlx::Result<Vec<HandRow>> {
        let take = "delete from hand_outbox where seq = any (array(
                select seq from hand_outbox order by seq limit $1 for update skip locked
            )) returning id, order_key, payload";
        sqlx::query_as(take).bind(max).fetch_all(self).await
    }
}

impl HandOutbox for SqliteConnection {
    async fn fill_by_hand(&mut self, rows: &[Outgoing]) -> sqlx::Result<()> {
        self.begin().await?;
        sqlx::query("delete from hand_outbox").execute(&mut *self).await?;
        for row in rows {
            let insert = sqlx::query("insert into hand_outbox (id, order_key, payload) values ($1, $2, $3)");
            let insert = insert.bind(id(row)).bind(row.message.order_key.as_deref()).bind(&row.message.payload[..]);
            insert.execute(&mut *self).await?;
        }
        self.commit().await?;
        sqlx::raw_sql("pragma wal_checkpoint(truncate)").execute(self).await.map(drop)
    }

    async fn take_by_hand(&mut self, max: i64) -> sqlx::Result<Vec<HandRow>> {
        let take = "delete from hand_outbox where seq in (select seq from hand_outbox order by seq limit $1)
            returning id, order_key, payload";
        sqlx::query_as(take).bind(max).fetch_all(self).await
    }
}
