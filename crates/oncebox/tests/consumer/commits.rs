//! Commits whose answer is lost, and stores that go away.

use oncebox::Queue;
use oncebox::memory::MemorySource;

use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// A handler on a store with faults, which writes what the message says.
macro_rules! write {
    ($fixture:ident) => {
        |mut ctx: oncebox::Context<Faulty<$fixture::Store>>, note: Note| async move {
            $fixture::write_effect(ctx.db(), &note.text).await?;
            Ok(oncebox::Outcome::applied())
        }
    };
}

/// The first commit after the next claim ends like this. Leasing commits too, but only if it found something.
fn end_commit(plan: &FaultPlan, fault: Fault) {
    let (mut claimed, mut ended) = (false, false);
    plan.decide(move |call| match call {
        "claim" => {
            claimed = true;
            None
        }
        "commit" if claimed && !ended => {
            ended = true;
            Some(fault)
        }
        _ => None,
    });
}

pub(crate) async fn an_unknown_commit_that_went_through_is_not_run_again<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b")]);
    end_commit(&plan, Fault::AfterDoing);
    let seen = run_dry(consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1), &source).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    assert_eq!((seen.unknown_commits, seen.handled, seen.transport_duplicates, seen.failures), (1, 2, 0, 0));
}

pub(crate) async fn an_unknown_commit_that_did_not_go_through_is_run_again<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b")]);
    end_commit(&plan, Fault::Lost);
    let seen = run_dry(consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1), &source).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    assert_eq!((seen.unknown_commits, seen.handled, seen.failures), (1, 2, 0));
}

/// A server that became a standby refuses to begin, and answers to everything else.
pub(crate) async fn transactions_that_cannot_begin_blame_no_message<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all([note("1", "a")]);
    plan.fail("begin", Fault::Stale, 6);
    let consumer = consumer("c", &store, source.clone()).retry(at_once(1)).on("noted", write!(F));
    let seen = run_dry(consumer.lanes(1), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!((seen.handled, seen.failures, seen.dead), (1, 0, 0));
}

pub(crate) async fn a_store_that_goes_away_and_returns_loses_nothing<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all((0..40).map(|n| note(&n.to_string(), &format!("{n:02}"))));
    // The first transaction breaks, and the next connections are refused.
    plan.fail("commit", Fault::BeforeDoing, 1);
    plan.fail("connect", Fault::BeforeDoing, 6);
    plan.fail("begin", Fault::BeforeDoing, 2);
    let flaky = consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(2);
    let mut waited_for = None;
    let seen = run_until(flaky, "all are done", async |seen| {
        waited_for = waited_for.take().or(seen.waiting_for.clone());
        source.backlog() == 0
    })
    .await;
    assert_eq!(effects(&setup).await.len(), 40);
    assert_eq!((seen.handled, seen.failures, seen.waiting_for), (40, 0, None));
    assert!(waited_for.is_some(), "it says what it waits for");
}

pub(crate) async fn random_faults_at_every_seam_lose_and_double_nothing<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    for n in 0..60 {
        let message = note(&n.to_string(), &format!("{n:02}"));
        source.send_all([message.clone(), message]);
    }
    plan.random(7, 0.1, &["connect", "begin", "claim", "record", "commit", "rollback", "resolve"]);
    let unlucky = consumer("c", &store, source.clone())
        .on("noted", write!(F))
        .lanes(3)
        .bounds(|bounds| bounds.batch_messages_max = 8);
    run_dry(unlucky, &source).await;
    let expected: Vec<String> = (0..60).map(|n| format!("{n:02}")).collect();
    assert_eq!(effects(&setup).await, expected);
}

pub(crate) async fn an_unknown_commit_counts_once_and_its_copies_are_duplicates<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "a")]);
    end_commit(&plan, Fault::AfterDoing);
    let seen = run_dry(consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (1, 1));
    // A duplicate whose own commit is in doubt stays a duplicate.
    source.send(note("1", "a"));
    end_commit(&plan, Fault::AfterDoing);
    let seen = run_dry(consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates, seen.unknown_commits), (0, 1, 1));
}

pub(crate) async fn an_unknown_commit_on_the_embedded_queue_is_found_to_be_ours<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let queue = Queue::new(store.clone(), "notes").unwrap();
    queue.send([note("1", "a"), note("2", "b")]).await.unwrap();
    end_commit(&plan, Fault::AfterDoing);
    // No room for a third: once both are claimed, nothing is leased, which commits too.
    let queued = consumer("c", &store, queue).on("noted", write!(F)).lanes(1).bounds(|bounds| bounds.in_flight_max = 2);
    let seen = run_until(queued, "both are handled", async |seen| seen.handled == 2).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    assert_eq!((seen.unknown_commits, seen.leases_lost), (1, 0));
}

pub(crate) async fn a_store_that_lets_in_and_then_fails_is_waited_for<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send(note("1", "a"));
    // Connections open, and nothing works on them: a full disk, a server that is still starting.
    plan.fail("begin", Fault::BeforeDoing, 5);
    let unlucky = consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1);
    let mut waited_for = None;
    let seen = run_until(unlucky, "it is done", async |seen| {
        waited_for = waited_for.take().or(seen.waiting_for.clone());
        source.backlog() == 0
    })
    .await;
    assert!(waited_for.is_some(), "it says what it waits for");
    assert_eq!((seen.handled, seen.failures), (1, 0));
}

/// A store whose commits all end unknown, such as one on a full disk, is not hammered.
pub(crate) async fn unknown_commits_in_a_row_are_spaced_out<F: EngineFixture>(setup: Setup<F>) {
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let mut claimed = false;
    plan.decide(move |call| match call {
        "claim" => {
            claimed = true;
            None
        }
        "commit" => std::mem::take(&mut claimed).then_some(Fault::Lost),
        _ => None,
    });
    let began = tokio::time::Instant::now();
    let one = consumer("c", &store, source.clone()).on("noted", write!(F)).lanes(1);
    run_until(one, "four commits are lost", async |seen| seen.unknown_commits >= 4).await;
    // The second and the third wait for at least 50 and 100 ms.
    assert!(began.elapsed() >= std::time::Duration::from_millis(150), "{:?}", began.elapsed());
    assert!(effects(&setup).await.is_empty());
}
