//! What the archive and a checkpoint say to those who replay.

use std::time::Duration;

use oncebox_admin::{AfterEdit, Error, Forecast, Removal, ReplayOptions, Sought};
use oncebox_core::horizon::{Consumers, Expiry, RETENTION_MIN};
use oncebox_core::parked::Park;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::queue::{Enqueue, Keep, LeaseRequest, QueueSpec, QueueStore, QueueTx};
use oncebox_core::retention::RetentionBounds;
use oncebox_core::trail::Trails;
use oncebox_core::{ConsumerId, ConsumerName, Key, Message, Store, Timestamp};
use oncebox_testkit::store::{Setup, StoreFixture};

use crate::rig::{
    DRIVE, PLAIN, ada, admin, apply_before, begin, commit, consumer, dead, effects, far_future, meant, message, now,
    park, runner, verbs,
};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A message that was made in 2020, and came back from a broker's dead-letter queue: it has no record of its own.
fn old(us: ConsumerId, id: &str) -> Park {
    let mut message: Message = message(id, "{}");
    message.time = Timestamp::from_second(1_600_000_000).unwrap();
    let mut old = dead(us, message);
    old.owns_record = false;
    old
}

/// Everything that was applied is forgotten, and its keys are archived.
async fn archive<F: StoreFixture<Store: QuarantineStore>>(setup: &Setup<F>, us: ConsumerId) {
    setup.advance(CENTURY).await;
    archive_now(&setup.store, us).await;
}

async fn archive_now<S: QuarantineStore>(store: &S, us: ConsumerId) {
    let mut tx = begin(store).await;
    assert!(tx.expire(Expiry::first(us, far_future(), 100).archiving()).await.unwrap().deleted > 0);
    commit(tx).await;
}

/// Of two messages from before the horizon, the archive knows one: that one is not replayed, whatever is forced.
pub(crate) async fn what_is_archived_is_refused_also_by_force<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    apply_before(store, &old(us, "applied")).await;
    archive(&setup, us).await;
    park(store, &[old(us, "applied"), old(us, "unheard-of")]).await;
    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    for (force, other) in [(false, Forecast::TooOld), (true, Forecast::WillApply)] {
        let mut told = Vec::new();
        let plan = admin.plan_each(&all, force, |planned| told.push(planned)).await.unwrap();
        assert_eq!((plan.count(Forecast::Archived), plan.count(other)), (1, 1), "forced: {force}");
        let sentence = &told[0].sentence;
        let says = "message applied is refused: it was applied (archived): a record under its key was handled between ";
        assert!(sentence.starts_with(says), "{sentence}");
    }
    let only = meant(&admin, "id = applied").await;
    let forced = ReplayOptions { force: true, ..PLAIN };
    let refused = admin.start_replay(&only, &forced, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::NothingToReplay { messages: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("it was applied (archived)"), "{refused}");

    let _runner = runner::<F>(store, |_| false);
    let replay = admin.start_replay(&all, &forced, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.done, end.refused), (1, 1), "{end:?}");
    assert_eq!(effects::<F>(store).await.into_keys().collect::<Vec<_>>(), ["unheard-of"]);
}

/// Consumers with global keys have their records in one place: what went from there is too old for each of them, and what
/// is archived of it was applied.
pub(crate) async fn what_went_of_shared_records_is_refused<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let shared = store.consumer(&ConsumerName::global()).await.unwrap();
    apply_before(store, &old(shared, "applied")).await;
    archive(&setup, shared).await;
    park(store, &[old(us, "applied"), old(us, "unheard-of")]).await;
    let admin = admin(&setup);
    let plan = admin.plan(&meant(&admin, "all").await, false).await.unwrap();
    assert_eq!((plan.count(Forecast::Archived), plan.count(Forecast::TooOld)), (1, 1), "{plan:?}");
}

