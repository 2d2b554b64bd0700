//! A dependency that is down: the consumer pauses and probes, and does not set the whole queue aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use oncebox::memory::MemorySource;
use oncebox::{Drained, OrderBy};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::order::by_key;
use super::parking::failing;
use super::rig::*;

const MESSAGES: usize = 200;

/// With few messages of each key: those behind a parked one are parked too.
const KEYS: usize = 100;

async fn outlives_a_dead_dependency<F: EngineFixture>(setup: &Setup<F>, order: OrderBy) {
    let source = MemorySource::with_clock(setup.clock.clone(), MemorySource::LEASE);
    source.send_all((0..MESSAGES).map(|n| {
        let (key, n) = (n % KEYS, n / KEYS);
        note(&format!("{key}-{n}"), &format!("{key}:{n}")).with_order_key(key.to_string())
    }));
    let (down, calls) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicUsize>::default());
    let is_down = Arc::clone(&down);
    let needy = consumer("c", &setup.store, source.clone())
        .on("noted", failing::<F>(&calls, move |_, _| is_down.load(SeqCst).then(refuse)))
        .order_by(order)
        .bounds(|bounds| bounds.batch_messages_max = 5);
    in_real_time(&setup.clock, async {
        let running = Running::start(needy);
        let stats = Arc::clone(&running.stats);
        eventually("it pauses", async || stats.snapshot().breaker_opened == 1).await;
        let waiting_for = eventually("it says so", async || stats.snapshot().waiting_for).await;
        assert!(waiting_for.contains("most messages fail"), "{waiting_for}");
        eventually("what was in hand is settled", async || stats.snapshot().in_hand == 0).await;
        let before = calls.load(SeqCst);
        eventually("a probe was made, and failed", async || calls.load(SeqCst) > before).await;
        let parked = F::parked(&setup.store).await;
        assert!(parked.len() < MESSAGES / 3, "{} are parked", parked.len());
        assert!(parked.iter().all(|row| row.state != DEAD), "{parked:?}");

        down.store(false, SeqCst);
        eventually("all are applied", async || stats.snapshot().handled == MESSAGES as u64).await;
        let seen = stats.snapshot();
        assert_eq!((seen.waiting_for, seen.dead, source.backlog()), (None, 0, 0));
        assert_eq!(running.stop().await, Drained::Clean);
    })
    .await;
    assert!(F::parked(&setup.store).await.is_empty());
    let mut applied = effects(setup).await;
    applied.dedup();
    assert_eq!(applied.len(), MESSAGES, "each once");
}

pub(crate) async fn a_dead_dependency_pauses_the_consumer_and_parks_little<F: EngineFixture>(setup: Setup<F>) {
    outlives_a_dead_dependency(&setup, OrderBy::Nothing).await;
}

pub(crate) async fn a_dead_dependency_does_not_upset_the_order<F: EngineFixture>(setup: Setup<F>) {
    outlives_a_dead_dependency(&setup, OrderBy::MessageKey).await;
    for (key, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (0..(MESSAGES / KEYS) as u32).collect::<Vec<_>>(), "order of {key}");
    }
}
