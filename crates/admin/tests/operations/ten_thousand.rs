//! Ten thousand dead letters, replayed by drivers that die and operators who do the same at once.

use oncebox_admin::{Forecast, ReplayOptions};
use oncebox_core::Fingerprinter;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayState;
use oncebox_testkit::eventually;
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::task::JoinSet;

use crate::rig::{
    DRIVE, PLAIN, ada, admin, apply_before, consumer, dead, effects, let_holds_run_out, meant, message, park, rows,
    runner,
};

const MESSAGES: usize = 10_000;

/// Ten thousand dead letters of a thousand order keys, and beside them: some that were applied already, conflicts, and
/// one whose key is held up by a dead letter that is not meant.
async fn dead_letters<S: QuarantineStore>(store: &S) {
    let consumer = consumer(store).await;
    let letter = |n: usize| {
        let payload = format!(r#"{{"amount":{n}}}"#);
        dead(consumer, message(&format!("m{n}"), &payload).with_order_key(format!("order-{}", n % 1000)))
    };
    let mut parks: Vec<_> = (0..MESSAGES).map(letter).collect();
    for n in 0..7 {
        let mut applied = dead(consumer, message(&format!("applied{n}"), "{}"));
        apply_before(store, &applied).await;
        applied.owns_record = false;
        parks.push(applied);
    }
    for n in 0..5 {
        let mut conflict = dead(consumer, message(&format!("m{n}"), r#"{"amount":"another"}"#));
        conflict.fingerprint = Fingerprinter::default().fingerprint(&conflict.message);
        conflict.owns_record = false;
        parks.push(conflict);
    }
    let mut other = message("other", "{}").with_order_key("held");
    other.kind = "refund.sent".to_owned();
    parks.push(dead(consumer, other));
    parks.push(dead(consumer, message("behind", "{}").with_order_key("held")));
    park(store, &parks).await;
}

/// A driver is killed half-way; two others, in processes of their own, carry the replay on. Each message is applied
/// once, and what happened is what the plan said.
pub(crate) async fn killed_half_way_and_carried_on_by_two_others_each_is_applied_once<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    dead_letters(&setup.store).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "type = payment.*").await;
    let plan = admin.plan(&meant, false).await.unwrap();
    assert_eq!(plan.count(Forecast::WillApply), MESSAGES as u64);
    assert_eq!(plan.count(Forecast::AlreadyApplied), 7);
    assert_eq!(plan.count(Forecast::Conflict), 5);
    assert_eq!(plan.count(Forecast::HeldUp), 1);

    let _runner = runner::<F>(&setup.store, |_| false);
    let options = ReplayOptions { canary: 25, stop_permille: 100, ..PLAIN };
    let replay = admin.start_replay(&meant, &options, &ada()).await.unwrap().id;
    let mut first = JoinSet::new();
    let driver = admin.clone();
    first.spawn(async move { driver.drive(replay, &ada(), &DRIVE).await.map(drop) });
    let is_half = async || admin.show_replay(replay).await.unwrap().revived >= MESSAGES as u64 / 2;
    eventually("half are revived", is_half).await;
    first.shutdown().await;
    let half = admin.show_replay(replay).await.unwrap();
    assert!(half.canary_passed && half.revived < MESSAGES as u64, "it was killed half-way: {half:?}");
    let_holds_run_out(&setup).await;

    let mut others = JoinSet::new();
    for _ in 0..2 {
        let store = setup.fixture.reopen(&setup.store).await;
        let driver = oncebox_admin::Admin::new(store).with_clock(setup.clock.clone());
        others.spawn(async move { driver.drive(replay, &ada(), &DRIVE).await.unwrap() });
    }
    for end in others.join_all().await {
        assert_eq!(end.state, ReplayState::Done, "{end:?}");
        assert_eq!(end.revived, plan.will_run());
        assert_eq!((end.done, end.failed, end.live, end.withdrawn), (plan.will_run(), 0, 0, 0));
        let refused = plan.count(Forecast::Conflict) + plan.count(Forecast::TooOld);
        assert_eq!((end.refused, end.held_up, end.moving), (refused, plan.count(Forecast::HeldUp), 0));
    }
    let effects = effects::<F>(&setup.store).await;
    assert_eq!(effects.len() as u64, plan.count(Forecast::WillApply));
    assert!(effects.values().all(|times| *times == 1), "a message was applied twice");
    let left = rows(&setup.store, consumer(&setup.store).await).await;
    assert_eq!(left.len(), 5 + 2, "conflicts and the two of the held-up key are left");
}

/// Two operators replay the same messages at once, each with a driver of their own.
pub(crate) async fn two_operators_who_replay_the_same_apply_each_once<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    const FEWER: usize = 2_000;
    let store = &setup.store;
    let us = consumer(store).await;
    let parks: Vec<_> = (0..FEWER).map(|n| dead(us, message(&format!("m{n}"), "{}"))).collect();
    park(store, &parks).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    let _runner = runner::<F>(store, |_| false);
    let mut operators = JoinSet::new();
    for _ in 0..2 {
        let (admin, meant) = (admin.clone(), meant.clone());
        operators.spawn(async move {
            let replay = match admin.start_replay(&meant, &PLAIN, &ada()).await {
                Ok(replay) => replay.id,
                // The other one was quicker with all of them.
                Err(oncebox_admin::Error::NothingToReplay { .. }) => return 0,
                Err(error) => panic!("{error}"),
            };
            let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
            assert_eq!((end.state, end.failed, end.withdrawn), (ReplayState::Done, 0, 0), "{end:?}");
            end.done
        });
    }
    let done: u64 = operators.join_all().await.into_iter().sum();
    assert_eq!(done, FEWER as u64, "each was revived by one of them");
    let effects = effects::<F>(store).await;
    assert_eq!(effects.len(), FEWER);
    assert!(effects.values().all(|times| *times == 1), "a message was applied twice");
}
