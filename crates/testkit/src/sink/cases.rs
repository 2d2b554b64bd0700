//! The cases.

use std::sync::Arc;

use oncebox_core::{Message, Outgoing, Sink, SinkErrorKind};

use super::fixture::{Setup, SinkFixture};
use crate::hostile;

/// Identity, source, type, order key, version, headers and payload arrive as they were published, once.
pub async fn what_is_published_arrives_once_and_as_it_was<F: SinkFixture>(setup: Setup<F>) {
    let mut sent = Message::new("invoice.paid").with_source("https://shop.example/orders").with_order_key("account-1");
    sent = sent.with_version(7).with_payload(r#"{"amount": 10}"#);
    sent.headers.add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").expect("a sound header");
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let binary = Message::new("raw").with_source("s").with_payload(bytes);
    setup.publish_all(&[sent.clone(), binary.clone()]).await;
    let mut got = setup.arrived(2).await;
    got.sort_by_key(|message| message.kind != sent.kind);
    hostile::assert_same_on_the_wire(&got[0], &sent);
    hostile::assert_same_on_the_wire(&got[1], &binary);
}

/// Ids, types, sources, order keys and headers arrive as they are, whatever they look like; or the message is refused.
pub async fn hostile_texts_arrive_as_they_were_published<F: SinkFixture>(setup: Setup<F>) {
    for text in hostile::TEXTS {
        let sent = hostile::message(text);
        match setup.publish(&[setup.outgoing(sent.clone())]).await.remove(0) {
            Ok(()) => hostile::assert_same_on_the_wire(&setup.arrived(1).await[0], &sent),
            Err(error) => assert_eq!(error.kind(), SinkErrorKind::Refused, "{error}"),
        }
    }
}

/// A header of the message's own is a header when it arrives, however it is called: it replaces no part of the message, and
/// gives no orders to the broker.
pub async fn headers_named_like_something_else_stay_headers<F: SinkFixture>(setup: Setup<F>) {
    let mut sent = Message::new("noted").with_source("s").with_payload("{}");
    for (name, value) in hostile::NAMED {
        sent.headers.add(*name, *value).expect("a sound header");
    }
    setup.publish_all(std::slice::from_ref(&sent)).await;
    hostile::assert_same_on_the_wire(&setup.arrived(1).await[0], &sent);
}

/// Messages of one order key arrive in the order of their batches.
pub async fn a_batch_arrives_in_its_order<F: SinkFixture>(setup: Setup<F>) {
    let message = |n: usize| Message::new("noted").with_source("s").with_order_key("k").with_payload(n.to_string());
    for batch in 0..5 {
        let messages: Vec<Message> = (0..40).map(|n| message(batch * 40 + n)).collect();
        setup.publish_all(&messages).await;
    }
    let got: Vec<String> =
        setup.arrived(200).await.iter().map(|got| String::from_utf8_lossy(&got.payload).into_owned()).collect();
    assert_eq!(got, (0..200).map(|n| n.to_string()).collect::<Vec<_>>());
}

/// Every confirmed message arrives, once.
pub async fn many_are_confirmed_and_arrive<F: SinkFixture>(setup: Setup<F>) {
    let mut sent = Vec::new();
    for batch in 0..4 {
        let messages: Vec<Message> =
            (0..500).map(|n| Message::new("noted").with_source("s").with_payload(format!("{batch}-{n}"))).collect();
        setup.publish_all(&messages).await;
        sent.extend(messages.into_iter().map(|message| message.id));
    }
    let mut got: Vec<_> = setup.arrived(2_000).await.into_iter().map(|message| message.id).collect();
    got.sort_unstable();
    sent.sort_unstable();
    assert_eq!(got, sent);
}

/// An empty batch is answered with nothing.
pub async fn nothing_published_is_nothing_wrong<F: SinkFixture>(setup: Setup<F>) {
    assert!(setup.publish(&[]).await.is_empty());
    setup.arrived(0).await;
}

/// A destination that does not exist is an error of its own messages, which names it; the others go on, in the same batch
/// and afterwards.
pub async fn a_missing_destination_is_named_and_harms_no_other<F: SinkFixture>(setup: Setup<F>) {
    let message = |text: &str| Arc::new(Message::new("noted").with_source("s").with_payload(text.to_owned()));
    let missing = setup.fixture.missing_topic();
    let to = |topic: &str, text: &str| Outgoing { topic: topic.to_owned(), message: message(text) };
    let batch = [to(&setup.topic, "before"), to(&missing, "CANARY-payload"), to(&setup.topic, "after")];
    let answers = setup.publish(&batch).await;
    let error = answers[1].clone().expect_err("there is no such destination");
    assert_eq!(error.kind(), SinkErrorKind::Configuration, "{error}");
    let said = error.to_string();
    assert!(said.contains(&missing), "{said}");
    assert!(!said.contains("CANARY"), "{said}");
    assert_eq!([&answers[0], &answers[2]], [&Ok(()), &Ok(())]);
    setup.publish_all(&[Message::clone(&message("later"))]).await;
    let mut got: Vec<String> =
        setup.arrived(3).await.iter().map(|got| String::from_utf8_lossy(&got.payload).into_owned()).collect();
    got.sort_unstable();
    assert_eq!(got, ["after", "before", "later"]);
}

/// What the broker does not take is refused, and the others go on.
pub async fn a_message_that_is_too_large_is_refused_and_harms_no_other<F: SinkFixture>(setup: Setup<F>) {
    let Some(bytes) = setup.fixture.too_large() else { return };
    let message = |payload: Vec<u8>| setup.outgoing(Message::new("noted").with_source("s").with_payload(payload));
    let batch = [message(b"before".to_vec()), message(vec![b'x'; bytes]), message(b"after".to_vec())];
    let answers = setup.publish(&batch).await;
    let error = answers[1].clone().expect_err("it is too large");
    assert_eq!(error.kind(), SinkErrorKind::Refused, "{error}");
    assert!(error.to_string().chars().any(|c| c.is_ascii_digit()), "how large may it be? {error}");
    assert_eq!([&answers[0], &answers[2]], [&Ok(()), &Ok(())]);
    setup.arrived(2).await;
}

/// Where a sink says so, nothing of an order key is confirmed after something of it that was not.
pub async fn what_is_confirmed_comes_before_what_is_not<F: SinkFixture>(setup: Setup<F>) {
    let Some(bytes) = setup.fixture.too_large().filter(|_| setup.sink.capabilities().fails_by_prefix) else { return };
    let message = |key: &str, payload: Vec<u8>| {
        setup.outgoing(Message::new("noted").with_source("s").with_order_key(key).with_payload(payload))
    };
    let small = || b"small".to_vec();
    let batch = [
        message("a", small()),
        message("a", vec![b'x'; bytes]),
        message("b", small()),
        message("a", small()),
        message("b", small()),
    ];
    let confirmed: Vec<bool> = setup.publish(&batch).await.iter().map(Result::is_ok).collect();
    assert_eq!(confirmed, [true, false, true, false, true]);
    setup.arrived(3).await;
}

/// Where the broker recognises ids, publishing one again changes nothing.
pub async fn an_id_that_the_broker_knows_arrives_once<F: SinkFixture>(setup: Setup<F>) {
    let message = Message::new("noted").with_source("s").with_payload("once");
    setup.publish_all(std::slice::from_ref(&message)).await;
    setup.publish_all(&[message]).await;
    setup.arrived(if setup.sink.capabilities().dedup_window.is_some() { 1 } else { 2 }).await;
}
