//! What a sink does with messages, subjects and servers that are not as they should be.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use oncebox_core::sink::SinkErrorKind;
use oncebox_core::{Message, MessageId, Outgoing, Sink};
use oncebox_nats::JetStreamSink;
use tokio::time::Instant;

use common::{Place, foreign, receive_all, server, texts};

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_no_password_is_shown() {
    let sink = JetStreamSink::new("nats://me:CANARY@127.0.0.1:1");
    let error = sink.open().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Unavailable, "{error}");
    assert!(!format!("{error} {error:?} {sink:?}").contains("CANARY"), "{error}");
}

#[tokio::test]
async fn a_named_stream_must_be_there_and_be_the_one_that_takes_the_subject() {
    let Some(url) = server("a_named_stream_must_be_there_and_be_the_one_that_takes_the_subject") else { return };
    let error = JetStreamSink::new(url.as_str()).stream("nosuchstream").open().await.unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("nosuchstream"), "{error}");
    let (ours, other) = (Place::at(url.clone()).await, Place::at(url).await);
    let error = ours.open_sink().await.publish(&[other.outgoing("1")]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Configuration, "{error}");
    assert_eq!(other.stored().await, 0);
}

#[tokio::test]
async fn the_window_of_a_named_stream_is_shown() {
    let Some(url) = server("the_window_of_a_named_stream_is_shown") else { return };
    let window = Duration::from_secs(17);
    let place = Place::with(url, |config| config.duplicate_window = window).await;
    assert_eq!(place.open_sink().await.capabilities().dedup_window, Some(window));
    let unnamed = JetStreamSink::new(place.url.as_str());
    unnamed.open().await.unwrap();
    assert_eq!(unnamed.capabilities().dedup_window, None);
}

#[tokio::test]
async fn a_subject_that_is_none_is_refused_and_harms_no_other() {
    let Some(url) = server("a_subject_that_is_none_is_refused_and_harms_no_other") else { return };
    let place = Place::at(url).await;
    let purge = format!("$JS.API.STREAM.PURGE.{}", place.stream);
    let bad = ["", "a b", "a..b", "a.*", "a\r\nb", purge.as_str()];
    let mut batch = vec![place.outgoing("before")];
    batch.extend(bad.map(|topic| place.to(topic, Message::new("noted"))));
    batch.push(place.outgoing("after"));
    let sink = JetStreamSink::new(place.url.as_str());
    sink.open().await.unwrap();
    let answers = sink.publish(&batch).await;
    for answer in &answers[1..=bad.len()] {
        let error = answer.clone().unwrap_err();
        assert_eq!(error.kind(), SinkErrorKind::Refused, "{error}");
        assert!(!error.to_string().contains(['\r', '\n']), "{error:?}");
    }
    assert_eq!((&answers[0], &answers[bad.len() + 1]), (&Ok(()), &Ok(())));
    assert_eq!(place.stored().await, 2);
}

#[tokio::test]
async fn a_message_larger_than_the_stream_takes_is_refused() {
    let Some(url) = server("a_message_larger_than_the_stream_takes_is_refused") else { return };
    let place = Place::with(url, |config| config.max_message_size = 1_000).await;
    let large = place.outgoing(&"x".repeat(2_000));
    let answers = place.open_sink().await.publish(&[large, place.outgoing("small")]).await;
    let error = answers[0].clone().unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Refused, "{error}");
    assert_eq!(answers[1], Ok(()));
}

