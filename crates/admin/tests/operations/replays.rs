//! How a replay stops, waits and keeps order.

use oncebox_admin::{Error, ReplayOptions};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayState;
use oncebox_core::{ConsumerId, Message};
use oncebox_testkit::eventually;
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::task::JoinSet;

use crate::rig::{
    DRIVE, PLAIN, ada, admin, consumer, dead, effects, meant, message, park, rows, run_due, runner, verbs,
};

async fn letters<S: QuarantineStore>(store: &S, count: usize) -> ConsumerId {
    let consumer = consumer(store).await;
    let parks: Vec<_> = (0..count).map(|n| dead(consumer, message(&format!("m{n:03}"), "{}"))).collect();
    park(store, &parks).await;
    consumer
}

/// A canary that fails keeps all others where they are; resumed after the cause is gone, the replay sends another.
pub(crate) async fn a_canary_that_fails_stops_the_replay<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store, 50).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let options = ReplayOptions { canary: 5, ..PLAIN };
    let replay = admin.start_replay(&meant, &options, &ada()).await.unwrap().id;
    let broken = runner::<F>(&setup.store, |message| message.label().to_string() == "m003");
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    drop(broken);
    assert_eq!((end.state, end.revived, end.failed), (ReplayState::Stopped, 5, 1), "{end:?}");
    assert!(end.stop_reason.as_deref().is_some_and(|reason| reason.contains("canary")), "{end:?}");
    assert!(admin.drive(replay, &ada(), &DRIVE).await.unwrap().state == ReplayState::Stopped, "nobody goes on");

    let resumed = admin.resume_replay(replay, &ada()).await.unwrap();
    assert_eq!((resumed.state, resumed.canary_passed), (ReplayState::Running, false));
    let _mended = runner::<F>(&setup.store, |_| false);
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.state, end.revived, end.done, end.failed), (ReplayState::Done, 50, 49, 1), "{end:?}");
    assert_eq!(effects::<F>(&setup.store).await.len(), 49);
    assert_eq!(verbs(&admin).await, ["replay.start", "replay.stop", "replay.resume", "replay.done"]);
}

/// When too many fail, the rest stays where it is.
pub(crate) async fn too_many_failures_stop_the_replay<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    letters(&setup.store, 400).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let options = ReplayOptions { stop_permille: 200, in_flight_max: 20, ..PLAIN };
    let replay = admin.start_replay(&meant, &options, &ada()).await.unwrap().id;
    let half = |message: &Message| message.label().to_string().bytes().last().is_some_and(|digit| digit % 2 == 0);
    let _runner = runner::<F>(&setup.store, half);
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!(end.state, ReplayState::Stopped, "{end:?}");
    assert!(end.revived < 200, "most were left where they are: {end:?}");
    assert!(end.stop_reason.as_deref().is_some_and(|reason| reason.contains("of 1000 are allowed")), "{end:?}");
}

/// A replay that is paused revives nothing more, one that is resumed goes on, and one that is cancelled never does.
pub(crate) async fn a_replay_is_paused_resumed_and_cancelled<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let us = letters(&setup.store, 30).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let options = ReplayOptions { in_flight_max: 10, ..PLAIN };
    let replay = admin.start_replay(&meant, &options, &ada()).await.unwrap().id;
    let mut tasks = JoinSet::new();
    let driver = admin.clone();
    tasks.spawn(async move { driver.drive(replay, &ada(), &DRIVE).await.unwrap() });
    eventually("ten are revived", async || admin.show_replay(replay).await.unwrap().revived >= 10).await;
    let paused = admin.pause_replay(replay, &ada()).await.unwrap();
    assert_eq!(paused.state, ReplayState::Paused);
    let ends = tasks.join_all().await;
    assert_eq!((ends[0].state, ends[0].revived), (ReplayState::Paused, 10));
    assert_eq!(run_due::<F>(&setup.store, us, |_| false).await, 10, "what is on its way goes on");

    assert_eq!(admin.resume_replay(replay, &ada()).await.unwrap().state, ReplayState::Running);
    let refused = admin.resume_replay(replay, &ada()).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("cannot resume replay {replay}: it is running"));
    assert_eq!(admin.cancel_replay(replay, &ada()).await.unwrap().state, ReplayState::Cancelled);
    for refused in [
        admin.cancel_replay(replay, &ada()).await.unwrap_err(),
        admin.pause_replay(replay, &ada()).await.unwrap_err(),
        admin.resume_replay(replay, &ada()).await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::ReplayState { .. }), "{refused}");
        assert!(refused.to_string().ends_with("it is cancelled"), "{refused}");
    }
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.state, end.revived, end.done), (ReplayState::Cancelled, 10, 10));
    assert_eq!(rows(&setup.store, us).await.len(), 20);
    let verbs = verbs(&admin).await;
    assert_eq!(verbs, ["replay.start", "replay.pause", "replay.resume", "replay.cancel"]);
}

/// Messages of one order key are applied in order; behind one that fails again, the later ones wait.
pub(crate) async fn a_replay_keeps_the_order_of_each_key<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let letter = |n: usize| dead(us, message(&format!("m{n:03}"), "{}").with_order_key(format!("key{}", n % 4)));
    park(store, &(0..40).map(letter).collect::<Vec<_>>()).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let replay = admin.start_replay(&meant, &PLAIN, &ada()).await.unwrap().id;
    // The sixth of key1.
    let _runner = runner::<F>(store, |message| message.label().to_string() == "m021");
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!(end.state, ReplayState::Done);
    assert_eq!((end.done, end.failed, end.waiting + end.held_up), (35, 1, 4), "{end:?}");
    let applied = F::effects(store).await;
    for key in 0..4 {
        let of_key = |id: &&String| id[1..].parse::<usize>().unwrap() % 4 == key;
        let ids: Vec<&String> = applied.iter().filter(of_key).collect();
        assert!(ids.is_sorted(), "key{key}: {ids:?}");
        assert_eq!(ids.len(), if key == 1 { 5 } else { 10 });
    }
}

/// A replay waits while as many as allowed are on their way: nobody runs them, so no more are revived.
pub(crate) async fn no_more_than_allowed_are_on_their_way<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let us = letters(&setup.store, 30).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let options = ReplayOptions { in_flight_max: 7, ..PLAIN };
    let replay = admin.start_replay(&meant, &options, &ada()).await.unwrap().id;
    let mut tasks = JoinSet::new();
    let driver = admin.clone();
    tasks.spawn(async move { driver.drive(replay, &ada(), &DRIVE).await.unwrap() });
    let mut ran = 0;
    while ran < 30 {
        let view = admin.show_replay(replay).await.unwrap();
        assert!(view.live <= 7, "{view:?}");
        ran += run_due::<F>(&setup.store, us, |_| false).await;
    }
    assert_eq!(tasks.join_all().await[0].done, 30);
}
