//! Runners that remove old records, beside consumers that get old messages again.

use std::time::Duration;

use oncebox::horizon::Consumers;
use oncebox::memory::MemorySource;
use oncebox::quarantine::QuarantineStore;
use oncebox::retention::{RETENTION, Retention, RetentionProgress, RetentionStats};
use oncebox::{Clock, ConsumerName, Context, Failure, Message, Outcome, Session, Store, Timestamp, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::faults::{Fault, FaultPlan, Faulty};
use oncebox_testkit::store::Setup;

use super::rig::*;

/// How many messages a case has handled long ago; every tenth is parked.
const MESSAGES: usize = 60;
const PARKED: usize = MESSAGES / 10;

fn long_ago() -> Vec<Message> {
    let made = |n: usize| {
        let mut message = note(&n.to_string(), &if n.is_multiple_of(10) { format!("bad-{n}") } else { n.to_string() });
        message.time = "2020-07-01T00:00:00Z".parse().unwrap();
        message
    };
    (0..MESSAGES).map(made).collect()
}

/// Lets consumer `c` have all messages, and answers how many it applied and how many it took for too old.
async fn consume<F: EngineFixture>(setup: &Setup<F>) -> (u64, u64) {
    let source = MemorySource::new();
    source.send_all(long_ago());
    let one = consumer("c", &setup.store, source.clone()).clock(setup.clock.clone()).on(
        "noted",
        |mut ctx: Context<F::Store>, note: Note| async move {
            if note.text.starts_with("bad") {
                return Err(Failure::permanent("it is bad"));
            }
            F::write_effect(ctx.db(), &note.text).await?;
            Ok(Outcome::applied())
        },
    );
    let seen = run_until(one, "all are settled", async |seen| source.backlog() == 0 && seen.in_hand == 0).await;
    (seen.handled, seen.too_old)
}

/// All messages are handled, and everything there is has become old.
async fn handled_long_ago<F: EngineFixture>(setup: &Setup<F>) {
    assert_eq!(consume(setup).await.0 as usize, MESSAGES - PARKED);
    let now: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    setup.advance(now.duration_since(setup.clock.now()).unsigned_abs()).await;
}

/// How many old records there are, and how many of them stay.
async fn left<F: EngineFixture>(setup: &Setup<F>) -> (u64, u64) {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let old = tx.old_records(consumer, setup.clock.now()).await.unwrap();
    tx.rollback().await;
    (old.records, old.held)
}

/// Retention of consumer `c` in small steps and without rests.
fn runner<S: QuarantineStore>(store: &S) -> Retention<S> {
    Retention::new(store.clone()).keep("c", RETENTION).unwrap().bounds(|bounds| {
        bounds.step_max = 5;
        bounds.share = 100;
        bounds.failure_rest = Duration::from_millis(1);
    })
}

fn progress(stats: &RetentionStats) -> RetentionProgress {
    stats.snapshot().get("c").copied().unwrap_or_default()
}

async fn run_runner<S: QuarantineStore>(
    retention: Retention<S>,
    awaited: &str,
    mut done: impl FnMut(RetentionProgress) -> bool,
) -> RetentionProgress {
    let stats = retention.stats();
    retention.run(eventually(awaited, async || done(progress(&stats)))).await.unwrap();
    progress(&stats)
}

/// Whatever fails, and wherever the runner is stopped: a record that is gone is one that the horizon knows of.
pub(crate) async fn random_faults_in_a_runner_lose_and_break_nothing<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let calls =
        ["connect", "consumer", "begin", "store-time", "expire", "sweep-replays", "commit", "rollback", "resolve"];
    plan.random(23, 0.25, &calls);
    let mut failures = 0;
    for _ in 0..6 {
        let retention = runner(&store).bounds(|bounds| bounds.step_max = 2);
        let seen = run_runner(retention, "a few steps are made", |seen| seen.steps >= 3 || seen.passes > 0).await;
        failures += seen.failures;
        // What comes again is a duplicate, or nobody can tell. It is never new.
        assert_eq!(consume(&setup).await.0, 0, "something was applied again");
    }
    assert!(failures > 0 && plan.injected() > 5, "nothing went wrong, so nothing was seen");
    run_runner(runner(&store), "a pass comes to its end", |seen| seen.passes > 0).await;
    let (records, held) = left(&setup).await;
    assert_eq!(records, held, "nothing is left but what is parked");
    assert_eq!(consume(&setup).await.0, 0);
    assert_eq!(effects(&setup).await.len(), MESSAGES - PARKED);
}

