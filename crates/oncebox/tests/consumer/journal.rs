//! The journal: it tells each delivery, and no message ever waits for it or fails by it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::journal::{DeliveryEnd, JOURNAL_KEPT, JournalOf, Journaled, Journals};
use oncebox::key::{KeyStrategy, Template};
use oncebox::memory::MemorySource;
use oncebox::retention::{RETENTION, Retention};
use oncebox::{Context, Failure, Key, Outcome, Session, Store, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// What the journal has under these keys, the oldest first.
async fn journal<F: EngineFixture>(setup: &Setup<F>, ids: &[&str]) -> Vec<Journaled> {
    let keys: Vec<Key> = ids.iter().map(|id| Key::id(id).unwrap()).collect();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let mut found = tx.read_journal(JournalOf { keys: &keys, id: None, consumer: None }, 10_000).await.unwrap();
    tx.rollback().await;
    found.reverse();
    found
}

async fn ends<F: EngineFixture>(setup: &Setup<F>, id: &str) -> Vec<DeliveryEnd> {
    journal(setup, &[id]).await.iter().map(|entry| entry.told.end).collect()
}

/// Applied, duplicate, dead, tried again, rejected: each arrival has its entry, with what a person wants to know.
pub(crate) async fn the_journal_tells_each_delivery<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "CANARY"), note("2", "bad"), note("3", "flaky"), note("4", "refused")]);
    let tries = Arc::new(AtomicUsize::new(0));
    let one = || {
        let tries = Arc::clone(&tries);
        consumer("c", &setup.store, source.clone())
            .on("noted", move |mut ctx: Context<F::Store>, note: Note| {
                let tries = Arc::clone(&tries);
                async move {
                    match note.text.as_str() {
                        "bad" => Err(Failure::permanent("no such account").code("no-account")),
                        "flaky" if tries.fetch_add(1, SeqCst) == 0 => Err(Failure::transient("busy").code("busy")),
                        "refused" => Ok(Outcome::rejected("too much")),
                        text => {
                            F::write_effect(ctx.db(), text).await?;
                            Ok(Outcome::applied())
                        }
                    }
                }
            })
            .journal()
            // Written at once at the end: the clock of the case stands still, and tells only how entries of one insert lie.
            .bounds(|bounds| {
                // One by one: what fails in a batch and not alone has not failed.
                (bounds.lanes, bounds.batch_messages_max) = (1, 1);
                bounds.journal_every = Duration::from_secs(3600);
            })
    };
    let first = run_dry(one(), &source).await;
    setup.advance(Duration::from_secs(10)).await;
    // The producer sends it once more.
    source.send(note("1", "CANARY"));
    let second = run_dry(one(), &source).await;
    let arrivals = first.deliveries + first.retried + second.deliveries + second.retried;
    let all = journal(&setup, &["1", "2", "3", "4"]).await;
    assert_eq!(all.len() as u64, arrivals, "{all:#?}");
    assert_eq!(first.journaled + second.journaled, arrivals);
    assert_eq!((first.journal_lost, second.journal_lost), (0, 0));
    assert!(!format!("{all:?}").contains("CANARY"), "{all:?}");
    assert!(all.iter().all(|entry| entry.process.ends_with(&format!("/{}", std::process::id()))));

    let of = |id: &str| {
        let key = Key::id(id).unwrap();
        all.iter().filter(|entry| entry.key == key).map(|entry| &entry.told).collect::<Vec<_>>()
    };
    let [applied, again] = of("1")[..] else { panic!("{all:#?}") };
    assert_eq!((applied.end, applied.was_parked, applied.attempt), (DeliveryEnd::Applied, false, Some(1)));
    assert!(applied.handler_millis.is_some() && applied.coordinate.is_some(), "{applied:?}");
    assert_eq!((again.end, again.cause.as_deref()), (DeliveryEnd::Duplicate, Some("sent_again")));
    assert_eq!(again.handler_millis, None, "no handler ran");
    let [dead] = of("2")[..] else { panic!("{all:#?}") };
    assert_eq!((dead.end, dead.cause.as_deref()), (DeliveryEnd::Dead, Some("permanent/noted/no-account")));
    assert!(dead.handler_millis.is_some());
    let [parked, tried] = of("3")[..] else { panic!("{all:#?}") };
    assert_eq!((parked.end, parked.cause.as_deref()), (DeliveryEnd::Parked, Some("transient/noted/busy")));
    assert_eq!((tried.end, tried.was_parked, tried.attempt), (DeliveryEnd::Applied, true, Some(2)));
    assert_eq!(ends(&setup, "4").await, [DeliveryEnd::Rejected]);
}

