//! Once a bridge is over: what the former scheme handled, and the store has forgotten since, is not applied again; and what
//! does not end a bridge.

use std::time::Duration;

use oncebox::horizon::{Consumers, Expiry};
use oncebox::identity::Binding;
use oncebox::memory::MemorySource;
use oncebox::{Clock, Consumer, ConsumerName, Ended, KeyStrategy, Message, Retry, Scope, Session, Store, Transaction};
use oncebox_testkit::store::Setup;

use super::rig::*;

fn template(text: &str) -> KeyStrategy {
    KeyStrategy::template(text).unwrap()
}

fn named<F: EngineFixture>(setup: &Setup<F>, source: &MemorySource) -> Consumer<F::Store, MemorySource> {
    let later = Retry::new().attempts(50).first(Duration::from_secs(30));
    Consumer::new("c", setup.store.clone(), source.clone()).retry(later).clock(setup.clock.clone())
}

async fn binding<F: EngineFixture>(setup: &Setup<F>) -> Binding {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let binding = tx.binding(consumer, false).await.unwrap();
    tx.rollback().await;
    binding.unwrap()
}

fn long_ago() -> Message {
    let mut message = note("1", "a");
    message.time = "2020-07-01T00:00:00Z".parse().unwrap();
    message
}

async fn scopes<F: EngineFixture>(setup: &Setup<F>, before: Scope, after: Scope) {
    let source = MemorySource::new();
    let one = |scope: &Scope| named(setup, &source).scope(scope.clone()).on("noted", write::<F>);
    source.send(long_ago());
    run_dry(one(&before), &source).await;
    let bridged = || one(&after).scope_was(before.clone());
    let mut young = note("2", "b");
    young.time = setup.clock.now();
    source.send(young);
    run_dry(bridged(), &source).await;
    let name = if before.is_global() { ConsumerName::global() } else { ConsumerName::new("c").unwrap() };
    forget_of(setup, &name, |consumer, before| Expiry::first(consumer, before, 10)).await;
    source.send(long_ago());
    let seen = run_dry(bridged(), &source).await;
    assert_eq!(binding(setup).await.was, None, "the bridge is over");
    assert_eq!(effects(setup).await, ["a", "b"], "{seen:?}");
}

pub(crate) async fn what_was_forgotten_before_a_change_to_global_keys_is_not_applied<F: EngineFixture>(
    setup: Setup<F>,
) {
    scopes(&setup, Scope::Consumer, Scope::Global).await;
}

pub(crate) async fn what_was_forgotten_before_a_change_to_own_keys_is_not_applied<F: EngineFixture>(setup: Setup<F>) {
    scopes(&setup, Scope::Global, Scope::Consumer).await;
}

/// Control: where only the key changes, the horizon is the same.
pub(crate) async fn what_was_forgotten_before_a_change_of_key_is_not_applied<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let one = || named(&setup, &source).on("noted", write::<F>);
    let bridged = || one().key(template("text:{text}")).key_was(KeyStrategy::MessageId);
    source.send(long_ago());
    run_dry(one(), &source).await;
    let mut young = note("2", "b");
    young.time = setup.clock.now();
    source.send(young);
    run_dry(bridged(), &source).await;
    forget(&setup, 10).await;
    source.send(long_ago());
    let seen = run_dry(bridged(), &source).await;
    assert_eq!((binding(&setup).await.was, seen.too_old, seen.handled), (None, 1, 0));
}

/// A checkpoint is no deletion: records from before it are there.
pub(crate) async fn a_checkpoint_ends_no_bridge<F: EngineFixture>(setup: Setup<F>) {
    let source = MemorySource::new();
    let by_id = || named(&setup, &source).on("noted", write::<F>);
    let bridged = || by_id().key(template("text:{text}")).key_was(KeyStrategy::MessageId);
    // Its broker tells no time: that of its arrival is taken.
    let arrives = || {
        let mut message = note("1", "a");
        message.time = setup.clock.now();
        message
    };
    source.send(arrives());
    run_dry(by_id(), &source).await;
    setup.advance(Duration::from_secs(1)).await;
    source.send(note("2", "b"));
    run_dry(bridged(), &source).await;
    setup.advance(Duration::from_secs(3 * 3600)).await;
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let now = tx.store_time().await.unwrap();
    assert!(tx.set_checkpoint(consumer, now - Duration::from_secs(3601)).await.unwrap());
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    source.send(arrives());
    let seen = run_dry(bridged(), &source).await;
    assert_eq!(effects(&setup).await, ["a", "b"], "{seen:?} {:?}", binding(&setup).await);
}
