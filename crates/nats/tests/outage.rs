//! The server is killed and comes back. Its own server, because it takes everybody's connections down: this file runs
//! `scripts/nats` on a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncebox_core::sink::SinkErrorKind;
use oncebox_core::{Outgoing, Sink, SourceErrorKind};
use oncebox_testkit::eventually;
use tokio::process::Command;
use tokio::time::Instant;

use common::{Place, WAIT, ack, receive, receive_all, texts};

struct Server {
    folder: PathBuf,
}

impl Server {
    /// A server to kill, or `None` where there is none for tests at all.
    async fn start(name: &str) -> Option<(Self, String)> {
        common::server(name)?;
        let folder = std::env::temp_dir().join(format!("oncebox-nats-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let server = Self { folder };
        let url = server.script("start").await;
        Some((server, url))
    }

    async fn script(&self, verb: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/nats");
        let done = Command::new(script).arg(verb).arg(&self.folder).output().await.unwrap();
        assert!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    async fn stop(self) {
        self.script("stop").await;
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_and_brings_nothing_back() {
    let Some((server, url)) = Server::start("a_killed_server_loses_nothing_and_brings_nothing_back").await else {
        return;
    };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3", "4", "5", "6"]).await;
    let source = place.open_source().await;
    let mut got = receive_all(&source, 6).await;
    got.sort_by_key(|delivery| delivery.message.payload.clone());
    let in_hand = got.split_off(3);
    ack(&source, got).await.unwrap();

    server.script("kill").await;
    // An empty answer would say that there is nothing; the truth is that nobody knows.
    eventually("the loss is noticed", async || match receive(&source, 10, Duration::from_millis(50)).await {
        Ok(_) => false,
        Err(error) => error.kind() == SourceErrorKind::Unavailable,
    })
    .await;
    let start = Instant::now();
    assert_eq!(ack(&source, in_hand).await.unwrap_err().kind(), SourceErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(10));

    server.script("restart").await;
    let again = receive_all(&source, 3).await;
    let mut said = texts(&again);
    said.sort();
    assert_eq!(said, ["4", "5", "6"]);
    ack(&source, again).await.unwrap();
    assert_eq!(place.pending().await, 0);
    assert!(receive(&source, 10, Duration::from_millis(300)).await.unwrap().is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_in_time_when_the_server_is_killed_during_it() {
    let Some((server, url)) = Server::start("a_wait_ends_in_time_when_the_server_is_killed_during_it").await else {
        return;
    };
    let place = Place::at(url).await;
    let source = place.open_source().await;
    let killing = async {
        let stream = place.context.get_stream(&place.stream).await.unwrap();
        eventually("it waits", async || stream.consumer_info("d").await.unwrap().num_waiting > 0).await;
        server.script("kill").await;
    };
    let start = Instant::now();
    let (received, ()) = tokio::join!(receive(&source, 10, Duration::from_secs(600)), killing);
    assert_eq!(received.unwrap_err().kind(), SourceErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(60), "it waited for a server that was gone");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_confirmed_around_a_kill_is_there_and_what_is_published_again_is_there_once() {
    let name = "what_is_confirmed_around_a_kill_is_there_and_what_is_published_again_is_there_once";
    let Some((server, url)) = Server::start(name).await else { return };
    let place = Place::at(url).await;
    let sink = place.sink().timeout(Duration::from_secs(2));
    sink.open().await.unwrap();
    let all: Vec<Outgoing> = (0..2_000).map(|n| place.outgoing(&n.to_string())).collect();
    let mut left: Vec<Outgoing> = all.clone();
    let mut killed = false;
    eventually("all are published", async || {
        let publishing = sink.publish(&left);
        let answers = if killed {
            publishing.await
        } else {
            killed = true;
            let killing = async {
                eventually("some are stored", async || place.stored().await > 100).await;
                server.script("kill").await;
            };
            let (answers, ()) = tokio::join!(publishing, killing);
            assert!(
                answers.iter().flat_map(|answer| answer.as_ref().err()).all(|e| e.kind() == SinkErrorKind::Unavailable)
            );
            server.script("restart").await;
            answers
        };
        left = left.drain(..).zip(answers).filter_map(|(out, answer)| answer.err().map(|_| out)).collect();
        left.is_empty()
    })
    .await;
    let source = place.open_source().await;
    let mut seen = BTreeSet::new();
    while seen.len() < all.len() {
        let got = receive(&source, 1_000, WAIT).await.unwrap();
        assert!(!got.is_empty(), "{} of {} were stored", seen.len(), all.len());
        for text in texts(&got) {
            assert!(seen.insert(text.clone()), "{text} is there twice");
        }
        ack(&source, got).await.unwrap();
    }
    assert_eq!(place.stored().await, 2_000);
    server.stop().await;
}
