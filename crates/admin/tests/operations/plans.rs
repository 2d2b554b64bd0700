//! What a plan forecasts.

use std::time::Duration;

use oncebox_admin::{Error, Forecast, ReplayOptions};
use oncebox_core::horizon::{Consumers, Expiry};
use oncebox_core::parked::Waits;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayState;
use oncebox_core::{Class, Message, Timestamp};
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{
    DRIVE, PLAIN, ada, admin, apply_before, begin, commit, consumer, dead, effects, far_future, meant, message, park,
    park_before, runner, verbs,
};

/// Each message is told what would become of it, in a sentence; forced, some of it changes.
pub(crate) async fn each_message_gets_its_forecast<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let mut applied = dead(us, message("applied", "{}"));
    apply_before(store, &applied).await;
    applied.owns_record = false;
    let mut conflict = dead(us, message("applied", r#"{"another":1}"#));
    conflict.owns_record = false;
    let mut unknown = dead(us, message("unknown", "{}"));
    unknown.verdict.class = Some(Class::Unknown);
    let mut retrying = dead(us, message("retrying", "{}"));
    retrying.verdict.waits = Waits::Retry(std::time::Duration::from_secs(60));
    let first = dead(us, message("first", "{}").with_order_key("a"));
    let second = dead(us, message("second", "{}").with_order_key("a"));
    let unreadable = dead(us, message("unreadable", "not json"));
    // It could not be tried when it came, and got its record from a redelivery.
    let mut early = dead(us, message("early", "{}"));
    early.owns_record = false;
    let fine = dead(us, message("fine", "{}"));
    park(store, &[fine, early.clone(), applied, conflict, unknown, retrying, first, second, unreadable]).await;
    park_before(store, &early).await;
    let reads = |message: &Message| {
        let json = serde_json::from_slice::<serde_json::Value>(&message.payload);
        json.map(drop).map_err(|_| "its payload is not JSON".to_owned())
    };
    let admin = admin(&setup).readable_by(reads);
    // Without the first of its key, the second has to wait.
    let meant = meant(&admin, "not id = first").await;
    let mut told = Vec::new();
    let plan = admin.plan_each(&meant, false, |planned| told.push(planned)).await.unwrap();
    let forecasts: Vec<(&str, Forecast)> = told.iter().map(|p| (p.id.as_deref().unwrap(), p.forecast)).collect();
    use Forecast::{AlreadyApplied, Conflict, EffectUnknown, HeldUp, Moving, Unreadable, WillApply};
    let expected = [
        ("fine", WillApply),
        ("early", WillApply),
        ("applied", AlreadyApplied),
        ("applied", Conflict),
        ("unknown", EffectUnknown),
        ("retrying", Moving),
        ("second", HeldUp),
        ("unreadable", Unreadable),
    ];
    assert_eq!(forecasts, expected);
    assert_eq!((plan.will_run(), plan.forecasts.values().sum::<u64>()), (3, meant.messages));
    assert!(told[7].sentence.ends_with("today's handler cannot read it: its payload is not JSON"));
    assert_eq!(admin.plan(&meant, true).await.unwrap().count(WillApply), 3, "forced, the unknown one runs too");

    let _runner = runner::<F>(store, |_| false);
    let replay = admin.start_replay(&meant, &PLAIN, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.state, end.done, end.refused, end.held_up, end.moving), (ReplayState::Done, 3, 3, 1, 1), "{end:?}");
    assert_eq!(effects::<F>(store).await.into_keys().collect::<Vec<_>>(), ["early", "fine"]);
}

/// A message whose record has expired is refused, and the sentence gives both dates; forced, it runs.
pub(crate) async fn what_is_older_than_the_horizon_is_refused_with_both_dates<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let mut old = message("old", "{}");
    old.time = Timestamp::from_second(1_600_000_000).unwrap();
    let mut old = dead(us, old);
    // It was handled, its record was deleted, and then it came back from a broker's dead-letter queue.
    apply_before(store, &old).await;
    setup.advance(Duration::from_secs(100 * 365 * 24 * 3600)).await;
    let mut tx = begin(store).await;
    let horizon = tx.expire(Expiry::first(us, far_future(), 100)).await.unwrap().horizon.unwrap();
    commit(tx).await;
    old.owns_record = false;
    park(store, &[old]).await;
    let admin = admin(&setup);
    let meant = meant(&admin, "all").await;
    assert_eq!(admin.plan(&meant, false).await.unwrap().count(Forecast::TooOld), 1);
    let refused = admin.start_replay(&meant, &PLAIN, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::NothingToReplay { messages: 1, .. }), "{refused}");
    let sentence = refused.to_string();
    let says = format!(
        "it was made at 2020-09-13T12:26:40Z, and invoices has deleted its records up to {horizon}, so nobody can tell \
         whether it was applied; force it if you know that it was not"
    );
    assert!(sentence.contains(&says), "{sentence}");
    assert!(verbs(&admin).await.is_empty(), "nothing was done");
    assert!(admin.list_replays(None, 10).await.unwrap().is_empty());

    let _runner = runner::<F>(store, |_| false);
    let forced = ReplayOptions { force: true, ..PLAIN };
    let replay = admin.start_replay(&meant, &forced, &ada()).await.unwrap().id;
    assert_eq!(admin.drive(replay, &ada(), &DRIVE).await.unwrap().done, 1);
    assert_eq!(effects::<F>(store).await.get("old"), Some(&1));
}
