//! What the group's offsets say: never more than what is done.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Got, Place, ack, close, open, receive, receive_all, text, texts};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Release, Source};
use oncebox_testkit::{eventually, stays_pending};

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|n| format!("{n:03}"))
}

/// Takes out the deliveries that say `wanted`.
fn split(got: Got, wanted: &[&str]) -> (Got, Got) {
    got.into_iter().partition(|delivery| wanted.contains(&text(delivery).as_str()))
}

/// Acknowledged out of order, only what is done without a gap is committed; the rest comes again.
#[tokio::test]
async fn acknowledgements_out_of_order_commit_the_prefix() {
    let Some(place) = Place::or_skip("acknowledgements_out_of_order_commit_the_prefix", 1).await else { return };
    place.send(0, numbers(6)).await;
    let source = place.open().await;
    let got = receive_all(&source, 6).await;
    let (done, rest) = split(got, &["000", "001", "003", "005"]);
    let (early, late) = split(done, &["003", "005"]);
    ack(&source, early).await;
    ack(&source, late).await;
    place.await_committed(0, 2).await;
    // The process dies with two in hand.
    drop((rest, source));
    let source = place.open().await;
    assert_eq!(texts(&receive_all(&source, 4).await), ["002", "003", "004", "005"]);
    assert_eq!(place.committed(0).await, Some(2));
}

/// A released message is not done, and what is done behind it changes nothing.
#[tokio::test]
async fn a_released_message_is_not_committed() {
    let Some(place) = Place::or_skip("a_released_message_is_not_committed", 1).await else { return };
    place.send(0, numbers(3)).await;
    let source = place.open().await;
    let (released, done) = split(receive_all(&source, 3).await, &["001"]);
    ack(&source, done).await;
    let release = Release { delay: Duration::from_secs(3600), reason: None };
    Source::<MemoryStore>::release(&source, released, release).await.unwrap();
    place.await_committed(0, 1).await;
    close(&source).await;
    assert_eq!(place.committed(0).await, Some(1));
}

/// A partition that is full is paused and goes on later, with nothing lost, doubled or out of order.
#[tokio::test]
async fn a_full_buffer_loses_nothing() {
    let Some(place) = Place::or_skip("a_full_buffer_loses_nothing", 2).await else { return };
    place.send(0, numbers(60)).await;
    place.send(1, numbers(60)).await;
    let source = open(place.source().buffer(3, 1 << 20)).await;
    let mut first = receive_all(&source, 2).await;
    // Nobody takes anything for longer than the source's patience, so it pauses.
    assert!(stays_pending(std::future::pending::<()>()).await);
    let mut seen = vec![Vec::new(), Vec::new()];
    let mut taken = 0;
    eventually("all have come", async || {
        let got =
            if first.is_empty() { receive(&source, 2, Duration::from_millis(50)).await } else { first.split_off(0) };
        taken += got.len();
        for delivery in &got {
            let coordinate = delivery.coordinate.clone().unwrap();
            let partition: usize = coordinate.as_str().split('/').nth(1).unwrap().parse().unwrap();
            seen[partition].push(text(delivery));
        }
        ack(&source, got).await;
        taken >= 120
    })
    .await;
    assert_eq!(seen, [numbers(60).collect::<Vec<_>>(), numbers(60).collect()]);
    place.await_committed(0, 60).await;
    place.await_committed(1, 60).await;
}

/// A second process takes over partitions while the first has messages in hand. What the first finishes in time is
/// committed before the other begins; what it does not finish is the other's; nothing is lost.
#[tokio::test]
async fn partitions_move_with_messages_in_hand() {
    let Some(place) = Place::or_skip("partitions_move_with_messages_in_hand", 4).await else { return };
    for partition in 0..4 {
        place.send(partition, (0..5).map(|n| format!("{partition}-{n}"))).await;
    }
    let first = open(place.source().drain(Duration::from_millis(1500))).await;
    let in_hand = receive_all(&first, 20).await;
    // Of each partition, the first two are done, and the last; the others stay in hand.
    let (done, kept): (Got, Got) =
        in_hand.into_iter().partition(|delivery| matches!(text(delivery).as_bytes()[2], b'0' | b'1' | b'4'));
    let mut seen: BTreeSet<String> = texts(&done).into_iter().collect();
    ack(&first, done).await;
    let second = place.open().await;
    let mut moved: Got = Vec::new();
    eventually("two partitions have moved", async || {
        moved.extend(receive(&second, 20, Duration::from_millis(100)).await);
        moved.len() >= 6
    })
    .await;
    let partitions: BTreeSet<u8> = moved.iter().map(|delivery| text(delivery).as_bytes()[0]).collect();
    assert_eq!(partitions.len(), 2);
    // It begins behind what was done without a gap, and not behind what was done after one.
    for partition in &partitions {
        let partition = char::from(*partition);
        let got: Vec<String> = texts(&moved).into_iter().filter(|text| text.starts_with(partition)).collect();
        assert_eq!(got, ["2", "3", "4"].map(|n| format!("{partition}-{n}")));
        place.await_committed(i32::try_from(partition.to_digit(10).unwrap()).unwrap(), 2).await;
    }
    // The first finishes what it still has in hand. Where the partition moved, that changes nothing.
    seen.extend(texts(&kept));
    ack(&first, kept).await;
    for partition in 0..4_u8 {
        let offset = if partitions.contains(&(b'0' + partition)) { 2 } else { 5 };
        place.await_committed(i32::from(partition), offset).await;
    }
    ack(&second, moved).await;
    for partition in 0..4 {
        place.await_committed(partition, 5).await;
    }
    assert_eq!(seen.len(), 20);
    close(&first).await;
    close(&second).await;
    for partition in 0..4 {
        assert_eq!(place.committed(partition).await, Some(5));
    }
}

/// A partition is not given up before what is in hand is done, if that takes less than the drain.
#[tokio::test]
async fn what_is_in_hand_is_drained_before_a_partition_moves() {
    let Some(place) = Place::or_skip("what_is_in_hand_is_drained_before_a_partition_moves", 2).await else { return };
    place.send(0, numbers(2)).await;
    place.send(1, numbers(2)).await;
    let first = open(place.source().drain(Duration::from_secs(60))).await;
    let in_hand = receive_all(&first, 4).await;
    let second = place.open().await;
    // The group waits for the first: the second has nothing to read.
    for _ in 0..10 {
        assert_eq!(texts(&receive(&second, 10, Duration::from_millis(100)).await), Vec::<String>::new());
    }
    ack(&first, in_hand).await;
    place.send(0, ["more".to_owned()]).await;
    place.send(1, ["more".to_owned()]).await;
    let mut got = Vec::new();
    eventually("both read what is new", async || {
        let (a, b) =
            (receive(&first, 9, Duration::from_millis(50)).await, receive(&second, 9, Duration::from_millis(50)).await);
        got.extend(texts(&a).into_iter().chain(texts(&b)));
        ack(&first, a).await;
        ack(&second, b).await;
        got.len() >= 2
    })
    .await;
    assert_eq!(got, ["more", "more"], "nothing comes twice, because all was done before it moved");
}
