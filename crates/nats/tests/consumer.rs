//! A consumer on JetStream, end to end: what is delivered twice takes effect once.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;

use oncebox::memory::MemoryStore;
use oncebox::{Consumer, Context, Message, Outcome, Outgoing, Sink};
use oncebox_testkit::eventually;
use tokio::sync::oneshot;

use common::{Place, server};

async fn note(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("effects", &text)?;
    Ok(Outcome::applied())
}

async fn effects(store: &MemoryStore) -> BTreeMap<String, usize> {
    let all: Vec<String> = store.with_db(|db| db.rows("effects")).await.unwrap();
    let mut counted = BTreeMap::new();
    all.into_iter().for_each(|text| *counted.entry(text).or_default() += 1);
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_take_effect_once() {
    let Some(url) = server("duplicates_take_effect_once") else { return };
    let place = Place::at(url).await;
    // Without the stream's own help, so that the duplicates arrive.
    let sink = place.sink().without_message_id();
    sink.open().await.unwrap();
    let messages: Vec<Outgoing> = (0..200)
        .map(|n| place.to(&place.subject, Message::new("noted").with_json(&format!("m{n}")).unwrap()))
        .collect();
    for _ in 0..3 {
        assert!(sink.publish(&messages).await.iter().all(Result::is_ok));
    }
    assert_eq!(place.stored().await, 600);

    let store = MemoryStore::new();
    let mut running = tokio::task::JoinSet::new();
    let mut stops = Vec::new();
    for _ in 0..2 {
        let (stop, stopped) = oneshot::channel::<()>();
        let consumer = Consumer::new("notes", store.clone(), place.source()).on("noted", note);
        running.spawn(async move {
            consumer
                .run(async {
                    let _ = stopped.await;
                })
                .await
        });
        stops.push(stop);
    }
    eventually("all are settled", async || {
        let stream = place.context.get_stream(&place.stream).await.unwrap();
        let Ok(info) = stream.consumer_info("d").await else { return false };
        info.num_pending == 0 && info.num_ack_pending == 0
    })
    .await;
    drop(stops);
    while let Some(ended) = running.join_next().await {
        ended.unwrap().unwrap();
    }
    let effects = effects(&store).await;
    assert_eq!(effects.len(), 200);
    assert!(effects.values().all(|&count| count == 1), "{effects:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_longer_than_the_lease_keeps_its_message() {
    let Some(url) = server("a_handler_that_takes_longer_than_the_lease_keeps_its_message") else { return };
    let place = Place::at(url).await;
    let sink = place.open_sink().await;
    let message = Message::new("noted").with_json(&"slow").unwrap();
    sink.publish(&[place.to(&place.subject, message)]).await.remove(0).unwrap();
    async fn slow(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
        tokio::time::sleep(common::ACK_WAIT * 2).await;
        ctx.db().append("effects", &text)?;
        Ok(Outcome::applied())
    }
    let store = MemoryStore::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let consumer = Consumer::new("notes", store.clone(), place.source()).on("noted", slow);
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        consumer
            .run(async {
                let _ = stopped.await;
            })
            .await
    });
    eventually("it is settled", async || !effects(&store).await.is_empty() && place.pending().await == 0).await;
    let stream = place.context.get_stream(&place.stream).await.unwrap();
    let info = stream.consumer_info("d").await.unwrap();
    assert_eq!((info.delivered.consumer_sequence, info.num_redelivered), (1, 0), "it was delivered again");
    drop(stop);
    running.join_next().await.unwrap().unwrap().unwrap();
}
