//! Messages that come again after something about their consumer has changed: its fingerprints, key, scope or handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::horizon::Expiry;
use oncebox::memory::MemorySource;
use oncebox::quarantine::Quarantine;
use oncebox::{
    Clock, Consumer, ConsumerName, Content, Context, Failure, Gap, KeyStrategy, Message, MessageId, Outcome,
    OutcomeKind, Retry, Scope, Session, Store, Transaction, Versioned,
};
use oncebox_testkit::store::Setup;
use serde_json::json;

use super::rig::*;

fn template(text: &str) -> KeyStrategy {
    KeyStrategy::template(text).unwrap()
}

fn named<F: EngineFixture>(setup: &Setup<F>, name: &str, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let later = Retry::new().attempts(50).first(Duration::from_secs(30));
    Consumer::new(name, setup.store.clone(), source.clone()).retry(later).clock(setup.clock.clone())
}

async fn fails<S: Store>(_: Context<S>, _: Note) -> oncebox::Result<Outcome> {
    Err(refuse())
}

fn say(id: &str, order: u64, text: &str) -> Message {
    let body = json!({ "text": text, "order": order });
    Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(&body).unwrap()
}

/// Runs what is revived, until it is judged.
async fn judge_revived<F: EngineFixture>(setup: &Setup<F>, consumer: Consumer<F::Store, MemorySource>) {
    revive_all(setup).await;
    let judged = async |seen: &Snapshot| seen.retried >= 1 && seen.in_hand == 0 && due(setup).await == 0;
    run_until(consumer, "it is judged", judged).await;
}

/// Another message has its intent, as was known when it was parked. It stays a conflict where today's fingerprints can't tell.
pub(crate) async fn a_conflict_of_intents_stays_one_when_fingerprints_change<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let one = |content: Content| {
        let one = consumer("c", &setup.store, source.clone()).business_key(template("pay:{order}"));
        one.fingerprint(content).lanes(1).on("noted", write::<F>)
    };
    source.send(say("1", 7, "first"));
    run_dry(one(Content::default()), &source).await;
    source.send(say("2", 7, "second"));
    run_dry(one(Content::default()), &source).await;
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD)]);
    judge_revived(&setup, one(Content::default())).await;
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD)], "control: with the same fingerprints");
    judge_revived(&setup, one(Content::raw())).await;
    assert_eq!(effects(&setup).await, ["first"]);
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD)], "it is gone, and was never applied");
}

/// The same under a former key that was too broad, which is why it was changed.
pub(crate) async fn a_conflict_under_a_former_key_stays_none_of_its_duplicates<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let broad =
        || consumer("c", &setup.store, source.clone()).lanes(1).on("noted", write::<F>).key(template("order:{order}"));
    source.send(say("1", 7, "first"));
    run_dry(broad(), &source).await;
    source.send(say("2", 7, "second"));
    run_dry(broad(), &source).await;
    assert_eq!(states(&setup).await, [("2".to_owned(), DEAD)]);
    let narrow = broad().key(KeyStrategy::MessageId).key_was(template("order:{order}")).fingerprint(Content::raw());
    judge_revived(&setup, narrow).await;
    let left = states(&setup).await;
    let applied = effects(&setup).await;
    assert!(
        applied == ["first", "second"] || left == [("2".to_owned(), DEAD)],
        "it is neither applied nor kept: {applied:?} {left:?}"
    );
}

/// Parked as what could not be tried, revived, and given up: the missing version comes after all.
pub(crate) async fn a_replayed_version_that_gave_up_goes_on<F: EngineFixture>(setup: Setup<F>) {
    let version = |id: &str, version: u64| {
        let mut message = note(id, &format!("a:{version}")).with_order_key("a");
        message.version = Some(version);
        message
    };
    let source = MemorySource::new();
    source.send(version("two", 2));
    run_dry(consumer("c", &setup.store, source.clone()).on("other", write::<F>), &source).await;
    assert_eq!(only_parked(&setup).await.state, DEAD);
    let gap = Gap::Wait { time: Duration::from_secs(60), messages: 10 };
    let versioned = || {
        consumer("c", &setup.store, source.clone())
            .on("noted", write::<F>)
            .versioned(Versioned::by_order_key().on_gap(gap))
            .clock(setup.clock.clone())
    };
    setup.advance(Duration::from_secs(66)).await;
    deal_with_first(&setup, false).await;
    run_until(versioned(), "it gives up", async |seen| seen.dead == 1 && seen.in_hand == 0).await;
    source.send(version("one", 1));
    let mut looks = 0;
    run_until(versioned(), "a while", async |seen| {
        setup.advance(Duration::from_secs(6)).await;
        looks += 1;
        looks > 200 || seen.handled == 2 && seen.in_hand == 0
    })
    .await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2"], "{:?}", F::parked(&setup.store).await);
}

/// A change of scope is bridged, and a consumer that shares nothing has parked the same message. `with_other: false` is the
/// control.
async fn applied_by_the_old_deployment<F: EngineFixture>(setup: &Setup<F>, with_other: bool) {
    let source = MemorySource::new();
    let own = |name: &str| named(setup, name, &source);
    let global = || own("c").scope(Scope::Global).scope_was(Scope::Consumer);
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    run_dry(own("c").on("noted", write::<F>), &source).await;
    if with_other {
        source.send(note("1", "a"));
        run_until(own("d").on("noted", fails::<F::Store>), "the other has parked it", settled).await;
    }
    source.send(note("1", "a"));
    run_until(global().on("noted", fails::<F::Store>), "it is parked", settled).await;
    let others = usize::from(with_other);
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.len() == others
    };
    run_until(own("c").on("noted", write::<F>), "the old deployment has applied it", gone).await;
    assert_eq!(effects(setup).await, ["a"]);
    let shared = setup.store.consumer(&ConsumerName::global()).await.unwrap();
    let key = KeyStrategy::MessageId.key(&note("1", "a"), None).unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let said = tx.remembered(shared, &[key]).await.unwrap().remove(0);
    tx.rollback().await;
    assert_ne!(
        said.map(|said| said.outcome),
        Some(OutcomeKind::Parked),
        "no row stands for that record, and it never expires"
    );
}