/// A consumer that has lost records of its own does not share its keys: what others did under the same key, remembered or
/// archived, does not say that it has handled a message.
pub(crate) async fn records_of_others_do_not_speak_for_keys_of_its_own<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let shared = store.consumer(&ConsumerName::global()).await.unwrap();
    apply_before(store, &old(shared, "archived")).await;
    apply_before(store, &old(us, "ours")).await;
    archive(&setup, shared).await;
    archive_now(store, us).await;
    apply_before(store, &old(shared, "remembered")).await;
    apply_before(store, &old(shared, "ours")).await;
    park(store, &[old(us, "archived"), old(us, "remembered"), old(us, "ours")]).await;
    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    for (force, expected) in [(false, Forecast::TooOld), (true, Forecast::WillApply)] {
        let plan = admin.plan(&all, force).await.unwrap();
        assert_eq!((plan.count(expected), plan.count(Forecast::Archived)), (2, 1), "forced: {force}, {plan:?}");
    }
    let refused = admin.start_replay(&all, &PLAIN, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::NothingToReplay { messages: 3, .. }), "{refused}");
    // Step by step, though one message alone is revived at a time.
    let _runner = runner::<F>(store, |_| false);
    let forced = ReplayOptions { force: true, ..PLAIN };
    let replay = admin.start_replay(&all, &forced, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.done, end.refused), (2, 1), "{end:?}");
}

/// What was made before a checkpoint is not replayed, whether it has a record or not, and whatever is forced.
pub(crate) async fn what_is_older_than_a_checkpoint_is_refused_also_by_force<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let mut owner = old(us, "with a record");
    owner.owns_record = true;
    let mut young = message("young", "{}");
    young.time = Timestamp::from_second(1_700_000_000).unwrap();
    park(store, &[owner, old(us, "without"), dead(us, young)]).await;
    setup.advance(CENTURY).await;
    let admin = admin(&setup);
    let all = meant(&admin, "all").await;
    assert_eq!(admin.plan(&all, false).await.unwrap().count(Forecast::WillApply), 3);
    let checkpoint = Timestamp::from_second(1_700_000_000).unwrap();
    let plan = admin.plan_checkpoint("invoices", checkpoint).await.unwrap();
    assert_eq!((plan.dead, plan.was), (2, None));
    store.consumer(&ConsumerName::global()).await.unwrap();
    assert_eq!(admin.plan_checkpoint("*", checkpoint).await.unwrap().dead, 2, "it holds for all consumers");
    admin.set_checkpoint(&plan, &ada()).await.unwrap();
    for force in [false, true] {
        let plan = admin.plan(&all, force).await.unwrap();
        assert_eq!((plan.count(Forecast::BeforeCheckpoint), plan.count(Forecast::WillApply)), (2, 1));
        let sentence = plan.first_refusal.unwrap();
        let says = "it was made at 2020-09-13T12:26:40Z, and invoices has a checkpoint at 2023-11-14T22:13:20Z";
        assert!(sentence.contains(says), "{sentence}");
    }
    let _runner = runner::<F>(store, |_| false);
    let forced = ReplayOptions { force: true, ..PLAIN };
    let replay = admin.start_replay(&all, &forced, &ada()).await.unwrap().id;
    let end = admin.drive(replay, &ada(), &DRIVE).await.unwrap();
    assert_eq!((end.done, end.refused), (1, 2), "{end:?}");
    assert_eq!(effects::<F>(store).await.into_keys().collect::<Vec<_>>(), ["young"]);
}