/// Where the key is made of the payload, an entry is found by the id all the same.
pub(crate) async fn a_journaled_delivery_is_found_by_the_id_of_its_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("m-1", "a"), note("m-2", "a")]);
    let by_text = KeyStrategy::Template(Template::parse("text:{text}").unwrap());
    let one = consumer("c", &setup.store, source.clone()).key(by_text).on("noted", write::<F>).journal().lanes(1);
    run_dry(one, &source).await;
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let mut told = Vec::new();
    for id in ["m-1", "m-2", "m-3"] {
        let found = tx.read_journal(JournalOf { keys: &[], id: Some(id), consumer: None }, 10).await.unwrap();
        told.push(found.into_iter().map(|entry| (entry.told.end, entry.told.cause)).collect::<Vec<_>>());
    }
    tx.rollback().await;
    let other_id = Some("other_id".to_owned());
    assert_eq!(told, [vec![(DeliveryEnd::Applied, None)], vec![(DeliveryEnd::Duplicate, other_id)], vec![]]);
}

/// A process that dies tells nothing of what it had in hand; whoever gets it next tells that it was not the first.
pub(crate) async fn a_crash_shows_in_the_journal_of_the_next_delivery<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::with_clock(setup.clock.clone(), MemorySource::LEASE);
    source.send(note("1", "a"));
    let begun = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&begun);
    let stuck = consumer("c", &setup.store, source.clone())
        .on("noted", move |_: Context<F::Store>, _: Note| {
            seen.fetch_add(1, SeqCst);
            pending()
        })
        .journal()
        // A transaction that nobody ends would hold up whoever comes next.
        .bounds(|bounds| bounds.handler_deadline = Duration::from_millis(100));
    let running = Running::start(stuck);
    eventually("its handler runs", async || begun.load(SeqCst) > 0).await;
    running.kill().await;
    setup.advance(MemorySource::LEASE * 2).await;
    let next = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).journal();
    run_dry(next, &source).await;
    let all = journal(&setup, &["1"]).await;
    let told: Vec<_> = all.iter().map(|entry| (entry.told.end, entry.told.attempt)).collect();
    assert_eq!(told, [(DeliveryEnd::Applied, Some(2))]);
}

/// What a store commits before its answer is lost is told as what it is: applied, once.
pub(crate) async fn an_unknown_commit_is_journaled_once<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send(note("1", "a"));
    plan.fail("commit", Fault::AfterDoing, 1);
    let one = consumer("c", &store, source.clone()).on("noted", faulty_write::<F>).journal().lanes(1);
    let seen = run_dry(one, &source).await;
    assert_eq!((seen.unknown_commits, seen.handled), (1, 1));
    assert_eq!(ends(&setup, "1").await, [DeliveryEnd::Applied]);
}

async fn faulty_write<F: EngineFixture>(mut ctx: Context<Faulty<F::Store>>, note: Note) -> oncebox::Result<Outcome> {
    F::write_effect(ctx.db(), &note.text).await?;
    Ok(Outcome::applied())
}

