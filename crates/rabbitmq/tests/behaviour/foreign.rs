//! Messages of producers that are not ours, which our client would not survive or not read.

use std::path::Path;

use lapin::types::AMQPValue;
use oncebox_core::{Content, KeyStrategy, Message};
use oncebox_rabbitmq::{QueueKind, Rabbit, RabbitSource};
use oncebox_testkit::skipped;

use crate::common::{Bystander, name};
use crate::{Plain, take_all, texts};

/// Publishes with another's client, in this order. `None` if it can't be had.
async fn published(test: &str, kinds: &[&str]) -> Option<RabbitSource> {
    published_to(test, QueueKind::Classic, "", kinds).await
}

/// To a queue of a kind, for a source whose URL has these parameters.
async fn published_to(test: &str, kind: QueueKind, parameters: &str, kinds: &[&str]) -> Option<RabbitSource> {
    let bystander = Bystander::find(test).await?;
    let queue = name("foreign");
    let arguments: &[(&str, AMQPValue)] = match kind {
        QueueKind::Quorum => &[
            ("x-queue-type", AMQPValue::LongString("quorum".into())),
            // What is delivered more often is gone.
            ("x-delivery-limit", AMQPValue::LongLongInt(2)),
        ],
        _ => &[],
    };
    bystander.declare(&queue, arguments).await;
    let source = Rabbit::new(format!("{}{parameters}", bystander.url)).source(queue.as_str()).kind(kind);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = tokio::process::Command::new(here.join("../../scripts/foreign"));
    command.arg("run").arg(here.join("tests/foreign/publish.py")).args([&bystander.url, &queue]).args(kinds);
    let ran = command.output().await.unwrap();
    if ran.status.code() == Some(3) {
        skipped(test);
        return None;
    }
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    source.try_open().await.unwrap();
    Some(source)
}