#[tokio::test]
async fn a_full_stream_is_unavailable_not_refused() {
    let Some(url) = server("a_full_stream_is_unavailable_not_refused") else { return };
    let place = Place::with(url, |config| {
        config.max_messages = 1;
        config.discard = async_nats::jetstream::stream::DiscardPolicy::New;
    })
    .await;
    let answers = place.open_sink().await.publish(&[place.outgoing("1"), place.outgoing("2")]).await;
    assert_eq!(answers[0], Ok(()));
    let error = answers[1].clone().unwrap_err();
    assert_eq!(error.kind(), SinkErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn headers_with_hostile_bytes_arrive_as_they_were_and_give_no_orders() {
    let Some(url) = server("headers_with_hostile_bytes_arrive_as_they_were_and_give_no_orders") else { return };
    let place = Place::with(url, |config| config.allow_rollup = true).await;
    place.publish(&["kept"]).await;
    let mut message = Message::new("noted\r\nNats-Rollup: all").with_payload("hostile");
    for (name, value) in [
        // What a broker that carries bytes delivered: "\xff\x00\xfe\r\n" and a header after a line break.
        ("raw;base64", "/wD+DQo="),
        ("split;base64", "YQ0KTmF0cy1Sb2xsdXA6IGFsbA=="),
        ("Nats-Rollup", "all"),
        ("Nats-Expected-Last-Sequence", "77"),
        ("a name: with everything \u{1f4a5}", " ends "),
    ] {
        message.headers.add(name, value).unwrap();
    }
    place.open_sink().await.publish(&[place.to(&place.subject, message.clone())]).await.remove(0).unwrap();
    let got = receive_all(&place.open_source().await, 2).await;
    assert_eq!(texts(&got), ["kept", "hostile"], "a header emptied the stream");
    let sorted = |message: &Message| {
        let mut pairs: Vec<_> = message.headers.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        pairs.sort();
        pairs
    };
    assert_eq!(sorted(&got[1].message), sorted(&message));
    assert_eq!((&got[1].message.kind, &got[1].message.id), (&message.kind, &message.id));
}

#[tokio::test]
async fn an_id_published_again_is_stored_once_within_the_window() {
    let Some(url) = server("an_id_published_again_is_stored_once_within_the_window") else { return };
    let place = Place::at(url).await;
    let outgoing = place.outgoing("once");
    let sink = place.open_sink().await;
    for _ in 0..3 {
        assert_eq!(sink.publish(&[outgoing.clone(), outgoing.clone()]).await, [Ok(()), Ok(())]);
    }
    assert_eq!(place.stored().await, 1);
}

/// Ids are unique within a source, and one message may go to several subjects: none of them is taken for another.
#[tokio::test]
async fn an_id_that_another_message_has_is_published_too() {
    let Some(url) = server("an_id_that_another_message_has_is_published_too") else { return };
    let place = Place::at(url).await;
    let sink = place.open_sink().await;
    let first = Message::new("noted").with_source("a");
    let other_subject = place.to(&format!("{}.other", place.subject), first.clone());
    let other_source = place.to(&place.subject, first.clone().with_source("b"));
    let batch = [place.to(&place.subject, first), other_subject, other_source];
    for _ in 0..2 {
        assert_eq!(sink.publish(&batch).await, [Ok(()), Ok(()), Ok(())]);
    }
    assert_eq!(place.stored().await, 3);
    let got = receive_all(&place.open_source().await, 3).await;
    assert!(got.iter().all(|got| got.message.id == batch[0].message.id), "the id is the message's own");
    assert!(got.iter().all(|got| got.message.headers.iter().count() == 0), "and says nothing else");
}

/// A stream remembers the ids of messages that are gone. What they were cannot be looked up, so a message of ours must not be
/// taken for one of them.
#[tokio::test]
async fn an_id_of_a_foreign_message_that_is_gone_is_published() {
    const NAME: &str = "an_id_of_a_foreign_message_that_is_gone_is_published";
    let Some(url) = server(NAME) else { return };
    let place = Place::at(url).await;
    if !foreign(NAME, "publish_and_purge.py", &[&place.url, &place.stream, &place.subject, "m-1"]).await {
        return;
    }
    let message = Message::new("noted").with_id(MessageId::new("m-1").unwrap()).with_payload("ours");
    assert_eq!(place.open_sink().await.publish(&[place.to(&place.subject, message)]).await, [Ok(())]);
    assert_eq!(place.stored().await, 1, "confirmed and not stored");
    assert_eq!(texts(&receive_all(&place.open_source().await, 1).await), ["ours"]);
}

/// What was stored, consumed and removed, and then published again because its confirmation was lost, is done.
#[tokio::test]
async fn what_was_published_and_is_gone_is_not_published_again() {
    let Some(url) = server("what_was_published_and_is_gone_is_not_published_again") else { return };
    let place = Place::at(url).await;
    let (sink, outgoing) = (place.open_sink().await, place.outgoing("once"));
    assert_eq!(sink.publish(std::slice::from_ref(&outgoing)).await, [Ok(())]);
    place.context.get_stream(&place.stream).await.unwrap().purge().await.unwrap();
    assert_eq!(sink.publish(&[outgoing]).await, [Ok(())]);
    assert_eq!(place.stored().await, 0);
}

#[tokio::test]
async fn more_than_may_be_under_way_are_all_confirmed() {
    let Some(url) = server("more_than_may_be_under_way_are_all_confirmed") else { return };
    let place = Place::at(url).await;
    let sink = place.sink().in_flight_max(3);
    sink.open().await.unwrap();
    let batch: Vec<Outgoing> = (0..50).map(|n| place.outgoing(&n.to_string())).collect();
    assert!(sink.publish(&batch).await.iter().all(Result::is_ok));
    assert_eq!(place.stored().await, 50);
}

#[tokio::test]
async fn a_server_that_never_confirms_is_unavailable_in_bounded_time() {
    let Some(url) = server("a_server_that_never_confirms_is_unavailable_in_bounded_time") else { return };
    let client = async_nats::connect(&url).await.unwrap();
    // Someone listens, so there are responders, and never answers.
    let place = Place::at(url).await;
    let topic = format!("silent.{}", place.stream);
    let _listening = client.subscribe(topic.clone()).await.unwrap();
    client.flush().await.unwrap();
    let sink = JetStreamSink::new(place.url.as_str()).timeout(Duration::from_secs(1));
    sink.open().await.unwrap();
    let batch: Vec<Outgoing> = (0..5).map(|_| place.to(&topic, Message::new("noted"))).collect();
    let start = Instant::now();
    for answer in sink.publish(&batch).await {
        assert_eq!(answer.unwrap_err().kind(), SinkErrorKind::Unavailable);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "one after another");
}
