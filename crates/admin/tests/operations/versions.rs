//! Plans for a consumer that reads versions.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Gap, Message, Outcome, Retry, Versioned};
use oncebox_admin::{Admin, Forecast, Plan};
use oncebox_core::parked::{Park, Waits};
use oncebox_core::quarantine::{ParkedState, Quarantine, QuarantineStore};
use oncebox_core::replay::ReplayState;
use oncebox_core::versions::{VersionPolicy, Versions};
use oncebox_core::{ConsumerId, OutcomeKind, Transaction};
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::rig::{DRIVE, PLAIN, ada, admin, begin, commit, consumer, dead, effects, meant, message, park, rows};

const MINUTES: Duration = Duration::from_secs(600);

fn policy() -> Versioned {
    Versioned::by_order_key().on_gap(Gap::Wait { time: MINUTES, messages: 1_000 })
}

/// A dead letter with version `version` of `aggregate`.
fn letter(us: ConsumerId, id: &str, aggregate: &str, version: u64) -> Park {
    let mut message = message(id, "{}").with_order_key(aggregate);
    message.version = Some(version);
    dead(us, message)
}

async fn come_as_far_as<S: QuarantineStore>(store: &S, us: ConsumerId, letters: &[Park]) {
    let mut tx = begin(store).await;
    for letter in letters {
        let (aggregate, version) = policy().place(&letter.message).unwrap();
        tx.lock_versions(us, std::slice::from_ref(&aggregate)).await.unwrap();
        tx.advance_versions(us, &[(aggregate, version)]).await.unwrap();
    }
    commit(tx).await;
}

/// Replays everything to a running consumer, until the replay is done; how many messages ended how.
async fn replayed<F>(setup: &Setup<F>, admin: &Admin<F::Store>, letters: &[Park]) -> BTreeMap<Forecast, u64>
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let handler = |mut ctx: Context<F::Store>, message: Message| async move {
        F::write_effect(ctx.db(), message.id.as_ref().unwrap().as_str()).await?;
        Ok::<_, oncebox::Failure>(Outcome::applied())
    };
    let running_consumer = Consumer::new("invoices", setup.store.clone(), MemorySource::new())
        .retry(Retry::never())
        .versioned(policy())
        .clock(setup.clock.clone())
        .on_raw("payment.received", handler);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut running = JoinSet::new();
    running.spawn(async move { running_consumer.run(async { drop(stopped.await) }).await.map(drop).unwrap() });
    let all = meant(admin, "state = dead").await;
    let replay = admin.start_replay(&all, &PLAIN, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!(end.state, ReplayState::Done, "{end:?}");
    drop(stop);
    running.join_all().await;

    let us = consumer(&setup.store).await;
    let keys: Vec<_> = letters.iter().map(|letter| letter.key.clone()).collect();
    let mut tx = begin(&setup.store).await;
    let said = tx.remembered(us, &keys).await.unwrap();
    tx.rollback().await;
    let left = rows(&setup.store, us).await;
    let mut counts = BTreeMap::new();
    for (said, key) in said.into_iter().zip(keys) {
        let forecast = match said.unwrap().outcome {
            OutcomeKind::Applied => Forecast::WillApply,
            OutcomeKind::SameVersion => Forecast::SameVersion,
            OutcomeKind::Stale => Forecast::Stale,
            OutcomeKind::Parked => {
                let row = left.iter().find(|row| row.key == key).unwrap();
                if row.cause.as_str().ends_with("/gap") { Forecast::Gap } else { Forecast::HeldUp }
            }
            other => panic!("{other:?}"),
        };
        *counts.entry(forecast).or_default() += 1;
    }
    counts
}

fn counts(plan: &Plan) -> Vec<(Forecast, u64)> {
    plan.forecasts.iter().map(|(forecast, count)| (*forecast, *count)).collect()
}

