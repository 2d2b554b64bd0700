//! A consumer's name is bound to the way its keys are made.

use std::time::Duration;

use oncebox::consumer::RunError;
use oncebox::horizon::Consumers;
use oncebox::identity::{Binding, Scheme};
use oncebox::memory::MemorySource;
use oncebox::{Code, Consumer, ConsumerName, Content, Ended, KeyStrategy, OrderBy, Scope, Session, Store, Transaction};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::rig::*;

fn by_text() -> KeyStrategy {
    KeyStrategy::template("text:{text}").unwrap()
}

/// Consumer `c`, by message id.
fn by_id<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    consumer("c", &setup.store, source.clone()).on("noted", write::<F>)
}

/// Consumer `c`, by what its messages say.
fn changed<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    by_id(setup, source).key(by_text())
}

async fn binding<F: EngineFixture>(setup: &Setup<F>) -> Binding {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let binding = tx.binding(consumer, false).await.unwrap();
    tx.rollback().await;
    binding.unwrap()
}

async fn bind<F: EngineFixture>(setup: &Setup<F>, binding: &Binding) {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    tx.set_binding(consumer, binding).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

/// Runs it for nothing, and answers why it was refused.
async fn refused<F: EngineFixture>(consumer: Consumer<F::Store, MemorySource>) -> String {
    let checked = consumer.check_identity().await.unwrap_err();
    let error = consumer.run(std::future::pending()).await.unwrap_err();
    assert_eq!((error.code(), error.to_string()), (Code::IdentityChanged, checked.to_string()));
    error.to_string()
}

pub(crate) async fn another_key_under_one_name_is_refused_and_doubles_nothing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    run_dry(by_id(&setup, &source), &source).await;
    source.send(note("1", "a"));
    let says = refused::<F>(changed(&setup, &source)).await;
    assert!(says.contains("`message-id`") && says.contains("`text:{text}`") && says.contains("key_was"), "{says}");
    assert_eq!((effects(&setup).await, source.backlog()), (vec!["a".to_owned()], 1));
    // The message is still there, for who makes the right key.
    let seen = run_dry(by_id(&setup, &source), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (0, 1));
}

pub(crate) async fn a_change_that_names_the_former_key_doubles_nothing<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let all = || ["1", "2", "3"].map(|id| note(id, id));
    source.send_all(all());
    run_dry(by_id(&setup, &source), &source).await;
    let bridged = || changed(&setup, &source).key_was(KeyStrategy::MessageId);
    source.send_all(all());
    source.send_all([note("4", "4"), note("4", "4")]);
    let seen = run_dry(bridged(), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates + seen.business_duplicates), (1, 4));
    // Once more under the new key, and by the old deployment, which is rolled back to.
    source.send_all(all());
    source.send(note("4", "4"));
    run_dry(bridged(), &source).await;
    source.send_all(all());
    source.send_all([note("4", "4"), note("5", "5")]);
    run_dry(by_id(&setup, &source), &source).await;
    source.send(note("5", "5"));
    run_dry(bridged(), &source).await;
    assert_eq!(effects(&setup).await, ["1", "2", "3", "4", "5"]);
    refused::<F>(changed(&setup, &source)).await;
}

pub(crate) async fn old_and_new_deployment_side_by_side_double_nothing<F: EngineFixture>(setup: Setup<F>) {
    let (old_source, new_source) = (MemorySource::new(), MemorySource::new());
    let old = Running::start(by_id(&setup, &old_source));
    eventually("the old one has bound the name", async || by_id(&setup, &new_source).check_identity().await.is_ok())
        .await;
    old_source.send(note("first", "first"));
    eventually("the old one runs", async || old_source.backlog() == 0).await;
    let new = Running::start(changed(&setup, &new_source).key_was(KeyStrategy::MessageId));
    for n in 0..50 {
        let message = note(&n.to_string(), &n.to_string());
        old_source.send(message.clone());
        new_source.send(message);
    }
    eventually("both are done", async || old_source.backlog() == 0 && new_source.backlog() == 0).await;
    old.stop().await;
    new.stop().await;
    assert_eq!(effects(&setup).await.len(), 51);
}

pub(crate) async fn a_bridge_ends_when_the_horizon_is_past_the_former_key<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    run_dry(by_id(&setup, &source), &source).await;
    let bridged = || changed(&setup, &source).key_was(KeyStrategy::MessageId);
    source.send(note("2", "b"));
    run_dry(bridged(), &source).await;
    assert_eq!(binding(&setup).await.was.unwrap().scheme.key, "message-id");
    // The clock of databases is not the one that the bridge was dated by.
    let mut dated = binding(&setup).await;
    let seen_at = "2050-01-01T00:00:00Z".parse::<oncebox::Timestamp>().unwrap();
    dated.was.as_mut().unwrap().seen_at = seen_at.as_microsecond();
    bind(&setup, &dated).await;
    forget(&setup, 10).await;
    refused::<F>(changed(&setup, &source)).await;
    dated.was.as_mut().unwrap().seen_at = 0;
    bind(&setup, &dated).await;
    source.send(note("3", "c"));
    let seen = run_dry(changed(&setup, &source), &source).await;
    assert_eq!((seen.handled, binding(&setup).await.was), (1, None));
    refused::<F>(by_id(&setup, &source)).await;
    // What still names the former starts as well.
    source.send(note("3", "c"));
    assert_eq!(run_dry(bridged(), &source).await.transport_duplicates, 1);
}

