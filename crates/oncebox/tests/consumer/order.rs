//! Order per key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::{RunError, Snapshot, StartError};
use oncebox::memory::MemorySource;

use oncebox::{Context, KeyStrategy, OrderBy, Outcome, Queue, StoreError, StoreErrorKind};
use oncebox_testkit::eventually;
use oncebox_testkit::faults::{Fault, FaultPlan, FaultySource};
use oncebox_testkit::store::Setup;
use tokio::sync::Semaphore;

use super::rig::*;

/// The effects per key, as committed, from texts like `key:number`.
pub(crate) fn by_key(effects: &[String]) -> HashMap<String, Vec<u32>> {
    let mut by_key: HashMap<String, Vec<u32>> = HashMap::new();
    for effect in effects {
        let (key, number) = effect.split_once(':').unwrap();
        by_key.entry(key.to_owned()).or_default().push(number.parse().unwrap());
    }
    by_key
}

/// Handles `key:number`, failing now and then, and notes the order in which messages were committed.
pub(crate) fn unreliable<F: EngineFixture>(
    seed: u64,
) -> impl Fn(Context<F::Store>, Note) -> BoxFuture<oncebox::Result<Outcome>> + Send + Sync + 'static {
    let dice = Arc::new(Mutex::new(seed));
    move |mut ctx, note| {
        let dice = Arc::clone(&dice);
        Box::pin(async move {
            let roll = {
                let mut dice = dice.lock().unwrap();
                *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *dice >> 33
            };
            F::write_effect(ctx.db(), &note.text).await?;
            if roll % 8 == 0 { Err(refuse()) } else { Ok(Outcome::applied()) }
        })
    }
}

pub(crate) async fn order_is_kept_per_key_under_random_failures<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    for n in 0..40 {
        for key in ["a", "b", "c", "d", "e"] {
            source.send(note(&format!("{key}{n}"), &format!("{key}:{n}")).with_order_key(key));
        }
    }
    let ordered = consumer("c", &setup.store, source.clone())
        .on("noted", unreliable::<F>(11))
        .order_by(OrderBy::MessageKey)
        .bounds(|bounds| bounds.batch_messages_max = 7);
    run_dry(ordered, &source).await;
    // The table hands rows back in the order they were written.
    for (key, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (0..40).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn order_without_an_owner_is_refused_at_start<F: EngineFixture>(setup: Setup<F>) {
    let queue = Queue::new(setup.store.clone(), "free").unwrap();
    let ordered = consumer("c", &setup.store, queue).on("noted", write::<F>).order_by(OrderBy::MessageKey);
    let error = ordered.run(std::future::ready(())).await.unwrap_err();
    assert!(matches!(error, RunError::Start(StartError::NoOrder { .. })), "{error}");
    assert!(error.to_string().contains("a queue opened with lanes"), "{error}");
}

pub(crate) async fn a_failed_message_holds_back_only_its_own_key<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    for (id, key) in [("1", "stuck"), ("2", "stuck"), ("3", "free"), ("4", "stuck"), ("5", "free")] {
        source.send(note(id, &format!("{key}:{id}")).with_order_key(key));
    }
    let ordered = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            F::write_effect(ctx.db(), &note.text).await?;
            if note.text == "stuck:1" { Err(refuse()) } else { Ok(Outcome::applied()) }
        })
        .order_by(OrderBy::MessageKey);
    let seen = run_until(ordered, "the stuck one failed ten times", async |seen| seen.failures >= 10).await;
    assert_eq!(effects(&setup).await, ["free:3", "free:5"]);
    assert_eq!((seen.handled, seen.parked_behind, source.backlog()), (2, 2, 0));
    let waiting = [("1", RETRIES), ("2", BEHIND), ("4", BEHIND)].map(|(id, state)| (id.to_owned(), state));
    assert_eq!(states(&setup).await, waiting);
}

pub(crate) async fn a_contended_head_holds_back_its_key<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all(["1", "2", "3"].map(|n| note(n, &format!("k:{n}")).with_order_key("k")));
    let tries = Arc::new(AtomicUsize::new(0));
    let ordered = consumer("c", &setup.store, source.clone())
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let tries = Arc::clone(&tries);
            async move {
                // Longer in the way than a message alone waits, so that it is released and comes again.
                if note.text == "k:1" && tries.fetch_add(1, SeqCst) < 5 {
                    return Err(StoreError::new(StoreErrorKind::Contended, "lock a row", "someone has it").into());
                }
                F::write_effect(ctx.db(), &note.text).await?;
                Ok(Outcome::applied())
            }
        })
        .order_by(OrderBy::MessageKey)
        .bounds(|bounds| bounds.contended_tries_max = 2);
    let seen = run_dry(ordered, &source).await;
    assert_eq!(F::effects(&setup.store).await, ["k:1", "k:2", "k:3"]);
    assert!(seen.released > 0 && seen.failures == 0, "{seen:?}");
}