/// Fifty messages of consumer `c`, whose journal has little room.
async fn fifty<F: EngineFixture>(setup: &Setup<F>, plan: &FaultPlan) -> Snapshot {
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all((0..50).map(|n| note(&n.to_string(), &format!("{n:02}"))));
    let one = consumer("c", &store, source.clone()).on("noted", faulty_write::<F>).journal().bounds(|bounds| {
        bounds.lanes = 1;
        bounds.batch_messages_max = 3;
        bounds.journal_buffer_max = 5;
        bounds.journal_every = Duration::from_millis(1);
    });
    let seen = run_dry(one, &source).await;
    assert_eq!(
        effects(setup).await,
        (0..50).map(|n| format!("{n:02}")).collect::<Vec<_>>(),
        "every message is applied"
    );
    assert_eq!((seen.handled, seen.failures, seen.dead, seen.released), (50, 0, 0, 0), "{seen:?}");
    seen
}

/// A journal that the store does not take, for whatever reason, fails no message; what is missing is counted.
pub(crate) async fn a_journal_that_cannot_be_written_fails_no_message<F: EngineFixture>(setup: Setup<F>) {
    for fault in [Fault::BeforeDoing, Fault::Contended, Fault::Misconfigured] {
        let plan = FaultPlan::new();
        plan.fail("add-to-journal", fault, usize::MAX);
        let source = MemorySource::new();
        source.send_all((0..50).map(|n| note(&format!("{fault:?}-{n}"), "x")));
        let store = Faulty::new(setup.store.clone(), plan.clone());
        let one = consumer("c", &store, source.clone()).on("noted", faulty_write::<F>).journal().bounds(|bounds| {
            (bounds.lanes, bounds.batch_messages_max) = (1, 3);
            (bounds.journal_buffer_max, bounds.journal_every) = (5, Duration::from_millis(1));
        });
        let seen = run_dry(one, &source).await;
        assert_eq!((seen.handled, seen.failures, seen.dead, seen.released), (50, 0, 0, 0), "{fault:?}: {seen:?}");
        assert!(plan.count("add-to-journal") > 0, "{fault:?}: it was never tried");
        assert_eq!((seen.journaled, seen.journal_lost), (0, 50), "{fault:?}");
    }
}

/// A store that takes the journal's insert and never answers holds up no message, and the end by seconds at most. Where all
/// share one writer, whoever holds it holds up everyone, so there is nothing to see.
pub(crate) async fn a_journal_that_hangs_holds_up_nobody<F: EngineFixture>(setup: Setup<F>) {
    if setup.store.capabilities().name != "postgres" {
        return;
    }
    let plan = FaultPlan::new();
    plan.fail("add-to-journal", Fault::Delay(Duration::from_secs(3600)), usize::MAX);
    let seen = fifty(&setup, &plan).await;
    assert_eq!((plan.count("add-to-journal"), seen.journaled, seen.journal_lost), (1, 0, 50));
}

/// Whatever goes wrong, a delivery is in the journal at most once, and each that is missing is counted.
pub(crate) async fn faults_in_the_journal_double_no_entry<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::new();
    plan.random(11, 0.4, &["add-to-journal"]);
    let seen = fifty(&setup, &plan).await;
    let ids: Vec<String> = (0..50).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut keys: Vec<Key> = journal(&setup, &ids).await.into_iter().map(|entry| entry.key).collect();
    assert_eq!((keys.len() as u64, seen.journaled + seen.journal_lost), (seen.journaled, 50));
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "a delivery is there twice");
    assert!(plan.injected() > 0, "nothing went wrong, so nothing was seen");
}

