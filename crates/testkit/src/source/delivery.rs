//! What comes, how much of it, and when.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use oncebox_core::Source;
use tokio::time::{Instant, timeout};

use super::fixture::{Setup, SourceFixture, texts};
use crate::eventually::stays_pending;
use crate::hostile;

/// Identity, source, type, order key, headers and payload arrive as they were sent, once.
pub async fn what_was_sent_comes_once_and_as_it_was<F: SourceFixture>(setup: Setup<F>) {
    let mut sent = setup.messages(&["1", "2", "", "3"]);
    sent[1] = sent[1].clone().with_source("https://shop.example/orders").with_order_key("account-1").with_version(7);
    sent[1]
        .headers
        .add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .expect("a sound header");
    sent[3].payload = (0..=u8::MAX).collect();
    setup.send(sent.clone()).await;
    let mut got = setup.receive_all(sent.len()).await;
    got.sort_by(|a, b| a.message.id.cmp(&b.message.id));
    sent.sort_by(|a, b| a.id.cmp(&b.id));
    for (got, sent) in got.iter().zip(&sent) {
        hostile::assert_same_on_the_wire(&got.message, sent);
        let first = setup.capabilities().counts.then_some(1);
        assert!(got.count == first || got.count.is_none(), "a first delivery counts {:?}", got.count);
    }
    setup.assert_nothing_comes().await;
}

/// Ids, types, sources, order keys and headers arrive as they are, whatever they look like.
pub async fn hostile_texts_come_as_they_were_sent<F: SourceFixture>(setup: Setup<F>) {
    for text in hostile::TEXTS {
        let sent = hostile::message(text);
        setup.send(vec![sent.clone()]).await;
        let got = setup.receive_one().await;
        hostile::assert_same_on_the_wire(&got.message, &sent);
        setup.ack(vec![got]).await.expect("a delivery can be acknowledged");
    }
}

/// `max` is a bound.
pub async fn no_more_come_than_were_asked_for<F: SourceFixture>(setup: Setup<F>) {
    setup.send(setup.messages(&["1", "2", "3", "4", "5"])).await;
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let got = setup.receive(2, Duration::from_secs(5)).await;
        assert!((1..=2).contains(&got.len()), "asked for 2, got {}", got.len());
        seen.extend(texts(&got));
    }
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4", "5"]);
}

/// With nothing there, receiving ends when its wait is over, and is no error.
pub async fn nothing_comes_when_the_wait_is_over<F: SourceFixture>(setup: Setup<F>) {
    let start = Instant::now();
    Setup::<F>::assert_none(&setup.receive(10, Duration::ZERO).await);
    Setup::<F>::assert_none(&setup.receive(10, Duration::from_millis(100)).await);
    assert!(start.elapsed() >= Duration::from_millis(90), "it did not wait");
    assert!(start.elapsed() < Duration::from_secs(20), "it waited far too long");
}

/// Who waits gets a message when it comes, and does not wait for the rest of the time or for more messages.
pub async fn a_wait_ends_when_something_is_sent<F: SourceFixture>(setup: Setup<F>) {
    let mut receiving = pin!(setup.source.receive(10, Duration::from_secs(60)));
    assert!(stays_pending(receiving.as_mut()).await, "it does not wait");
    setup.send(setup.messages(&["1"])).await;
    let got = timeout(Duration::from_secs(20), receiving).await.expect("it goes on waiting with a message there");
    assert_eq!(texts(&got.expect("a source that is there can be received from")), ["1"]);
}

/// What was acknowledged is gone; its neighbours are not.
pub async fn an_acknowledged_message_never_comes_again<F: SourceFixture>(setup: Setup<F>) {
    setup.send(setup.messages(&["1", "2", "3"])).await;
    let got = setup.receive_all(3).await;
    let (kept, done) = got.into_iter().partition(|delivery| delivery.message.payload == "2");
    setup.ack(done).await.expect("deliveries can be acknowledged");
    setup.release(kept, Duration::ZERO).await;
    let again = setup.receive_all(1).await;
    assert_eq!(texts(&again), ["2"]);
    setup.ack(again).await.expect("a delivery can be acknowledged");
    setup.let_leases_end().await;
    setup.assert_nothing_comes().await;
}

/// Two messages never share a coordinate, not even if they are the same in every other way.
pub async fn each_message_has_a_coordinate_of_its_own<F: SourceFixture>(setup: Setup<F>) {
    if !setup.capabilities().coordinates {
        return;
    }
    let twice = setup.message("the same");
    setup.send(vec![twice.clone(), setup.message("another"), twice]).await;
    let got = setup.receive_all(3).await;
    let places: HashSet<_> = got.iter().map(|got| got.coordinate.clone().expect("it claims coordinates")).collect();
    assert_eq!(places.len(), 3);
}
