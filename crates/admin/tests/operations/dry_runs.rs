//! Dry runs with a consumer's own handlers.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, DryRunner, Failure, HookRuns, Message, Outcome, Retry};
use oncebox_admin::{DryRunResult, Forecast};
use oncebox_core::dry_run::{DryRan, DryRun};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::replay::ReplayState;
use oncebox_core::{Class, ConsumerId, Key, OutcomeKind, StoreErrorKind, Transaction};
use oncebox_testkit::store::{Setup, StoreFixture};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::rig::{
    DRIVE, PLAIN, ada, admin, apply_before, begin, commit, consumer, dead, effects, meant, message, park, rows,
};

/// A consumer whose handler does what the payload says, after it has written; each run that is kept raises `hooks`.
fn obedient<F>(store: &F::Store, name: &str, hooks: &Arc<AtomicUsize>) -> Consumer<F::Store, MemorySource>
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let (in_handler, after) = (Arc::clone(hooks), Arc::clone(hooks));
    let handler = move |mut ctx: Context<F::Store>, message: Message| {
        let hooks = Arc::clone(&in_handler);
        async move {
            F::write_effect(ctx.db(), message.id.as_ref().unwrap().as_str()).await?;
            ctx.after_commit(async move { _ = hooks.fetch_add(1, SeqCst) });
            match &message.payload[..] {
                b"reject" => Err(Failure::rejected("the account is closed")),
                b"refuse" => Ok(Outcome::rejected("the amount is nothing")),
                b"fail" => Err(Failure::permanent("no such account").code("no-account")),
                b"panic" => panic!("the handler panics on purpose"),
                b"hang" => pending().await,
                _ => Ok(Outcome::applied()),
            }
        }
    };
    Consumer::new(name, store.clone(), MemorySource::new())
        .retry(Retry::never())
        .bounds(|bounds| bounds.handler_deadline = Duration::from_millis(300))
        .after_commit(HookRuns::AlsoOnDuplicates, move |_, _| {
            let hooks = Arc::clone(&after);
            async move { _ = hooks.fetch_add(1, SeqCst) }
        })
        .on_raw("payment.received", handler)
}

async fn outcomes<S: QuarantineStore>(store: &S, us: ConsumerId, ids: &[&str]) -> Vec<Option<OutcomeKind>> {
    let keys: Vec<Key> = ids.iter().map(|id| Key::id(id).unwrap()).collect();
    let mut tx = begin(store).await;
    let said = tx.remembered(us, &keys).await.unwrap();
    tx.rollback().await;
    said.into_iter().map(|said| said.map(|said| said.outcome)).collect()
}

