//! A row that the broker takes its time over, and the rows beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySink;
use oncebox::outbox::Outbox;
use oncebox::sink::SinkCapabilities;
use oncebox::{Ended, Outgoing, Relay, Session, Sink, SinkError, SinkErrorKind, Store, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;
use tokio::sync::Notify;

use super::relay::{emit, outgoing, texts};
use super::rig::*;

/// A sink that takes its time over one row, and refuses it in the end. It confirms each row by itself.
#[derive(Clone, Default)]
struct Doubtful {
    taken: MemorySink,
    is_asked: Arc<AtomicBool>,
    may_answer: Arc<Notify>,
}

impl Sink for Doubtful {
    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities::none("doubtful")
    }

    async fn open(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let mut answers = Vec::new();
        for outgoing in batch {
            if outgoing.message.payload == b"a:1"[..] {
                self.is_asked.store(true, SeqCst);
                self.may_answer.notified().await;
                answers.push(Err(SinkError::new(SinkErrorKind::Refused, "publish", "it is a suspect")));
            } else {
                answers.extend(self.taken.publish(std::slice::from_ref(outgoing)).await);
            }
        }
        answers
    }
}

/// While the broker has not said what becomes of a row, nothing follows it under its topic and order key; rows of others go
/// on, with other workers. Once it is refused, those that wait go on waiting until someone decides.
pub(crate) async fn neighbours_wait_while_a_suspect_row_is_proved<F: EngineFixture>(setup: Setup<F>) {
    let sink = Doubtful::default();
    let mut rows: Vec<Outgoing> = (0..4).map(|n| outgoing("t", Some("a"), &format!("a:{n}"))).collect();
    rows.extend((0..64).map(|n| outgoing("t", Some(&format!("k-{n}")), &format!("k-{n}:0"))));
    emit(&setup.store, &rows).await;
    let relay = Relay::new(setup.store.clone(), sink.clone()).bounds(|bounds| bounds.workers = 4);
    let stats = relay.stats();
    let watch = async {
        eventually("the suspect is under way", async || sink.is_asked.load(SeqCst)).await;
        // Of four workers, one waits for the suspect: half of the 64 others get through whatever lanes they are in.
        eventually("others go on", async || sink.taken.len() > 32).await;
        let said = texts(&sink.taken.take());
        assert!(!said.iter().any(|text| ["a:1", "a:2", "a:3"].contains(&text.as_str())), "{said:?}");
        sink.may_answer.notify_one();
        eventually("it is set aside", async || stats.snapshot().set_aside == 1).await;
        emit(&setup.store, &[outgoing("t", Some("z"), "z:0")]).await;
        eventually("the others are through", async || stats.snapshot().published == 66).await;
    };
    let (ended, ()) = tokio::join!(relay.run(eventually("told", async || stats.snapshot().published == 66)), watch);
    ended.unwrap();
    assert!(!texts(&sink.taken.take()).iter().any(|text| text.starts_with("a:2") || text.starts_with("a:3")));
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let aside = tx.page_aside(0, 10).await.unwrap();
    assert_eq!(tx.skip_aside(&[aside[0].row]).await.unwrap(), [true]);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    let relay = Relay::new(setup.store.clone(), sink.clone());
    let stats = relay.stats();
    relay.run(eventually("what waited is published", async || stats.snapshot().published == 2)).await.unwrap();
    assert_eq!(texts(&sink.taken.take()), ["a:2", "a:3"]);
}
