//! The test kit for users' handlers, on a handler that is right and on one that is not.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]
#![cfg(feature = "crashpoints")]

use oncebox::memory::MemoryStore;
use oncebox::{Consumer, Context, KeyStrategy, Message, MessageId, Outcome, Source};
use oncebox_testkit::handler as kit;
use oncebox_testkit::handler::{Subject, Until};
use serde_json::json;

/// Credits an account. With its claim it is right; registered as if it were idempotent by nature, it is not.
struct Credits {
    claims: bool,
}

async fn credit(mut ctx: Context<MemoryStore>, amount: Amount) -> oncebox::Result<Outcome> {
    let balance: u64 = ctx.db().get("accounts", "a")?.unwrap_or(0);
    ctx.db().put("accounts", "a", &(balance + amount.amount))?;
    Ok(Outcome::applied())
}

#[derive(serde::Deserialize)]
struct Amount {
    amount: u64,
}

fn message(id: &str, payment: u64, amount: u64) -> Message {
    let message = Message::new("credit").with_id(MessageId::new(id).unwrap());
    message.with_json(&json!({ "payment": payment, "amount": amount })).unwrap()
}

impl Subject for Credits {
    type Store = MemoryStore;
    type State = Option<u64>;

    async fn fresh(&self) -> MemoryStore {
        MemoryStore::new()
    }
    fn message(&self) -> Message {
        message("1", 1, 5)
    }
    fn another(&self) -> Message {
        message("2", 2, 7)
    }
    fn same_intent(&self) -> Option<Message> {
        Some(message("3", 1, 5))
    }
    async fn consume<Src: Source<MemoryStore>>(&self, store: MemoryStore, source: Src, until: Until) {
        let consumer =
            Consumer::new("credits", store, source).business_key(KeyStrategy::template("payment:{payment}").unwrap());
        let consumer = match self.claims {
            true => consumer.on("credit", credit),
            false => consumer.on_idempotent("credit", credit),
        };
        consumer.run(until).await.unwrap();
    }
    async fn state(&self, store: &MemoryStore) -> Option<u64> {
        store.with_db(|db| db.get("accounts", "a")).await.unwrap()
    }
}

oncebox_testkit::handler_suite!(Credits { claims: true });

#[tokio::test]
#[should_panic(expected = "what the tables hold")]
async fn a_relative_update_without_a_claim_is_caught_by_a_duplicate() {
    kit::run(Credits { claims: false }, kit::a_sequential_duplicate_changes_nothing).await;
}

#[tokio::test]
#[should_panic(expected = "what the tables hold")]
async fn a_relative_update_without_a_claim_is_caught_by_a_lost_ack() {
    kit::run(Credits { claims: false }, kit::a_crash_after_the_commit_and_before_the_ack_heals).await;
}