/// One pass is enough: what may not have been removed is looked at again, not passed over.
pub(crate) async fn a_step_whose_commit_is_unknown_is_made_again<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    plan.fail("commit", Fault::Lost, 1);
    plan.fail("commit", Fault::AfterDoing, 1);
    plan.fail("commit", Fault::BeforeDoing, 1);
    let seen = run_runner(runner(&store), "a pass comes to its end", |seen| seen.passes > 0).await;
    assert_eq!((seen.failures, left(&setup).await), (3, (PARKED as u64, PARKED as u64)));
    // Of the one that was made without an answer nobody knows how many it took.
    let all = (MESSAGES - PARKED) as u64;
    assert!(seen.deleted < all && seen.deleted >= all - 5, "{seen:?}");
    assert_eq!(consume(&setup).await.0, 0);
}

pub(crate) async fn two_runners_at_once_remove_everything_once<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let one = || run_runner(runner(&setup.store), "two passes come to their end", |seen| seen.passes > 0);
    let (first, second) = tokio::join!(one(), one());
    let last = one().await;
    assert_eq!(first.deleted + second.deleted + last.deleted, (MESSAGES - PARKED) as u64);
    assert_eq!(last.horizon, first.horizon.max(second.horizon).max(last.horizon), "a horizon never goes back");
    assert_eq!(left(&setup).await, (PARKED as u64, PARKED as u64));
    assert_eq!(consume(&setup).await, (0, (MESSAGES - PARKED) as u64));
}

pub(crate) async fn a_pass_that_is_stopped_on_its_way_is_not_counted<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    // After two commits the store is in the way of everyone for as long as the case takes.
    plan.fail("commit", Fault::Delay(Duration::ZERO), 2);
    plan.fail("commit", Fault::BeforeDoing, usize::MAX);
    let seen = run_runner(runner(&store), "it can't go on", |seen| seen.failures > 2).await;
    assert_eq!((seen.passes, seen.steps), (0, 2), "{seen:?}");
    let (records, held) = left(&setup).await;
    assert!(records > held && records < MESSAGES as u64, "{records} are left, of which {held} stay");
    assert_eq!(consume(&setup).await.0, 0);
}

pub(crate) async fn what_was_cut_short_goes_on_at_once_and_faster<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    // Between passes an hour goes by, or the test waits in vain.
    let retention = runner(&setup.store).bounds(|bounds| (bounds.pass_max, bounds.share) = (20, 10));
    let stats = retention.stats();
    let all = (MESSAGES - PARKED) as u64;
    let seen = run_runner(retention, "everything old is gone", |seen| seen.deleted == all && seen.passes > 2).await;
    assert_eq!(seen.passes, 3, "20, 20 and the rest");
    // It doubled twice, and falls again at the end of the last round.
    assert!([20, 40].contains(&stats.share()), "{}", stats.share());
    let never = runner(&setup.store).bounds(|bounds| bounds.pass_max = 0);
    let seen = run_runner(never, "a pass comes to its end", |seen| seen.passes > 0).await;
    assert_eq!((seen.passes, seen.deleted), (1, 0), "passes that may do nothing do not follow each other at once");
}

/// Removing many records takes one connection, beside those of consumers, and no more than a bounded number a transaction.
pub(crate) async fn a_runner_works_on_one_connection_of_its_own<F: EngineFixture>(setup: Setup<F>) {
    handled_long_ago(&setup).await;
    let plan = FaultPlan::default();
    let store = Faulty::new(setup.store.clone(), plan.clone());
    let seen = run_runner(runner(&store), "a pass comes to its end", |seen| seen.passes > 0).await;
    assert_eq!(seen.deleted, (MESSAGES - PARKED) as u64);
    assert!(seen.steps >= seen.deleted.div_ceil(5), "more than 5 in a step: {seen:?}");
    assert_eq!(plan.count("connect"), 1, "{:?}", plan.made());
    assert!(plan.count("begin") > 10);
}
