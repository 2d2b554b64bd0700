//! What fails is set aside: tried again by its policy, or kept for a person, and nobody waits for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;
use oncebox::{Class, Context, Failure, HookRuns, Outcome, OutcomeKind, Retry};
use oncebox_testkit::store::Setup;
use std::sync::Mutex;

use super::rig::*;

type Calls = Arc<AtomicUsize>;

/// A handler that writes, and then fails as `fails` says for its nth call, counted from 1.
pub(crate) fn failing<F: EngineFixture>(
    calls: &Calls,
    fails: impl Fn(usize, &Note) -> Option<Failure> + Send + Sync + 'static,
) -> impl Fn(Context<F::Store>, Note) -> BoxFuture<oncebox::Result<Outcome>> + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |mut ctx, note| {
        let failure = fails(calls.fetch_add(1, SeqCst) + 1, &note);
        Box::pin(async move {
            F::write_effect(ctx.db(), &note.text).await?;
            failure.map_or_else(|| Ok(Outcome::applied()), Err)
        })
    }
}

pub(crate) async fn a_transient_failure_is_tried_again_until_its_attempts_are_used_up<F: EngineFixture>(
    setup: Setup<F>,
) {
    let source = MemorySource::new();
    source.send_all([note("1", "CANARY"), note("2", "b")]);
    let calls = Calls::default();
    let closed = failing::<F>(&calls, |_, note| {
        (note.text == "CANARY").then(|| Failure::transient("the bank is closed").code("bank-closed"))
    });
    let flaky = consumer("c", &setup.store, source.clone()).on("noted", closed).retry(at_once(4)).lanes(1);
    let batch_of_one = flaky.bounds(|bounds| bounds.batch_messages_max = 1);
    let seen = run_until(batch_of_one, "it is dead", async |seen| seen.dead == 1 && seen.handled == 1).await;
    assert_eq!((seen.failures, seen.parked, seen.retried, calls.load(SeqCst)), (4, 3, 3, 5));
    let dead = only_parked(&setup).await;
    assert_eq!((dead.id.as_str(), dead.state, dead.class, dead.attempts), ("1", DEAD, Some(Class::Transient), 4));
    assert_eq!((dead.reason.as_str(), dead.cause.as_str()), ("the bank is closed", "transient/noted/bank-closed"));
    assert_eq!((effects(&setup).await, source.backlog()), (vec!["b".to_owned()], 0));
}

/// Fails once with `failure`; a day and a restart later it was still called once.
async fn dead_at_once<F: EngineFixture>(setup: Setup<F>, failure: fn() -> Failure) {
    let source = MemorySource::new();
    source.send_all([note("1", "CANARY"), note("2", "b")]);
    let calls = Calls::default();
    for _ in 0..2 {
        let bad = failing::<F>(&calls, move |_, note| (note.text == "CANARY").then(failure));
        let one = consumer("c", &setup.store, source.clone()).on("noted", bad).lanes(1);
        run_dry(one.bounds(|bounds| bounds.batch_messages_max = 1), &source).await;
        let dead = only_parked(&setup).await;
        assert_eq!((dead.id.as_str(), dead.state, dead.class, dead.attempts), ("1", DEAD, failure().class(), 1));
        assert_eq!(dead.reason, "the case said so");
        assert_eq!((effects(&setup).await, calls.load(SeqCst)), (vec!["b".to_owned()], 2));
        setup.advance(Duration::from_secs(24 * 3600)).await;
        assert_eq!(due(&setup).await, 0, "nothing brings it back by itself");
    }
}

pub(crate) async fn a_permanent_failure_is_dead_at_once<F: EngineFixture>(setup: Setup<F>) {
    dead_at_once(setup, || Failure::permanent("the case said so")).await;
}

pub(crate) async fn a_failure_with_an_unknown_effect_is_never_tried_again<F: EngineFixture>(setup: Setup<F>) {
    dead_at_once(setup, || Failure::unknown("the case said so")).await;
}

