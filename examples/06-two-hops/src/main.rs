//! Two hops over RabbitMQ: a consumer writes an order and emits an event in the same transaction, a relay publishes it, and
//! the next consumer writes an invoice. Each order is published twice; there is one invoice for each.
//!
//! ```sh
//! cargo run -p example-06-two-hops -- amqp://guest:guest@127.0.0.1
//! ```

use std::time::Duration;

use oncebox::outbox::Outbox;
use oncebox::rabbitmq::{QueueKind, Rabbit};
use oncebox::sqlite::Sqlite;
use oncebox::{Consumer, Context, Event, Message, Outcome, Outgoing, Relay, Session, Sink, Source, Store, Transaction};
use sqlx::Connection;

const ORDERS: &str = "example-06-orders";
const INVOICES: &str = "example-06-invoices";

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    number: i64,
    total: i64,
}

async fn accept(mut ctx: Context<Sqlite>, order: Order) -> oncebox::Result<Outcome> {
    let insert = "insert into orders values ($1, $2)";
    sqlx::query(insert).bind(order.number).bind(order.total).execute(ctx.db()).await?;
    // Published if this transaction commits, and only then.
    ctx.emit(Event::new("order.accepted").topic(INVOICES).key(order.number.to_string()).json(&order)?);
    Ok(Outcome::applied())
}

async fn invoice(mut ctx: Context<Sqlite>, order: Order) -> oncebox::Result<Outcome> {
    let insert = "insert into invoices values ($1, $2)";
    sqlx::query(insert).bind(order.number).bind(order.total).execute(ctx.db()).await?;
    Ok(Outcome::applied())
}

/// What a web shop does, and does again because it saw no answer.
async fn publish_twice(rabbit: &Rabbit) -> anyhow::Result<()> {
    let sink = rabbit.sink();
    sink.open().await?;
    for number in 1..=3 {
        let message = Message::new("order.placed").with_json(&Order { number, total: number * 10 })?;
        let order = Outgoing { topic: ORDERS.to_owned(), message: message.into() };
        for confirmed in sink.publish(&[order.clone(), order]).await {
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
    let tables =
        "create table orders (number integer, total integer); create table invoices (number integer, total integer)";
    sqlx::raw_sql(tables).execute(&mut shop).await?;

    let rabbit = Rabbit::new(url);
    let placed = rabbit.source(ORDERS).declare(QueueKind::Classic);
    let accepted = rabbit.source(INVOICES).declare(QueueKind::Classic);
    placed.open(&store).await?; // here already, so that the queue is there; a consumer opens its source itself
    publish_twice(&rabbit).await?;

    let orders = Consumer::new("orders", store.clone(), placed).on("order.placed", accept);
    let invoices = Consumer::new("invoices", store.clone(), accepted).on("order.accepted", invoice);
    let relay = Relay::new(store.clone(), rabbit.sink());

    // A service would wait for oncebox::shutdown::signal().
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let ended = || {
        let mut stopped = stopped.clone();
        async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }
    };
    let (seen, billed) = (orders.stats(), invoices.stats());
    let all = async {
        let copies = || seen.snapshot().handled + seen.snapshot().transport_duplicates;
        while copies() < 6 || billed.snapshot().handled < 3 {
            tokio::task::yield_now().await
        }
        stop.send(true)
    };
    let (orders, invoices, relay, all) =
        tokio::join!(orders.run(ended()), invoices.run(ended()), relay.run(ended()), all);
    orders?;
    invoices?;
    relay?;
    all?;

    let count = "select (select count(*) from orders), (select count(*) from invoices)";
    let (orders, invoices): (i64, i64) = sqlx::query_as(count).fetch_one(&mut shop).await?;
    let mut tx = store.connect().await?.begin(Duration::from_secs(5)).await?;
    let unsent = tx.outbox_backlog().await?.unsent;
    tx.rollback().await;
    println!("{orders} orders, {invoices} invoices, {unsent} messages left to publish");
    Ok(())
}
