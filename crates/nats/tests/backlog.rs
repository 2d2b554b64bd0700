//! What waits is told: what the consumer was not given yet.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use common::{Place, ack, receive_all, server};
use oncebox_core::Source;
use oncebox_core::memory::MemoryStore;
use oncebox_testkit::eventually;

#[tokio::test]
async fn what_waits_in_a_stream_is_told() {
    let Some(url) = server("what_waits_in_a_stream_is_told") else { return };
    let place = Place::at(url).await;
    let source = place.open_source().await;
    let backlog = async || Source::<MemoryStore>::backlog(&source).await.unwrap().unwrap().messages;
    assert_eq!(backlog().await, Some(0));
    place.publish(&["a", "b", "c"]).await;
    eventually("three wait", async || backlog().await == Some(3)).await;
    let got = receive_all(&source, 3).await;
    eventually("none waits", async || backlog().await == Some(0)).await;
    ack(&source, got).await.unwrap();
}

/// The first that is not acknowledged, in hand or not, whatever was acknowledged after it; deleted ones are passed over.
#[tokio::test]
async fn how_long_the_oldest_waits_is_told() {
    let Some(url) = server("how_long_the_oldest_waits_is_told") else { return };
    let place = Place::at(url).await;
    let source = place.open_source().await;
    let oldest = async || Source::<MemoryStore>::backlog(&source).await.unwrap().unwrap().oldest_seconds;
    assert_eq!(oldest().await, None, "nothing waits");
    place.publish(&["gone", "a"]).await;
    place.context.get_stream(&place.stream).await.unwrap().delete_message(1).await.unwrap();
    eventually("the first has waited for a while", async || oldest().await.is_some_and(|waits| waits >= 2)).await;
    place.publish(&["b"]).await;
    let mut got = receive_all(&source, 2).await;
    ack(&source, vec![got.remove(1)]).await.unwrap();
    assert!(oldest().await.is_some_and(|waits| waits >= 2), "the first is in hand");
    ack(&source, got).await.unwrap();
    eventually("nothing waits", async || oldest().await.is_none()).await;
    place.publish(&["c"]).await;
    eventually("a new one waits", async || oldest().await.is_some()).await;
    assert!(oldest().await.is_some_and(|waits| waits < 2), "it is new");
}
