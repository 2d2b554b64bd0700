//! Shutting down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;

use oncebox::{Context, Drained, Outcome};
use oncebox_testkit::eventually;
use oncebox_testkit::faults::{Fault, FaultPlan, FaultySource};
use oncebox_testkit::store::Setup;
use tokio::sync::Semaphore;

use super::rig::*;

pub(crate) async fn a_shutdown_finishes_what_runs_and_gives_back_the_rest<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..10).map(|n| note(&n.to_string(), &n.to_string())));
    let (started, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (starts, gate) = (Arc::clone(&started), Arc::clone(&may_end));
    let gated = consumer("c", &setup.store, source.clone())
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let (starts, gate) = (Arc::clone(&starts), Arc::clone(&gate));
            async move {
                starts.fetch_add(1, SeqCst);
                F::write_effect(ctx.db(), &note.text).await?;
                let _ = gate.acquire().await;
                Ok(Outcome::applied())
            }
        })
        .lanes(1)
        .bounds(|bounds| bounds.batch_messages_max = 1);
    let running = Running::start(gated);
    eventually("the first one runs", async || started.load(SeqCst) == 1).await;
    let stats = Arc::clone(&running.stats);
    let stopping = running.stop();
    tokio::pin!(stopping);
    // Asked to stop while one is in the middle of its transaction.
    assert!(oncebox_testkit::stays_pending(&mut stopping).await);
    may_end.add_permits(10);
    assert_eq!(stopping.await, Drained::Clean);
    assert_eq!(effects(&setup).await, ["0"]);
    assert_eq!((started.load(SeqCst), source.backlog(), stats.snapshot().released), (1, 9, 9));
}

pub(crate) async fn a_handler_that_never_ends_does_not_hold_up_a_shutdown_forever<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let started = Arc::new(AtomicUsize::new(0));
    let starts = Arc::clone(&started);
    let endless = consumer("c", &setup.store, source.clone())
        .on("noted", move |ctx: Context<F::Store>, _: Note| {
            starts.fetch_add(1, SeqCst);
            async move {
                std::future::pending::<()>().await;
                drop(ctx);
                Ok(Outcome::applied())
            }
        })
        .bounds(|bounds| bounds.drain_deadline = Duration::from_millis(50));
    let running = Running::start(endless);
    eventually("it runs", async || started.load(SeqCst) == 1).await;
    assert_eq!(running.stop().await, Drained::DeadlinePassed);
    assert_eq!(source.backlog(), 1, "not acknowledged: it comes again");
}

/// A broker that takes the connection and says nothing is not waited for when it is time to go.
pub(crate) async fn a_shutdown_does_not_wait_for_a_source_that_opens<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    plan.fail("open", Fault::Delay(Duration::from_secs(86_400)), 1);
    let source = FaultySource::new(MemorySource::new(), plan.clone());
    let waits = consumer("c", &setup.store, source).on("noted", write::<F>);
    let running = Running::start(waits);
    eventually("it opens its source", async || plan.count("open") == 1).await;
    assert_eq!(running.stop().await, Drained::Clean);
}
