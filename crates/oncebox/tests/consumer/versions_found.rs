//! Versions and what else happens to messages: what is discarded, was handled before versions were read, is looked at late, or
//! waits apart. Each case was found by an attack, and failed before.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::{Missing, Snapshot, StoredConsumer};
use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Failure, Gap, Message, MessageId, OrderBy, Outcome, Retry, Versioned};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;
use serde_json::json;

use super::rig::*;

/// Version `n` of `a`, under an id of its own.
fn nth(n: u64) -> Message {
    note(&format!("{n}"), &format!("a:{n}")).with_order_key("a").with_version(n)
}

fn versions<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let gap = Gap::Wait { time: Duration::from_secs(60), messages: 10 };
    let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone());
    one.versioned(Versioned::by_order_key().on_gap(gap))
}

/// Version 2 ends without effect: by its handler's rejection, or discarded by an operator, which is recorded as a rejection. Version
/// 3 goes on; also where 2 is sent again, as `on_missing` asks for.
async fn rejected_version<F: EngineFixture>(setup: &Setup<F>, by_operator: bool) {
    let source = MemorySource::new();
    let one = || {
        versions(setup, &source).on("noted", move |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text == "a:2" {
                let why = "it is not valid";
                return Err(if by_operator { Failure::permanent(why) } else { Failure::rejected(why) });
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        })
    };
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && seen.deliveries > 0;
    source.send_all([nth(1), nth(2)]);
    run_until(one(), "two are settled", settled).await;
    if by_operator {
        assert_eq!(states(setup).await, [("2".to_owned(), DEAD)]);
        deal_with_first(setup, true).await;
    }
    source.send_all([nth(3), nth(2)]);
    run_until(one(), "the third is settled", settled).await;
    for _ in 0..3 {
        setup.advance(Duration::from_secs(66)).await;
        revive_all(setup).await;
        source.send(nth(2));
        run_until(one(), "all are settled", async |_| source.backlog() == 0 && due(setup).await == 0).await;
    }
    assert_eq!(effects(setup).await, ["a:1", "a:3"], "{:?}", F::parked(&setup.store).await);
}

pub(crate) async fn the_next_version_does_not_wait_for_a_rejected_one<F: EngineFixture>(setup: Setup<F>) {
    rejected_version(&setup, false).await;
}

pub(crate) async fn the_next_version_does_not_wait_for_a_discarded_one<F: EngineFixture>(setup: Setup<F>) {
    rejected_version(&setup, true).await;
}

/// A duplicate of what is parked says nothing of its version: that has not happened yet.
pub(crate) async fn the_next_version_waits_for_one_that_is_parked<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let one = |is_mended: bool| {
        versions(&setup, &source).on("noted", move |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text == "a:2" && !is_mended {
                return Err(Failure::permanent("it is not valid"));
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        })
    };
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && seen.deliveries > 0;
    source.send_all([nth(1), nth(2)]);
    run_until(one(false), "two are settled", settled).await;
    source.send_all([nth(3), nth(2)]);
    let seen = run_until(one(false), "the third is settled", settled).await;
    assert_eq!((seen.gaps, seen.transport_duplicates), (1, 1));
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD), ("3".to_owned(), GAP)]);
    deal_with_first(&setup, false).await;
    run_until(one(true), "all are applied", async |seen| seen.handled == 2 && seen.in_hand == 0).await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2", "a:3"]);
}

/// A consumer that ran without versions reads them from now on; what is missing is sent again, as `on_missing` asks for.
pub(crate) async fn versions_that_are_read_from_now_on_go_on<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([nth(1), nth(2)]);
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    source.send(nth(3));
    for _ in 0..3 {
        source.send_all([nth(1), nth(2)]);
        let settled = async |_: &Snapshot| source.backlog() == 0 && due(&setup).await == 0;
        run_until(versions(&setup, &source).on("noted", write::<F>), "all are settled", settled).await;
        setup.advance(Duration::from_secs(66)).await;
        revive_all(&setup).await;
    }
    assert_eq!(effects(&setup).await, ["a:1", "a:2", "a:3"], "{:?}", F::parked(&setup.store).await);
}

/// Over a gap, a duplicate would make old ones of what is missing, also where gaps are applied.
pub(crate) async fn a_duplicate_makes_nothing_old_that_is_missing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([nth(1), nth(3)]);
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    let applies = || {
        let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone()).lanes(1);
        one.on("noted", write::<F>).versioned(Versioned::by_order_key().on_gap(Gap::Apply))
    };
    source.send_all([nth(1), nth(3), nth(2)]);
    let seen = run_dry(applies(), &source).await;
    assert_eq!((seen.transport_duplicates, seen.handled, seen.stale), (2, 1, 0));
    assert_eq!(effects(&setup).await, ["a:1", "a:2", "a:3"]);
}