/// The real handler runs over each message and nothing of it stays: no write, no hook, no record, no verdict. What the
/// dry run told is what the replay then does.
pub(crate) async fn a_dry_run_tells_what_the_replay_then_does_and_keeps_nothing<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let mut before = dead(us, message("before", "apply"));
    apply_before(store, &before).await;
    before.owns_record = false;
    let mut conflict = dead(us, message("before", "something else"));
    conflict.owns_record = false;
    let letter = |id: &str, payload: &str| dead(us, message(id, payload));
    let letters = [
        letter("good", "apply"),
        letter("rejected", "reject"),
        letter("refused", "refuse"),
        dead(us, message("failing", "fail").with_order_key("a")),
        dead(us, message("behind", "apply").with_order_key("a")),
        letter("panicking", "panic"),
        letter("hanging", "hang"),
        before,
        conflict,
    ];
    park(store, &letters).await;
    let ids = ["good", "rejected", "refused", "failing", "behind", "panicking", "hanging", "before"];
    let (rows_before, said_before) = (rows(store, us).await, outcomes(store, us, &ids).await);

    let hooks = Arc::new(AtomicUsize::new(0));
    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    let dry_runner = obedient::<F>(store, "invoices", &hooks).dry_runner().await.unwrap();
    let mut told = Vec::new();
    let report = admin.dry_run_each(&all, false, &dry_runner, 100, |step| told.push(step)).await.unwrap();

    use DryRunResult::{Applied, Failed, NotRun, PutAway, Rejected};
    let results: Vec<(&str, DryRunResult)> = told.iter().map(|s| (s.id.as_deref().unwrap(), s.result)).collect();
    let expected = [
        ("good", Applied),
        ("rejected", Rejected),
        ("refused", Rejected),
        ("failing", Failed),
        ("behind", NotRun),
        ("panicking", Failed),
        ("hanging", Failed),
        ("before", PutAway),
        ("before", NotRun),
    ];
    assert_eq!(results, expected);
    assert!(told[3].sentence.ends_with("would fail (permanent): no such account"), "{}", told[3].sentence);
    assert!(told[1].sentence.ends_with("would be rejected: the account is closed"), "{}", told[1].sentence);
    assert_eq!(report.not_run.into_iter().collect::<Vec<_>>(), [(Forecast::HeldUp, 1), (Forecast::Conflict, 1)]);

    assert_eq!(rows(store, us).await, rows_before, "a row has changed");
    assert_eq!(outcomes(store, us, &ids).await, said_before, "a record has changed");
    assert!(effects::<F>(store).await.is_empty(), "a write was kept");
    assert_eq!(hooks.load(SeqCst), 0, "a hook has run");
    assert_eq!(admin.dry_run(&all, false, &dry_runner, 2).await.unwrap().applied, 1, "it can be repeated");

    // The real thing.
    let (stop, stopped) = oneshot::channel::<()>();
    let mut running = JoinSet::new();
    let running_consumer = obedient::<F>(store, "invoices", &hooks);
    running.spawn(async move { running_consumer.run(async { drop(stopped.await) }).await.map(drop).unwrap() });
    let replay = admin.start_replay(&all, &PLAIN, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    drop(stop);
    running.join_all().await;

    let failed: u64 = report.failed.values().map(|failed| failed.messages).sum();
    let ended = report.applied + report.rejected.values().sum::<u64>() + report.put_away;
    assert_eq!((end.state, end.done, end.failed), (ReplayState::Done, ended, failed), "{end:?}");
    assert_eq!((end.waiting, end.refused), (1, 1), "{end:?}");
    use OutcomeKind::Parked;
    let really = [
        Some(OutcomeKind::Applied),
        Some(OutcomeKind::Rejected),
        Some(OutcomeKind::Rejected),
        Some(Parked),
        Some(Parked),
        Some(Parked),
        Some(Parked),
        Some(OutcomeKind::Applied),
    ];
    assert_eq!(outcomes(store, us, &ids).await, really);
    let mut causes: BTreeMap<String, (u64, &'static str, String)> = BTreeMap::new();
    for ParkedRow { cause, class, reason, .. } in rows(store, us).await.into_iter().filter(|row| row.attempts == 4) {
        let class = class.map_or("none", Class::name);
        causes.entry(cause.as_str().to_owned()).or_insert((0, class, reason)).0 += 1;
    }
    let forecast: BTreeMap<_, _> =
        report.failed.into_iter().map(|(cause, f)| (cause, (f.messages, f.class, f.reason))).collect();
    assert_eq!(causes, forecast, "they failed for another cause than was forecast");
    assert_eq!(effects::<F>(store).await.into_keys().collect::<Vec<_>>(), ["good", "refused"]);
}

async fn dry_runner<F: StoreFixture<Store: QuarantineStore>>(store: &F::Store, name: &str) -> DryRunner<F::Store> {
    obedient::<F>(store, name, &Arc::default()).dry_runner().await.unwrap()
}

/// A message that somebody revived meanwhile is left to its runner, and no handler runs over another consumer's
/// messages.
pub(crate) async fn a_message_that_is_not_dead_or_not_ours_is_not_dry_run<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    park(store, &[dead(us, message("1", "apply"))]).await;
    let row = rows(store, us).await.remove(0);
    let refused = dry_runner::<F>(store, "orders").await.dry_run(&row).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Configuration);
    assert!(refused.to_string().contains("it belongs to another consumer"), "{refused}");

    let ours = dry_runner::<F>(store, "invoices").await;
    assert_eq!(ours.dry_run(&row).await.unwrap(), DryRan::Applied);
    let mut tx = begin(store).await;
    assert_eq!(tx.revive(&[row.row], None).await.unwrap(), [true]);
    commit(tx).await;
    assert_eq!(ours.dry_run(&row).await.unwrap(), DryRan::Moving);
}