pub(crate) async fn a_rejection_by_failure_keeps_nothing_and_is_remembered<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("2", "b"), note("1", "a")]);
    let (calls, outcomes) = (Calls::default(), Arc::new(Mutex::new(Vec::new())));
    for _ in 0..2 {
        let heard = Arc::clone(&outcomes);
        let rejects = |note: &Note| (note.text == "a").then(|| Failure::rejected("insufficient funds"));
        let rejecting = consumer("c", &setup.store, source.clone())
            .on("noted", failing::<F>(&calls, move |_, note| rejects(note)))
            .after_commit(HookRuns::AlsoOnDuplicates, move |message, outcome| {
                let id = message.id.as_ref().unwrap().as_str().to_owned();
                heard.lock().unwrap().push((
                    id,
                    outcome.kind(),
                    outcome.result().map(|why| String::from_utf8_lossy(why).into_owned()),
                ));
                async {}
            });
        let seen = run_dry(rejecting.lanes(1), &source).await;
        assert_eq!((seen.failures, seen.dead, seen.parked), (0, 0, 0));
        source.send(note("1", "a"));
    }
    assert_eq!(effects(&setup).await, ["b"], "what it wrote is rolled back");
    let outcomes = outcomes.lock().unwrap().clone();
    let first: Vec<_> = outcomes.iter().filter(|(id, ..)| id == "1").collect();
    let rejected = ("1".to_owned(), OutcomeKind::Rejected, Some("insufficient funds".to_owned()));
    assert_eq!(first, [&rejected, &rejected, &rejected], "and so its duplicates are told");
    assert!(F::parked(&setup.store).await.is_empty());
}

pub(crate) async fn a_handler_that_says_when_is_not_called_before<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let calls = Calls::default();
    let later = |n: usize| (n == 1).then(|| Failure::transient("too many").retry_after(Duration::from_secs(60)));
    let polite = || {
        let handler = failing::<F>(&calls, move |n, _| later(n));
        consumer("c", &setup.store, source.clone()).on("noted", handler)
    };
    run_until(polite(), "it is parked", async |seen| seen.parked == 1 && seen.in_hand == 0).await;
    setup.advance(Duration::from_secs(59)).await;
    assert_eq!(due(&setup).await, 0);
    // Meanwhile nobody waits for it, and it is not forgotten.
    source.send_all((2..20).map(|n| note(&n.to_string(), "other")));
    let seen = run_until(polite(), "the others are done", async |seen| seen.handled == 18 && seen.in_hand == 0).await;
    assert_eq!((seen.retried, states(&setup).await), (0, vec![("1".to_owned(), RETRIES)]));
    setup.advance(Duration::from_secs(2)).await;
    let seen = run_until(polite(), "it is done", async |seen| seen.handled == 1 && seen.in_hand == 0).await;
    assert_eq!((seen.retried, calls.load(SeqCst), effects(&setup).await.len()), (1, 20, 19));
    assert!(F::parked(&setup.store).await.is_empty());
}

pub(crate) async fn a_redelivery_of_a_parked_message_is_acknowledged_and_runs_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "a")]);
    let (calls, hooks) = (Calls::default(), Calls::default());
    let hour = Duration::from_secs(3600);
    let flaky = || {
        let hooked = Arc::clone(&hooks);
        let later = failing::<F>(&calls, move |n, _| (n <= 2).then(|| refuse().retry_after(hour)));
        consumer("c", &setup.store, source.clone()).on("noted", later).lanes(1).after_commit(
            HookRuns::AlsoOnDuplicates,
            move |_, _| {
                hooked.fetch_add(1, SeqCst);
                async {}
            },
        )
    };
    // Both copies may fail before either is parked; one of them is.
    let settled = async |seen: &oncebox::consumer::Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    let seen = run_until(flaky(), "both are acknowledged", settled).await;
    assert_eq!((seen.parked, seen.transport_duplicates, seen.dead), (1, 1, 0));
    calls.store(1, SeqCst);
    source.send_all([note("1", "a"), note("1", "a")]);
    let seen = run_until(flaky(), "both are acknowledged", settled).await;
    assert_eq!((seen.transport_duplicates, seen.parked, calls.load(SeqCst)), (2, 0, 1), "and not run");
    assert_eq!((only_parked(&setup).await.attempts, hooks.load(SeqCst)), (1, 0), "nothing has happened yet");
    calls.store(2, SeqCst);
    setup.advance(hour).await;
    source.send(note("1", "a"));
    let applied = async |seen: &oncebox::consumer::Snapshot| source.backlog() == 0 && seen.handled == 1;
    run_until(flaky(), "it is applied", applied).await;
    source.send(note("1", "a"));
    run_dry(flaky(), &source).await;
    assert_eq!((effects(&setup).await, calls.load(SeqCst)), (vec!["a".to_owned()], 3));
    assert!(F::parked(&setup.store).await.is_empty());
}