pub(crate) async fn what_the_old_scope_applied_has_no_parked_record<F: EngineFixture>(setup: Setup<F>) {
    applied_by_the_old_deployment(&setup, false).await;
}

pub(crate) async fn what_the_old_scope_applied_has_no_parked_record_beside_another_consumer<F: EngineFixture>(
    setup: Setup<F>,
) {
    applied_by_the_old_deployment(&setup, true).await;
}

/// The first old message of a batch had no key in the way of before; the next one had, in the shared records, which have
/// forgotten it.
pub(crate) async fn a_message_without_a_former_key_hides_no_horizon<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let in_2020 = |mut message: Message| {
        message.time = "2020-07-01T00:00:00Z".parse().unwrap();
        message
    };
    let old = || named(&setup, "c", &source).scope(Scope::Global).on("noted", write::<F>);
    let bridged = || {
        let one = named(&setup, "c", &source).key(template("text:{text}")).key_was(KeyStrategy::MessageId);
        one.scope_was(Scope::Global).lanes(1)
    };
    source.send(in_2020(note("1", "a")));
    run_dry(old(), &source).await;
    run_dry(bridged().on("noted", write::<F>), &source).await;
    // Seen once more, so that the bridge stands.
    setup.advance(Duration::from_secs(1)).await;
    run_dry(old(), &source).await;
    forget_of(&setup, &ConsumerName::global(), |all, before| Expiry::first(all, before, 10)).await;
    // Control: alone it is known to be too old.
    source.send(in_2020(note("1", "a")));
    let seen = run_dry(bridged().on("noted", write::<F>), &source).await;
    assert_eq!((seen.too_old, seen.handled), (1, 0));
    deal_with_first(&setup, true).await;
    // A slow one first, so that the two that follow are taken together.
    let begun = Arc::new(AtomicBool::new(false));
    let slow = {
        let begun = Arc::clone(&begun);
        move |mut ctx: Context<F::Store>, note: Note| {
            let begun = Arc::clone(&begun);
            async move {
                if note.text == "slow" {
                    begun.store(true, SeqCst);
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                F::write_effect(ctx.db(), &note.text).await?;
                Ok::<_, Failure>(Outcome::applied())
            }
        }
    };
    let mut first = note("0", "slow");
    first.time = setup.clock.now();
    source.send(first);
    let keyless = Message::new("noted").with_json(&json!({ "text": "has no id" })).unwrap();
    let mut sent = false;
    run_until(bridged().on("noted", slow), "all are settled", async |seen: &Snapshot| {
        if begun.load(SeqCst) && !sent {
            sent = true;
            source.send_all([in_2020(keyless.clone()), in_2020(note("1", "a"))]);
        }
        sent && source.backlog() == 0 && seen.in_hand == 0
    })
    .await;
    let applied = effects(&setup).await;
    assert_eq!(applied.iter().filter(|text| *text == "a").count(), 1, "{applied:?}");
}

/// The old deployment of `c`, with records of its own, ends a row beside a sharing consumer `e` that has parked the same
/// message; `rekeyed`: under another key, its former one bridged.
async fn ended_beside<F: EngineFixture>(setup: &Setup<F>, rekeyed: bool) {
    let source = MemorySource::new();
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    let own = || named(setup, "c", &source);
    let global = || own().scope(Scope::Global).scope_was(Scope::Consumer);
    let e = || {
        let e = named(setup, "e", &source).scope(Scope::Global);
        if rekeyed { e.key(KeyStrategy::template("text:{text}").unwrap()).key_was(KeyStrategy::MessageId) } else { e }
    };
    // `e` ran with the message id as its key before.
    run_dry(named(setup, "e", &source).scope(Scope::Global).on("noted", write::<F>), &source).await;
    run_dry(own().on("noted", write::<F>), &source).await;
    source.send(note("1", "a"));
    run_until(own().on("noted", fails::<F::Store>), "c has parked it", settled).await;
    run_dry(e().on("noted", write::<F>), &source).await;
    source.send(note("1", "a"));
    run_until(e().on("noted", fails::<F::Store>), "e has parked it", settled).await;
    assert_eq!(F::parked(&setup.store).await.len(), 2);
    // The new deployment of `c` starts: its binding shares from now on. The old one goes on beside it.
    let begun = AtomicUsize::new(0);
    run_until(global().on("noted", fails::<F::Store>), "a start", async |_| begun.fetch_add(1, SeqCst) > 2).await;
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.len() == 1
    };
    run_until(own().on("noted", write::<F>), "the old deployment has applied it", gone).await;
    assert_eq!(effects(setup).await, ["a"]);
    let all_gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(e().on("noted", write::<F>), "e is done with it", all_gone).await;
    assert_eq!(effects(setup).await, ["a", "a"], "e has its own row of it, whose record says parked");
}

pub(crate) async fn control_a_row_ends_beside_a_sharing_consumer<F: EngineFixture>(setup: Setup<F>) {
    ended_beside(&setup, false).await;
}

pub(crate) async fn a_row_ends_beside_a_sharing_consumer_with_another_key<F: EngineFixture>(setup: Setup<F>) {
    ended_beside(&setup, true).await;
}
