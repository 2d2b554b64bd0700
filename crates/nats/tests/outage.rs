//! The server is killed and comes back. Its own server, because it takes everybody's connections down: this file runs
//! `scripts/nats` on a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use oncebox::memory::MemoryStore;
use oncebox::sink::SinkErrorKind;
use oncebox::{Consumer, Context, Message, Outcome, Outgoing, Sink, SourceErrorKind};
use oncebox_testkit::eventually;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::Instant;

use common::{Place, WAIT, ack, receive, receive_all, texts};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/nats");

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
        let done = Command::new(SCRIPT).arg(verb).arg(&self.folder).output().await.unwrap();
        assert!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    /// Also when the test failed.
    fn drop(&mut self) {
        let stopped = std::process::Command::new(SCRIPT).arg("stop").arg(&self.folder).output();
        if stopped.is_ok_and(|stopped| stopped.status.success()) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing() {
    let Some((server, url)) = Server::start("a_killed_server_loses_nothing").await else { return };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3", "4", "5", "6"]).await;
    let source = place.open_source().await;
    let mut got = receive_all(&source, 6).await;
    got.sort_by_key(|delivery| delivery.message.payload.clone());
    let in_hand = got.split_off(3);
    ack(&source, got).await.unwrap();

    server.script("kill").await;
    // An empty answer would say that there is nothing; the truth is that nobody knows.
    eventually("the loss is noticed", async || {
        let received = receive(&source, 10, Duration::from_millis(50)).await;
        received.is_err_and(|error| error.kind() == SourceErrorKind::Unavailable)
    })
    .await;
    let start = Instant::now();
    assert_eq!(ack(&source, in_hand).await.unwrap_err().kind(), SourceErrorKind::Unavailable);
    assert!(start.elapsed() < Duration::from_secs(10));

    server.script("restart").await;
    // Those that were acknowledged just before may come as well: the server writes down acknowledgements a moment after it
    // has confirmed them.
    let mut seen = BTreeSet::new();
    eventually("what was in hand comes again", async || {
        let got = receive(&source, 10, Duration::from_secs(1)).await.unwrap_or_default();
        seen.extend(texts(&got));
        // While the client is still reconnecting, this fails, and they come again.
        let _ = ack(&source, got).await;
        ["4", "5", "6"].iter().all(|text| seen.contains(*text))
    })
    .await;
    eventually("all are settled", async || {
        // Also those that come again although they were acknowledged.
        let got = receive(&source, 10, Duration::from_millis(50)).await.unwrap_or_default();
        ack(&source, got).await.is_ok() && place.pending().await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_does_not_come_again_after_a_restart() {
    let name = "what_was_acknowledged_does_not_come_again_after_a_restart";
    let Some((server, url)) = Server::start(name).await else { return };
    let place = Place::at(url).await;
    place.publish(&["1", "2", "3", "4"]).await;
    let source = place.open_source().await;
    let mut got = receive_all(&source, 4).await;
    got.sort_by_key(|delivery| delivery.message.payload.clone());
    let in_hand = got.split_off(2);
    ack(&source, got).await.unwrap();
    // Stopped in good order, so that it has written down everything.
    server.script("restart").await;
    drop(in_hand);
    let again = receive_all(&source, 2).await;
    let mut said = texts(&again);
    said.sort();
    assert_eq!(said, ["3", "4"]);
    ack(&source, again).await.unwrap();
    assert_eq!(place.pending().await, 0);
    assert!(receive(&source, 10, Duration::from_millis(300)).await.unwrap().is_empty());
}

async fn note(mut ctx: Context<MemoryStore>, text: String) -> oncebox::Result<Outcome> {
    ctx.db().append("effects", &text)?;
    Ok(Outcome::applied())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_goes_on_after_a_kill_and_each_message_takes_effect_once() {
    let name = "a_consumer_goes_on_after_a_kill_and_each_message_takes_effect_once";
    let Some((server, url)) = Server::start(name).await else { return };
    let place = Place::at(url).await;
    let sink = place.open_sink().await;
    let messages: Vec<Outgoing> = (0..3_000)
        .map(|n| place.to(&place.subject, Message::new("noted").with_json(&format!("{n}")).unwrap()))
        .collect();
    for batch in messages.chunks(500) {
        assert!(sink.publish(batch).await.iter().all(Result::is_ok));
    }
    let store = MemoryStore::new();
    let effects = async || -> Vec<String> { store.with_db(|db| db.rows("effects")).await.unwrap() };
    let (stop, stopped) = oneshot::channel::<()>();
    let consumer = Consumer::new("notes", store.clone(), place.source()).on("noted", note);
    let mut running = tokio::task::JoinSet::new();
    running.spawn(async move {
        consumer
            .run(async {
                let _ = stopped.await;
            })
            .await
    });
    eventually("it is under way", async || effects().await.len() > 100).await;
    server.script("kill").await;
    server.script("restart").await;
    eventually("all took effect", async || effects().await.len() >= 3_000).await;
    eventually("all are settled", async || {
        let Ok(stream) = place.context.get_stream(&place.stream).await else { return false };
        let Ok(info) = stream.consumer_info("d").await else { return false };
        info.num_pending == 0 && info.num_ack_pending == 0
    })
    .await;
    drop(stop);
    running.join_next().await.unwrap().unwrap().unwrap();
    let all = effects().await;
    assert_eq!(all.len(), 3_000);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 3_000);
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
}
