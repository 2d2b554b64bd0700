//! What waits is told: what is ready in the queue.

use oncebox_core::Source;
use oncebox_core::memory::MemoryStore;
use oncebox_testkit::eventually;

use crate::common::{Bystander, name};

#[tokio::test]
async fn what_is_ready_in_a_queue_is_told() {
    let Some(bystander) = Bystander::find("what_is_ready_in_a_queue_is_told").await else { return };
    let queue = name("backlog");
    bystander.declare(&queue, &[]).await;
    bystander.send_texts(&queue, &["a", "b", "c", "d"]).await;
    let source = bystander.rabbit().source(&queue).prefetch(1);
    source.open(&MemoryStore::new()).await.unwrap();
    let backlog = async || Source::<MemoryStore>::backlog(&source).await.unwrap().unwrap().messages;
    eventually("one is on its way, three are ready", async || backlog().await == Some(3)).await;
    bystander.delete(&queue).await;
    let error = Source::<MemoryStore>::backlog(&source).await.unwrap_err();
    assert!(error.to_string().contains("cannot count the messages of queue"), "{error}");
}