pub(crate) async fn nothing_overtakes_a_conflict_of_its_key<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let ordered = |max| {
        consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .order_by(OrderBy::MessageKey)
            .bounds(move |bounds| bounds.batch_messages_max = max)
    };
    for (max, key) in [(1, "k"), (100, "l")] {
        source.send(note(key, &format!("{key}:1")).with_order_key(key));
        run_dry(ordered(1), &source).await;
        source.send_all([note(key, "other").with_order_key(key), note(&format!("{key}2"), "late").with_order_key(key)]);
        let behind = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && seen.parked_behind == 1;
        let seen = run_until(ordered(max), "one is parked behind the other", behind).await;
        assert_eq!((seen.conflicts, seen.dead), (1, 1));
    }
    assert_eq!(effects(&setup).await, ["k:1", "l:1"]);
    let waiting = [("k", DEAD), ("k2", BEHIND), ("l", DEAD), ("l2", BEHIND)].map(|(id, state)| (id.to_owned(), state));
    assert_eq!(states(&setup).await, waiting);
}

pub(crate) async fn nothing_overtakes_a_message_that_must_wait<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let message = |id, business: &str, text: &str| {
        let message = note(id, text).with_json(&serde_json::json!({ "text": text, "b": business })).unwrap();
        message.with_order_key("k")
    };
    source.send(message("1", "x", "k:1"));
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    // Since then a business key is claimed too: the second message shares the first one's and waits for the store to
    // judge; the third must not pass it.
    source.send_all([message("1", "x", "k:1"), message("2", "x", "k:2"), message("3", "y", "k:3")]);
    let ordered = consumer("c", &setup.store, source.clone())
        .on("noted", write::<F>)
        .order_by(OrderBy::MessageKey)
        .business_key(KeyStrategy::template("{b}").unwrap())
        .business_key_was(None)
        .order_was(OrderBy::Nothing);
    run_dry(ordered, &source).await;
    assert_eq!(F::effects(&setup.store).await, ["k:1", "k:2", "k:3"]);
}

pub(crate) async fn an_order_that_the_source_does_not_know_is_refused<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let by_text = || {
        let consumer = consumer("c", &setup.store, source.clone()).on("noted", write::<F>);
        consumer.order_by(OrderBy::template("{text}").unwrap())
    };
    run_until(by_text(), "it failed", async |seen| seen.failures >= 1 && seen.in_hand == 0).await;
    source.send(note("3", "c"));
    let stored = by_text().stored();
    let stats = stored.front_stats();
    let failed = async || stats.snapshot().failures >= 1 && stats.snapshot().in_hand == 0;
    stored.run(eventually("it failed", failed)).await.unwrap();
    assert_eq!((effects(&setup).await.len(), source.backlog()), (0, 0));
    let kept = F::parked(&setup.store).await;
    assert_eq!(kept.iter().map(|row| (row.id.as_str(), row.state)).collect::<Vec<_>>(), [("1", DEAD), ("3", DEAD)]);
    assert!(kept.iter().all(|row| row.reason.contains("another order key than `{text}`")), "{kept:?}");
    // Sent under the key that the order asks for, it is handled.
    source.send(note("2", "b").with_order_key("b"));
    run_until(by_text(), "the other is handled", async |seen| seen.handled == 1).await;
    assert_eq!(effects(&setup).await, ["b"]);
}

/// Leases run out in hand, and there is room to be handed the head again but not what follows it.
pub(crate) async fn nothing_overtakes_a_message_whose_lease_was_lost<F: EngineFixture>(setup: Setup<F>) {
    let open = || Queue::ordered(setup.store.clone(), "notes").unwrap().lease(Duration::from_millis(600));
    let message = |n: u32| note(&n.to_string(), &format!("k:{n}")).with_order_key("k");
    open().send((0..3).map(message)).await.unwrap();
    // Rows are never extended; lanes are, whenever something is received.
    let plan = FaultPlan::new();
    plan.decide(|call| (call == "extend").then_some(Fault::Lost));
    let gate = Arc::new(Semaphore::new(0));
    let waited_at = Arc::clone(&gate);
    let ordered = consumer("c", &setup.store, FaultySource::new(open(), plan))
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let gate = Arc::clone(&waited_at);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                if note.text == "k:0" {
                    // Holds up the lane with no transaction open, so that the others wait in hand.
                    ctx.after_commit(async move {
                        let _ = gate.acquire().await;
                    });
                }
                Ok(Outcome::applied())
            }
        })
        .order_by(OrderBy::MessageKey)
        .bounds(|bounds| (bounds.batch_messages_max, bounds.in_flight_max) = (1, 3))
        .lanes(1);
    let handled = run_until(ordered, "all are handled", async |seen| {
        if seen.deliveries >= 4 {
            gate.add_permits(1);
        }
        seen.handled == 3
    });
    let seen = in_real_time(&setup.clock, handled).await;
    assert_eq!(F::effects(&setup.store).await, ["k:0", "k:1", "k:2"]);
    assert!(seen.leases_lost > 0, "{seen:?}");
}