/// Next, same, stale and gap are forecast, each as it will be when its turn comes: after those before it in the plan, and
/// with what waits woken by what was missing. The replay ends in the same numbers.
pub(crate) async fn a_plan_forecasts_what_versions_say_and_the_replay_agrees<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    come_as_far_as(store, us, &[letter(us, "-", "b", 7), letter(us, "-", "c", 4), letter(us, "-", "e", 1)]).await;
    let letters = [
        // A new aggregate, in order.
        letter(us, "a1", "a", 1),
        letter(us, "a2", "a", 2),
        letter(us, "a2 again", "a", 2),
        letter(us, "a1 again", "a", 1),
        // One that has come as far as 7.
        letter(us, "b3", "b", 3),
        letter(us, "b7", "b", 7),
        letter(us, "b8", "b", 8),
        // One whose messages died in the wrong order: what waits is woken.
        letter(us, "c6", "c", 6),
        letter(us, "c5", "c", 5),
        // One whose next version waits for a gap already, and is not replayed.
        letter(us, "e4", "e", 4),
        letter(us, "e2", "e", 2),
    ];
    let mut waits = letter(us, "e3", "e", 3);
    waits.verdict.waits = Waits::Gap(MINUTES);
    park(store, &letters).await;
    park(store, std::slice::from_ref(&waits)).await;

    let admin = admin(&setup).versioned_by(policy());
    let all = meant(&admin, "state = dead").await;
    let mut told = BTreeMap::new();
    let tell = |planned: oncebox_admin::Planned| _ = told.insert(planned.id.unwrap(), planned.forecast);
    let plan = admin.plan_each(&all, false, tell).await.unwrap();
    use Forecast::{SameVersion, Stale, WillApply};
    assert_eq!(counts(&plan), [(WillApply, 7), (SameVersion, 2), (Stale, 2)]);
    let one = |id: &str| told[id];
    assert_eq!([one("a2 again"), one("a1 again")], [SameVersion, Stale]);
    assert_eq!([one("b3"), one("b7"), one("b8")], [Stale, SameVersion, WillApply]);
    assert_eq!([one("c6"), one("e4")], [WillApply, WillApply]);
    assert_eq!(plan.will_run(), 11, "all are revived");

    assert_eq!(replayed(&setup, &admin, &letters).await, plan.forecasts);
    let applied: Vec<String> = effects::<F>(store).await.into_keys().collect();
    assert_eq!(applied, ["a1", "a2", "b8", "c5", "c6", "e2", "e3", "e4"]);
    assert!(rows(store, us).await.is_empty());
}

/// A message that has waited for too long is dead again if what it waits for is not replayed with it, and goes on if it is,
/// also after it. One that has no version is refused.
pub(crate) async fn what_waits_too_long_for_a_version_is_forecast_dead_again<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let letters =
        [letter(us, "a1", "a", 1), letter(us, "a3", "a", 3), letter(us, "a2", "a", 2), letter(us, "b2", "b", 2)];
    park(store, &letters).await;
    let unversioned = dead(us, message("none", "{}"));
    park(store, std::slice::from_ref(&unversioned)).await;
    setup.advance(MINUTES * 2).await;

    let admin = admin(&setup).versioned_by(policy());
    let all = meant(&admin, "all").await;
    let mut refused = Vec::new();
    let plan = admin.plan_each(&all, false, |planned| refused.push(planned.sentence)).await.unwrap();
    use Forecast::{Gap, Unreadable, WillApply};
    assert_eq!(counts(&plan), [(WillApply, 3), (Gap, 1), (Unreadable, 1)]);
    assert!(refused[4].ends_with("it has no order key to be a version of"), "{}", refused[4]);

    let mut forecasts = plan.forecasts;
    forecasts.remove(&Unreadable);
    assert_eq!(replayed(&setup, &admin, &letters).await, forecasts);
    let left: Vec<ParkedState> = rows(store, us).await.into_iter().map(|row| row.state).collect();
    assert_eq!(left, [ParkedState::Dead; 2], "b2, and the one without a version");
}
