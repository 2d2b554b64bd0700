//! Messages that meet records and parked rows from before their consumer's fingerprints changed. Contents of then and now
//! cannot be compared; what was known to be another message when it was parked stays one.

use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Consumer, Content, Context, Failure, KeyStrategy, Message, MessageId, Outcome, Retry, Store};
use oncebox_testkit::store::Setup;
use serde_json::json;

use super::rig::*;

fn say(id: &str, order: u64, text: &str) -> Message {
    let body = json!({ "text": text, "order": order });
    Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(&body).unwrap()
}

async fn refuses<S: Store>(_: Context<S>, _: Note) -> oncebox::Result<Outcome> {
    Err(Failure::permanent("the case said so"))
}

const PAIRS: usize = 8;

/// Two messages under one key, known to be two when they were parked. Fingerprints leave out what they differ in, both are
/// revived: the second is neither applied nor kept.
async fn conflicts_revived<F: EngineFixture>(setup: &Setup<F>, batch: usize) {
    let source = MemorySource::new();
    let one = |content: Content| {
        consumer("c", &setup.store, source.clone())
            .fingerprint(content)
            .lanes(1)
            .bounds(move |bounds| bounds.batch_messages_max = batch)
    };
    for n in 0..PAIRS {
        source.send(say(&format!("{n}"), 7, &format!("first {n}")));
        run_dry(one(Content::default()).on("noted", refuses::<F::Store>), &source).await;
        source.send(say(&format!("{n}"), 7, &format!("second {n}")));
        run_dry(one(Content::default()).on("noted", refuses::<F::Store>), &source).await;
    }
    assert_eq!(F::parked(&setup.store).await.len(), 2 * PAIRS);
    revive_all(setup).await;
    let today = one(Content::only(["order"])).on("noted", write::<F>);
    let judged = async |seen: &Snapshot| {
        let _ = seen;
        due(setup).await == 0 && seen.in_hand == 0 && seen.retried >= 2 * PAIRS as u64
    };
    run_until(today, "all are judged", judged).await;
    let applied = effects(setup).await;
    let left = states(setup).await;
    let lost: Vec<usize> = (0..PAIRS)
        .filter(|n| !applied.contains(&format!("second {n}")) && !left.contains(&(format!("{n}"), DEAD)))
        .collect();
    assert!(lost.is_empty(), "the second of {lost:?} is neither applied nor kept: {applied:?} {left:?}");
}

pub(crate) async fn control_conflicts_revived_singly_stay<F: EngineFixture>(setup: Setup<F>) {
    conflicts_revived(&setup, 1).await;
}

pub(crate) async fn conflicts_revived_together_stay<F: EngineFixture>(setup: Setup<F>) {
    conflicts_revived(&setup, 64).await;
}

fn named<F: EngineFixture>(setup: &Setup<F>, name: &str, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let later = Retry::new().attempts(50).first(Duration::from_secs(30));
    Consumer::new(name, setup.store.clone(), source.clone()).retry(later).clock(setup.clock.clone())
}

async fn fails<S: Store>(_: Context<S>, _: Note) -> oncebox::Result<Outcome> {
    Err(refuse())
}

/// A conflict under a former key that was too broad. It was applied since, under its own key: its row can go.
async fn applied_since<F: EngineFixture>(setup: &Setup<F>, content: Content) {
    let source = MemorySource::new();
    let handler = |mut ctx: Context<F::Store>, note: Note| async move {
        if note.text == "first" {
            return Err(Failure::permanent("the case said so"));
        }
        F::write_effect(ctx.db(), &note.text).await?;
        Ok(Outcome::applied())
    };
    let order = || KeyStrategy::template("order:{order}").unwrap();
    let one = || consumer("c", &setup.store, source.clone()).lanes(1).on("noted", handler);
    let narrow = || one().key(KeyStrategy::MessageId).key_was(order());
    source.send(say("1", 7, "first"));
    run_dry(one().key(order()), &source).await;
    source.send(say("2", 7, "second"));
    run_dry(one().key(order()), &source).await;
    assert_eq!(states(setup).await, [("1".to_owned(), DEAD), ("2".to_owned(), DEAD)]);
    source.send(say("2", 7, "second"));
    run_dry(narrow(), &source).await;
    assert_eq!(effects(setup).await, ["second"]);
    revive_all(setup).await;
    let judged = async |seen: &Snapshot| seen.retried >= 2 && seen.in_hand == 0 && due(setup).await == 0;
    run_until(narrow().fingerprint(content), "they are judged", judged).await;
    assert_eq!(effects(setup).await, ["second"]);
    assert_eq!(states(setup).await, [("1".to_owned(), DEAD)], "{:?}", F::parked(&setup.store).await);
}

