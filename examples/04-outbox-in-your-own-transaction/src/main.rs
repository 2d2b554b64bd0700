//! No runtime: messages to publish, added in a transaction that you begin and commit yourself.
//!
//! ```sh
//! cargo run -p example-04-outbox-in-your-own-transaction
//! ```

use std::time::Duration;

use oncebox::outbox::Outbox;
use oncebox::sqlite::{Emitter, Sqlite, SqliteDialect};
use oncebox::{Message, MessageId, Outgoing, Session, Store, Transaction};
use sqlx::{Connection, SqliteConnection};

async fn place_order(
    emitter: &Emitter<SqliteDialect>,
    db: &mut SqliteConnection,
    order: &str,
    total: i64,
) -> anyhow::Result<()> {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("insert into orders values ($1, $2)").bind(order).bind(total).execute(&mut *tx).await?;
    let placed = Message::new("order.placed")
        .with_id(MessageId::new(format!("{order}-placed"))?) // the same however often it is published
        .with_order_key(order)
        .with_json(&total)?;
    emitter.emit(&mut tx, &[Outgoing { topic: "orders".to_owned(), message: placed.into() }]).await?;
    anyhow::ensure!(total > 0, "nothing to pay"); // the transaction is dropped: no order, no message
    tx.commit().await?;
    emitter.committed(); // a relay in this process need not wait for its next look
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db").display().to_string();
    let store = Sqlite::open(&file).await?;
    let emitter = store.emitter();
    let mut db = SqliteConnection::connect(&format!("sqlite:{file}")).await?;
    sqlx::raw_sql("create table orders (id text primary key, total integer)").execute(&mut db).await?;

    for (order, total) in [("order-17", 12), ("order-18", 0), ("order-17", 12), ("order-19", 99)] {
        match place_order(&emitter, &mut db, order, total).await {
            Ok(()) => println!("{order} is placed"),
            Err(_) => println!("{order} is not placed"),
        }
    }
    let mut tx = store.connect().await?.begin(Duration::from_secs(5)).await?;
    println!("{} messages to publish", tx.outbox_backlog().await?.unsent);
    tx.rollback().await;
    Ok(())
}
