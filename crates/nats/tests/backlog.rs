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