/// An error that only the user knows.
#[derive(Debug)]
struct Odd(&'static str);

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Odd {}

pub(crate) async fn a_message_that_another_worker_applied_meanwhile_is_not_parked<F: EngineFixture>(setup: Setup<F>) {
    let other = setup.fixture.reopen(&setup.store).await;
    let source = MemorySource::new();
    source.send(note("1", "a"));
    // Read between the rollback of the failed run and the parking: there the other worker applies it.
    let meanwhile = move |_: &Odd| {
        let source = MemorySource::new();
        source.send(note("1", "a"));
        let worker = consumer("c", &other, source.clone()).on("noted", write::<F>);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(run_dry(worker, &source)));
        Class::Permanent
    };
    let fails = consumer("c", &setup.store, source.clone())
        .on("noted", |_: Context<F::Store>, _: Note| async { Err(Odd("the case said so").into()) })
        .classify(meanwhile);
    let seen = run_dry(fails, &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    assert_eq!((seen.failures, seen.dead, seen.parked, seen.transport_duplicates), (1, 0, 0, 1));
    assert!(F::parked(&setup.store).await.is_empty());
}

pub(crate) async fn a_conflict_that_comes_again_is_parked_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([note("1", "a"), note("1", "CANARY"), note("1", "CANARY")]);
    for expected in [(2, 1, 1), (1, 0, 1)] {
        let seen = run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>).lanes(1), &source).await;
        assert_eq!((seen.conflicts, seen.dead, seen.transport_duplicates), expected);
        assert_eq!(only_parked(&setup).await.cause, "permanent/noted/conflict");
        source.send(note("1", "CANARY"));
    }
    // Parked beside, and another one beside that.
    source.send(note("1", "third"));
    run_dry(consumer("c", &setup.store, source.clone()).on("noted", write::<F>), &source).await;
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD), ("1".to_owned(), DEAD)]);
    assert_eq!(effects(&setup).await, ["a"]);
}

pub(crate) async fn errors_are_classed_by_who_knows_them<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all(["permanent", "unknown", "transient", "rejected"].map(|text| note(text, text)));
    let odd = consumer("c", &setup.store, source.clone())
        .on("noted", |_: Context<F::Store>, note: Note| async move {
            let names = ["permanent", "unknown", "transient", "rejected"];
            Err(Odd(names.into_iter().find(|name| *name == note.text).unwrap()).into())
        })
        .classify::<Odd>(|odd| Class::from_name(odd.0).unwrap())
        .retry(at_once(3))
        .lanes(1);
    run_until(odd, "all are settled", async |seen| seen.dead == 3 && seen.rejected == 1).await;
    let mut parked = F::parked(&setup.store).await;
    parked.sort_by(|one, other| one.id.cmp(&other.id));
    let found: Vec<_> = parked.iter().map(|row| (row.id.as_str(), row.class, row.attempts)).collect();
    let expected = [
        ("permanent", Some(Class::Permanent), 1),
        ("transient", Some(Class::Transient), 3),
        ("unknown", Some(Class::Unknown), 1),
    ];
    assert_eq!(found, expected);
}

pub(crate) async fn a_type_with_a_policy_of_its_own_is_tried_by_it<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let of = |kind: &str| {
        let mut message = note(kind, kind);
        message.kind = kind.to_owned();
        message
    };
    source.send_all([of("often"), of("usual"), of("never")]);
    let calls = Calls::default();
    let mut one = consumer("c", &setup.store, source.clone())
        .retry(at_once(2))
        .retry_for("often", at_once(5))
        .retry_for("never", Retry::never())
        .lanes(1);
    for kind in ["often", "usual", "never"] {
        one = one.on(kind, failing::<F>(&calls, |_, _| Some(refuse())));
    }
    run_until(one, "all are dead", async |seen| seen.dead == 3).await;
    let mut attempts: Vec<_> = F::parked(&setup.store).await.into_iter().map(|row| (row.id, row.attempts)).collect();
    attempts.sort();
    assert_eq!(attempts, [("never", 1), ("often", 5), ("usual", 2)].map(|(id, attempts)| (id.to_owned(), attempts)));
}

pub(crate) async fn a_message_is_dead_when_it_has_been_failing_for_too_long<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let calls = Calls::default();
    let limited = || {
        consumer("c", &setup.store, source.clone())
            .on("noted", failing::<F>(&calls, |_, _| Some(refuse().retry_after(Duration::from_secs(40)))))
            .retry(at_once(u32::MAX).within(Duration::from_secs(100)))
            .clock(setup.clock.clone())
    };
    for (attempts, state) in [(1, RETRIES), (2, RETRIES), (3, DEAD)] {
        let judged = async |seen: &oncebox::consumer::Snapshot| seen.failures == 1 && seen.in_hand == 0;
        run_until(limited(), "it failed once more", judged).await;
        let row = only_parked(&setup).await;
        assert_eq!((row.attempts, row.state), (attempts, state));
        setup.advance(Duration::from_secs(41)).await;
    }
}