pub(crate) async fn what_runs_notices_that_its_name_is_bound_to_something_else<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let runs = by_id(&setup, &source).bounds(|bounds| bounds.identity_look_every = Duration::ZERO);
    let rebound = eventually("the first is applied, and the name is bound anew", async || {
        if source.backlog() > 0 {
            return false;
        }
        bind(&setup, &Binding { scheme: Scheme::of_caller("other".to_owned()), was: None }).await;
        source.send(note("2", "b"));
        true
    });
    let (ended, ()) = tokio::join!(runs.run(std::future::pending()), rebound);
    let error = ended.unwrap_err();
    assert!(matches!(&error, RunError::Stopped { reason, .. } if reason.contains("`other`")), "{error}");
    assert_eq!((effects(&setup).await, source.backlog()), (vec!["a".to_owned()], 1));
}

pub(crate) async fn what_runs_with_the_former_key_keeps_the_bridge_up<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    run_dry(by_id(&setup, &source), &source).await;
    run_dry(changed(&setup, &source).key_was(KeyStrategy::MessageId), &source).await;
    let before = binding(&setup).await.was.unwrap().seen_at;
    setup.advance(Duration::from_secs(60)).await;
    let old = by_id(&setup, &source).bounds(|bounds| bounds.identity_look_every = Duration::ZERO);
    source.send(note("2", "b"));
    let old = Running::start(old);
    eventually("it ran", async || source.backlog() == 0).await;
    let started = binding(&setup).await.was.unwrap().seen_at;
    setup.advance(Duration::from_secs(60)).await;
    source.send(note("3", "c"));
    eventually("it ran", async || source.backlog() == 0).await;
    old.stop().await;
    let seen = binding(&setup).await.was.unwrap().seen_at;
    assert!(before < started && started < seen, "{before} {started} {seen}");
    assert_eq!(effects(&setup).await, ["a", "b", "c"]);
}

pub(crate) async fn what_was_parked_under_the_former_key_runs_once<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    let fails = |_: oncebox::Context<F::Store>, _: Note| async { Err::<oncebox::Outcome, _>(refuse()) };
    let failing = Consumer::new("c", setup.store.clone(), source.clone()).retry(at_once(1)).on("noted", fails);
    run_dry(failing, &source).await;
    assert_eq!(states(&setup).await, [("1".to_owned(), DEAD)]);
    let bridged = || changed(&setup, &source).key_was(KeyStrategy::MessageId);
    // It comes again while it is parked, and is revived then.
    source.send(note("1", "a"));
    let seen = run_dry(bridged(), &source).await;
    assert_eq!((seen.handled, seen.transport_duplicates), (0, 1));
    deal_with_first(&setup, false).await;
    let applied = async |_: &oncebox::consumer::Snapshot| F::parked(&setup.store).await.is_empty();
    run_until(bridged(), "it is applied", applied).await;
    source.send_all([note("1", "a"), note("1", "a")]);
    run_dry(bridged(), &source).await;
    source.send(note("1", "a"));
    run_dry(by_id(&setup, &source), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
}

pub(crate) async fn a_key_that_another_message_had_before_is_not_in_the_way<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    source.send(note("1", "a"));
    run_dry(by_id(&setup, &source), &source).await;
    // Its producer uses ids again: why the key is changed.
    source.send_all([note("1", "b"), note("1", "c"), note("1", "c"), note("1", "a")]);
    let bridged = changed(&setup, &source).key_was(KeyStrategy::MessageId);
    let seen = run_dry(bridged, &source).await;
    assert_eq!((seen.handled, seen.conflicts), (2, 0));
    assert_eq!(effects(&setup).await, ["a", "b", "c"]);
}

pub(crate) async fn another_order_or_scope_is_refused_unless_the_former_is_named<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let send = || source.send(note("1", "a").with_order_key("k"));
    send();
    run_dry(by_id(&setup, &source), &source).await;
    let ordered = || by_id(&setup, &source).order_by(OrderBy::MessageKey);
    assert!(refused::<F>(ordered()).await.contains("order_by_was = \"none\""));
    send();
    run_dry(ordered().order_was(OrderBy::Nothing), &source).await;
    send();
    run_dry(ordered(), &source).await;
    let tenant = || ordered().scope(Scope::Tenant("{text}".parse().unwrap()));
    refused::<F>(tenant()).await;
    send();
    run_dry(tenant().scope_was(Scope::Consumer), &source).await;
    assert_eq!(effects(&setup).await, ["a"]);
    // What the fingerprint covers may change at any time.
    let fewer = tenant().scope_was(Scope::Consumer).fingerprint(Content::only(["text"]));
    run_dry(fewer, &source).await;
    assert_eq!(binding(&setup).await.scheme.fingerprint, "only [\"text\"]");
}

pub(crate) async fn a_change_is_bridged_in_stored_mode<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let run = async |consumer: Consumer<F::Store, MemorySource>, handled: u64, found: u64| {
        let stored = consumer.stored();
        let stats = stored.stats();
        let done = eventually("everything that was stored is done", async || {
            let seen = stats.snapshot();
            seen.handled == handled && seen.transport_duplicates + seen.business_duplicates == found
        });
        in_real_time(&setup.clock, stored.run(done)).await.unwrap();
    };
    source.send_all([note("1", "1"), note("2", "2")]);
    run(by_id(&setup, &source), 2, 0).await;
    source.send_all([note("1", "1"), note("2", "2"), note("3", "3")]);
    run(changed(&setup, &source).key_was(KeyStrategy::MessageId), 1, 2).await;
    assert_eq!(effects(&setup).await, ["1", "2", "3"]);
    let error = changed(&setup, &source).stored().run(std::future::pending()).await.unwrap_err();
    assert_eq!(error.code(), Code::IdentityChanged);
}
