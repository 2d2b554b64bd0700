//! No runtime: the claim in a transaction that you begin and commit yourself.
//!
//! ```sh
//! cargo run -p example-03-your-own-transaction
//! ```

use oncebox::sqlite::{ConsumerInbox, Sqlite, SqliteDialect};
use oncebox::{Claim, KeyStrategy, Message};
use sqlx::{Connection, SqliteConnection};

async fn charge(
    inbox: &ConsumerInbox<SqliteDialect>,
    db: &mut SqliteConnection,
    message: &Message,
) -> anyhow::Result<&'static str> {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    let answer = match inbox.claim_message(&mut tx, message).await? {
        Claim::Fresh => {
            sqlx::query("insert into charges values ('order-17')").execute(&mut *tx).await?;
            "charged"
        }
        Claim::Duplicate(_) => "charged before",
        Claim::Conflict(_) => "another message has this key",
        Claim::Forgotten { .. } => "too old to be known: a person has to look",
        _ => anyhow::bail!("neither inserted nor found: try again"),
    };
    inbox.seal(&mut tx).await?; // fails if the transaction is dead, where COMMIT alone may claim success
    tx.commit().await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db").display().to_string();
    // The name is bound to this key: a consumer that Oncebox runs under the same name and key can take over.
    let key = KeyStrategy::template("order:{order_id}")?;
    let inbox = Sqlite::open(&file).await?.inbox_by("billing", key).await?;
    let mut db = SqliteConnection::connect(&format!("sqlite:{file}")).await?;
    sqlx::raw_sql("create table charges (order_id text)").execute(&mut db).await?;

    let order = Message::new("order.placed").with_payload(r#"{"order_id": 17, "total": 12}"#);
    let other = Message::new("order.placed").with_payload(r#"{"order_id": 17, "total": 99}"#);
    for message in [&order, &order, &other] {
        println!("{}", charge(&inbox, &mut db, message).await?);
    }
    Ok(())
}
