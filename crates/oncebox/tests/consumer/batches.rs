//! Handlers that take many messages at a time.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::memory::MemorySource;

use oncebox::{Context, OrderBy, Outcomes, StoreError, StoreErrorKind};
use oncebox_testkit::store::Setup;

use super::rig::*;

pub(crate) async fn a_batch_handler_gets_what_waits_in_one_transaction<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..50).map(|n| note(&n.to_string(), &format!("{n:02}"))));
    let sizes = Sizes::default();
    let recorded = Arc::clone(&sizes);
    let batched = consumer("c", &setup.store, source.clone())
        .on_batch("noted", move |ctx, notes| write_all::<F>(ctx, notes, Arc::clone(&recorded)))
        .lanes(1);
    let seen = run_dry(batched, &source).await;
    assert_eq!(effects(&setup).await.len(), 50);
    // How many wait at a time is the machine's affair; that they share a transaction is not.
    let sizes = sizes.lock().unwrap();
    assert_eq!((sizes.iter().sum::<usize>(), sizes.len() as u64), (50, seen.commits));
    assert!(sizes.iter().any(|size| *size > 1), "{sizes:?}");
}

pub(crate) async fn a_failing_batch_is_halved_until_the_culprit_is_alone<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..30).map(|n| note(&n.to_string(), if n == 17 { "bad" } else { "good" })));
    let batched = consumer("c", &setup.store, source.clone())
        .on_batch("noted", |ctx, notes| write_all::<F>(ctx, notes, Sizes::default()))
        .lanes(1);
    run_until(batched, "the good ones are done", async |seen| seen.handled == 29 && seen.failures >= 2).await;
    assert_eq!(effects(&setup).await, vec!["good"; 29]);
    assert_eq!(states(&setup).await, [("17".to_owned(), RETRIES)]);
}

pub(crate) async fn ordered_batch_handlers_get_consecutive_runs_of_one_type<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let said = |kind: &'static str| {
        let calls = Arc::clone(&calls);
        move |_: Context<F::Store>, notes: Vec<Note>| {
            let texts: Vec<String> = notes.into_iter().map(|note| note.text).collect();
            calls.lock().unwrap().push(format!("{kind}:{}", texts.join("")));
            async { Ok(Outcomes::Applied) }
        }
    };
    for (n, kind) in ["a", "a", "b", "a"].iter().enumerate() {
        let mut message = note(&n.to_string(), &n.to_string()).with_order_key("k");
        message.kind = (*kind).to_owned();
        source.send(message);
    }
    let ordered = consumer("c", &setup.store, source.clone())
        .on_batch("a", said("a"))
        .on_batch("b", said("b"))
        .order_by(OrderBy::MessageKey)
        .lanes(1);
    run_dry(ordered, &source).await;
    assert_eq!(*calls.lock().unwrap(), ["a:01", "b:2", "a:3"]);
}

pub(crate) async fn a_batch_handler_past_its_deadline_is_halved<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..32).map(|n| note(&n.to_string(), if n == 31 { "slow" } else { "quick" })));
    let slow_calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&slow_calls);
    let batched = consumer("c", &setup.store, source.clone())
        .on_batch("noted", move |ctx: Context<F::Store>, notes: Vec<Note>| {
            let slow = notes.iter().any(|note| note.text == "slow");
            counted.fetch_add(usize::from(slow), SeqCst);
            async move {
                if slow {
                    std::future::pending::<()>().await;
                }
                write_all::<F>(ctx, notes, Sizes::default()).await
            }
        })
        .lanes(1)
        .bounds(|bounds| bounds.handler_deadline = Duration::from_millis(100));
    let stopped = run_until(batched, "the slow one is alone", async |seen| seen.failures == 1 && seen.handled == 31);
    stopped.await;
    assert!(slow_calls.load(SeqCst) <= 8, "32 are halved five times, and not tried one by one");
}

pub(crate) async fn batches_that_get_in_each_other_s_way_shrink<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..300).map(|n| note(&n.to_string(), "a")));
    let sizes = Sizes::default();
    let recorded = Arc::clone(&sizes);
    let contended = consumer("c", &setup.store, source.clone())
        .on_batch("noted", move |ctx: Context<F::Store>, notes: Vec<Note>| {
            let sizes = Arc::clone(&recorded);
            async move {
                if notes.len() > 1 {
                    sizes.lock().unwrap().push(notes.len());
                    return Err(StoreError::new(StoreErrorKind::Contended, "lock a row", "deadlock").into());
                }
                write_all::<F>(ctx, notes, Sizes::default()).await
            }
        })
        .lanes(1);
    run_dry(contended, &source).await;
    let sizes = sizes.lock().unwrap();
    // From a hundred it takes seven halvings; singles that went well since then prove nothing about batches.
    assert!(sizes.iter().skip(8).all(|size| *size <= 4), "{sizes:?}");
}