pub(crate) async fn control_a_conflict_that_was_applied_since_goes<F: EngineFixture>(setup: Setup<F>) {
    applied_since(&setup, Content::default()).await;
}

pub(crate) async fn a_conflict_that_was_applied_since_goes_when_fingerprints_change<F: EngineFixture>(setup: Setup<F>) {
    applied_since(&setup, Content::raw()).await;
}

/// Two messages under one key: `X` could not be tried and has no record, `Y` came after fingerprints had changed (`content`) and is
/// tried again. An operator discards `X`.
async fn discarded_beside<F: EngineFixture>(setup: &Setup<F>, content: Content) {
    let source = MemorySource::new();
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    let c = || named(setup, "c", &source);
    source.send(say("1", 7, "X"));
    run_until(c().on("other", write::<F>), "X is parked", settled).await;
    assert_eq!(states(setup).await, [("1".to_owned(), DEAD)]);
    source.send(say("1", 7, "Y"));
    run_until(c().fingerprint(content.clone()).on("noted", fails::<F::Store>), "Y is parked", settled).await;
    assert_eq!(states(setup).await, [("1".to_owned(), DEAD), ("1".to_owned(), RETRIES)]);
    deal_with_first(setup, true).await;
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(c().fingerprint(content).on("noted", write::<F>), "Y is done with", gone).await;
    assert_eq!(effects(setup).await, ["Y"], "it was not Y that was discarded");
}

pub(crate) async fn control_a_discard_takes_no_other_message_along<F: EngineFixture>(setup: Setup<F>) {
    discarded_beside(&setup, Content::default()).await;
}

pub(crate) async fn a_discard_takes_no_other_message_along_when_fingerprints_change<F: EngineFixture>(setup: Setup<F>) {
    discarded_beside(&setup, Content::raw()).await;
}

fn broad() -> KeyStrategy {
    KeyStrategy::template("order:{order}").unwrap()
}

/// A key that messages shared is narrowed and the fingerprints change at once: nothing tells the message that was applied
/// from the others that had its key, so a person does. Neither is lost, and neither is applied twice.
pub(crate) async fn what_a_former_key_cannot_tell_apart_waits_for_a_person<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let one = || consumer("c", &setup.store, source.clone()).lanes(1).on("noted", write::<F>);
    let narrow = || one().key(KeyStrategy::MessageId).key_was(broad()).fingerprint(Content::raw());
    source.send(say("1", 7, "first"));
    run_dry(one().key(broad()), &source).await;
    source.send_all([say("1", 7, "first"), say("2", 7, "second")]);
    run_dry(narrow(), &source).await;
    assert_eq!(effects(&setup).await, ["first"]);
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD), ("2".to_owned(), DEAD)]);
    let causes: Vec<_> = F::parked(&setup.store).await.into_iter().map(|row| row.cause).collect();
    assert!(causes.iter().all(|cause| cause.contains("former-key")), "{causes:?}");
    deal_with_first(&setup, true).await;
    revive_all(&setup).await;
    run_until(narrow(), "the other is applied", async |_| F::parked(&setup.store).await.is_empty()).await;
    assert_eq!(effects(&setup).await, ["first", "second"]);
}
