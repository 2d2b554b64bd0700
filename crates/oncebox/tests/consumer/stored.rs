//! Stored mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use oncebox::memory::MemorySource;

use oncebox::{Class, Context, KeyStrategy, OrderBy, Outcome, Queue};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::order::{by_key, unreliable};
use super::rig::*;

pub(crate) async fn stored_messages_are_acknowledged_before_they_are_handled<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b")]);
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    let gated = |gate: Arc<AtomicBool>| {
        move |mut ctx: Context<F::Store>, note: Note| {
            let open = gate.load(SeqCst);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                if open { Ok(Outcome::applied()) } else { Err(refuse()) }
            }
        }
    };
    let stored = consumer("c", &setup.store, source.clone()).on("noted", gated(gate)).stored();
    let stats = stored.stats();
    let done = eventually("both are handled", async || {
        // Acknowledged while no handler has succeeded yet.
        if source.backlog() == 0 && stats.snapshot().failures > 0 {
            open.store(true, SeqCst);
        }
        stats.snapshot().handled == 2
    });
    in_real_time(&setup.clock, stored.run(done)).await.unwrap();
    assert_eq!(effects(&setup).await, ["a", "b"]);
}

pub(crate) async fn a_redelivery_of_a_stored_message_runs_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "a"), note("2", "b")]);
    let stored = || consumer("c", &setup.store, source.clone()).on("noted", write::<F>).stored();
    let first = stored();
    let stats = first.stats();
    let done = eventually("both are handled", async || stats.snapshot().handled == 2 && source.backlog() == 0);
    in_real_time(&setup.clock, first.run(done)).await.unwrap();
    // Later the broker delivers again, and a conflict comes too.
    source.send_all([note("1", "a"), note("2", "other")]);
    let second = stored();
    let (stats, front) = (second.stats(), second.front_stats());
    // The conflict is stored beside the other, and judged by whoever handles it, in its order.
    let done = eventually("one found stored, one in conflict", async || {
        front.snapshot().handled >= 2 && stats.snapshot().dead >= 1 && source.backlog() == 0
    });
    in_real_time(&setup.clock, second.run(done)).await.unwrap();
    assert_eq!(effects(&setup).await, ["a", "b"]);
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), kept.state, kept.class), ("2", DEAD, Some(Class::Permanent)), "the conflict is kept");
}

pub(crate) async fn stored_mode_keeps_order_under_random_failures<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    for n in 0..15 {
        for key in ["a", "b", "c"] {
            source.send(note(&format!("{key}{n}"), &format!("{key}:{n}")).with_order_key(key));
        }
    }
    let stored = consumer("c", &setup.store, source.clone())
        .on("noted", unreliable::<F>(17))
        .order_by(OrderBy::MessageKey)
        .stored();
    let stats = stored.stats();
    let done = eventually("all are handled", async || stats.snapshot().handled == 45);
    in_real_time(&setup.clock, stored.run(done)).await.unwrap();
    for (key, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (0..15).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn stored_mode_keys_by_the_origin_s_coordinate<F: EngineFixture>(setup: Setup<F>) {
    // Producers that make no ids: the place in the broker is all there is, and it must survive being stored.
    let source = Queue::new(setup.store.clone(), "origin").unwrap();
    let mut anonymous = note("1", "a");
    anonymous.id = None;
    source.send([anonymous.clone(), anonymous]).await.unwrap();
    let stored = consumer("c", &setup.store, source).on("noted", write::<F>).key(KeyStrategy::Coordinate).stored();
    let stats = stored.stats();
    let done = eventually("both are handled", async || stats.snapshot().handled == 2);
    in_real_time(&setup.clock, stored.run(done)).await.unwrap();
    assert_eq!(effects(&setup).await, ["a", "a"], "two places, two messages");
}
