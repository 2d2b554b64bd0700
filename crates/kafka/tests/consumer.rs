//! A consumer of Oncebox on Kafka, from record to effect.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;

use common::Place;
use oncebox::memory::MemoryStore;
use oncebox::{Consumer, Context, Message, MessageId, OrderBy, Outcome, Outgoing, Sink};
use oncebox_kafka::KafkaSink;
use oncebox_testkit::eventually;

async fn record(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("effects", &text)?;
    Ok(Outcome::applied())
}

async fn effects(store: &MemoryStore) -> Vec<String> {
    store.with_db(|db| db.rows("effects")).await.unwrap()
}

/// What a producer sent twice, and what a new process reads again, takes effect once; the group's offsets end where the
/// topic does.
#[tokio::test(flavor = "multi_thread")]
async fn each_message_takes_effect_once() {
    let Some(place) = Place::or_skip("each_message_takes_effect_once", 3).await else { return };
    let sink = KafkaSink::new(&place.servers);
    sink.open().await.unwrap();
    let outgoing = |n: usize| {
        let message = Message::new("noted").with_id(MessageId::new(format!("m-{n}")).unwrap());
        let message = message.with_order_key(format!("k-{}", n % 7)).with_json(&format!("{n:03}")).unwrap();
        Outgoing { topic: place.topic.clone(), message: Arc::new(message) }
    };
    let store = MemoryStore::new();
    for run in 0..2 {
        // The second run sends the last half of the first again, and as much that is new.
        let batch: Vec<Outgoing> = (run * 50..run * 50 + 100).flat_map(|n| [outgoing(n), outgoing(n)]).collect();
        assert!(sink.publish(&batch).await.iter().all(Result::is_ok));
        let wanted = 100 + 50 * run;
        let ends = [0, 1, 2].map(|partition| place.end(partition));
        let consumer =
            Consumer::new("notes", store.clone(), place.source()).on("noted", record).order_by(OrderBy::MessageKey);
        let drained = consumer
            .run(async {
                eventually("every effect is there", async || effects(&store).await.len() >= wanted).await;
                for (partition, end) in (0..).zip(ends) {
                    place.await_committed(partition, end).await;
                }
            })
            .await;
        drained.unwrap();
        let mut seen = effects(&store).await;
        for key in 0..7 {
            let of_key = seen.iter().filter(|text| text.parse::<usize>().unwrap() % 7 == key);
            assert!(of_key.is_sorted(), "in order");
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..wanted).map(|n| format!("{n:03}")).collect::<Vec<_>>());
    }
}
