//! Batches in which messages fail often: they leave it, and the others go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use oncebox::memory::MemorySource;
use oncebox::{Context, Failure, OrderBy, Outcome};
use oncebox_testkit::faults::{FaultPlan, Faulty};
use oncebox_testkit::store::Setup;

use super::rig::*;

pub(crate) async fn what_fails_often_leaves_its_batch_and_takes_nothing_along<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::new();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    let is_bad = |n: usize| n % 20 == 7;
    source.send_all((0..300).map(|n| note(&n.to_string(), &format!("{}-{n}", if is_bad(n) { "bad" } else { "good" }))));
    let hooks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hooks);
    let one = consumer("c", &store, source.clone()).lanes(1).on(
        "noted",
        move |mut ctx: Context<Faulty<F::Store>>, note: Note| {
            let counted = Arc::clone(&counted);
            ctx.after_commit(async move {
                counted.fetch_add(1, SeqCst);
            });
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                if note.text.starts_with("bad") {
                    // In half of the cases the transaction can't be used before it went back.
                    if note.text.ends_with('7') && note.text.len().is_multiple_of(2) {
                        F::insert_unique(ctx.db(), "once").await?;
                        F::insert_unique(ctx.db(), "once").await?;
                    }
                    return Err(Failure::permanent("it is bad"));
                }
                Ok(Outcome::applied())
            }
        },
    );
    let seen = run_until(one, "all are settled", async |seen| source.backlog() == 0 && seen.in_hand == 0).await;
    assert_eq!((seen.handled, seen.dead), (285, 15));
    assert_eq!(hooks.load(SeqCst), 285, "hooks of what was undone do not run");
    let mut expected: Vec<String> = (0..300).filter(|n| !is_bad(*n)).map(|n| format!("good-{n}")).collect();
    expected.sort_unstable();
    assert_eq!(effects(&setup).await, expected);
    assert!(plan.count("back-to-mark") > 0, "{:?}", seen);
}

pub(crate) async fn nothing_overtakes_a_message_that_left_its_batch<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    for n in 0..60 {
        for key in ["a", "b", "c", "d", "e"] {
            source.send(note(&format!("{key}{n}"), &format!("{key}:{n}")).with_order_key(key));
        }
    }
    // Each message that is a multiple of seven fails at its first two tries: in the batch, and alone.
    let tries: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let ordered = consumer("c", &setup.store, source.clone()).order_by(OrderBy::MessageKey).lanes(2).on(
        "noted",
        move |mut ctx: Context<F::Store>, note: Note| {
            let tries = Arc::clone(&tries);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                let number: u32 = note.text[2..].parse().unwrap();
                let mut tries = tries.lock().unwrap();
                let tries = tries.entry(note.text).or_default();
                *tries += 1;
                if number.is_multiple_of(7) && *tries <= 2 { Err(refuse()) } else { Ok(Outcome::applied()) }
            }
        },
    );
    run_dry(ordered, &source).await;
    let mut by_key: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for effect in F::effects(&setup.store).await {
        let (key, number) = effect.split_once(':').unwrap();
        by_key.entry(key.to_owned()).or_default().push(number.parse().unwrap());
    }
    assert_eq!(by_key.len(), 5);
    for (key, numbers) in by_key {
        assert_eq!(numbers, (0..60).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn a_conflict_behind_a_message_that_left_its_batch_waits<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("x", "x"));
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    // The first one fails for good, so that the others are tried with marks.
    for (id, text) in [("bad", "bad"), ("k1", "k1"), ("x", "something else"), ("k3", "k3")] {
        source.send(note(id, text).with_order_key(if id == "bad" { "b" } else { "k" }));
    }
    let tries = Arc::new(AtomicUsize::new(0));
    let ordered = consumer("c", &setup.store, source.clone())
        .order_by(OrderBy::MessageKey)
        .order_was(OrderBy::Nothing)
        .lanes(1)
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let tries = Arc::clone(&tries);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                match note.text.as_str() {
                    "bad" => Err(Failure::permanent("it is bad")),
                    "k1" if tries.fetch_add(1, SeqCst) == 0 => Err(refuse()),
                    _ => Ok(Outcome::applied()),
                }
            }
        });
    run_until(ordered, "all are settled", async |seen| source.backlog() == 0 && seen.in_hand == 0).await;
    assert_eq!(effects(&setup).await, ["k1", "x"], "parked first, the conflict would have held up what is before it");
    assert_eq!(states(&setup).await, [("x", DEAD), ("k3", BEHIND), ("bad", DEAD)].map(|(id, s)| (id.to_owned(), s)));
}
