//! What fails is not remembered, not acknowledged, and blamed on nobody else.

use std::future::pending;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;

use oncebox::{Class, Context, HookRuns, Outcome, OutcomeKind, Store, StoreError, StoreErrorKind};
use oncebox_testkit::store::Setup;

use super::rig::*;

pub(crate) async fn a_failure_is_not_remembered_as_a_success<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let tries = Arc::new(AtomicUsize::new(0));
    let flaky =
        consumer("c", &setup.store, source.clone()).on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let tries = Arc::clone(&tries);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                if tries.fetch_add(1, SeqCst) < 3 { Err(refuse()) } else { Ok(Outcome::applied()) }
            }
        });
    let seen = run_dry(flaky, &source).await;
    assert_eq!(effects(&setup).await, ["a"], "three tries were rolled back, the fourth stays");
    assert_eq!((seen.handled, seen.failures, seen.transport_duplicates), (1, 3, 0));
}

pub(crate) async fn a_neighbour_in_the_batch_is_not_blamed<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..20).map(|n| note(&n.to_string(), &format!("{n:02}"))));
    let picky = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            F::write_effect(ctx.db(), &note.text).await?;
            if note.text == "07" || note.text == "13" { Err(refuse()) } else { Ok(Outcome::applied()) }
        })
        .lanes(1);
    let seen = run_until(picky, "all good ones are done", async |seen| seen.handled == 18 && seen.failures >= 4).await;
    let expected: Vec<String> = (0..20).filter(|n| ![7, 13].contains(n)).map(|n| format!("{n:02}")).collect();
    assert_eq!(effects(&setup).await, expected);
    assert_eq!((source.backlog(), seen.handled), (0, 18));
    let mut parked = states(&setup).await;
    parked.sort();
    assert_eq!(parked, [("13".to_owned(), RETRIES), ("7".to_owned(), RETRIES)], "kept, and nobody else");
}

pub(crate) async fn a_swallowed_error_is_not_acknowledged<F: EngineFixture>(setup: Setup<F>) {
    if !setup.store.capabilities().error_aborts {
        // Here a failed statement undoes itself and nothing else: there is nothing to find out.
        return;
    }
    let source = MemorySource::new();
    source.send_all([note("1", "careless"), note("2", "neighbour")]);
    let careless = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text == "careless" {
                F::swallow_error(ctx.db()).await;
                return Ok(Outcome::applied());
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        })
        .lanes(1);
    let seen = run_until(careless, "it failed", async |seen| seen.failures >= 1 && seen.handled == 1).await;
    assert_eq!(effects(&setup).await, ["neighbour"], "it must not pass for applied");
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), seen.transport_duplicates), ("1", 0));
}

pub(crate) async fn a_named_constraint_means_already_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let seen_outcomes = Arc::clone(&outcomes);
    let insert = |ctx: Context<F::Store>, note: Note| async move {
        let mut ctx = ctx;
        F::insert_unique(ctx.db(), &note.text).await?;
        Ok(Outcome::applied())
    };
    let unique = |source: MemorySource| {
        let outcomes = Arc::clone(&seen_outcomes);
        consumer("c", &setup.store, source)
            .on("noted", insert)
            .already_applied_on(F::unique_constraint())
            .after_commit(HookRuns::AlsoOnDuplicates, move |_, outcome| {
                outcomes.lock().unwrap().push(outcome.kind());
                async {}
            })
            .lanes(1)
    };
    source.send(note("1", "a"));
    run_dry(unique(source.clone()), &source).await;
    // The same transaction at the provider under another message id, and then that message again.
    source.send(note("2", "a"));
    let seen = run_dry(unique(source.clone()), &source).await;
    assert_eq!((seen.already_applied, seen.failures), (1, 0));
    source.send(note("2", "a"));
    run_dry(unique(source.clone()), &source).await;
    use OutcomeKind::{AlreadyApplied, Applied};
    assert_eq!(*outcomes.lock().unwrap(), [Applied, AlreadyApplied, AlreadyApplied]);
}

pub(crate) async fn a_constraint_met_against_a_neighbour_in_the_batch_loses_nothing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    // `x` inserts the key and then fails for good; `y` meets its uncommitted row. Taken for applied, `y` would be lost.
    source.send_all([note("x", "first"), note("y", "second")]);
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let unique = consumer("c", &setup.store, source.clone())
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let fails = Arc::clone(&failing);
            async move {
                F::insert_unique(ctx.db(), "shared").await?;
                F::write_effect(ctx.db(), &note.text).await?;
                if note.text == "first" && fails.load(SeqCst) { Err(refuse()) } else { Ok(Outcome::applied()) }
            }
        })
        .already_applied_on(F::unique_constraint())
        .lanes(1);
    let backlog = source.clone();
    let seen = run_until(unique, "both are settled", async |seen| {
        if seen.handled == 1 {
            fails.store(false, SeqCst);
        }
        backlog.backlog() == 0 && seen.handled + seen.already_applied == 2
    })
    .await;
    // One of them inserted the key, and the other found it there for good.
    assert_eq!((seen.handled, seen.already_applied), (1, 1));
    assert_eq!(effects(&setup).await, ["second"]);
}

pub(crate) async fn a_business_rejection_is_recorded_and_not_retried<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "a")]);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let rejecting = consumer("c", &setup.store, source.clone()).on("noted", move |_: Context<F::Store>, _: Note| {
        counted.fetch_add(1, SeqCst);
        async { Ok(Outcome::rejected("insufficient funds")) }
    });
    let seen = run_dry(rejecting.lanes(1), &source).await;
    assert_eq!((seen.rejected, seen.transport_duplicates, calls.load(SeqCst)), (1, 1, 1));
}

