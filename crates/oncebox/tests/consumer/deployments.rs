//! Two deployments of one consumer with different keys, scopes or aggregates, and messages that come to both.

use std::time::Duration;

use oncebox::claim::{Claim, ClaimRequest};
use oncebox::consumer::Snapshot;
use oncebox::horizon::Expiry;
use oncebox::memory::MemorySource;
use oncebox::quarantine::{Quarantine, Remembered};
use oncebox::store::Inbox;
use oncebox::{
    Consumer, ConsumerName, Ended, Failure, Fingerprinter, Gap, KeyStrategy, Message, Outcome, OutcomeKind, Session,
    Store, Transaction, Versioned,
};
use oncebox_testkit::store::Setup;

use super::rig::*;

fn by_text() -> KeyStrategy {
    KeyStrategy::template("text:{text}").unwrap()
}

fn old<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    Consumer::new("c", setup.store.clone(), source.clone()).retry(at_once(1))
}

fn new<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    old(setup, source).key(by_text()).key_was(KeyStrategy::MessageId)
}

const WAIT: Gap = Gap::Wait { time: Duration::from_secs(60), messages: 1_000 };

fn version(n: u64, text: &str) -> Message {
    let mut message = note(&format!("v{n}"), text).with_order_key("k");
    message.version = Some(n);
    message
}

/// The new deployment parks a message, its acknowledgement is lost, the message comes again to the old one, which parks it
/// too. Then the old one is gone, and a person revives what is parked.
pub(crate) async fn what_both_deployments_parked_is_applied_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    run_dry(old(&setup, &source).on("noted", write::<F>), &source).await;
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    source.send(note("1", "a"));
    run_dry(new(&setup, &source).on("noted", fails), &source).await;
    source.send(note("1", "a"));
    run_dry(old(&setup, &source).on("noted", fails), &source).await;
    for _ in 0..3 {
        revive_all(&setup).await;
        run_until(new(&setup, &source).on("noted", write::<F>), "all are tried", async |_| {
            setup.advance(Duration::from_secs(1)).await;
            F::parked(&setup.store).await.iter().all(|row| row.state == DEAD)
        })
        .await;
    }
    assert_eq!(effects(&setup).await, ["a"]);
    assert!(F::parked(&setup.store).await.is_empty());
}

/// Both deployments fail for a moment, and order is kept: nobody does anything, and the key goes on.
pub(crate) async fn what_both_deployments_parked_in_order_goes_on<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    let later = || oncebox::Retry::new().attempts(50).first(Duration::from_secs(30));
    let by_id = || {
        let one = old(&setup, &source).retry(later()).clock(setup.clock.clone());
        one.order_by(oncebox::OrderBy::MessageKey)
    };
    let bridged = || by_id().key(by_text()).key_was(KeyStrategy::MessageId);
    let m = |id: &str| note(id, id).with_order_key("k");
    run_dry(by_id().on("noted", write::<F>), &source).await;
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    source.send(m("1"));
    run_until(bridged().on("noted", fails), "it is parked", settled).await;
    // The acknowledgement was lost.
    source.send(m("1"));
    run_until(by_id().on("noted", fails), "it is parked", settled).await;
    source.send(m("2"));
    let mut looks = 0;
    run_until(bridged().on("noted", write::<F>), "a while", async |_| {
        setup.advance(Duration::from_secs(60)).await;
        looks += 1;
        looks > 200 || F::parked(&setup.store).await.is_empty()
    })
    .await;
    assert_eq!(effects(&setup).await, ["1", "2"]);
}

/// The same with another scope, where both keys are the same bytes: one row, and two records that say parked. Nobody has to do
/// anything wrong: something is down for a moment, and an acknowledgement is lost.
pub(crate) async fn what_two_scopes_parked_is_applied_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    let later = || oncebox::Retry::new().attempts(5).first(Duration::from_secs(30));
    let own = || old(&setup, &source).retry(later()).clock(setup.clock.clone());
    let global = || own().scope(oncebox::Scope::Global).scope_was(oncebox::Scope::Consumer);
    run_dry(own().on("noted", write::<F>), &source).await;
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    source.send(note("1", "a"));
    run_until(global().on("noted", fails), "it is parked", settled).await;
    source.send(note("1", "a"));
    run_until(own().on("noted", fails), "it is parked", settled).await;
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(global().on("noted", write::<F>), "it is applied", gone).await;
    source.send(note("1", "a"));
    run_dry(global().on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// What a person discarded is not applied by the other deployment.
pub(crate) async fn what_is_discarded_is_discarded_for_both_deployments<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    run_dry(old(&setup, &source).on("noted", write::<F>), &source).await;
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    source.send(note("1", "a"));
    run_dry(new(&setup, &source).on("noted", fails), &source).await;
    deal_with_first(&setup, true).await;
    source.send(note("1", "a"));
    run_dry(old(&setup, &source).on("noted", write::<F>), &source).await;
    assert!(effects(&setup).await.is_empty());
}

