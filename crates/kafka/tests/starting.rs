//! What is told when reading cannot begin, and where it begins.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{ANSWER, Place, ack, admin, close, open, random, receive_all, servers_or_skip, texts};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Source, SourceError, SourceErrorKind};
use oncebox_kafka::{KafkaSource, Start};
use oncebox_testkit::eventually;
use rdkafka::admin::AdminOptions;
use rdkafka::{Offset, TopicPartitionList};

async fn cannot_open(source: &KafkaSource) -> SourceError {
    Source::<MemoryStore>::open(source, &MemoryStore::new()).await.expect_err("it cannot be opened")
}

/// What `receive` fails with, sooner or later.
async fn cannot_receive(source: &KafkaSource) -> SourceError {
    eventually("receiving fails", async || {
        Source::<MemoryStore>::receive(source, 10, Duration::from_millis(50)).await.err()
    })
    .await
}

#[tokio::test]
async fn without_a_broker_the_address_is_named() {
    let source = KafkaSource::new("127.0.0.1:1", "readers", "orders").answer(Duration::from_millis(500));
    let error = cannot_open(&source).await;
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    let said = error.to_string();
    assert!(said.contains("127.0.0.1:1") && said.contains("orders"), "{said}");
    // A password in the list of brokers would be looked up as a host.
    let source = KafkaSource::new("ada:CANARY@127.0.0.1:1", "readers", "orders");
    let error = cannot_open(&source).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    let said = error.to_string();
    assert!(!said.contains("CANARY") && !format!("{source:?}").contains("CANARY"), "{said}");
}

#[tokio::test]
async fn a_missing_topic_is_named() {
    let Some(servers) = servers_or_skip("a_missing_topic_is_named") else { return };
    let topic = random("missing");
    let error = cannot_open(&KafkaSource::new(servers, "readers", &topic)).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    assert!(error.to_string().contains(&format!("there is no topic {topic}")), "{error}");
}

#[tokio::test]
async fn a_setting_that_promises_rest_on_is_refused() {
    for (name, value) in [("enable.auto.commit", "true"), ("auto.offset.reset", "latest"), ("group.id", "other")] {
        let error = cannot_open(&KafkaSource::new("127.0.0.1:1", "readers", "orders").setting(name, value)).await;
        assert_eq!(error.kind(), SourceErrorKind::Configuration);
        assert!(error.to_string().contains(name), "{error}");
    }
    let named = KafkaSource::new("127.0.0.1:1", "g", "t").setting("group.instance.id", "a");
    let error = cannot_open(&named.setting("partition.assignment.strategy", "cooperative-sticky")).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    assert!(error.to_string().contains("leave out one of the two"), "{error}");
    let error = cannot_open(&KafkaSource::new("127.0.0.1:1", "g", "t").setting("session.timeout.ms", "CANARY")).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    assert!(!error.to_string().contains("CANARY"), "{error}");
}

/// A group without offsets is not guessed for: nothing is read, nothing is committed, and the setting is named.
#[tokio::test]
async fn a_first_start_without_a_choice_stops() {
    let Some(place) = Place::or_skip("a_first_start_without_a_choice_stops", 2).await else { return };
    place.send(0, ["1".to_owned()]).await;
    let source = open(place.careless_source()).await;
    let error = cannot_receive(&source).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    let said = error.to_string();
    assert!([&place.group, &place.topic, "start_from"].iter().all(|part| said.contains(*part)), "{said}");
    close(&source).await;
    assert_eq!((place.committed(0).await, place.committed(1).await), (None, None));
}

/// The choice is committed before anything is read, so that a crash before the first acknowledgement changes nothing.
#[tokio::test]
async fn a_chosen_start_is_committed() {
    let Some(place) = Place::or_skip("a_chosen_start_is_committed", 1).await else { return };
    place.send(0, ["1", "2"].map(str::to_owned)).await;
    let source = open(place.careless_source().start_from(Start::End)).await;
    place.await_committed(0, 2).await;
    place.send(0, ["3".to_owned()]).await;
    assert_eq!(texts(&receive_all(&source, 1).await), ["3"]);
    close(&source).await;
    // It holds only where there is no offset: now there is one.
    let source = open(place.careless_source().start_from(Start::Beginning)).await;
    let got = receive_all(&source, 1).await;
    assert_eq!(texts(&got), ["3"]);
    assert_eq!(got[0].coordinate.as_ref().unwrap().as_str(), format!("{}/0/2", place.topic));
    ack(&source, got).await;
    close(&source).await;
    // And without a choice it goes on.
    let source = open(place.careless_source()).await;
    place.send(0, ["4".to_owned()]).await;
    assert_eq!(texts(&receive_all(&source, 1).await), ["4"]);
}

/// Records that were deleted unread are not skipped silently.
#[tokio::test]
async fn an_offset_that_the_broker_no_longer_has_stops() {
    let Some(place) = Place::or_skip("an_offset_that_the_broker_no_longer_has_stops", 1).await else { return };
    place.send(0, (0..5).map(|n| n.to_string())).await;
    let source = place.open().await;
    ack(&source, receive_all(&source, 1).await).await;
    close(&source).await;
    place.await_committed(0, 1).await;
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&place.topic, 0, Offset::Offset(3)).unwrap();
    admin(&place.servers).delete_records(&before, &AdminOptions::new().operation_timeout(Some(ANSWER))).await.unwrap();
    let source = place.open().await;
    let error = cannot_receive(&source).await;
    assert_eq!(error.kind(), SourceErrorKind::Configuration);
    assert!(error.to_string().contains("deleted unread"), "{error}");
    close(&source).await;
    assert_eq!(place.committed(0).await, Some(1));
}

#[tokio::test]
async fn it_is_opened_once() {
    let Some(place) = Place::or_skip("it_is_opened_once", 1).await else { return };
    let source = place.open().await;
    assert_eq!(cannot_open(&source).await.kind(), SourceErrorKind::Configuration);
    close(&source).await;
    assert_eq!(cannot_receive(&source).await.kind(), SourceErrorKind::Configuration);
    let source = open(source).await;
    place.send(0, ["1".to_owned()]).await;
    assert_eq!(texts(&receive_all(&source, 1).await), ["1"]);
}
