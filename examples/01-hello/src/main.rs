//! The smallest consumer: memory store, memory source, one message delivered twice, one effect.
//!
//! ```sh
//! cargo run -p example-01-hello
//! ```

use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::{Consumer, Context, Message, Outcome};

async fn greet(mut ctx: Context<MemoryStore>, name: String) -> oncebox::Result<Outcome> {
    ctx.db().append("greetings", &format!("hello {name}"))?;
    Ok(Outcome::applied())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (store, source) = (MemoryStore::new(), MemorySource::new());
    let message = Message::new("greet").with_json(&"world")?;
    source.send_all([message.clone(), message]); // delivered twice

    let consumer = Consumer::new("greeter", store.clone(), source.clone()).on("greet", greet);
    consumer
        .run(async {
            while source.backlog() > 0 {
                tokio::task::yield_now().await
            }
        })
        .await?;

    let greetings: Vec<String> = store.with_db(|db| db.rows("greetings")).await?;
    println!("{} deliveries, greetings: {greetings:?}", source.acknowledged());
    Ok(())
}
