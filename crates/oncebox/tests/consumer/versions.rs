//! Versioned messages: applied in the order of their versions, whatever order they come in.

use std::sync::Arc;
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Class, Consumer, Drained, Failure, Gap, HookRuns, Message, Outcome, OutcomeKind, Versioned};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::order::by_key;
use super::parking::failing;
use super::rig::*;

/// Version `version` of `aggregate`, under an id of its own.
fn version(id: &str, aggregate: &str, version: u64) -> Message {
    let mut message = note(id, &format!("{aggregate}:{version}")).with_order_key(aggregate);
    message.version = Some(version);
    message
}

fn usual(aggregate: &str, n: u64) -> Message {
    version(&format!("{aggregate}-{n}"), aggregate, n)
}

fn versioned<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource, gap: Gap) -> Consumer<F::Store, MemorySource> {
    consumer("c", &setup.store, source.clone())
        .on("noted", write::<F>)
        .versioned(Versioned::by_order_key().on_gap(gap))
        .clock(setup.clock.clone())
}

/// Waits for a minute, with any number of messages.
const WAIT: Gap = Gap::Wait { time: Duration::from_secs(60), messages: 1_000 };

fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for at in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, (seed >> 33) as usize % (at + 1));
    }
}

pub(crate) async fn versions_that_come_in_any_order_are_applied_in_theirs<F: EngineFixture>(setup: Setup<F>) {
    const AGGREGATES: u64 = 1_000;
    const VERSIONS: u64 = 6;
    let names: Vec<String> = (0..AGGREGATES).map(|n| format!("a{n}")).collect();
    let each = || names.iter().flat_map(|name| (1..=VERSIONS).map(move |n| usual(name, n)));
    let mut messages: Vec<Message> = each().chain(each()).collect();
    shuffle(&mut messages, 7);
    let source = MemorySource::new();
    source.send_all(messages);
    let batches = versioned(&setup, &source, WAIT).bounds(|bounds| bounds.batch_messages_max = 20);
    let stats = batches.stats();
    // Each tenth has its own deadline: a slow machine may take its time, and one that stands still may not.
    let all = async {
        for tenths in 1..=10 {
            let enough = AGGREGATES * VERSIONS * tenths / 10;
            eventually(&format!("{tenths} tenths are applied"), async || stats.snapshot().handled >= enough).await;
        }
        eventually("all are settled", async || source.backlog() == 0).await;
    };
    assert_eq!(batches.run(all).await.unwrap(), Drained::Clean);
    let seen = stats.snapshot();
    assert_eq!(seen.handled, AGGREGATES * VERSIONS);
    assert_eq!((seen.stale, seen.same_version, seen.failures, seen.dead), (0, 0, 0, 0));
    assert_eq!(seen.transport_duplicates, AGGREGATES * VERSIONS);
    assert!(seen.gaps > 0, "nothing had to wait: this case tests nothing");
    assert_eq!(seen.suspects, 0, "waiting makes nobody a suspect");
    for (name, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (1..=VERSIONS as u32).collect::<Vec<_>>(), "versions of {name}");
    }
    assert!(F::parked(&setup.store).await.is_empty());

    // The same and older ones under other ids, and older ones twice.
    for name in &names {
        source.send(version(&format!("same-{name}"), name, VERSIONS));
        let stale = version(&format!("stale-{name}"), name, 3);
        source.send_all([stale.clone(), stale]);
    }
    let seen = run_dry(versioned(&setup, &source, WAIT), &source).await;
    assert_eq!((seen.same_version, seen.stale), (AGGREGATES, AGGREGATES));
    assert_eq!((seen.transport_duplicates, seen.handled), (AGGREGATES, 0));
    assert_eq!(F::effects(&setup.store).await.len() as u64, AGGREGATES * VERSIONS, "no state is turned back");
}

