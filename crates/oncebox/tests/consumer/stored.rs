//! Stored mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;

use oncebox::queue::{Enqueue, Enqueued, QueueSpec, QueueStore, QueueTx};
use oncebox::retention::{RETENTION, Retention};
use oncebox::{
    Class, Clock, ConsumerName, Context, Fingerprint, Key, KeyStrategy, Message, OrderBy, Outcome, Queue, Session,
    Store, Timestamp, Transaction,
};
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

/// How many of the messages `1` to `3` stored mode still has, processed or not.
async fn stored_rows<F: EngineFixture>(setup: &Setup<F>) -> usize {
    let spec = QueueSpec::received(&ConsumerName::new("c").unwrap(), false);
    let queue = setup.store.queue(&spec).await.unwrap();
    let again = |id: &str| Enqueue {
        message: note(id, "again"),
        lane: None,
        once: Some((Key::id(id).unwrap(), Fingerprint::from_stored(1, 0))),
    };
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let answers = tx.enqueue(queue, &["1", "2", "3"].map(again)).await.unwrap();
    tx.rollback().await;
    answers.iter().filter(|answer| **answer != Enqueued::Added).count()
}

/// Rows of what was processed go with the records; what is parked, or waits, stays. What comes again after that is not
/// applied again.
pub(crate) async fn what_stored_mode_processed_goes_with_retention<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let old = |id: &str, text: &str| {
        let mut message: Message = note(id, text);
        message.time = "2020-07-01T00:00:00Z".parse().unwrap();
        message
    };
    let messages = || [old("1", "a"), old("2", "b"), old("3", "bad")];
    source.send_all(messages());
    let stored = || {
        consumer("c", &setup.store, source.clone())
            .clock(setup.clock.clone())
            .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
                if note.text == "bad" {
                    return Err(oncebox::Failure::permanent("it is bad"));
                }
                F::write_effect(ctx.db(), &note.text).await?;
                Ok(Outcome::applied())
            })
            .stored()
    };
    let first = stored();
    let stats = first.stats();
    let done = eventually("all are settled", async || {
        let seen = stats.snapshot();
        seen.handled == 2 && seen.dead == 1 && seen.in_hand == 0
    });
    in_real_time(&setup.clock, first.run(done)).await.unwrap();
    assert_eq!(stored_rows(&setup).await, 3, "what was processed is there");
    let now: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    setup.advance(now.duration_since(setup.clock.now()).unsigned_abs()).await;
    let retention = Retention::new(setup.store.clone()).keep("c", RETENTION).unwrap();
    let retention = retention.bounds(|bounds| (bounds.step_max, bounds.share) = (1, 100));
    let swept = eventually("what was processed is gone", async || stored_rows(&setup).await == 1);
    retention.run(swept).await.unwrap();
    source.send_all(messages());
    let second = stored();
    let (stats, front) = (second.stats(), second.front_stats());
    let done = eventually("all came again", async || {
        let (seen, front) = (stats.snapshot(), front.snapshot());
        front.handled == 3 && seen.too_old == 2 && seen.in_hand == 0 && source.backlog() == 0
    });
    in_real_time(&setup.clock, second.run(done)).await.unwrap();
    assert_eq!(effects(&setup).await, ["a", "b"]);
}
