//! A consumer on a RabbitMQ queue, with SQLite as its store. Each payment is published twice and counts once.
//!
//! ```sh
//! cargo run -p example-05-consume-from-a-broker -- amqp://guest:guest@127.0.0.1
//! ```

use oncebox::rabbitmq::{QueueKind, Rabbit};
use oncebox::sqlite::Sqlite;
use oncebox::{Consumer, Context, Guarantee, Message, Outcome, Outgoing, Sink, Source};
use serde_json::json;
use sqlx::Connection;

const QUEUE: &str = "example-05-payments";

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

/// What some other service does, and does again because it saw no answer.
async fn publish_twice(rabbit: &Rabbit) -> anyhow::Result<()> {
    let sink = rabbit.sink();
    sink.open().await?;
    for amount in [100, 250] {
        let message = Message::new("payment.received").with_json(&json!({ "invoice_id": 7, "amount": amount }))?;
        let payment = Outgoing { topic: QUEUE.to_owned(), message: message.into() };
        for confirmed in sink.publish(&[payment.clone(), payment]).await {
            confirmed?;
        }
    }
    sink.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "amqp://guest:guest@127.0.0.1".to_owned());
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db").display().to_string();
    let store = Sqlite::open(&file).await?;
    let mut shop = sqlx::SqliteConnection::connect(&format!("sqlite:{file}")).await?;
    sqlx::raw_sql("create table invoices (id integer primary key, paid integer); insert into invoices values (7, 0)")
        .execute(&mut shop)
        .await?;

    let rabbit = Rabbit::new(url);
    let queue = rabbit.source(QUEUE).declare(QueueKind::Classic);
    queue.open(&store).await?; // here already, so that the queue is there; a consumer opens its source itself
    publish_twice(&rabbit).await?;

    let consumer =
        Consumer::new("invoices", store, queue).on("payment.received", record).require(Guarantee::EffectivelyOnce); // or it does not start, and says why
    let stats = consumer.stats();
    let seen = || stats.snapshot();
    let all = async {
        while seen().handled + seen().transport_duplicates < 4 {
            tokio::task::yield_now().await
        }
    };
    consumer.run(all).await?; // a service would wait for oncebox::shutdown::signal()

    let paid: i64 = sqlx::query_scalar("select paid from invoices where id = 7").fetch_one(&mut shop).await?;
    println!("{} handled, {} duplicates, invoice 7 paid: {paid}", seen().handled, seen().transport_duplicates);
    Ok(())
}