/// An effect that may have happened is not tried again by the other deployment.
pub(crate) async fn an_unknown_effect_is_not_tried_by_the_old_one<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    run_dry(old(&setup, &source).on("noted", write::<F>), &source).await;
    let unknown = |_: oncebox::Context<F::Store>, _: Note| async {
        Err::<Outcome, _>(Failure::unknown("the bank did not answer"))
    };
    source.send(note("1", "a"));
    run_dry(new(&setup, &source).on("noted", unknown), &source).await;
    source.send(note("1", "a"));
    run_dry(old(&setup, &source).on("noted", write::<F>), &source).await;
    assert!(effects(&setup).await.is_empty());
}

/// Business keys of before are in the archive.
pub(crate) async fn a_bridge_asks_the_archive<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let one = || {
        let one = old(&setup, &source).ask_archive().clock(setup.clock.clone());
        one.on("noted", write::<F>)
    };
    let was = || KeyStrategy::template("pay:{text}").unwrap();
    source.send(note("1", "a"));
    run_dry(one().business_key(was()), &source).await;
    let name = ConsumerName::new("c").unwrap();
    forget_of(&setup, &name, |consumer, before| Expiry::first(consumer, before, 10).archiving()).await;
    let young = |id| {
        let mut message = note(id, "a");
        message.time = oncebox::Clock::now(&*setup.clock);
        message
    };
    source.send(young("2"));
    let seen = run_dry(one().business_key(was()), &source).await;
    assert_eq!(seen.business_duplicates, 1, "the old deployment knows it");
    source.send(young("3"));
    let now = KeyStrategy::template("payment:{text}").unwrap();
    run_dry(one().business_key(now).business_key_was(Some(was())), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// Of what is older than the former records' horizon nobody knows whether it was handled, whatever the scope is now.
pub(crate) async fn another_scope_keeps_the_horizon<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let long_ago = || {
        let mut message = note("1", "a");
        message.time = "2020-07-01T00:00:00Z".parse().unwrap();
        message
    };
    let one = || old(&setup, &source).clock(setup.clock.clone()).on("noted", write::<F>);
    source.send(long_ago());
    run_dry(one(), &source).await;
    forget(&setup, 10).await;
    source.send(long_ago());
    let seen = run_dry(one(), &source).await;
    assert_eq!((seen.too_old, seen.handled), (1, 0), "before the change");
    deal_with_first(&setup, true).await;
    source.send(long_ago());
    let global = one().scope(oncebox::Scope::Global).scope_was(oncebox::Scope::Consumer);
    run_dry(global, &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// Where only the scope changes, another content under the same id is a conflict, as it was before and is afterwards.
pub(crate) async fn a_conflict_stays_one_under_another_scope<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let own = || old(&setup, &source).on("noted", write::<F>);
    source.send(note("1", "a"));
    run_dry(own(), &source).await;
    source.send(note("1", "a, sent again with another time in it"));
    run_dry(own().scope(oncebox::Scope::Global).scope_was(oncebox::Scope::Consumer), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// The key is changed together with the upgrade from a version that kept no binding and hashed contents in another way.
pub(crate) async fn a_change_together_with_an_upgrade_doubles_nothing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let content = oncebox::Content::default;
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let message = note("1", "a").with_order_key("k");
    let key = KeyStrategy::ContentHashV1(content()).key(&message, None).unwrap();
    let fingerprint = Fingerprinter::default().fingerprint(&message);
    let request = ClaimRequest { consumer, key, fingerprint, id_hash: None };
    assert_eq!(tx.claim(&[request]).await.unwrap(), [Claim::Fresh]);
    F::write_effect(tx.db(), "a").await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    source.send(message);
    let upgraded = || old(&setup, &source).key_was(KeyStrategy::ContentHash(content())).on("noted", write::<F>);
    if upgraded().check_identity().await.is_ok() {
        run_dry(upgraded(), &source).await;
    }
    assert_eq!(effects(&setup).await, ["a"]);
}

/// What versions are versions of is a part of what a name is bound to.
pub(crate) async fn another_aggregate_is_refused<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let by = |template: &str| {
        let one = old(&setup, &source).clock(setup.clock.clone()).on("noted", write::<F>).lanes(1);
        one.versioned(Versioned::by(template).unwrap().on_gap(WAIT))
    };
    source.send_all((1..=3).map(|n| version(n, "a")));
    run_dry(by("note:{text}"), &source).await;
    let refused = by("notes:{text}").check_identity().await.unwrap_err().to_string();
    assert!(refused.contains("versions of `note:{text}`") && refused.contains("another consumer name"), "{refused}");
    // Versions that are read elsewhere, or begin elsewhere, would make old ones of new messages.
    let counted = [
        Versioned::by("note:{text}").unwrap().version("{seq}").unwrap(),
        Versioned::by("note:{text}").unwrap().first(0),
    ];
    for versioned in counted {
        let one = old(&setup, &source).clock(setup.clock.clone()).on("noted", write::<F>).versioned(versioned);
        assert!(one.check_identity().await.is_err());
    }
}

/// A deployment that tries what it parks again half a minute later.
fn named<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let later = oncebox::Retry::new().attempts(50).first(Duration::from_secs(30));
    old(setup, source).retry(later).clock(setup.clock.clone())
}