/// 2,000 levels are 10 kB, and as many as a frame holds are 26,000. A process that died of them would die at each start.
#[tokio::test(flavor = "multi_thread")]
async fn headers_nested_as_deep_as_a_frame_holds_are_survived() {
    let test = "foreign::headers_nested_as_deep_as_a_frame_holds_are_survived";
    let kinds = ["plain:1", "deep:30", "deep:2000", "deep:26000", "plain:2"];
    let Some(source) = published(test, &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    for delivery in &got {
        assert_eq!(delivery.message.headers.get("seen"), Some("yes"));
    }
    let deep = &got[2].message;
    assert_eq!(deep.id.as_ref().unwrap().as_str(), "deep:2000");
    assert!(deep.headers.get("oncebox-unreadable-header;base64").unwrap().len() > 10_000, "as it came");
    assert_eq!(got[1].message.headers.get("oncebox-unreadable-header;base64"), None);
    source.settle(got).await;
    source.end().await;
}

/// Names, ids and routing keys are bytes to others.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_utf_8_stops_no_queue() {
    let kinds = ["plain:1", "name", "nested-name", "id", "routing-key", "plain:2"];
    let Some(source) = published("foreign::what_is_not_utf_8_stops_no_queue", &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    let header = |n: usize, name: &str| got[n].message.headers.get(name).map(str::to_owned);
    let id = |n: usize| got[n].message.id.as_ref().map(|id| id.as_str().to_owned());
    // \x02 \xff \xfe t \x01
    assert_eq!(header(1, "oncebox-unreadable-header;base64").as_deref(), Some("Av/+dAE="));
    assert_eq!(id(1).as_deref(), Some("name"));
    assert!(header(2, "oncebox-unreadable-header;base64").is_some());
    assert_eq!(header(3, "oncebox-unreadable-message-id;base64").as_deref(), Some("//4="));
    assert_eq!(id(3).as_deref(), Some("hex:fffe"));
    assert_eq!(header(4, "oncebox-unreadable-routing-key;base64").as_deref(), Some("a//+"));
    assert_eq!((id(4).as_deref(), got[4].message.kind.as_str()), (Some("routing-key"), "hex:6bfffe"));
    assert!(got[5].message.headers.iter().all(|(name, _)| name == "seen"));
    source.settle(got).await;
    source.end().await;
}

/// The whole of it, one way or the other: no header is missing.
fn assert_whole(message: &Message, bytes: usize) {
    let names: Vec<&str> = message.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(message.headers.get("seen"), Some("yes"));
    assert!(message.headers.get("large").unwrap().len() > bytes - 100);
}

/// The client ends the connection over a frame that is larger than agreed on, and the broker sends such frames.
#[tokio::test(flavor = "multi_thread")]
async fn headers_larger_than_a_frame_stop_no_queue_and_arrive_whole() {
    let test = "foreign::headers_larger_than_a_frame_stop_no_queue_and_arrive_whole";
    // 131,072 bytes were agreed on, 8 of which are the frame's own.
    let sizes = [131_056, 131_063, 131_064, 131_065, 131_072];
    let large = sizes.map(|size| format!("large:{size}"));
    let mut kinds = vec!["plain:1"];
    kinds.extend(large.iter().map(String::as_str));
    kinds.push("plain:2");
    let Some(source) = published_to(test, QueueKind::Quorum, "", &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    for (size, delivery) in sizes.iter().zip(&got[1..]) {
        assert_whole(&delivery.message, *size);
        assert_eq!(delivery.message.id.as_ref().unwrap().as_str(), format!("large:{size}"));
    }
    let counts: Vec<_> = got.iter().map(|delivery| delivery.count).collect();
    assert_eq!(counts, vec![Some(1); kinds.len()], "none is a delivery nearer to its limit");
    source.settle(got).await;
    source.end().await;
}

/// A quorum queue counts deliveries in a header, which makes the frame larger than it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_grows_with_its_redelivery_stops_no_queue() {
    let test = "foreign::a_header_that_grows_with_its_redelivery_stops_no_queue";
    let kinds = ["plain:1", "large:131050", "plain:2"];
    let Some(source) = published_to(test, QueueKind::Quorum, "", &kinds).await else { return };
    let first = take_all(&source, kinds.len()).await;
    // Its process ends with all of them in hand.
    source.end().await;
    source.try_open().await.unwrap();
    let again = take_all(&source, kinds.len()).await;
    for (first, again) in first.iter().zip(&again) {
        assert_eq!(first.message.id, again.message.id);
        assert_eq!(first.message.headers, again.message.headers, "it is the same message");
        assert_eq!(again.count, Some(2));
    }
    source.settle(again).await;
    source.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_larger_than_the_frame_max_of_the_url_stop_no_queue() {
    let test = "foreign::headers_larger_than_the_frame_max_of_the_url_stop_no_queue";
    let kinds = ["plain:1", "large:8992", "large:8993", "large:12000", "plain:2"];
    let Some(source) = published_to(test, QueueKind::Classic, "?frame_max=9000", &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    assert_whole(&got[3].message, 12_000);
    source.settle(got).await;
    source.end().await;
}

/// `ge\xe4n` and `ge\xf6n`, as Latin-1 has them, are not one type.
#[tokio::test(flavor = "multi_thread")]
async fn types_that_are_no_utf8_stay_apart() {
    let test = "foreign::types_that_are_no_utf8_stay_apart";
    let kinds = ["type:6765e46e", "type:6765f66e", "key:6765e46e", "key:6765f66e"];
    let Some(source) = published(test, &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    let key = |n: usize| KeyStrategy::ContentHash(Content::default()).key(&got[n].message, None).unwrap();
    assert_ne!(key(0), key(1));
    assert_ne!(key(2), key(3));
    let types: Vec<&str> = got.iter().map(|delivery| delivery.message.kind.as_str()).collect();
    assert_eq!(types, ["hex:6765e46e", "hex:6765f66e", "hex:6765e46e", "hex:6765f66e"]);
    source.settle(got).await;
    source.end().await;
}
