//! A server that is killed. In a file of its own, because it takes the server away from everyone.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Bystander, folder, name, script, url};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Message, Outgoing, Sink, SinkErrorKind, Source, SourceErrorKind};
use oncebox_rabbitmq::{QueueKind, RabbitSource};
use oncebox_testkit::eventually;

type Delivery = oncebox_core::Delivery<oncebox_rabbitmq::RabbitReceipt>;

const WAIT: Duration = Duration::from_millis(200);

async fn receive(source: &RabbitSource) -> Result<Vec<Delivery>, oncebox_core::SourceError> {
    Source::<MemoryStore>::receive(source, 1000, WAIT).await
}

async fn ack(source: &RabbitSource, deliveries: Vec<Delivery>) {
    Source::<MemoryStore>::ack(source, deliveries).await.unwrap();
}

fn texts(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned()).collect()
}

fn outgoing(queue: &str, range: std::ops::Range<usize>) -> Vec<Outgoing> {
    range
        .map(|n| Outgoing {
            topic: queue.to_owned(),
            message: Arc::new(Message::new("noted").with_payload(format!("{n:03}"))),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_it_confirmed() {
    let test = "outage::a_killed_server_loses_nothing_that_it_confirmed";
    let (Some(url), Some(folder)) = (url(test), folder(test)) else { return };
    let bystander = Bystander::connect(&url).await;
    let rabbit = bystander.rabbit().reconnect_pause_max(Duration::from_millis(500));
    let sink = rabbit.sink();
    sink.open().await.unwrap();
    let mut queues = Vec::new();
    for kind in [QueueKind::Quorum, QueueKind::Classic] {
        let queue = name("outage");
        let source = rabbit.source(queue.as_str()).declare(kind);
        Source::open(&source, &MemoryStore::new()).await.unwrap();
        queues.push((queue, source));
    }
    // A quorum queue that is younger than three minutes does not outlive a kill of RabbitMQ 3.10 otherwise.
    script(&["settle", &folder]).await;

    let mut in_hand = Vec::new();
    for (queue, source) in &queues {
        assert!(sink.publish(&outgoing(queue, 0..100)).await.iter().all(Result::is_ok));
        let mut got = Vec::new();
        eventually("all come", async || {
            got.extend(receive(source).await.unwrap());
            got.len() == 100
        })
        .await;
        let kept = got.split_off(40);
        ack(source, got).await;
        in_hand.push(kept);
    }
    // An acknowledgement is not confirmed: what is published behind it on another connection shows nothing, but a queue that
    // a fresh connection finds with 60 unacknowledged does.
    eventually("the broker has the acknowledgements", async || {
        let output = ctl(&folder, &["list_queues", "--silent", "name", "messages"]).await;
        queues.iter().all(|(queue, _)| output.lines().any(|line| line.split_whitespace().eq([queue.as_str(), "60"])))
    })
    .await;

    script(&["kill", &folder]).await;
    for (queue, source) in &queues {
        eventually("the outage is told", async || receive(source).await.is_err()).await;
        let error = receive(source).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Unavailable, "{error}");
        let answers = sink.publish(&outgoing(queue, 100..101)).await;
        assert_eq!(answers[0].as_ref().unwrap_err().kind(), SinkErrorKind::Unavailable);
    }
    script(&["restart", &folder]).await;

    for ((queue, source), kept) in queues.iter().zip(in_hand) {
        eventually("the sink is back", async || sink.publish(&outgoing(queue, 101..102)).await == [Ok(())]).await;
        let mut again = Vec::new();
        let expected: BTreeSet<String> = (40..100).chain([101]).map(|n| format!("{n:03}")).collect();
        eventually("what was in hand comes again", async || {
            if let Ok(more) = receive(source).await {
                again.extend(more);
            }
            // The one that was published into the outage may have arrived or not.
            texts(&again).into_iter().filter(|text| text != "100").collect::<BTreeSet<_>>() == expected
        })
        .await;
        assert!(again.len() <= 62, "each once: {}", again.len());
        // Too late, and no error.
        ack(source, kept).await;
        ack(source, again).await;
        assert!(receive(source).await.unwrap().is_empty());
        Source::<MemoryStore>::close(source).await;
    }
}

async fn ctl(folder: &str, words: &[&str]) -> String {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rabbitmq");
    let output = tokio::process::Command::new(script).args(["ctl", folder]).args(words).output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
