//! What a source does with consumers that are wrong, go away, or whose deliveries are out of time.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use oncebox_core::memory::MemoryStore;
use oncebox_core::source::Order;
use oncebox_core::{Release, Source, SourceErrorKind};
use oncebox_nats::{JetStreamSource, NewConsumer};
use oncebox_testkit::eventually;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use common::{ACK_WAIT, Place, WAIT, ack, open, receive, receive_all, server, texts};

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_no_password_is_shown() {
    let source = JetStreamSource::new("nats://me:CANARY@127.0.0.1:1", "S", "d");
    let error = open(&source).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(!format!("{error} {error:?} {source:?}").contains("CANARY"), "{error}");
    let error = open(&JetStreamSource::new("not an address CANARY", "S", "d")).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    assert!(!error.to_string().contains("CANARY"), "{error}");
}

#[tokio::test]
async fn a_missing_stream_and_a_missing_consumer_are_named() {
    let Some(url) = server("a_missing_stream_and_a_missing_consumer_are_named") else { return };
    let place = Place::at(url).await;
    let missing_stream = JetStreamSource::new(place.url.as_str(), "nosuchstream", "d").create(NewConsumer::default());
    let missing_consumer = JetStreamSource::new(place.url.as_str(), &place.stream, "nosuchconsumer");
    for (source, name) in [(missing_stream, "nosuchstream"), (missing_consumer, "nosuchconsumer")] {
        let error = open(&source).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains(name) && error.to_string().contains("does not exist"), "{error}");
    }
}

#[tokio::test]
async fn a_consumer_that_could_lose_messages_is_refused() {
    let Some(url) = server("a_consumer_that_could_lose_messages_is_refused") else { return };
    let place = Place::at(url).await;
    let sound =
        || pull::Config { durable_name: Some("d".into()), ack_policy: AckPolicy::Explicit, ..Default::default() };
    for (name, config, says) in [
        ("a", pull::Config { ack_policy: AckPolicy::All, ..sound() }, "explicit"),
        ("b", pull::Config { ack_policy: AckPolicy::None, ..sound() }, "explicit"),
        ("c", pull::Config { max_deliver: 5, ..sound() }, "max_deliver is 5"),
        ("e", pull::Config { headers_only: true, ..sound() }, "headers_only"),
    ] {
        place.create_consumer(pull::Config { durable_name: Some(name.into()), ..config }).await;
        let error = open(&JetStreamSource::new(place.url.as_str(), &place.stream, name)).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn a_push_consumer_is_refused() {
    let Some(url) = server("a_push_consumer_is_refused") else { return };
    let place = Place::at(url).await;
    let stream = place.context.get_stream(&place.stream).await.unwrap();
    let push = async_nats::jetstream::consumer::push::Config {
        durable_name: Some("d".into()),
        deliver_subject: format!("deliver.{}", place.stream),
        ..Default::default()
    };
    stream.create_consumer(push).await.unwrap();
    let error = open(&JetStreamSource::new(place.url.as_str(), &place.stream, "d")).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("push"), "{error}");
}

#[tokio::test]
async fn create_makes_a_consumer_once_and_never_changes_one() {
    let Some(url) = server("create_makes_a_consumer_once_and_never_changes_one") else { return };
    let place = Place::at(url).await;
    open(&place.source()).await.unwrap();
    open(&place.source()).await.unwrap();
    let other = JetStreamSource::new(place.url.as_str(), &place.stream, "d").create(NewConsumer::default());
    let error = open(&other).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("other settings"), "{error}");
    let as_it_is = JetStreamSource::new(place.url.as_str(), &place.stream, "d");
    open(&as_it_is).await.unwrap();
    assert_eq!(Source::<MemoryStore>::capabilities(&as_it_is).lease, Some(ACK_WAIT), "it was changed");
}

#[tokio::test]
async fn order_is_promised_only_by_a_consumer_with_one_under_way() {
    let Some(url) = server("order_is_promised_only_by_a_consumer_with_one_under_way") else { return };
    let place = Place::at(url).await;
    open(&place.source()).await.unwrap();
    let wide = JetStreamSource::new(place.url.as_str(), &place.stream, "d");
    assert_eq!(Source::<MemoryStore>::capabilities(&wide).order, Order::None);
    let error = open(&wide.ordered()).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("max_ack_pending"), "{error}");
}

#[tokio::test]
async fn a_released_message_holds_up_all_behind_it_where_order_is_kept() {
    let Some(url) = server("a_released_message_holds_up_all_behind_it_where_order_is_kept") else { return };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3"]).await;
    let source = place.source().ordered();
    open(&source).await.unwrap();
    let first = receive(&source, 10, WAIT).await.unwrap();
    assert_eq!(texts(&first), ["1"]);
    let delay = Duration::from_secs(1);
    let released_at = Instant::now();
    Source::<MemoryStore>::release(&source, first, Release { delay, reason: None }).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let got = receive(&source, 10, WAIT).await.unwrap();
        if seen.is_empty() && !got.is_empty() {
            assert!(released_at.elapsed() >= delay - Duration::from_millis(50), "it came before its time");
        }
        seen.extend(texts(&got));
        ack(&source, got).await.unwrap();
    }
    assert_eq!(seen, ["1", "2", "3"]);
}

