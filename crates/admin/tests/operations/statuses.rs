//! What `status` tells, however much stands in front of it.

use std::time::Duration;

use oncebox_admin::Admin;
use oncebox_core::counters::CounterStore;
use oncebox_core::depths::DepthStore;
use oncebox_core::outbox::OutboxStore;
use oncebox_core::parked::Waits;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::{ReplayId, ReplayState};
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{PLAIN, ada, admin, consumer, dead, meant, message, park};

async fn started<S: QuarantineStore>(admin: &Admin<S>) -> ReplayId {
    admin.start_replay(&meant(admin, "all").await, &PLAIN, &ada()).await.unwrap().id
}

/// A replay that waits for a person is told, also when many were started and ended since.
pub(crate) async fn a_replay_that_is_not_over_is_told_behind_newer_ones<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + CounterStore + DepthStore + OutboxStore>,
{
    let us = consumer(&setup.store).await;
    park(&setup.store, &[dead(us, message("m", "{}"))]).await;
    let admin = admin(&setup);
    let paused = started(&admin).await;
    admin.pause_replay(paused, &ada()).await.unwrap();
    for _ in 0..25 {
        let newer = started(&admin).await;
        admin.cancel_replay(newer, &ada()).await.unwrap();
    }
    let status = admin.status().await.unwrap();
    let told: Vec<_> = status.replays.iter().map(|replay| (replay.id, replay.state)).collect();
    assert_eq!((told, status.replays_is_more), (vec![(paused, ReplayState::Paused)], false));
    let plan = admin.plan_retention("invoices", Duration::from_secs(86_400)).await.unwrap();
    assert_eq!(plan.open_replays, 1);
}

/// What waits for a person is told, also when more than is counted is tried again by itself.
pub(crate) async fn dead_messages_are_told_behind_many_that_go_on<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + CounterStore + DepthStore + OutboxStore>,
{
    let us = consumer(&setup.store).await;
    let retrying = |n: usize| {
        let mut one = dead(us, message(&format!("r{n}"), "{}"));
        one.verdict.waits = Waits::Retry(Duration::from_secs(3_600));
        one
    };
    park(&setup.store, &(0..10_500).map(retrying).collect::<Vec<_>>()).await;
    park(&setup.store, &(0..101).map(|n| dead(us, message(&format!("d{n}"), "{}"))).collect::<Vec<_>>()).await;
    let status = admin(&setup).status().await.unwrap();
    let one = &status.consumers[0];
    assert_eq!((one.parked, one.parked_is_more, one.dead, one.dead_is_more), (10_000, true, 101, false));
}
