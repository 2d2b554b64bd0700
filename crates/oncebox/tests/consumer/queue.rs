//! Consumers of the queue in the store itself.

use std::sync::Arc;
use std::time::Duration;

use oncebox::{Context, Drained, OrderBy, Outcome, Queue};
use oncebox_testkit::store::Setup;
use oncebox_testkit::{ManualClock, eventually};
use tokio::sync::Semaphore;

use super::order::{by_key, unreliable};
use super::rig::*;

/// Short, so that cases in which it ends are quick.
const LEASE: Duration = Duration::from_millis(1_200);

pub(crate) async fn queued_messages_are_settled_in_their_own_transaction<F: EngineFixture>(setup: Setup<F>) {
    let queue = Queue::new(setup.store.clone(), "notes").unwrap();
    queue.send([note("1", "a"), note("2", "b"), note("1", "a")]).await.unwrap();
    let queued = consumer("c", &setup.store, queue).on("noted", write::<F>);
    let seen = run_until(queued, "three are settled", async |seen| seen.handled + seen.transport_duplicates == 3).await;
    assert_eq!(effects(&setup).await, ["a", "b"]);
    assert_eq!((seen.handled, seen.transport_duplicates), (2, 1));
    // Nothing is left, for anyone.
    let queue = Queue::new(setup.store.clone(), "notes").unwrap();
    setup.advance(Duration::from_secs(3600)).await;
    let left = oncebox::Source::<F::Store>::receive(&queue, 10, Duration::from_millis(50)).await.unwrap();
    assert!(left.is_empty());
}

pub(crate) async fn two_processes_share_a_queue_and_keep_order<F: EngineFixture>(setup: Setup<F>) {
    let open = |store: F::Store| Queue::ordered(store, "notes").unwrap().lease(LEASE);
    let keys: Vec<String> = (0..12).map(|key| format!("k{key}")).collect();
    let other = setup.fixture.reopen(&setup.store).await;
    let ordered = |store: &F::Store, seed| {
        let queue = open(store.clone());
        consumer("c", store, queue).on("noted", unreliable::<F>(seed)).order_by(OrderBy::MessageKey).lanes(4)
    };
    let mut rounds: u32 = 0;
    in_real_time(&setup.clock, async {
        let (one, two) = (Running::start(ordered(&setup.store, 3)), Running::start(ordered(&other, 5)));
        let sender = open(setup.store.clone());
        let stats = [one.stats.clone(), two.stats.clone()];
        let handled = || stats.each_ref().map(|stats| stats.snapshot().handled);
        // Until both had a share, which takes the first one a renewal of its lanes to notice the second.
        eventually("both have handled some", async || {
            let n = rounds;
            let message = |key: &String| note(&format!("{key}-{n}"), &format!("{key}:{n}")).with_order_key(key);
            sender.send(keys.iter().map(message)).await.unwrap();
            rounds += 1;
            rounds >= 20 && handled().iter().all(|handled| *handled > 0)
        })
        .await;
        let sent = u64::from(rounds) * keys.len() as u64;
        eventually("all are handled", async || handled().iter().sum::<u64>() == sent).await;
        assert_eq!((one.stop().await, two.stop().await), (Drained::Clean, Drained::Clean));
    })
    .await;
    for (key, numbers) in by_key(&F::effects(&setup.store).await) {
        assert_eq!(numbers, (0..rounds).collect::<Vec<_>>(), "order of {key}");
    }
}

pub(crate) async fn a_dead_process_s_messages_come_again<F: EngineFixture>(setup: Setup<F>) {
    let open = |store: F::Store| Queue::ordered(store, "notes").unwrap().lease(LEASE);
    open(setup.store.clone())
        .send((0..30).map(|n| note(&n.to_string(), &format!("k:{n}")).with_order_key("k")))
        .await
        .unwrap();
    let ordered = |store: &F::Store| {
        consumer("c", store, open(store.clone())).on("noted", write::<F>).order_by(OrderBy::MessageKey).bounds(|b| {
            b.batch_messages_max = 3;
        })
    };
    let other = setup.fixture.reopen(&setup.store).await;
    let clock: std::sync::Arc<ManualClock> = setup.clock.clone();
    in_real_time(&clock, async {
        let dies = Running::start(ordered(&other));
        eventually("some are handled", async || dies.stats.snapshot().handled >= 3).await;
        dies.kill().await;
        let survivor = ordered(&setup.store);
        run_until(survivor, "the rest is handled", async |_| F::effects(&setup.store).await.len() >= 30).await;
    })
    .await;
    let numbers = by_key(&F::effects(&setup.store).await).remove("k").unwrap();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
}

pub(crate) async fn a_queue_of_another_database_is_refused<F: EngineFixture>(setup: Setup<F>) {
    let Some(other) = setup.fixture.fresh(setup.clock.clone()).await else { return };
    let queue = Queue::new(other, "notes").unwrap();
    let error =
        consumer("c", &setup.store, queue).on("noted", write::<F>).run(std::future::ready(())).await.unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
}

pub(crate) async fn a_handler_slower_than_its_lease_keeps_its_message<F: EngineFixture>(setup: Setup<F>) {
    let queue = Queue::new(setup.store.clone(), "notes").unwrap().lease(Duration::from_millis(1_500));
    queue.send([note("1", "a")]).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let waited_at = Arc::clone(&gate);
    let slow = consumer("c", &setup.store, queue).on("noted", move |mut ctx: Context<F::Store>, note: Note| {
        let gate = Arc::clone(&waited_at);
        async move {
            F::write_effect(ctx.db(), &note.text).await?;
            let _ = gate.acquire().await;
            Ok(Outcome::applied())
        }
    });
    let started = tokio::time::Instant::now();
    let handled = run_until(slow, "it is handled", async |seen| {
        // Three leases later.
        if started.elapsed() >= Duration::from_millis(4_500) {
            gate.add_permits(1);
        }
        seen.handled == 1
    });
    let seen = in_real_time(&setup.clock, handled).await;
    assert_eq!((seen.deliveries, seen.leases_lost), (1, 0), "its lease was renewed while it worked");
    assert_eq!(effects(&setup).await, ["a"]);
}