/// A checkpoint that would go back, or lies where consumers do not look, is refused; one that is set has its entry.
pub(crate) async fn a_checkpoint_goes_forward_and_is_in_the_audit_log<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    consumer(&setup.store).await;
    let admin = admin(&setup);
    let hours_ago = |hours: u64| now(&setup) - Duration::from_secs(hours * 3600);
    let first = admin.plan_checkpoint("invoices", hours_ago(5)).await.unwrap();
    let overtaken = admin.plan_checkpoint("invoices", hours_ago(6)).await.unwrap();
    assert!(verbs(&admin).await.is_empty(), "a plan changes nothing");
    assert_eq!(admin.set_checkpoint(&first, &ada()).await.unwrap().was, None);
    for refused in [
        admin.plan_checkpoint("invoices", hours_ago(6)).await.unwrap_err(),
        // Planned before somebody else set a later one.
        admin.set_checkpoint(&overtaken, &ada()).await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::CheckpointBack { .. }), "{refused}");
    }
    let young = now(&setup) - RETENTION_MIN + Duration::from_secs(1);
    let refused = admin.plan_checkpoint("invoices", young).await.unwrap_err();
    assert!(matches!(refused, Error::CheckpointYoung { .. }), "{refused}");
    let again = admin.plan_checkpoint("invoices", hours_ago(2)).await.unwrap();
    assert!(admin.set_checkpoint(&again, &ada()).await.unwrap().was.is_some());
    assert_eq!(verbs(&admin).await, ["retention.checkpoint"; 2]);
    let plan = admin.plan_retention("invoices", RETENTION_MIN).await.unwrap();
    assert_eq!(plan.checkpoint.map(|at| at.as_second()), Some(hours_ago(2).as_second()));
    assert_eq!(plan.horizon, None, "nothing was deleted");
}

/// An edited message that would get an archived key, or is older than the checkpoint, is refused.
pub(crate) async fn an_edit_finds_no_way_around_archive_and_checkpoint<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    apply_before(store, &old(us, "applied")).await;
    archive(&setup, us).await;
    park(store, &[old(us, "applied")]).await;
    // A consumer that makes keys of what messages say: the edited one gets the same again.
    let keyed = admin(&setup).identified_by(|message| {
        let (key, print) = (Key::id("applied")?, oncebox_core::Fingerprinter::default().fingerprint(message));
        Ok((key, print))
    });
    let row = keyed.list(&meant(&keyed, "all").await, 0, 1).await.unwrap()[0].row;
    let refused = keyed.edit(row, b"{}", AfterEdit::Replay, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::KeyTaken { .. }), "{refused}");
    let by_id = admin(&setup);
    let plan = by_id.plan_checkpoint("invoices", Timestamp::from_second(1_700_000_000).unwrap()).await.unwrap();
    by_id.set_checkpoint(&plan, &ada()).await.unwrap();
    let refused = by_id.edit(row, b"{}", AfterEdit::Replay, &ada()).await.unwrap_err();
    assert!(matches!(refused, Error::BeforeCheckpoint { .. }), "{refused}");
    assert_eq!(meant(&by_id, "all").await.dead, 1);
}

/// Whoever looks for a message whose record is gone finds it in the archive.
pub(crate) async fn the_life_of_a_message_ends_in_the_archive<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + Store<Tx: Trails>>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    let other = store.consumer(&ConsumerName::new("letters").unwrap()).await.unwrap();
    for whose in [us, other] {
        apply_before(store, &old(whose, &format!("applied by {}", whose.0))).await;
    }
    archive(&setup, us).await;
    archive(&setup, other).await;
    let admin = admin(&setup);
    let life = admin.message(Sought::id(&format!("applied by {}", us.0), None), None).await.unwrap();
    assert!(life.known);
    let archived: Vec<(&str, bool)> =
        life.consumers.iter().map(|at| (at.consumer.as_str(), at.archived.is_some())).collect();
    assert_eq!(archived, [("invoices", true), ("letters", false)]);
    let nobody = admin.message(Sought::id("unheard-of", None), None).await.unwrap();
    assert!(!nobody.known && nobody.consumers.iter().all(|at| at.archived.is_none()));
}

