//! The whole way: a consumer quarantines what its handler refuses, an operator replays it, the mended consumer applies
//! it.

use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Consumer, ConsumerStore, Context, Failure, Message, MessageId, Outcome, Retry};
use oncebox_admin::{AfterEdit, Forecast, ReplayOptions};
use oncebox_core::Timestamp;
use oncebox_core::horizon::{Consumers, Expiry};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayState;
use oncebox_testkit::eventually;
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::rig::{DRIVE, PLAIN, ada, admin, begin, commit, consumer as consumer_id, far_future, meant};

const MESSAGES: usize = 200;

fn letters() -> impl Iterator<Item = Message> {
    (0..MESSAGES).map(|n| {
        let amount = if n == 13 { "\"thirteen\"".to_owned() } else { n.to_string() };
        Message::new("payment.received")
            .with_id(MessageId::new(format!("m{n:03}")).unwrap())
            .with_order_key(format!("account-{}", n % 10))
            .with_payload(format!("{{\"amount\":{amount}}}"))
    })
}

fn consumer<S: ConsumerStore>(store: &S, source: &MemorySource) -> Consumer<S, MemorySource> {
    let retry = Retry::new().attempts(1).first(Duration::ZERO);
    Consumer::new("invoices", store.clone(), source.clone()).retry(retry)
}

/// The handler as it should have been.
async fn mended<F: StoreFixture<Store: ConsumerStore>>(
    mut ctx: Context<F::Store>,
    message: Message,
) -> oncebox::Result<Outcome> {
    let payload: serde_json::Value =
        serde_json::from_slice(&message.payload).map_err(|_| Failure::permanent("its payload is not JSON"))?;
    if !payload["amount"].is_number() {
        return Err(Failure::permanent("its amount is not a number").code("bad-amount"));
    }
    F::write_effect(ctx.db(), &format!("{}", payload["amount"])).await?;
    Ok(Outcome::applied())
}

/// Two hundred messages meet a broken handler and are quarantined for one cause; replayed to the mended one, all but
/// one are applied once; that one is edited; redelivered, none is applied again.
pub(crate) async fn what_a_consumer_quarantined_is_replayed_to_the_mended_one<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + ConsumerStore>,
{
    let store = &setup.store;
    let source = MemorySource::new();
    source.send_all(letters());
    // One lane: the canary takes what was quarantined first, and must not find the one that stays bad.
    let broken =
        consumer(store, &source).lanes(1).on_raw("payment.received", |_: Context<F::Store>, _: Message| async {
            Err::<Outcome, _>(Failure::permanent("the bank is closed").code("bank-closed"))
        });
    let backlog = source.clone();
    broken.run(eventually("all are quarantined", async || backlog.backlog() == 0)).await.unwrap();

    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    let groups = admin.groups(&all).await.unwrap();
    let causes: Vec<(&str, u64)> = groups.iter().map(|group| (group.cause.as_str(), group.dead)).collect();
    assert_eq!(causes, [("permanent/payment.received/bank-closed", MESSAGES as u64)]);
    let plan = admin.plan(&all, false).await.unwrap();
    assert_eq!(plan.count(Forecast::WillApply), MESSAGES as u64);

    let (stop, stopped) = oneshot::channel::<()>();
    let mut running = JoinSet::new();
    let repaired = consumer(store, &source).on_raw("payment.received", mended::<F>);
    running.spawn(async move {
        repaired.run(async { drop(stopped.await) }).await.unwrap();
    });
    let options = ReplayOptions { canary: 5, stop_permille: 100, ..PLAIN };
    let replay = admin.start_replay(&all, &options, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.state, end.done, end.failed), (ReplayState::Done, MESSAGES as u64 - 1, 1), "{end:?}");

    let left = meant(&admin, "cause ~ bad-amount").await;
    assert_eq!((left.messages, left.dead), (1, 1));
    let thirteen = admin.list(&left, 0, 10).await.unwrap().remove(0);
    assert_eq!((thirteen.id.as_deref(), thirteen.attempts), (Some("m013"), 2));
    admin.edit(thirteen.row, br#"{"amount":13}"#, AfterEdit::Replay, &ada()).await.unwrap();
    let applied = eventually("all are applied", async || F::effects(store).await.len() == MESSAGES);
    applied.await;

    source.send_all(letters());
    let backlog = source.clone();
    eventually("the redeliveries are settled", async || backlog.backlog() == 0).await;
    drop(stop);
    running.join_all().await;
    let mut effects = F::effects(store).await;
    effects.sort_by_key(|amount| amount.parse::<usize>().unwrap());
    assert_eq!(effects, (0..MESSAGES).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(meant(&admin, "all").await.messages, 0);
}

/// What a consumer found too old at its intake is not replayed with the rest; forced, it is applied, once.
pub(crate) async fn what_was_too_old_at_intake_is_replayed_by_force_only<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + ConsumerStore>,
{
    let store = &setup.store;
    let source = MemorySource::new();
    let mut old = letters().next().unwrap();
    old.time = Timestamp::from_second(1_600_000_000).unwrap();
    let run = async |done: &str, is_done: &dyn Fn(&Snapshot) -> bool| {
        let consumer = consumer(store, &source).on_raw("payment.received", mended::<F>);
        let stats = consumer.stats();
        consumer.run(eventually(done, async || is_done(&stats.snapshot()))).await.unwrap();
    };
    source.send(old.clone());
    run("it is applied", &|seen| seen.handled == 1 && seen.in_hand == 0).await;
    setup.advance(Duration::from_secs(100 * 365 * 24 * 3600)).await;
    let us = consumer_id(store).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.expire(Expiry::first(us, far_future(), 100)).await.unwrap().deleted, 1);
    commit(tx).await;
    source.send(old.clone());
    run("it is too old", &|seen| seen.dead == 1 && seen.in_hand == 0).await;

    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    assert_eq!(admin.plan(&all, false).await.unwrap().count(Forecast::TooOld), 1);
    assert!(admin.start_replay(&all, &PLAIN, &ada()).await.is_err());
    assert_eq!(F::effects(store).await.len(), 1, "nobody knows whether it was applied; we do");

    let forced = ReplayOptions { force: true, ..PLAIN };
    let replay = admin.start_replay(&all, &forced, &ada()).await.unwrap().id;
    let driven = async { admin.drive(replay, &ada(), &DRIVE).await.unwrap() };
    let ((), end) = tokio::join!(run("it is applied", &|seen| seen.handled == 1 && seen.in_hand == 0), driven);
    assert_eq!((end.state, end.done), (ReplayState::Done, 1), "{end:?}");
    source.send(old);
    run("it is a duplicate", &|seen| seen.transport_duplicates == 1 && seen.in_hand == 0).await;
    assert_eq!((F::effects(store).await.len(), meant(&admin, "all").await.messages), (2, 0));
}
