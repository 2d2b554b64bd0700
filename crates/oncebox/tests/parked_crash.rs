//! A process that dies between parking a message and telling its source, or before the parking is durable. In a process
//! of its own, because crash points belong to the process.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::{MemorySource, MemoryStore};
use oncebox::{Consumer, Context, Failure, Message, MessageId, Outcome, Retry};
use oncebox_testkit::crash::{Action, arm, still_armed};
use oncebox_testkit::{ManualClock, eventually};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_while_parking_costs_nothing() {
    for (point, action) in [("parking", Action::Fail), ("parked", Action::Hang), ("leased", Action::Fail)] {
        let clock = Arc::new(ManualClock::new());
        let store = MemoryStore::with_clock(clock.clone());
        let source = MemorySource::with_clock(clock.clone(), LEASE);
        source.send(Message::new("noted").with_id(MessageId::new("1").unwrap()).with_json(&"a").unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let start = || {
            let counted = Arc::clone(&calls);
            let consumer = Consumer::new("c", store.clone(), source.clone())
                .on("noted", move |mut ctx: Context<MemoryStore>, text: String| {
                    let fails = counted.fetch_add(1, SeqCst) == 0;
                    async move {
                        ctx.db().append("effects", &text)?;
                        if fails { Err(Failure::transient("the case said so")) } else { Ok(Outcome::applied()) }
                    }
                })
                .retry(Retry::new().first(Duration::ZERO).within(Duration::MAX));
            (consumer.stats(), consumer)
        };
        arm(point, action, 1).unwrap();
        let (_, dies) = start();
        #[allow(clippy::disallowed_methods, reason = "the handle is kept, to kill it")]
        let process = tokio::spawn(dies.run(std::future::pending()));
        eventually("it got there", async || still_armed() == 0).await;
        process.abort();
        let _ = process.await;
        clock.advance(LEASE + LEASE);
        source.wake();

        let (stats, survivor) = start();
        let done = eventually("it is applied and acknowledged", async || {
            let effects: Vec<String> = store.with_db(|db| db.rows("effects")).await.unwrap();
            source.backlog() == 0 && !effects.is_empty() && stats.snapshot().in_hand == 0
        });
        survivor.run(done).await.unwrap();
        let effects: Vec<String> = store.with_db(|db| db.rows("effects")).await.unwrap();
        assert_eq!((effects, store.parked().await.len()), (vec!["a".to_owned()], 0), "died at {point}");
    }
}