/// An insert whose commit nobody knows of is not made again: a delivery that is told twice would mislead.
pub(crate) async fn an_unknown_commit_of_the_journal_is_not_repeated<F: EngineFixture>(setup: Setup<F>) {
    for (fault, there) in [(Fault::AfterDoing, 1), (Fault::Lost, 0)] {
        let plan = FaultPlan::new();
        let (mut added, mut ended) = (false, false);
        plan.decide(move |call| match call {
            "add-to-journal" => {
                added = true;
                None
            }
            "commit" if added && !ended => {
                ended = true;
                Some(fault)
            }
            _ => None,
        });
        let id = format!("{fault:?}");
        let source = MemorySource::new();
        source.send(note(&id, "a"));
        let store = Faulty::new(setup.store.clone(), plan.clone());
        // It is written at the end, when nobody else commits.
        let one = consumer("c", &store, source.clone())
            .on("noted", faulty_write::<F>)
            .journal()
            .bounds(|bounds| bounds.journal_every = Duration::from_secs(3600));
        let seen = run_dry(one, &source).await;
        assert_eq!((ends(&setup, &id).await.len(), plan.count("add-to-journal")), (there, 1), "{fault:?}");
        assert_eq!((seen.journaled, seen.journal_lost), (0, 1), "{fault:?}: it may be missing");
    }
}

/// A consumer that keeps no journal writes none, and makes no call for it.
pub(crate) async fn without_a_journal_nothing_is_written<F: EngineFixture>(setup: Setup<F>) {
    let calls = async |journals: bool| {
        let plan = FaultPlan::new();
        let store = Faulty::new(setup.store.clone(), plan.clone());
        let source = MemorySource::new();
        source.send(note(&format!("{journals}"), "a"));
        let mut one = consumer("c", &store, source.clone()).on("noted", faulty_write::<F>).lanes(1);
        if journals {
            one = one.journal();
        }
        run_dry(one, &source).await;
        plan
    };
    let without = calls(false).await;
    assert_eq!((without.count("add-to-journal"), ends(&setup, "false").await), (0, vec![]));
    let with = calls(true).await;
    assert_eq!((with.count("add-to-journal"), ends(&setup, "true").await.len()), (1, 1));
    // One more transaction on one more connection, and nothing else.
    assert_eq!(with.count("claim"), without.count("claim"));
}

/// In stored mode both halves tell what they did.
pub(crate) async fn stored_mode_journals_both_halves<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let stored = consumer("c", &setup.store, source.clone()).on("noted", write::<F>).journal().stored();
    let stats = stored.stats();
    let done = eventually("it is handled", async || stats.snapshot().handled == 1 && source.backlog() == 0);
    in_real_time(&setup.clock, stored.run(done)).await.unwrap();
    let mut told = ends(&setup, "1").await;
    told.sort_by_key(|end| std::cmp::Reverse(end.code()));
    assert_eq!(told, [DeliveryEnd::Stored, DeliveryEnd::Applied]);
}

/// Retention removes what is old of a journal, also where none is kept any more.
pub(crate) async fn a_journal_goes_after_its_time<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((0..20).map(|n| note(&n.to_string(), "x")));
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>).journal(), &source).await;
    let retention = || {
        Retention::new(setup.store.clone()).keep("c", RETENTION * 10).unwrap().bounds(|bounds| {
            (bounds.step_max, bounds.share, bounds.every) = (7, 100, Duration::from_millis(1));
        })
    };
    let pass = async |retention: Retention<F::Store>, removed: u64| {
        let stats = retention.stats();
        let done = eventually("a pass is made", async || {
            // Replays are swept after journals, so a second pass over the records comes after both.
            stats.snapshot().get("c").is_some_and(|progress| progress.journal >= removed && progress.passes >= 2)
        });
        let before = stats.clone();
        retention.run(done).await.unwrap();
        before.snapshot()["c"].journal
    };
    setup.advance(JOURNAL_KEPT - Duration::from_secs(60)).await;
    assert_eq!(pass(retention(), 0).await, 0, "it is young");
    setup.advance(Duration::from_secs(120)).await;
    assert_eq!(pass(retention().keep_journal("c", JOURNAL_KEPT * 4).unwrap(), 0).await, 0, "it is kept for longer");
    assert_eq!(ends(&setup, "7").await.len(), 1);
    assert_eq!(pass(retention(), 20).await, 20);
    assert_eq!(ends(&setup, "7").await, []);
}