#[tokio::test]
async fn what_came_does_not_age_while_others_hold_the_rest_of_what_is_allowed() {
    let Some(url) = server("what_came_does_not_age_while_others_hold_the_rest_of_what_is_allowed") else { return };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3", "4", "5", "6"]).await;
    let consumer = || {
        let new = Place::new_consumer().ack_pending_max(4).ack_wait(Duration::from_secs(30));
        JetStreamSource::new(place.url.as_str(), &place.stream, "d").create(new)
    };
    let (ours, theirs) = (consumer(), consumer());
    open(&ours).await.unwrap();
    open(&theirs).await.unwrap();
    let held = receive_all(&theirs, 3).await;
    // There is room for one, and this process can't know it.
    let start = Instant::now();
    let got = receive(&ours, 4, Duration::from_secs(60)).await.unwrap();
    assert_eq!(got.len(), 1);
    assert!(start.elapsed() < Duration::from_secs(20), "the server sat on the request");
    drop(held);
}

#[tokio::test]
async fn no_more_is_asked_for_than_the_consumer_allows() {
    let Some(url) = server("no_more_is_asked_for_than_the_consumer_allows") else { return };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3", "4", "5"]).await;
    let new = Place::new_consumer().ack_pending_max(2).ack_wait(Duration::from_secs(30));
    let source = JetStreamSource::new(place.url.as_str(), &place.stream, "d").create(new);
    open(&source).await.unwrap();
    let mut seen = Vec::new();
    let start = Instant::now();
    while seen.len() < 5 {
        let got = receive(&source, 10, Duration::from_secs(60)).await.unwrap();
        assert!(got.len() <= 2);
        seen.extend(texts(&got));
        ack(&source, got).await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(30), "it waited for what could not come");
}

#[tokio::test]
async fn a_consumer_or_stream_that_goes_away_is_a_configuration_error() {
    let Some(url) = server("a_consumer_or_stream_that_goes_away_is_a_configuration_error") else { return };
    let place = Place::at(url).await;
    let source = place.open_source().await;
    let stream = place.context.get_stream(&place.stream).await.unwrap();
    let deleting = async {
        // While it waits.
        eventually("it waits", async || stream.consumer_info("d").await.unwrap().num_waiting > 0).await;
        stream.delete_consumer("d").await.unwrap();
    };
    let (received, ()) = tokio::join!(receive(&source, 10, WAIT), deleting);
    let error = received.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    // And for as long as it is gone.
    let error = receive(&source, 10, WAIT).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
    let source = place.open_source().await;
    place.context.delete_stream(&place.stream).await.unwrap();
    let error = receive(&source, 10, WAIT).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Configuration, "{error}");
}

#[tokio::test]
async fn what_is_settled_too_late_does_not_reach_the_server() {
    let Some(url) = server("what_is_settled_too_late_does_not_reach_the_server") else { return };
    let place = Place::at(url).await;
    place.publish(&["acked", "released", "extended"]).await;
    let (late, owner) = (place.open_source().await, place.open_source().await);
    let stale = receive_all(&late, 3).await;
    let current = receive_all(&owner, 3).await;
    assert!(current.iter().all(|delivery| delivery.count == Some(2)));
    let mut stale = stale.into_iter();
    let mut next = || vec![stale.next().unwrap()];
    let (acked, released, extended) = (next(), next(), next());
    // All three are the owner's now; JetStream itself would obey.
    ack(&late, acked).await.unwrap();
    Source::<MemoryStore>::release(&late, released, Release::default()).await.unwrap();
    let receipt = Arc::clone(extended[0].receipt());
    Source::<MemoryStore>::extend(&late, &[receipt]).await.unwrap();
    assert_eq!(place.pending().await, 3, "the stale acknowledgement settled the owner's delivery");
    assert!(receive(&late, 10, Duration::from_millis(300)).await.unwrap().is_empty(), "a stale release took it");
    ack(&owner, current).await.unwrap();
    assert_eq!(place.pending().await, 0);
}

#[tokio::test]
async fn a_release_ends_a_delivery_for_the_heartbeat() {
    let Some(url) = server("a_release_ends_a_delivery_for_the_heartbeat") else { return };
    let place = Place::at(url).await;
    place.publish(&["1"]).await;
    let source = place.open_source().await;
    let got = receive_all(&source, 1).await;
    let receipt = Arc::clone(got[0].receipt());
    let delay = Duration::from_millis(200);
    Source::<MemoryStore>::release(&source, got, Release { delay, reason: None }).await.unwrap();
    // The heartbeat had taken note of it before.
    Source::<MemoryStore>::extend(&source, &[receipt]).await.unwrap();
    let start = Instant::now();
    let again = receive(&source, 1, WAIT).await.unwrap();
    assert_eq!(texts(&again), ["1"]);
    assert!(start.elapsed() < ACK_WAIT - ACK_WAIT / 4, "the extension held it back");
}

