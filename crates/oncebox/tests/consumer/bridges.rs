//! While a change of key, business key or scope is bridged: what one deployment parks another may run, what the archive
//! knows, and what a person edits or discards meanwhile.

use std::sync::Arc;
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::horizon::Expiry;
use oncebox::memory::MemorySource;
use oncebox::parked::{Park, Verdict, Waits};
use oncebox::quarantine::{Quarantine, Superseded};
use oncebox::{
    Clock, Consumer, ConsumerName, Context, Ended, Failure, Fingerprinter, Gap, KeyStrategy, Message, MessageId,
    OrderBy, Outcome, Retry, Scope, Session, Store, Transaction, Versioned,
};
use oncebox_testkit::store::Setup;
use serde_json::json;

use super::rig::*;

fn template(text: &str) -> KeyStrategy {
    KeyStrategy::template(text).unwrap()
}

/// Fails for now; what it is given is tried again half a minute later.
async fn fails<S: Store>(_: Context<S>, _: Note) -> oncebox::Result<Outcome> {
    Err(refuse())
}

async fn dies<S: Store>(_: Context<S>, _: Note) -> oncebox::Result<Outcome> {
    Err(Failure::permanent("the case said so"))
}

fn named<F: EngineFixture>(setup: &Setup<F>, name: &str, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let later = Retry::new().attempts(50).first(Duration::from_secs(30));
    Consumer::new(name, setup.store.clone(), source.clone()).retry(later).clock(setup.clock.clone())
}

fn before<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    named(setup, "c", source).business_key(template("pay:{text}"))
}

fn after<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    before(setup, source).business_key(template("payment:{text}")).business_key_was(Some(template("pay:{text}")))
}

/// Runs `parks` until a message is parked by it, then `runs` until nothing is parked any more; the message comes again.
async fn parked_by_one_and_run_by_the_other<F: EngineFixture>(
    setup: &Setup<F>,
    source: &MemorySource,
    parks: Consumer<F::Store, MemorySource>,
    runs: impl Fn() -> Consumer<F::Store, MemorySource>,
) {
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    source.send(note("1", "a"));
    run_until(parks.on("noted", fails::<F::Store>), "it is parked", settled).await;
    assert_eq!(only_parked(setup).await.state, RETRIES);
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(runs().on("noted", write::<F>), "it is no longer parked", gone).await;
    source.send(note("1", "a"));
    run_dry(runs().on("noted", write::<F>), source).await;
    assert_eq!(effects(setup).await, ["a"]);
}

/// The new deployment parks a message; the old one, rolled back or still beside it, applies it.
pub(crate) async fn what_is_parked_under_a_new_business_key_the_old_deployment_applies<F: EngineFixture>(
    setup: Setup<F>,
) {
    let source = MemorySource::new();
    run_dry(before(&setup, &source).on("noted", write::<F>), &source).await;
    parked_by_one_and_run_by_the_other(&setup, &source, after(&setup, &source), || before(&setup, &source)).await;
}

/// The same by a change of scope beside a business key.
pub(crate) async fn what_is_parked_under_a_new_scope_the_old_deployment_applies<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    run_dry(before(&setup, &source).on("noted", write::<F>), &source).await;
    let global = before(&setup, &source).scope(Scope::Global).scope_was(Scope::Consumer);
    parked_by_one_and_run_by_the_other(&setup, &source, global, || before(&setup, &source)).await;
}

