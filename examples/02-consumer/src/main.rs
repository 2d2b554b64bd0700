//! A consumer on SQLite with the embedded queue. Each payment is sent three times and counts once.
//!
//! ```sh
//! cargo run -p example-02-consumer
//! ```

use oncebox::sqlite::Sqlite;
use oncebox::{Consumer, Context, Message, Outcome, Queue};
use serde_json::json;
use sqlx::Connection;

#[derive(serde::Deserialize)]
struct PaymentReceived {
    invoice_id: i64,
    amount: i64,
}

async fn record(mut ctx: Context<Sqlite>, payment: PaymentReceived) -> oncebox::Result<Outcome> {
    sqlx::query("update invoices set paid = paid + $1 where id = $2")
        .bind(payment.amount)
        .bind(payment.invoice_id)
        .execute(ctx.db())
        .await?;
    Ok(Outcome::applied())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db").display().to_string();
    let store = Sqlite::open(&file).await?;
    let mut shop = sqlx::SqliteConnection::connect(&format!("sqlite:{file}")).await?;
    sqlx::raw_sql("create table invoices (id integer primary key, paid integer); insert into invoices values (7, 0)")
        .execute(&mut shop)
        .await?;

    let queue = Queue::new(store.clone(), "payments")?;
    for amount in [100, 250] {
        let message = Message::new("payment.received").with_json(&json!({ "invoice_id": 7, "amount": amount }))?;
        queue.send([message.clone(), message.clone(), message]).await?; // a producer that retries
    }

    let consumer = Consumer::new("invoices", store, queue).on("payment.received", record);
    let stats = consumer.stats();
    let seen = || stats.snapshot();
    let all = async {
        while seen().handled + seen().transport_duplicates < 6 {
            tokio::task::yield_now().await
        }
    };
    consumer.run(all).await?; // a service would wait for oncebox::shutdown::signal()

    let paid: i64 = sqlx::query_scalar("select paid from invoices where id = 7").fetch_one(&mut shop).await?;
    println!("{} handled, {} duplicates, invoice 7 paid: {paid}", seen().handled, seen().transport_duplicates);
    Ok(())
}