pub(crate) async fn a_gap_that_never_closes_is_given_up<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([usual("a", 1), usual("a", 3), usual("b", 2)]);
    let waiting = async |seen: &Snapshot| seen.gaps >= 2 && seen.in_hand == 0;
    run_until(versioned(&setup, &source, WAIT), "two wait", waiting).await;
    let gaps = [("a-3", GAP), ("b-2", GAP)].map(|(id, state)| (id.to_owned(), state));
    assert_eq!((states(&setup).await, source.backlog()), (gaps.to_vec(), 0));
    // One closes in time.
    setup.advance(Duration::from_secs(59)).await;
    source.send(usual("b", 1));
    run_until(versioned(&setup, &source, WAIT), "it is closed", async |seen| seen.handled == 2).await;
    setup.advance(Duration::from_secs(6)).await;
    run_until(versioned(&setup, &source, WAIT), "the other is dead", async |seen| seen.dead == 1).await;
    let dead = only_parked(&setup).await;
    assert_eq!((dead.id.as_str(), dead.state, dead.class, dead.attempts), ("a-3", DEAD, Some(Class::Permanent), 0));
    assert_eq!(
        (dead.reason.as_str(), dead.cause.as_str()),
        ("version 2 of its aggregate is missing", "permanent/noted/gap")
    );
    // Late, but it is applied, and so is what had given it up.
    source.send(usual("a", 2));
    run_until(versioned(&setup, &source, WAIT), "both are applied", async |seen| seen.handled == 2).await;
    let mut applied = effects(&setup).await;
    applied.sort();
    assert_eq!((applied.join(" "), F::parked(&setup.store).await.len()), ("a:1 a:2 a:3 b:1 b:2".to_owned(), 0));
}

/// Whatever order they were parked in, none that was given up holds up another; it goes on when its predecessor is applied.
pub(crate) async fn versions_that_were_given_up_and_revived_are_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([usual("a", 4), usual("a", 3), usual("a", 2)]);
    let waiting = async |seen: &Snapshot| seen.gaps >= 3 && seen.in_hand == 0;
    run_until(versioned(&setup, &source, WAIT), "all wait", waiting).await;
    setup.advance(Duration::from_secs(66)).await;
    run_until(versioned(&setup, &source, WAIT), "all are given up", async |seen| seen.dead == 3).await;
    // The first is missing still: they look, and give up again.
    revive_all(&setup).await;
    run_until(versioned(&setup, &source, WAIT), "all are given up again", async |seen| seen.dead == 3).await;
    source.send(usual("a", 1));
    run_until(versioned(&setup, &source, WAIT), "all are applied", async |seen| seen.handled == 4).await;
    assert_eq!(effects(&setup).await.join(" "), "a:1 a:2 a:3 a:4");
}

/// A batch handler gets no version before the one that another handler is to apply.
pub(crate) async fn versions_of_two_types_are_applied_in_order_in_one_batch<F: EngineFixture>(setup: Setup<F>) {
    let of_type = |kind: &str, n: u64| {
        let mut message = usual("a", n);
        message.kind = kind.into();
        message
    };
    let source = MemorySource::new();
    source.send_all([of_type("noted", 1), of_type("amended", 2), of_type("noted", 3), of_type("amended", 4)]);
    let batches = versioned(&setup, &source, WAIT)
        .on_batch("amended", |ctx, notes| write_all::<F>(ctx, notes, Sizes::default()))
        .lanes(1);
    let seen = run_dry(batches, &source).await;
    assert_eq!((seen.handled, seen.gaps), (4, 0));
    assert_eq!(effects(&setup).await.join(" "), "a:1 a:2 a:3 a:4");
}

pub(crate) async fn only_so_many_wait_for_one_gap<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([usual("a", 2), usual("a", 3), usual("a", 4), usual("b", 2)]);
    let gap = Gap::Wait { time: Duration::from_secs(60), messages: 2 };
    let one_by_one = versioned(&setup, &source, gap).lanes(1).bounds(|bounds| bounds.batch_messages_max = 1);
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    let seen = run_until(one_by_one, "all are settled", settled).await;
    assert_eq!((seen.gaps, seen.dead), (3, 1));
    let expected = [("a-2", GAP), ("a-3", GAP), ("a-4", DEAD), ("b-2", GAP)].map(|(id, s)| (id.to_owned(), s));
    assert_eq!(states(&setup).await, expected);
}

pub(crate) async fn full_states_are_applied_over_a_gap<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all([usual("a", 4), usual("a", 2), usual("a", 9)]);
    let seen = run_dry(versioned(&setup, &source, Gap::Apply).lanes(1), &source).await;
    assert_eq!((seen.handled, seen.stale, seen.gaps, seen.dead), (2, 1, 0, 0));
    assert_eq!(F::effects(&setup.store).await, ["a:4", "a:9"]);
}

pub(crate) async fn a_gap_that_must_not_be_is_dead_at_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(usual("a", 1));
    run_dry(versioned(&setup, &source, Gap::Fail).lanes(1), &source).await;
    source.send(usual("a", 3));
    let seen = run_dry(versioned(&setup, &source, Gap::Fail).lanes(1), &source).await;
    assert_eq!((seen.handled, seen.gaps, seen.dead), (0, 0, 1));
    let dead = only_parked(&setup).await;
    assert_eq!((dead.id.as_str(), dead.state, dead.class), ("a-3", DEAD, Some(Class::Permanent)));
    assert_eq!(effects(&setup).await, ["a:1"]);
    // What is missing comes after all.
    source.send(usual("a", 2));
    let both = async |seen: &Snapshot| seen.handled == 2 && seen.in_hand == 0;
    run_until(versioned(&setup, &source, Gap::Fail).lanes(1), "both are applied", both).await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2", "a:3"]);
}

