//! A consumer on a real queue, with duplicates.

use std::sync::Arc;

use oncebox::memory::MemoryStore;
use oncebox::{Consumer, Context, Message, OrderBy, Outcome};
use oncebox_core::{Outgoing, Sink};
use oncebox_rabbitmq::QueueKind;
use oncebox_testkit::eventually;

use crate::common::{Bystander, name};
use crate::{NOTHING, Plain};

async fn note(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("notes", &text)?;
    Ok(Outcome::applied())
}

async fn notes(store: &MemoryStore) -> Vec<String> {
    store.with_db(|db| db.rows("notes")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_takes_effect_once_and_in_order() {
    let test = "consumer::each_message_takes_effect_once_and_in_order";
    let Some(bystander) = Bystander::find(test).await else { return };
    let queue = name("consumer");
    let store = MemoryStore::new();
    let texts: Vec<String> = (0..100).map(|n| format!("{n:03}")).collect();
    let batch: Vec<Outgoing> = texts
        .iter()
        .map(|text| {
            let message = Message::new("note").with_json(text).unwrap().with_order_key("one");
            Outgoing { topic: queue.clone(), message: Arc::new(message) }
        })
        .collect();
    let source = || bystander.rabbit().source(queue.as_str()).declare(QueueKind::Quorum).single_active();
    let consume = async |count: usize| {
        let consumer = Consumer::new("notes", store.clone(), source()).on("note", note).order_by(OrderBy::MessageKey);
        let done = async {
            eventually("all are handled", async || {
                notes(&store).await.len() == count && bystander.ready(&queue).await == 0
            })
            .await;
        };
        consumer.run(done).await.unwrap();
    };
    // Opening it declares the queue.
    source().start().await.end().await;
    let sink = bystander.rabbit().sink();
    sink.open().await.unwrap();
    // As a relay does that did not hear a confirm: all of it twice.
    for batch in [&batch[..60], &batch[..60]] {
        assert!(sink.publish(batch).await.iter().all(Result::is_ok));
    }
    consume(60).await;
    assert!(sink.publish(&batch).await.iter().all(Result::is_ok));
    consume(100).await;
    assert_eq!(notes(&store).await, texts);
    // All of it was acknowledged: the next one finds nothing.
    let next = source().start().await;
    assert!(next.take(10, NOTHING).await.unwrap().is_empty());
}
