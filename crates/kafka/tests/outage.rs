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

/// While the broker is away, a source says so; afterwards it goes on by itself, and nothing is lost.
#[tokio::test]
async fn a_source_outlives_its_broker() {
    let Some(mut broker) = Broker::or_skip("a_source_outlives_its_broker").await else { return };
    let Some(place) = Place::or_skip("a_source_outlives_its_broker", 1).await else { return };
    place.send(0, ["1", "2", "3"].map(str::to_owned)).await;
    let source = place.open().await;
    let mut in_hand = receive_all(&source, 3).await;
    broker.kill().await;
    eventually("it says that the broker is away", async || {
        receives(&source).await == Err(SourceErrorKind::Unavailable)
    })
    .await;
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
}

/// Closing ends although nobody answers.
#[tokio::test]
async fn a_source_can_be_closed_while_its_broker_is_away() {
    let Some(mut broker) = Broker::or_skip("a_source_can_be_closed_while_its_broker_is_away").await else { return };
    let Some(place) = Place::or_skip("a_source_can_be_closed_while_its_broker_is_away", 1).await else { return };
    place.send(0, ["1".to_owned()]).await;
    let source = place.open().await;
    ack(&source, receive_all(&source, 1).await).await;
    broker.kill().await;
    eventually("it says that the broker is away", async || receives(&source).await.is_err()).await;
    tokio::time::timeout(Duration::from_secs(8), close(&source)).await.unwrap();
}

/// Killed in the middle of publishing: what was confirmed is there, what was not is published again and then there.
#[tokio::test]
async fn a_sink_outlives_its_broker() {
    let Some(mut broker) = Broker::or_skip("a_sink_outlives_its_broker").await else { return };
    let Some(place) = Place::or_skip("a_sink_outlives_its_broker", 2).await else { return };
    let sink = KafkaSink::new(&place.servers).timeout(Duration::from_secs(2)).answer(Duration::from_secs(2));
    sink.open().await.unwrap();
    let batch = |round: usize| -> Vec<Outgoing> {
        let outgoing = |n: usize| Outgoing {
            topic: place.topic.clone(),
            message: Arc::new(Message::new("noted").with_payload(format!("{round}-{n}"))),
        };
        (0..200).map(outgoing).collect()
    };
    let said = |outgoing: &Outgoing| String::from_utf8_lossy(&outgoing.message.payload).into_owned();
    let (mut sent, mut unsent) = (BTreeSet::new(), Vec::new());
    let publishing = async {
        for round in 0.. {
            let batch = batch(round);
            let answers = sink.publish(&batch).await;
            for (outgoing, answer) in batch.into_iter().zip(answers) {
                sent.insert(said(&outgoing));
                if let Err(error) = answer {
                    assert_eq!(error.kind(), SinkErrorKind::Unavailable, "{error}");
                    unsent.push(outgoing);
                }
            }
            if !unsent.is_empty() {
                return;
            }
        }
    };
    tokio::join!(publishing, broker.kill());
    broker.restart().await;
    eventually_within(Duration::from_secs(120), "all is confirmed", async || {
        let answers = sink.publish(&unsent).await;
        let mut answers = answers.into_iter();
        unsent.retain(|_| answers.next().unwrap().is_err());
        unsent.is_empty()
    })
    .await;
    let source = place.open().await;
    let mut arrived = BTreeSet::new();
    eventually("everything has arrived", async || {
        arrived.extend(receives(&source).await.unwrap());
        arrived == sent
    })
    .await;
}