/// A gap that must not be: the missing version comes after all, and goes past what is dead in spite of their order key.
pub(crate) async fn a_gap_that_must_not_be_closes_all_the_same<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let versioned = || {
        let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone());
        let one = one.order_by(OrderBy::MessageKey).on("noted", write::<F>);
        one.versioned(Versioned::by_order_key().on_gap(Gap::Fail))
    };
    source.send(nth(2));
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && seen.deliveries > 0;
    run_until(versioned(), "it is dead", settled).await;
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD)]);
    source.send(nth(1));
    run_until(versioned(), "the missing one is settled", settled).await;
    run_until(versioned(), "both are applied", async |seen| effects(&setup).await.len() == 2 && seen.in_hand == 0)
        .await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2"]);
}

/// In stored mode: `v` could not be stored, so it waits apart, where nothing waits behind it. `u` came before it. `v` waited for
/// a version in between if `waited`.
async fn apart<F: EngineFixture>(setup: &Setup<F>, waited: bool) {
    let source = MemorySource::new();
    let message = |id: &str, order_key: &str, aggregate: &str, version: u64, size: usize| {
        let body = json!({ "text": id, "aggregate": aggregate, "filler": "x".repeat(size) });
        let message = Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(&body).unwrap();
        message.with_order_key(order_key).with_version(version)
    };
    let mended = Arc::new(AtomicBool::new(false));
    let stored = |max: usize| {
        let mended = Arc::clone(&mended);
        let handler = move |mut ctx: Context<F::Store>, note: Note| {
            let mended = mended.load(SeqCst);
            async move {
                match note.text.as_str() {
                    "v" => Err(Failure::permanent("it is not valid")),
                    "u" if !mended => Err(refuse()),
                    _ => {
                        F::write_effect(ctx.db(), &note.text).await?;
                        Ok::<_, Failure>(Outcome::applied())
                    }
                }
            }
        };
        let retry = Retry::new()
            .attempts(1_000)
            .first(Duration::from_secs(5))
            .max(Duration::from_secs(5))
            .within(Duration::MAX);
        Consumer::new("c", setup.store.clone(), source.clone())
            .retry(retry)
            .clock(setup.clock.clone())
            .on("noted", handler)
            .order_by(OrderBy::MessageKey)
            .versioned(Versioned::by("{aggregate}").unwrap())
            .bounds(move |bounds| bounds.payload_bytes_max = max)
            .stored()
    };
    async fn run<F: EngineFixture>(
        setup: &Setup<F>,
        stored: StoredConsumer<F::Store, MemorySource>,
        awaited: &str,
        done: impl AsyncFnMut() -> bool,
    ) {
        // On the heap: six of them in one future are more than the stack of a test in a debug build holds.
        Box::pin(in_real_time(&setup.clock, stored.run(eventually(awaited, done)))).await.unwrap();
    }
    // Too large for the table.
    source.send(message("v", "k", "x", 2, 2_000));
    run(setup, stored(1_000), "v is parked", async || states(setup).await == [("v".to_owned(), DEAD)]).await;
    // `u` was in the table all the time, and fails.
    source.send(message("u", "k", "y", 1, 0));
    let both = [("v".to_owned(), DEAD), ("u".to_owned(), RETRIES)];
    run(setup, stored(1_000), "u is parked", async || states(setup).await == both).await;
    if !waited {
        source.send(message("x1", "other", "x", 1, 0));
        run(setup, stored(10_000), "x1 is applied", async || effects(setup).await == ["x1"]).await;
    }
    deal_with_first(setup, false).await;
    if waited {
        let waits = async || states(setup).await.first().is_some_and(|(_, state)| *state == GAP);
        run(setup, stored(10_000), "v waits", waits).await;
        source.send(message("x1", "other", "x", 1, 0));
    }
    let judged = async || {
        effects(setup).await.contains(&"x1".to_owned()) && states(setup).await.first() == Some(&("v".to_owned(), DEAD))
    };
    run(setup, stored(10_000), "v is judged", judged).await;
    mended.store(true, SeqCst);
    let mut looks = 0;
    let done = async || {
        looks += 1;
        // Now and then: a lease must not end while the row is in hand.
        if looks % 20 == 0 {
            setup.advance(Duration::from_secs(6)).await;
        }
        looks > 600 || effects(setup).await.contains(&"u".to_owned())
    };
    run(setup, stored(10_000), "u is applied", done).await;
    assert!(
        effects(setup).await.contains(&"u".to_owned()),
        "u stands behind v, which came after it: {:?}",
        F::parked(&setup.store).await
    );
}

pub(crate) async fn what_waits_apart_holds_nobody_up<F: EngineFixture>(setup: Setup<F>) {
    apart(&setup, false).await;
}