/// What the inbox says under the key that the new deployment makes of `message`.
async fn said_by_text<F: EngineFixture>(setup: &Setup<F>, message: &Message) -> Option<Remembered> {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let said = tx.remembered(consumer, &[by_text().key(message, None).unwrap()]).await.unwrap().remove(0);
    tx.rollback().await;
    said
}

/// The new deployment parks a message under both keys; one of the two applies it. Long after its record has expired, the new
/// key is used by another message.
async fn used_again<F: EngineFixture>(setup: &Setup<F>, by_old: bool) {
    let source = MemorySource::new();
    let by_id = || named(setup, &source);
    let bridged = || by_id().key(by_text()).key_was(KeyStrategy::MessageId);
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    let at_now = |id: &str, text: &str| {
        let mut message = note(id, text);
        message.time = oncebox::Clock::now(&*setup.clock);
        message
    };
    source.send(at_now("0", "z"));
    run_dry(by_id().on("noted", write::<F>), &source).await;
    source.send(at_now("1", "a"));
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    run_until(bridged().on("noted", fails), "it is parked", settled).await;
    assert_eq!(only_parked(setup).await.state, RETRIES);
    let runs = if by_old { by_id() } else { bridged() };
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(runs.on("noted", write::<F>), "it is applied", gone).await;
    assert_eq!(effects(setup).await, ["a", "z"]);
    let said = said_by_text(setup, &note("1", "a")).await;
    assert_ne!(said.map(|said| said.outcome), Some(OutcomeKind::Parked), "no row stands for that record");
    forget(setup, 10).await;
    source.send(at_now("2", "a"));
    let seen = run_dry(bridged().on("noted", write::<F>), &source).await;
    assert_eq!(effects(setup).await, ["a", "a", "z"], "{seen:?}");
}

pub(crate) async fn a_key_is_used_again_after_the_new_deployment_applied_its_row<F: EngineFixture>(setup: Setup<F>) {
    used_again(&setup, false).await;
}

pub(crate) async fn a_key_is_used_again_after_the_old_deployment_applied_its_row<F: EngineFixture>(setup: Setup<F>) {
    used_again(&setup, true).await;
}

/// What the old deployment applied, and both have forgotten, comes to a process that lacks its handler, and is parked: no
/// record may say of that row that it was never applied, by which a person would replay it.
pub(crate) async fn what_the_old_deployment_applied_has_no_parked_record<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let by_id = || named(&setup, &source);
    let bridged = || by_id().key(by_text()).key_was(KeyStrategy::MessageId);
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<Outcome, _>(refuse()) };
    let mut message = note("1", "a");
    message.time = "2020-07-01T00:00:00Z".parse().unwrap();
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    source.send(message.clone());
    run_until(by_id().on("other", write::<F>), "bound", settled).await;
    deal_with_first(&setup, true).await;
    source.send(message.clone());
    run_until(bridged().on("noted", fails), "it is parked", settled).await;
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(by_id().on("noted", write::<F>), "it is applied", gone).await;
    source.send(note("0", "z"));
    run_dry(bridged().on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a", "z"]);
    forget(&setup, 10).await;
    source.send(message.clone());
    run_dry(bridged().on("other", write::<F>), &source).await;
    assert_eq!(only_parked(&setup).await.state, DEAD);
    assert_eq!(said_by_text(&setup, &message).await, None);
}