pub(crate) async fn a_message_without_a_version_is_dead<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let mut nothing = usual("a", 1);
    nothing.version = None;
    let mut of_nothing = usual("b", 1);
    of_nothing.order_key = None;
    source.send_all([nothing, usual("c", 1), of_nothing]);
    let seen = run_dry(versioned(&setup, &source, WAIT).lanes(1), &source).await;
    assert_eq!((seen.handled, seen.dead, effects(&setup).await.len()), (1, 2, 1));
    let parked = F::parked(&setup.store).await;
    assert!(parked.iter().all(|row| row.state == DEAD && row.cause == "permanent/noted/unversioned"), "{parked:?}");
    let mut reasons: Vec<&str> = parked.iter().map(|row| row.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["it has no order key to be a version of", "it has no version"]);
}

/// Rejected, failed and tried again, or applied already: each version is done once, and the next one goes on.
pub(crate) async fn the_next_version_waits_for_a_retry_and_not_for_a_rejection<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send_all((1..=5).map(|n| usual("a", n)));
    let (calls, outcomes) = (Arc::default(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let heard = Arc::clone(&outcomes);
    let tried = std::sync::atomic::AtomicBool::new(false);
    let handler = failing::<F>(&calls, move |_, note| match note.text.as_str() {
        "a:2" => Some(Failure::rejected("insufficient funds")),
        "a:4" => (!tried.swap(true, std::sync::atomic::Ordering::SeqCst)).then(refuse),
        _ => None,
    });
    let one = consumer("c", &setup.store, source.clone())
        .on("noted", handler)
        .versioned(Versioned::by_order_key().on_gap(WAIT))
        .clock(setup.clock.clone())
        .after_commit(HookRuns::Once, move |_, outcome: Outcome| {
            heard.lock().unwrap().push(outcome.kind());
            async {}
        })
        .lanes(1)
        .bounds(|bounds| bounds.batch_messages_max = 1);
    let seen = run_until(one, "all are done", async |seen| seen.handled == 5 && seen.in_hand == 0).await;
    assert_eq!((seen.rejected, seen.dead, seen.failures), (1, 0, 1));
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:3", "a:4", "a:5"]);
    use OutcomeKind::{Applied, Rejected};
    assert_eq!(*outcomes.lock().unwrap(), [Applied, Rejected, Applied, Applied, Applied]);
    assert!(F::parked(&setup.store).await.is_empty());
}

/// What was behind another of its order key and then gives up a missing version lets the next of that key go.
pub(crate) async fn what_leaves_its_order_key_wakes_the_next<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let gap = Gap::Wait { time: Duration::from_secs(10), messages: 1_000 };
    let handler = |mut ctx: oncebox::Context<F::Store>, note: Note| async move {
        if note.text == "a:2" {
            return Err(Failure::permanent("bad"));
        }
        F::write_effect(ctx.db(), &note.text).await?;
        oncebox::Result::Ok(Outcome::applied())
    };
    let one = || {
        let one = consumer("c", &setup.store, source.clone())
            .retry(at_once(1))
            .clock(setup.clock.clone())
            .on("noted", handler);
        one.order_by(oncebox::OrderBy::MessageKey).versioned(Versioned::by_order_key().on_gap(gap)).lanes(1)
    };
    source.send_all([usual("a", 1), usual("a", 2), usual("a", 3), usual("a", 4), usual("a", 5)]);
    let settled =
        async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0 && F::parked(&setup.store).await.len() == 4;
    run_until(one(), "all are settled", settled).await;
    // Long enough for a lease to note who is behind whom.
    let run_on = async || {
        let mut looks = 0;
        run_until(one(), "a while", async |_| {
            setup.advance(Duration::from_secs(1)).await;
            looks += 1;
            looks > 60
        })
        .await;
    };
    run_on().await;
    deal_with_first(&setup, true).await;
    source.send_all((6..=9).map(|n| usual("a", n)));
    run_until(one(), "nothing waits for its turn", async |_| {
        setup.advance(Duration::from_secs(1)).await;
        source.backlog() == 0 && states(&setup).await.iter().all(|(_, state)| *state != BEHIND)
    })
    .await;
}
