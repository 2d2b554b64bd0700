//! Messages of producers that are not ours, which our client would not survive or not read.

use std::path::Path;

use oncebox_rabbitmq::{QueueKind, RabbitSource};
use oncebox_testkit::skipped;

use crate::common::{Bystander, name};
use crate::{Plain, take_all, texts};

/// Publishes with another's client, in this order. `None` if it can't be had.
async fn published(test: &str, kinds: &[&str]) -> Option<RabbitSource> {
    let bystander = Bystander::find(test).await?;
    let queue = name("foreign");
    let source = bystander.rabbit().source(queue.as_str()).declare(QueueKind::Classic);
    let source = source.start().await;
    source.end().await;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = tokio::process::Command::new(here.join("../../scripts/foreign"));
    command.arg("run").arg(here.join("tests/foreign/publish.py")).args([&bystander.url, &queue]).args(kinds);
    let ran = command.output().await.unwrap();
    if ran.status.code() == Some(3) {
        skipped(test);
        return None;
    }
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    source.try_open().await.unwrap();
    Some(source)
}

/// 2,000 levels are 10 kB, and as many as a frame holds are 26,000. A process that died of them would die at each start.
#[tokio::test(flavor = "multi_thread")]
async fn headers_nested_as_deep_as_a_frame_holds_are_survived() {
    let test = "foreign::headers_nested_as_deep_as_a_frame_holds_are_survived";
    let kinds = ["plain:1", "deep:30", "deep:2000", "deep:26000", "plain:2"];
    let Some(source) = published(test, &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    for delivery in &got {
        assert_eq!(delivery.message.headers.get("seen"), Some("yes"));
    }
    let deep = &got[2].message;
    assert_eq!(deep.id.as_ref().unwrap().as_str(), "deep:2000");
    assert!(deep.headers.get("oncebox-unreadable-header;base64").unwrap().len() > 10_000, "as it came");
    assert_eq!(got[1].message.headers.get("oncebox-unreadable-header;base64"), None);
    source.settle(got).await;
    source.end().await;
}

/// Names, ids and routing keys are bytes to others.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_utf_8_stops_no_queue() {
    let kinds = ["plain:1", "name", "nested-name", "id", "routing-key", "plain:2"];
    let Some(source) = published("foreign::what_is_not_utf_8_stops_no_queue", &kinds).await else { return };
    let got = take_all(&source, kinds.len()).await;
    assert_eq!(texts(&got), kinds);
    let header = |n: usize, name: &str| got[n].message.headers.get(name).map(str::to_owned);
    let id = |n: usize| got[n].message.id.as_ref().map(|id| id.as_str().to_owned());
    // \x02 \xff \xfe t \x01
    assert_eq!(header(1, "oncebox-unreadable-header;base64").as_deref(), Some("Av/+dAE="));
    assert_eq!(id(1).as_deref(), Some("name"));
    assert!(header(2, "oncebox-unreadable-header;base64").is_some());
    assert_eq!((id(3), header(3, "oncebox-unreadable-message-id;base64").as_deref()), (None, Some("//4=")));
    assert_eq!(header(4, "oncebox-unreadable-routing-key;base64").as_deref(), Some("a//+"));
    assert_eq!((id(4).as_deref(), got[4].message.kind.as_str()), (Some("routing-key"), "k??"));
    assert!(got[5].message.headers.iter().all(|(name, _)| name == "seen"));
    source.settle(got).await;
    source.end().await;
}