#[tokio::test]
async fn a_stream_made_anew_has_other_coordinates() {
    let Some(url) = server("a_stream_made_anew_has_other_coordinates") else { return };
    let place = Place::at(url).await;
    place.publish(&["1"]).await;
    let before = receive_all(&place.open_source().await, 1).await.remove(0).coordinate.unwrap();
    let config = place.context.get_stream(&place.stream).await.unwrap().cached_info().config.clone();
    place.context.delete_stream(&place.stream).await.unwrap();
    place.context.create_stream(config).await.unwrap();
    place.publish(&["other"]).await;
    let after = receive_all(&place.open_source().await, 1).await.remove(0).coordinate.unwrap();
    assert_ne!(before, after);
}

#[tokio::test]
async fn a_message_of_a_stranger_gets_its_identity_from_the_server_and_its_type_from_its_subject() {
    let name = "a_message_of_a_stranger_gets_its_identity_from_the_server_and_its_type_from_its_subject";
    let Some(url) = server(name) else { return };
    let place = Place::at(url).await;
    let subject = format!("{}.order.new", place.subject);
    let publish = async_nats::jetstream::message::PublishMessage::build().payload("x".into()).message_id("stranger-1");
    place.context.send_publish(subject.clone(), publish).await.unwrap().await.unwrap();
    let got = receive_all(&place.open_source().await, 1).await;
    assert_eq!(got[0].message.id.as_ref().unwrap().as_str(), "stranger-1");
    assert_eq!(got[0].message.kind, subject);
    assert!(got[0].message.headers.is_empty());
}

/// Publishes as a client would that checks nothing.
async fn publish_raw(url: &str, subject: &str, header: &[u8]) {
    let address = url.strip_prefix("nats://").unwrap();
    let mut stream = tokio::io::BufReader::new(tokio::net::TcpStream::connect(address).await.unwrap());
    let mut headers = b"NATS/1.0\r\n".to_vec();
    headers.extend([b"x: ", header, b"\r\n\r\n"].concat());
    let start = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {0} {0}\r\n", headers.len());
    stream.write_all(&[start.as_bytes(), &headers, b"\r\nPING\r\n"].concat()).await.unwrap();
    let mut line = String::new();
    while !line.starts_with("PONG") {
        line.clear();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "the server hung up");
        assert!(!line.starts_with("-ERR"), "{line}");
    }
}

/// The client library breaks off on such headers; those behind must still get through.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_client_cannot_read_does_not_stop_those_behind_it() {
    let Some(url) = server("a_message_that_the_client_cannot_read_does_not_stop_those_behind_it") else { return };
    for header in [&b"\xff\xfe"[..], b"a\rb"] {
        let place = Place::at(url.clone()).await;
        publish_raw(&place.url, &place.subject, header).await;
        // It asked for no acknowledgement, so it is stored a moment later.
        eventually("it is stored", async || place.stored().await == 1).await;
        place.publish(&["1", "2", "3"]).await;
        let source = place.open_source().await;
        let got = receive_all(&source, 3).await;
        let mut said = texts(&got);
        said.sort();
        assert_eq!(said, ["1", "2", "3"]);
        ack(&source, got).await.unwrap();
    }
}

/// Where one is under way at a time, everything behind waits for it: it is handed out, by another way.
#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_no_text_stops_no_ordered_stream() {
    let Some(url) = server("a_header_that_is_no_text_stops_no_ordered_stream") else { return };
    for (header, kept) in [(&b"m\xfcller"[..], "bfxsbGVy"), (b"a\rb", "YQ1i")] {
        let place = Place::at(url.clone()).await;
        place.publish(&["first"]).await;
        publish_raw(&place.url, &place.subject, header).await;
        eventually("it is stored", async || place.stored().await == 2).await;
        place.publish(&["last"]).await;
        let source = place.source().ordered();
        open(&source).await.unwrap();
        let first = receive_all(&source, 1).await;
        assert_eq!(texts(&first), ["first"]);
        ack(&source, first).await.unwrap();
        let unread = receive_all(&source, 1).await;
        assert_eq!((unread[0].message.kind.as_str(), texts(&unread)), (place.subject.as_str(), vec![String::new()]));
        assert_eq!(unread[0].message.headers.get("x;base64"), Some(kept));
        assert!(unread[0].is_uncounted);
        let coordinate = unread[0].coordinate.clone().unwrap();
        assert!(coordinate.as_str().starts_with(&format!("{}/2@", place.stream)), "{coordinate:?}");
        // Given back, it comes again, and before what is behind it.
        Source::<MemoryStore>::release(&source, unread, Release::default()).await.unwrap();
        let unread = receive_all(&source, 1).await;
        assert_eq!(unread[0].coordinate, Some(coordinate));
        ack(&source, unread).await.unwrap();
        let last = receive_all(&source, 1).await;
        assert_eq!(texts(&last), ["last"]);
        ack(&source, last).await.unwrap();
        assert_eq!(place.pending().await, 0);
    }
}
