//! What waits is told: how far the partitions of this process are behind their ends.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{Place, ack, receive_all};
use oncebox_core::Source;
use oncebox_core::memory::MemoryStore;
use oncebox_testkit::eventually;

/// Also where nothing was ever read of a partition.
#[tokio::test]
async fn what_waits_in_partitions_is_told() {
    let Some(place) = Place::or_skip("what_waits_in_partitions_is_told", 2).await else { return };
    place.send(0, (0..5).map(|n| n.to_string())).await;
    let source = place.open().await;
    let backlog = async || Source::<MemoryStore>::backlog(&source).await.unwrap().unwrap();
    assert!(backlog().await.is_share);
    eventually("five wait", async || backlog().await.messages == Some(5)).await;
    let got = receive_all(&source, 5).await;
    assert_eq!(backlog().await.messages, Some(5), "they are in hand, and not done");
    ack(&source, got).await;
    eventually("none waits", async || backlog().await.messages == Some(0)).await;
}

/// The record at the offset to commit, whatever was done after it.
#[tokio::test]
async fn how_long_the_oldest_waits_is_told() {
    let Some(place) = Place::or_skip("how_long_the_oldest_waits_is_told", 2).await else { return };
    place.send(0, ["a".to_owned()]).await;
    let source = place.open().await;
    let oldest = async || Source::<MemoryStore>::backlog(&source).await.unwrap().unwrap().oldest_seconds;
    eventually("the first has waited for a while", async || oldest().await.is_some_and(|waits| waits >= 2)).await;
    place.send(0, ["b".to_owned()]).await;
    let mut got = receive_all(&source, 2).await;
    ack(&source, vec![got.remove(1)]).await;
    assert!(oldest().await.is_some_and(|waits| waits >= 2), "the first is in hand");
    ack(&source, got).await;
    assert_eq!(oldest().await, None, "nothing waits");
}
