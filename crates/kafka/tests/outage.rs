//! The broker is killed and comes back. A program of its own, because no other test survives that.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Broker, Place, ack, close, receive_all, texts};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Message, Outgoing, Sink, SinkErrorKind, Source, SourceErrorKind};
use oncebox_kafka::{KafkaSink, KafkaSource};
use oncebox_testkit::{eventually, eventually_within};

async fn receives(source: &KafkaSource) -> Result<Vec<String>, SourceErrorKind> {
    let got = Source::<MemoryStore>::receive(source, 100, Duration::from_millis(50)).await;
    match got {
        Ok(got) => {
            let said = texts(&got);
            ack(source, got).await;
            Ok(said)
        }
        Err(error) => Err(error.kind()),
    }
}

/// One kill for all of it, because a restart is slow. While the broker is away, a source says so, and can be closed;
/// afterwards it goes on by itself, and nothing is lost. A sink that was in the middle of publishing: what was confirmed is
/// there, and what was not is published again.
#[tokio::test]
async fn a_source_and_a_sink_outlive_their_broker() {
    let Some(mut broker) = Broker::or_skip("a_source_and_a_sink_outlive_their_broker").await else { return };
    let Some(place) = Place::or_skip("a_source_and_a_sink_outlive_their_broker", 1).await else { return };
    place.send(0, ["1", "2", "3"].map(str::to_owned)).await;
    let source = place.open().await;
    let mut in_hand = receive_all(&source, 3).await;
    let other = Place::on(&place.servers, 1, &[]).await;
    other.send(0, ["1".to_owned()]).await;
    let closed = other.open().await;
    ack(&closed, receive_all(&closed, 1).await).await;
    let published = Place::on(&place.servers, 2, &[]).await;
    let sink = KafkaSink::new(&place.servers).timeout(Duration::from_secs(2)).answer(Duration::from_secs(2));
    sink.open().await.unwrap();

    let ((sent, mut unsent), ()) = tokio::join!(publish_until_it_fails(&sink, &published.topic), broker.kill());
    for source in [&source, &closed] {
        eventually("it says that the broker is away", async || {
            receives(source).await == Err(SourceErrorKind::Unavailable)
        })
        .await;
    }
    tokio::time::timeout(Duration::from_secs(8), close(&closed)).await.unwrap();
    let kept = in_hand.split_off(2);
    ack(&source, in_hand).await;
    broker.restart().await;

    place.send(0, ["4".to_owned()]).await;
    let mut said = Vec::new();
    eventually_within(Duration::from_secs(120), "what is new comes", async || {
        said.extend(receives(&source).await.unwrap_or_default());
        said.iter().any(|text| text == "4")
    })
    .await;
    // What was acknowledged while nobody heard it, and what was in hand, may come again: the broker forgot us meanwhile.
    let again: Vec<&String> = said.iter().filter(|text| *text != "4").collect();
    assert!(again.is_empty() || again == ["1", "2", "3"], "{said:?}");
    ack(&source, kept).await;
    place.await_committed(0, 4).await;
    close(&source).await;

    eventually_within(Duration::from_secs(120), "all is confirmed", async || {
        let mut answers = sink.publish(&unsent).await.into_iter();
        unsent.retain(|_| answers.next().unwrap().is_err());
        unsent.is_empty()
    })
    .await;
    let reader = published.open().await;
    let mut arrived = BTreeSet::new();
    eventually("everything has arrived", async || {
        arrived.extend(receives(&reader).await.unwrap());
        arrived == sent
    })
    .await;
}

/// What was published, and what of it was not confirmed.
async fn publish_until_it_fails(sink: &KafkaSink, topic: &str) -> (BTreeSet<String>, Vec<Outgoing>) {
    let (mut sent, mut unsent) = (BTreeSet::new(), Vec::new());
    for round in 0.. {
        let text = |n: usize| format!("{round}-{n}");
        let outgoing =
            |n| Outgoing { topic: topic.to_owned(), message: Arc::new(Message::new("noted").with_payload(text(n))) };
        let batch: Vec<Outgoing> = (0..200).map(outgoing).collect();
        sent.extend((0..200).map(text));
        let answers = sink.publish(&batch).await;
        for (outgoing, answer) in batch.into_iter().zip(answers) {
            if let Err(error) = answer {
                assert_eq!(error.kind(), SinkErrorKind::Unavailable, "{error}");
                unsent.push(outgoing);
            }
        }
        if !unsent.is_empty() {
            break;
        }
    }
    (sent, unsent)
}
