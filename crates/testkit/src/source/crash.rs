//! What is left when a process dies.

use oncebox_core::Source;

use super::fixture::{Setup, SourceFixture, texts};

/// What a process had in hand when it died comes again, and what it had acknowledged does not.
pub async fn what_was_in_hand_comes_again_after_a_crash<F: SourceFixture>(setup: Setup<F>) {
    setup.send(setup.messages(&["1", "2", "3", "4", "5", "6"])).await;
    let mut got = setup.receive_all(6).await;
    got.sort_by_key(|delivery| delivery.message.payload.clone());
    let in_hand = got.split_off(3);
    setup.ack(got).await.expect("deliveries can be acknowledged");
    let Setup { fixture, clock, store, source } = setup;
    let Some(source) = fixture.after_a_crash(&store, source).await else { return };
    let setup = Setup { fixture, clock, store, source };
    let again = setup.receive_all(3).await;
    let mut said = texts(&again);
    said.sort_unstable();
    assert_eq!(said, ["4", "5", "6"]);
    if setup.keeps_order() {
        assert_eq!(texts(&again), ["4", "5", "6"], "in order");
    }
    let has_come_before = |count: Option<u32>| count.is_some_and(|count| count > 1);
    // How else would a message be found that kills whoever handles it?
    assert!(
        again.iter().all(|delivery| has_come_before(delivery.count) || delivery.is_uncounted),
        "they were there before: the source counts them, or says that it does not"
    );
    // Settled late by whoever was cut off, they are still the new owner's.
    let _ = setup.source.extend(&[]).await;
    drop(in_hand);
    setup.ack(again).await.expect("deliveries can be acknowledged");
    setup.assert_nothing_comes().await;
}

/// A source that is closed gives back what is not settled, in order.
pub async fn what_was_in_hand_comes_again_after_a_shutdown<F: SourceFixture>(setup: Setup<F>) {
    let messages = ["1", "2", "3"].map(|text| setup.message(text).with_order_key("k"));
    setup.send(messages.to_vec()).await;
    let in_hand = setup.receive(1, std::time::Duration::from_secs(10)).await;
    assert_eq!(in_hand.len(), 1);
    setup.release(in_hand, std::time::Duration::ZERO).await;
    setup.source.close().await;
    let Setup { fixture, clock, store, source } = setup;
    let Some(source) = fixture.after_a_crash(&store, source).await else { return };
    let setup = Setup { fixture, clock, store, source };
    let mut said = Vec::new();
    for _ in 0..3 {
        let one = setup.receive_one().await;
        said.extend(texts(std::slice::from_ref(&one)));
        setup.ack(vec![one]).await.expect("a delivery can be acknowledged");
    }
    if !setup.keeps_order() {
        said.sort_unstable();
    }
    assert_eq!(said, ["1", "2", "3"]);
}