pub(crate) async fn what_waits_apart_for_a_version_holds_nobody_up<F: EngineFixture>(setup: Setup<F>) {
    apart(&setup, true).await;
}

/// A message that waits for a version is asked for at least once, however late it is looked at.
async fn looked_at_late<F: EngineFixture>(setup: &Setup<F>, late: Duration, as_gap: bool) {
    let source = MemorySource::new();
    let asked: Arc<Mutex<Vec<Missing>>> = Arc::default();
    let versioned = |kind: &str| {
        let (asks, again) = (Arc::clone(&asked), source.clone());
        versions(setup, &source).on(kind, write::<F>).on_missing(move |missing| {
            asks.lock().unwrap().push(missing);
            again.send(nth(1));
            async {}
        })
    };
    source.send(nth(2));
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && seen.gaps + seen.dead > 0;
    run_until(versioned(if as_gap { "noted" } else { "other" }), "it is parked", settled).await;
    assert_eq!(only_parked(setup).await.state, if as_gap { GAP } else { DEAD });
    // The process is away, or a person takes time.
    setup.advance(late).await;
    if !as_gap {
        deal_with_first(setup, false).await;
    }
    let both = async |seen: &Snapshot| seen.handled == 2 && seen.in_hand == 0;
    run_until(versioned("noted"), "it is asked for, and both are applied", both).await;
    let applied = effects(setup).await.len();
    assert_eq!((asked.lock().unwrap().len(), applied), (1, 2));
}

pub(crate) async fn a_gap_looked_at_in_time_is_asked_for<F: EngineFixture>(setup: Setup<F>) {
    looked_at_late(&setup, Duration::from_secs(61), true).await;
}

pub(crate) async fn a_gap_looked_at_late_is_asked_for<F: EngineFixture>(setup: Setup<F>) {
    looked_at_late(&setup, Duration::from_secs(121), true).await;
}

pub(crate) async fn a_replayed_version_is_asked_for<F: EngineFixture>(setup: Setup<F>) {
    looked_at_late(&setup, Duration::from_secs(121), false).await;
}

/// What was asked for comes in the wrong order, each alone: the second is a duplicate that tells nothing yet. It is asked for
/// again, once what is missing is another.
pub(crate) async fn what_is_missing_next_is_asked_for_too<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([nth(1), nth(2)]);
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    let asked: Arc<Mutex<Vec<Missing>>> = Arc::default();
    let one = || {
        let asks = Arc::clone(&asked);
        versions(&setup, &source).on("noted", write::<F>).lanes(1).on_missing(move |missing| {
            asks.lock().unwrap().push(missing);
            async {}
        })
    };
    source.send(nth(3));
    run_until(one(), "it waits", async |seen| seen.gaps >= 1 && seen.in_hand == 0).await;
    let asks = async |times: usize| {
        setup.advance(Duration::from_secs(61)).await;
        run_until(one(), "it asks", async |_| asked.lock().unwrap().len() == times).await;
    };
    asks(1).await;
    for n in [2, 1] {
        source.send(nth(n));
        run_until(one(), "it is settled", async |seen| seen.transport_duplicates == 1 && seen.in_hand == 0).await;
    }
    // It looks, and finds that the first is there.
    run_until(one(), "it waits for the second", async |_| {
        due(&setup).await == 0 && only_parked(&setup).await.reason.starts_with("version 2 ")
    })
    .await;
    asks(2).await;
    let asked: Vec<_> = asked.lock().unwrap().iter().map(|missing| (missing.from, missing.before)).collect();
    assert_eq!(asked, [(1, 3), (2, 3)]);
    source.send(nth(2));
    run_until(one(), "it is applied", async |seen| seen.handled == 1 && seen.in_hand == 0).await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2", "a:3"]);
}

/// Dead once and told once, however far its aggregate comes without it.
pub(crate) async fn a_gap_that_must_not_be_is_told_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let told = Arc::new(AtomicUsize::new(0));
    let one = || {
        let told = Arc::clone(&told);
        let one = versions(&setup, &source).versioned(Versioned::by_order_key().on_gap(Gap::Fail));
        one.on("noted", write::<F>).lanes(1).on_dead(move |_| {
            told.fetch_add(1, SeqCst);
            async {}
        })
    };
    source.send(nth(4));
    run_until(one(), "it is dead", async |seen| seen.dead == 1 && seen.in_hand == 0).await;
    for n in [1, 2] {
        source.send(nth(n));
        run_until(one(), "it is dead again", async |seen| seen.dead >= 1 && seen.in_hand == 0).await;
    }
    source.send(nth(3));
    run_until(one(), "all are applied", async |seen| seen.handled == 2 && seen.in_hand == 0).await;
    assert_eq!((told.load(SeqCst), effects(&setup).await.len()), (1, 4));
}