/// Retention by hand does what the runner does: it archives where it is asked to, and removes what stored mode processed.
pub(crate) async fn removing_records_now_archives_them_and_sweeps_stored_mode<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + QueueStore>,
{
    let store = &setup.store;
    let us = consumer(store).await;
    for n in 0..30 {
        apply_before(store, &old(us, &n.to_string())).await;
    }
    let queue = store.queue(&QueueSpec::received(&ConsumerName::new("invoices").unwrap(), false)).await.unwrap();
    let row = |n: usize| Enqueue {
        message: message(&n.to_string(), "{}"),
        lane: None,
        once: Some((Key::id(&n.to_string()).unwrap(), oncebox_core::Fingerprint::from_stored(1, 7))),
    };
    let mut tx = begin(store).await;
    tx.enqueue(queue, &(0..30).map(row).collect::<Vec<_>>()).await.unwrap();
    let request = LeaseRequest { queue, max: 25, lease: Duration::from_secs(30), lanes: None };
    let leased: Vec<_> = tx.lease(&request).await.unwrap().into_iter().map(|leased| leased.receipt).collect();
    tx.settle(queue, &leased, Keep::Processed).await.unwrap();
    commit(tx).await;
    setup.advance(CENTURY).await;
    let mut bounds = RetentionBounds::default();
    (bounds.step_max, bounds.share) = (10, 100);
    let removal = Removal { retention: RETENTION_MIN, archive: true, bounds };
    let admin = admin(&setup);
    let done = admin.apply_retention("invoices", removal, &ada(), |_| {}).await.unwrap();
    assert_eq!((done.deleted, done.archived, done.received), (30, true, 25), "{done:?}");
    let plan = admin.plan_retention("invoices", RETENTION_MIN).await.unwrap();
    assert_eq!((plan.archived_keys, plan.archived_bytes, plan.old), (30, 360, 0));
    let entries = admin.audit(None, 100).await.unwrap();
    let told: Vec<(&str, u64)> = entries.iter().map(|entry| (entry.verb.as_str(), entry.messages)).collect();
    assert_eq!(told, [("retention.apply", 55), ("retention.begin", 0)], "two entries for six steps");
    let detail: serde_json::Value = serde_json::from_str(entries[0].detail.get()).unwrap();
    assert_eq!((&detail["records"], &detail["processed"], &detail["whole"]), (&30.into(), &25.into(), &true.into()));
    assert_eq!(detail["begun"], entries[1].id);
    let again = admin.apply_retention("invoices", removal, &ada(), |_| {}).await.unwrap();
    assert_eq!((again.deleted, again.received), (0, 0));
    assert_eq!(admin.audit(None, 100).await.unwrap().len(), 2, "what removes nothing is not noted");
}

/// A removal that dies in the middle has left word of what was meant, and the next one goes on.
pub(crate) async fn a_removal_that_dies_half_way_has_left_an_entry<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QuarantineStore + QueueStore>,
{
    let us = consumer(&setup.store).await;
    for n in 0..30 {
        apply_before(&setup.store, &old(us, &n.to_string())).await;
    }
    setup.advance(CENTURY).await;
    let mut bounds = RetentionBounds::default();
    (bounds.step_max, bounds.share) = (10, 100);
    let removal = Removal { retention: RETENTION_MIN, archive: false, bounds };
    let (admin, ada) = (admin(&setup), ada());
    let (stepped, mut steps) = tokio::sync::mpsc::unbounded_channel();
    {
        let removing = admin.apply_retention("invoices", removal, &ada, |gone| {
            stepped.send(gone).unwrap();
        });
        tokio::pin!(removing);
        // Dropped where it rests after its first step.
        std::future::poll_fn(|cx| {
            let ended = removing.as_mut().poll(cx).is_ready();
            assert!(!ended, "it ended before it could die");
            if steps.is_empty() { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
        })
        .await;
    }
    let gone = steps.recv().await.unwrap();
    assert!((1..30).contains(&gone), "{gone} are gone");
    assert_eq!(verbs(&admin).await, ["retention.begin"]);
    let done = admin.apply_retention("invoices", removal, &ada, |_| {}).await.unwrap();
    assert!(done.deleted >= 1 && done.deleted < 30, "{done:?}");
    assert_eq!(verbs(&admin).await, ["retention.begin", "retention.begin", "retention.apply"]);
}