pub(crate) async fn a_panic_in_a_handler_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..10).map(|n| note(&n.to_string(), &n.to_string())));
    let panicking = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            F::write_effect(ctx.db(), &note.text).await?;
            assert_ne!(note.text, "4", "the case said so");
            Ok(Outcome::applied())
        })
        .lanes(1);
    let seen = run_dry(panicking, &source).await;
    assert_eq!(effects(&setup).await, ["0", "1", "2", "3", "5", "6", "7", "8", "9"]);
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), kept.state, kept.class, kept.attempts), ("4", DEAD, Some(Class::Permanent), 1));
    assert_eq!((kept.reason.as_str(), seen.handled, seen.dead), ("its handler panicked", 9, 1));
}

pub(crate) async fn a_handler_past_its_deadline_is_ended_and_tried_again<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "slow"), note("2", "quick")]);
    let slow = Arc::new(AtomicBool::new(true));
    let dawdling = consumer("c", &setup.store, source.clone())
        .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
            let slow = Arc::clone(&slow);
            async move {
                F::write_effect(ctx.db(), &note.text).await?;
                if note.text == "slow" && slow.swap(false, SeqCst) {
                    pending::<()>().await;
                }
                Ok(Outcome::applied())
            }
        })
        .bounds(|bounds| bounds.handler_deadline = Duration::from_millis(300));
    run_dry(dawdling.lanes(1), &source).await;
    assert_eq!(effects(&setup).await, ["quick", "slow"]);
}

pub(crate) async fn a_handler_that_keeps_its_context_commits_nothing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let kept: Arc<Mutex<Option<Context<F::Store>>>> = Arc::default();
    let keeping = Arc::clone(&kept);
    let greedy = consumer("c", &setup.store, source.clone()).on("noted", move |ctx: Context<F::Store>, note: Note| {
        let kept = Arc::clone(&keeping);
        async move {
            let mut ctx = ctx;
            F::write_effect(ctx.db(), &note.text).await?;
            *kept.lock().unwrap() = Some(ctx);
            Ok(Outcome::applied())
        }
    });
    let backlog = source.clone();
    let seen = run_until(greedy, "it is set aside", async |seen| {
        if seen.failures == 1 && kept.lock().unwrap().is_some() {
            assert_eq!(backlog.backlog(), 1, "nothing was committed, so nothing is acknowledged");
            // Until the context goes, its claim stands in the way of parking the message.
            drop(kept.lock().unwrap().take());
        }
        backlog.backlog() == 0
    })
    .await;
    assert_eq!(effects(&setup).await.len(), 0);
    let set_aside = only_parked(&setup).await;
    assert_eq!((set_aside.state, set_aside.class, seen.dead), (DEAD, Some(Class::Permanent), 1));
    assert!(set_aside.reason.contains("kept the context"), "{set_aside:?}");
}

/// A payload whose decoding panics on one text.
struct Bomb(String);

impl<'de> serde::Deserialize<'de> for Bomb {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Note { text } = Note::deserialize(deserializer)?;
        assert_ne!(text, "bomb", "the case said so");
        Ok(Self(text))
    }
}

pub(crate) async fn a_panic_while_decoding_harms_only_its_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "bomb"), note("3", "b")]);
    let decoding = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, Bomb(text): Bomb| async move {
            F::write_effect(ctx.db(), &text).await?;
            Ok(Outcome::applied())
        })
        .lanes(1);
    let seen = run_dry(decoding, &source).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), kept.state, kept.class, seen.dead), ("2", DEAD, Some(Class::Permanent), 1));
    assert_eq!(kept.reason, "decoding its payload panicked");
}

pub(crate) async fn a_handler_during_which_a_store_goes_away_is_judged<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "bad"), note("2", "a"), note("3", "b")]);
    let elsewhere = consumer("c", &setup.store, source.clone())
        .on("noted", |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text == "bad" {
                // Another database of the handler's own, or this message takes the connection down each time.
                return Err(StoreError::new(StoreErrorKind::Unavailable, "ask elsewhere", "it is down").into());
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        })
        .lanes(1);
    run_until(elsewhere, "the others are done", async |seen| seen.handled == 2 && seen.failures >= 1).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    let kept = only_parked(&setup).await;
    assert_eq!((kept.id.as_str(), kept.state, kept.class), ("1", RETRIES, Some(Class::Transient)));
    assert!(kept.reason.contains("it is down"), "{kept:?}");
}

/// A handler that speaks to another store, which says for one message what only a person can mend, fails for that message.
pub(crate) async fn what_another_store_says_harms_one_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let handler = |mut ctx: oncebox::Context<F::Store>, note: Note| async move {
        if note.text == "bad" {
            let corrupt = StoreError::new(StoreErrorKind::Corrupt, "ask the other store", "it said no");
            return Err(oncebox::Failure::from(corrupt));
        }
        F::write_effect(ctx.db(), &note.text).await?;
        oncebox::Result::Ok(Outcome::applied())
    };
    source.send_all([note("1", "bad"), note("2", "good")]);
    let one = consumer("c", &setup.store, source.clone()).retry(at_once(1)).on("noted", handler).lanes(1);
    run_dry(one.bounds(|bounds| bounds.batch_messages_max = 1), &source).await;
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD)]);
    assert_eq!((effects(&setup).await, source.backlog()), (vec!["good".to_owned()], 0));
}
