//! What the sink says when the broker does not take a message.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{ANSWER, Place, admin, receive_all, servers_or_skip, texts};
use oncebox_core::{Message, Outgoing, Sink, SinkErrorKind};
use oncebox_kafka::KafkaSink;
use oncebox_testkit::eventually;
use rdkafka::admin::AdminOptions;

fn outgoing(topic: &str, key: Option<&str>, payload: impl Into<Vec<u8>>) -> Outgoing {
    let mut message = Message::new("noted").with_payload(payload.into());
    message.order_key = key.map(str::to_owned);
    Outgoing { topic: topic.to_owned(), message: Arc::new(message) }
}

#[tokio::test]
async fn without_a_broker_the_address_is_named_and_publishing_ends() {
    let said = KafkaSink::new("ada:CANARY@127.0.0.1:1").open().await.unwrap_err().to_string();
    assert!(said.contains("brokers cannot be read") && !said.contains("CANARY"), "{said}");
    let sink = KafkaSink::new("127.0.0.1:1").answer(Duration::from_millis(300));
    let error = sink.open().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Unavailable);
    let said = error.to_string();
    assert!(said.contains("127.0.0.1:1"), "{said}");
    let answers = sink.publish(&[outgoing("a", None, "1"), outgoing("b", None, "2")]).await;
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().kind() == SinkErrorKind::Unavailable));
    sink.close().await;
}

#[tokio::test]
async fn settings_that_promises_rest_on_are_refused() {
    for (name, value) in [("enable.idempotence", "false"), ("acks", "0"), ("transactional.id", "t")] {
        let error = KafkaSink::new("127.0.0.1:1").setting(name, value).open().await.unwrap_err();
        assert_eq!(error.kind(), SinkErrorKind::Configuration);
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// The broker refuses what travels together when it is too large together. Those that are not too large alone go through.
#[tokio::test]
async fn neighbours_of_a_message_that_the_broker_refuses_go_through() {
    let Some(servers) = servers_or_skip("neighbours_of_a_message_that_the_broker_refuses_go_through") else { return };
    let place = Place::on(&servers, 1, &[("max.message.bytes", "5000")]).await;
    // So long that all of it travels together.
    let sink = KafkaSink::new(&servers).setting("linger.ms", "500");
    sink.open().await.unwrap();
    let batch: Vec<Outgoing> =
        [1_000, 2_000, 9_000, 2_000, 1_000].map(|bytes| outgoing(&place.topic, None, vec![b'x'; bytes])).to_vec();
    let answers = sink.publish(&batch).await;
    assert_eq!(answers[2].as_ref().unwrap_err().kind(), SinkErrorKind::Refused);
    let others: Vec<_> =
        answers.iter().enumerate().filter(|(n, _)| *n != 2).map(|(_, answer)| answer.clone()).collect();
    assert_eq!(others, vec![Ok(()); 4]);
    let source = place.open().await;
    let mut got: Vec<usize> = receive_all(&source, 4).await.iter().map(|got| got.message.payload.len()).collect();
    got.sort_unstable();
    assert_eq!(got, [1_000, 1_000, 2_000, 2_000]);
    // The producer is as good as before.
    assert_eq!(sink.publish(&[outgoing(&place.topic, None, "later")]).await, [Ok(())]);
    assert_eq!(texts(&receive_all(&source, 1).await), ["later"]);
}

/// A topic that is deleted under the sink is named soon, and not when a timeout is over again and again.
#[tokio::test]
async fn a_topic_that_is_gone_is_named() {
    let Some(place) = Place::or_skip("a_topic_that_is_gone_is_named", 1).await else { return };
    let sink = KafkaSink::new(&place.servers).timeout(Duration::from_secs(2));
    sink.open().await.unwrap();
    assert_eq!(sink.publish(&[outgoing(&place.topic, None, "1")]).await, [Ok(())]);
    let options = AdminOptions::new().operation_timeout(Some(ANSWER));
    admin(&place.servers).delete_topics(&[&place.topic], &options).await.unwrap();
    let said = eventually("the sink says that it is gone", async || {
        let answer = sink.publish(&[outgoing(&place.topic, None, "2")]).await.remove(0);
        answer.err().filter(|error| error.kind() == SinkErrorKind::Configuration)
    });
    assert!(said.await.to_string().contains(&place.topic));
}

/// One order key, one partition: the one that Java's producers choose.
#[tokio::test]
async fn a_key_has_the_partition_that_java_gives_it() {
    let Some(place) = Place::or_skip("a_key_has_the_partition_that_java_gives_it", 100).await else { return };
    let sink = KafkaSink::new(&place.servers);
    sink.open().await.unwrap();
    // murmur2("21") = -973932308, murmur2("foobar") = -790332482: from Kafka's own tests of its hash.
    let batch = [outgoing(&place.topic, Some("21"), "21"), outgoing(&place.topic, Some("foobar"), "foobar")];
    assert_eq!(sink.publish(&batch).await, [Ok(()), Ok(())]);
    let source = place.open().await;
    for got in receive_all(&source, 2).await {
        let hash: i32 = if got.message.payload == "21" { -973_932_308 } else { -790_332_482 };
        let partition = (hash & i32::MAX) % 100;
        assert_eq!(got.coordinate.unwrap().as_str(), format!("{}/{partition}/0", place.topic));
    }
}
