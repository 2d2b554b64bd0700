//! Sources that keep order keep it per order key, through releases and lost deliveries. Others skip these cases.

use std::time::Duration;

use oncebox_core::Message;

use super::fixture::{DeliveryOf, Setup, SourceFixture, texts};

const DELAY: Duration = Duration::from_secs(2);

fn of_key<F: SourceFixture>(setup: &Setup<F>, key: &str, texts: &[&str]) -> Vec<Message> {
    setup.messages(texts).into_iter().map(|message| message.with_order_key(key)).collect()
}

/// Receives and acknowledges until `count` came; what they said, in order.
async fn drain<F: SourceFixture>(setup: &Setup<F>, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let got = setup.receive(2, Duration::from_secs(20)).await;
        assert!(!got.is_empty(), "waited in vain; so far {seen:?}");
        seen.extend(texts(&got));
        setup.ack(got).await.expect("deliveries can be acknowledged");
    }
    seen
}

/// Messages of one order key come in the order in which they were sent.
pub async fn messages_of_one_key_come_in_order<F: SourceFixture>(setup: Setup<F>) {
    if !setup.keeps_order() {
        return;
    }
    for round in 0..4 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        setup.send(of_key(&setup, "a", &[&a])).await;
        setup.send(of_key(&setup, "b", &[&b])).await;
    }
    let seen = drain(&setup, 8).await;
    for key in ["a", "b"] {
        let seen: Vec<&String> = seen.iter().filter(|text| text.starts_with(key)).collect();
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.len(), 4);
    }
}

/// Receives from a source that holds `a1 a2 a3 b1` what comes at once, which begins with `a1`.
async fn receive_the_head<F: SourceFixture>(setup: &Setup<F>) -> Vec<DeliveryOf<F>> {
    setup.send(of_key(setup, "a", &["a1", "a2", "a3"])).await;
    let head = setup.receive(2, Duration::from_secs(20)).await;
    assert_eq!(texts(&head).first().map(String::as_str), Some("a1"));
    setup.send(of_key(setup, "b", &["b1"])).await;
    head
}

/// A message that was released with a delay holds up those behind it with the same order key, and nobody else.
pub async fn a_released_message_holds_up_those_behind_it<F: SourceFixture>(setup: Setup<F>) {
    if !setup.keeps_order() {
        return;
    }
    let mut head = receive_the_head(&setup).await;
    // The first with a delay, those behind it without: they still wait.
    let behind = head.split_off(1);
    setup.release(head, DELAY).await;
    setup.release(behind, Duration::ZERO).await;
    assert_eq!(drain(&setup, 1).await, ["b1"]);
    setup.assert_nothing_comes().await;
    setup.advance(DELAY + Duration::from_secs(1)).await;
    assert_eq!(drain(&setup, 3).await, ["a1", "a2", "a3"]);
}

/// A message that is out and not settled holds up those behind it that are not out, and nobody else.
pub async fn an_unsettled_message_holds_up_those_behind_it<F: SourceFixture>(setup: Setup<F>) {
    if !setup.keeps_order() || setup.capabilities().lease.is_none() {
        return;
    }
    let out = receive_the_head(&setup).await;
    assert_eq!(drain(&setup, 1).await, ["b1"]);
    setup.assert_nothing_comes().await;
    drop(out);
    setup.let_leases_end().await;
    assert_eq!(drain(&setup, 3).await, ["a1", "a2", "a3"]);
}
