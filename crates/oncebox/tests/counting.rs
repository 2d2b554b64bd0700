//! What a process counts gets into the store, once.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox::consumer::Cause;
use oncebox::counters::{Counters, Part, Process, Tally, TallyBody};
use oncebox::counting::{Counting, Overview};
use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::{Clock, Consumer, ConsumerName, Context, Ended, Message, Outcome, Session, Store, Transaction};
use oncebox_testkit::{ManualClock, eventually};
use tokio::sync::oneshot;

const WAIT: Duration = Duration::from_secs(5);

async fn note(mut ctx: Context<MemoryStore>, n: u64) -> oncebox::Result<Outcome> {
    ctx.db().append("notes", &n)?;
    Ok(Outcome::applied())
}

fn message(n: u64) -> Message {
    Message::new("noted").with_json(&n).unwrap()
}

/// Handled messages that the store knows of, duplicates, and rows of processes that run.
async fn counted(store: &MemoryStore) -> (u64, u64, usize) {
    let mut tx = store.connect().await.unwrap().begin(WAIT).await.unwrap();
    let counted = tx.read_counters().await.unwrap();
    tx.rollback().await;
    let sum = |name: &str| counted.rows.iter().map(|row| row.tally.body.count(name)).sum();
    let running = counted.rows.iter().filter(|row| row.process.id != Process::GONE).count();
    (sum("handled"), sum("transport_duplicates"), running)
}

/// Runs a consumer and its counting until `watch` is done.
async fn while_running(clock: &Arc<ManualClock>, watch: impl AsyncFn(&MemoryStore, &MemorySource)) -> MemoryStore {
    let store = MemoryStore::with_clock(Arc::clone(clock) as Arc<dyn oncebox::Clock>);
    let source = MemorySource::new();
    let consumer = Consumer::new("notes", store.clone(), source.clone()).on("noted", note);
    let counting = Counting::new(store.clone()).consumer("notes", consumer.stats());
    let ((end, ended), (stop, stopped)) = (oneshot::channel::<()>(), oneshot::channel::<()>());
    let consuming = async {
        consumer.run(async { drop(ended.await) }).await.unwrap();
        drop(stop);
    };
    let watching = async {
        watch(&store, &source).await;
        drop(end);
    };
    tokio::join!(consuming, counting.run(async { drop(stopped.await) }), watching);
    store
}

#[tokio::test(start_paused = true)]
async fn the_last_flush_has_everything_and_the_process_is_gone() {
    let clock = Arc::new(ManualClock::new());
    let store = while_running(&clock, async |store, source| {
        source.send_all((0..10).map(message));
        eventually("they are counted", async || counted(store).await == (10, 0, 1)).await;
        let again = message(99);
        source.send_all([again.clone(), again]);
        eventually("they are through", async || source.backlog() == 0).await;
    })
    .await;
    assert_eq!(counted(&store).await, (11, 1, 0));
}

/// Others took it for dead and added up its rows: it goes on from there.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_taken_for_dead_counts_nothing_twice() {
    let clock = Arc::new(ManualClock::new());
    let store = while_running(&clock, async |store, source| {
        source.send_all((0..10).map(message));
        eventually("they are counted", async || counted(store).await.0 == 10).await;
        let mut tx = store.connect().await.unwrap().begin(WAIT).await.unwrap();
        clock.advance(Duration::from_secs(601));
        assert_eq!(tx.fold_counters(Duration::from_secs(600), 10).await.unwrap(), 1);
        assert!(matches!(tx.commit().await, Ended::Committed(_)));
        assert_eq!(counted(store).await, (10, 0, 0));
        source.send_all((10..15).map(message));
        eventually("the others are counted", async || counted(store).await.0 >= 15).await;
        assert_eq!(counted(store).await, (15, 0, 1));
    })
    .await;
    assert_eq!(counted(&store).await, (15, 0, 0));
}

#[tokio::test]
async fn duplicates_carry_a_likely_cause() {
    let (store, source) = (MemoryStore::new(), MemorySource::new());
    let consumer = Consumer::new("notes", store, source.clone()).on("noted", note);
    let stats = consumer.stats();
    let twice = message(1);
    source.send_all([twice.clone(), twice]);
    consumer.run(eventually("both are through", async || source.backlog() == 0)).await.unwrap();
    let seen = stats.duplicates();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].kind.as_str(), seen[0].cause, seen[0].count), ("noted", Cause::SentAgain, 1));
    assert_eq!(stats.handler_seconds().count, 1);
}

/// A process that stands by knows what another has done.
#[tokio::test(start_paused = true)]
async fn what_others_count_is_known() {
    let (store, clock) = (MemoryStore::new(), oncebox::SystemClock);
    let counts = BTreeMap::from([("handled".to_owned(), 7_000)]);
    let body = TallyBody { counts, ..TallyBody::default() };
    let other = Tally { part: Part::Consumer(ConsumerName::new("notes").unwrap()), body };
    let mut tx = store.connect().await.unwrap().begin(WAIT).await.unwrap();
    tx.begin_counters(&Process { id: clock.id(), label: "other/1".to_owned() }, &[other]).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));

    let consumer = Consumer::new("notes", store.clone(), MemorySource::new()).on("noted", note);
    let counting = Counting::new(store).consumer("notes", consumer.stats());
    let (shown, overview) = oneshot::channel();
    let watching = async {
        let overview: Arc<Overview> = overview.await.unwrap();
        let known =
            || overview.in_store().counted.get("consumer notes").and_then(|counts| counts.get("handled").copied());
        eventually("it has looked", async || known() == Some(7_000)).await;
        assert_eq!(overview.consumers()[0].1.snapshot().handled, 0);
    };
    counting.run_with(|overview| drop(shown.send(overview)), watching).await;
}