/// The first is bad for good and a person discards it; the producer's second try is another message, bridge or not.
pub(crate) async fn a_discarded_message_leaves_its_intent_to_the_next<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    run_dry(before(&setup, &source).on("noted", write::<F>), &source).await;
    source.send(note("1", "a"));
    run_dry(after(&setup, &source).on("noted", dies::<F::Store>), &source).await;
    assert_eq!(only_parked(&setup).await.state, DEAD);
    deal_with_first(&setup, true).await;
    source.send(note("2", "a"));
    run_dry(after(&setup, &source).on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// Parked in the scope of before, and handled meanwhile by another consumer that shares records: it is done with.
pub(crate) async fn what_is_parked_and_was_handled_elsewhere_is_done_with<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let settled = async |seen: &Snapshot| source.backlog() == 0 && seen.in_hand == 0;
    source.send(note("1", "a"));
    run_until(named(&setup, "c", &source).on("noted", fails::<F::Store>), "it is parked", settled).await;
    source.send(note("1", "a"));
    let shares = named(&setup, "shares", &source).scope(Scope::Global);
    run_dry(shares.on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    let global = named(&setup, "c", &source).scope(Scope::Global).scope_was(Scope::Consumer);
    let gone = async |_: &Snapshot| {
        setup.advance(Duration::from_secs(60)).await;
        F::parked(&setup.store).await.is_empty()
    };
    run_until(global.on("noted", write::<F>), "it is no longer parked", gone).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

/// The archive knows keys and no contents: under a broad key of before, another message is not taken for a handled one.
pub(crate) async fn a_broad_former_key_in_the_archive_hides_no_message<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let say = |id: &str, text: &str| {
        let id = MessageId::new(id).unwrap();
        let mut message = Message::new("noted").with_id(id).with_json(&json!({ "text": text, "order": 7 })).unwrap();
        message.time = setup.clock.now();
        message
    };
    let one = || named(&setup, "c", &source).ask_archive().on("noted", write::<F>);
    let broad = || template("order:{order}");
    let narrow = || one().key_was(broad());
    source.send(say("1", "placed"));
    run_dry(one().key(broad()), &source).await;
    source.send(say("2", "changed"));
    run_dry(narrow(), &source).await;
    assert_eq!(effects(&setup).await, ["changed", "placed"], "with its record, it is another message");
    // The old deployment is seen once more, so that the bridge stands; then its record expires.
    setup.advance(Duration::from_secs(1)).await;
    run_dry(one().key(broad()), &source).await;
    let name = ConsumerName::new("c").unwrap();
    forget_of(&setup, &name, |consumer, before| Expiry::first(consumer, before, 10).archiving()).await;
    source.send(say("3", "shipped"));
    let seen = run_dry(narrow(), &source).await;
    assert_eq!(effects(&setup).await, ["changed", "placed", "shipped"], "{seen:?}");
}

/// A consumer that keeps its own records does not believe those that others share, archived or not.
pub(crate) async fn the_archive_of_others_hides_no_message<F: EngineFixture>(setup: Setup<F>) {
    let long_ago = || {
        let mut message = note("1", "a");
        message.time = "2020-07-01T00:00:00Z".parse().unwrap();
        message
    };
    let nothing = |_: Context<F::Store>, _: Note| async { Ok::<_, Failure>(Outcome::applied()) };
    let source = MemorySource::new();
    source.send(long_ago());
    let shares = named(&setup, "shares", &source).scope(Scope::Global);
    run_dry(shares.on("noted", nothing), &source).await;
    forget_of(&setup, &ConsumerName::global(), |all, before| Expiry::first(all, before, 10).archiving()).await;
    source.send(long_ago());
    let seen = run_dry(named(&setup, "c", &source).ask_archive().on("noted", write::<F>), &source).await;
    assert_eq!(effects(&setup).await, ["a"], "{seen:?}");
}

/// A version that gave up waiting and was edited then goes on when the missing one comes, as it would have without.
pub(crate) async fn a_version_that_was_given_up_and_edited_goes_on<F: EngineFixture>(setup: Setup<F>) {
    let version = |id: &str, version: u64, text: &str| {
        let mut message = note(id, text).with_order_key("a");
        message.version = Some(version);
        message
    };
    let source = MemorySource::new();
    let gap = Gap::Wait { time: Duration::from_secs(60), messages: 10 };
    let versioned = || {
        let versioned = Versioned::by_order_key().on_gap(gap);
        named(&setup, "c", &source).on("noted", write::<F>).versioned(versioned)
    };
    source.send(version("two", 2, "a:2"));
    run_until(versioned(), "it waits", async |seen| seen.gaps >= 1 && seen.in_hand == 0).await;
    setup.advance(Duration::from_secs(66)).await;
    run_until(versioned(), "it gives up", async |seen| seen.dead == 1 && seen.in_hand == 0).await;
    edit_first(&setup, version("two, edited", 2, "a:2 edited")).await;
    source.send(version("one", 1, "a:1"));
    run_until(versioned(), "both are applied", async |seen| {
        setup.advance(Duration::from_secs(6)).await;
        seen.handled == 2
    })
    .await;
    assert_eq!(F::effects(&setup.store).await, ["a:1", "a:2 edited"]);
}

async fn behind<F: EngineFixture>(setup: &Setup<F>, is_blocked: bool) {
    let source = MemorySource::new();
    let say = |id: &str, order: u64, text: &str, key: &str| {
        let body = json!({ "text": text, "order": order });
        Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(&body).unwrap().with_order_key(key)
    };
    let own = || named(setup, "c", &source).order_by(OrderBy::MessageKey).business_key(template("pay:{order}"));
    let global = || own().scope(Scope::Global).scope_was(Scope::Consumer);
    source.send(say("0", 7, "first", "another"));
    run_dry(own().on("noted", write::<F>), &source).await;
    let settled = async |_: &Snapshot| source.backlog() == 0;
    if is_blocked {
        source.send(say("1", 8, "one", "k"));
        run_until(global().on("noted", fails), "it is parked", async |seen| source.backlog() == 0 && seen.in_hand == 0)
            .await;
        source.send(say("2", 7, "two", "k"));
        run_until(global().on("noted", fails), "both are", async |seen| source.backlog() == 0 && seen.in_hand == 0)
            .await;
        assert_eq!(states(setup).await, [("1".to_owned(), RETRIES), ("2".to_owned(), BEHIND)]);
    } else {
        source.send(say("1", 8, "one", "k"));
        source.send(say("2", 7, "two", "k"));
    }
    let _ = settled;
    let seen = run_until(global().on("noted", write::<F>), "nothing is parked", async |seen| {
        setup.advance(Duration::from_secs(60)).await;
        source.backlog() == 0 && seen.in_hand == 0 && F::parked(&setup.store).await.is_empty()
    })
    .await;
    assert_eq!(effects(setup).await, ["first", "one", "two"], "{seen:?}");
}

pub(crate) async fn an_intent_that_reads_like_a_former_one_is_applied<F: EngineFixture>(setup: Setup<F>) {
    behind(&setup, false).await;
}

pub(crate) async fn an_intent_that_reads_like_a_former_one_waits_in_its_place<F: EngineFixture>(setup: Setup<F>) {
    behind(&setup, true).await;
}

/// What a person edits under its key is applied, bridge or not.
pub(crate) async fn an_edit_under_a_key_of_two_scopes_is_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let own = || named(&setup, "c", &source).retry(at_once(1));
    let global = || own().scope(Scope::Global).scope_was(Scope::Consumer);
    source.send(note("0", "z"));
    run_dry(own().on("noted", write::<F>), &source).await;
    source.send(note("1", "a"));
    run_dry(global().on("noted", fails::<F::Store>), &source).await;
    assert_eq!(only_parked(&setup).await.state, DEAD);
    edit_first(&setup, note("1", "a, edited")).await;
    deal_with_first(&setup, false).await;
    let mut looks = 0;
    run_until(global().on("noted", write::<F>), "a while", async |_| {
        setup.advance(Duration::from_secs(1)).await;
        looks += 1;
        looks > 100 || F::parked(&setup.store).await.is_empty()
    })
    .await;
    assert_eq!(effects(&setup).await, ["a, edited", "z"], "{:?}", F::parked(&setup.store).await);
}

/// Gives the first parked row another message, as an operator's edit does.
async fn edit_first<F: EngineFixture>(setup: &Setup<F>, message: Message) {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let row = tx.page(consumer, 0, 1).await.unwrap().remove(0);
    let with = Park {
        consumer,
        key: KeyStrategy::MessageId.key(&message, None).unwrap(),
        fingerprint: Fingerprinter::default().fingerprint(&message),
        message: Arc::new(message),
        owns_record: true,
        order_key: row.order_key.clone(),
        verdict: Verdict {
            waits: Waits::Person,
            class: row.class,
            cause: row.cause.clone(),
            reason: row.reason.clone(),
            attempts: row.attempts,
        },
    };
    assert_eq!(tx.supersede(row.row, &with, 1, "edited").await.unwrap(), Superseded::Done);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}
