//! How a consumer tells messages apart, kept with its name.

use std::sync::Arc;

use oncebox_core::horizon::{Consumers, HorizonStore};
use oncebox_core::identity::{self, Before, Binding, Offer, Scheme};
use oncebox_core::{Code, ConsumerName, Timestamp, Transaction};

use crate::store::steps::*;
use crate::store::{Setup, StoreFixture};

fn bound(key: &str) -> Binding {
    Binding { scheme: Scheme::of_caller(key.to_owned()), was: None }
}

/// What is kept comes back as it was, to other processes too, and belongs to one name.
pub async fn a_binding_is_kept_with_its_consumer<F: StoreFixture<Store: HorizonStore>>(setup: Setup<F>) {
    let (one, other) = (consumer(&setup.store, "one").await, consumer(&setup.store, "other").await);
    let mut tx = begin(&setup.store).await;
    assert_eq!(tx.binding(one, true).await.expect("a look"), None, "a consumer is bound to nothing at first");
    let before = Before { scheme: Scheme::own_keys(), seen_at: 7 };
    let mut binding = bound("payment:{\"payment\"}'");
    binding.was = Some(before);
    binding.scheme.business = Some("order:{order_id}".to_owned());
    tx.set_binding(one, &bound("first")).await.expect("a binding");
    tx.set_binding(one, &binding).await.expect("another binding in its place");
    commit(tx).await;
    let reopened = setup.fixture.reopen(&setup.store).await;
    let mut tx = begin(&reopened).await;
    for to_change in [false, true] {
        assert_eq!(tx.binding(one, to_change).await.expect("a look"), Some(binding.clone()));
    }
    assert_eq!(tx.binding(other, false).await.expect("a look"), None);
    let listed = tx.consumers().await.expect("the list");
    let of = |id| listed.iter().find(|known| known.id == id).and_then(|known| known.binding.clone());
    assert_eq!((of(one), of(other)), (Some(binding), None));
    tx.rollback().await;
}

/// A start that fails binds nothing.
pub async fn a_binding_that_rolled_back_never_was<F: StoreFixture<Store: HorizonStore>>(setup: Setup<F>) {
    let one = consumer(&setup.store, "one").await;
    let mut tx = begin(&setup.store).await;
    tx.set_binding(one, &bound("first")).await.expect("a binding");
    commit(tx).await;
    let mut tx = begin(&setup.store).await;
    tx.set_binding(one, &bound("second")).await.expect("a binding");
    tx.rollback().await;
    let mut tx = begin(&setup.store).await;
    assert_eq!(tx.binding(one, false).await.expect("a look"), Some(bound("first")));
    tx.rollback().await;
}

/// Two starts at once: whoever reads to change waits for the other, and sees what it kept.
pub async fn of_two_that_change_a_binding_the_second_sees_the_first<F: StoreFixture<Store: HorizonStore>>(
    setup: Setup<F>,
) {
    let one = consumer(&setup.store, "one").await;
    // Before the other holds anything: a SQLite file has one writer, and opening it writes.
    let store = setup.fixture.reopen(&setup.store).await;
    let mut first = begin(&setup.store).await;
    assert_eq!(first.binding(one, true).await.expect("a look"), None);
    #[allow(clippy::disallowed_methods, reason = "awaited below")]
    let second = tokio::spawn(async move {
        let mut tx = begin(&store).await;
        let seen = tx.binding(one, true).await.expect("a look that waited");
        tx.rollback().await;
        seen
    });
    // Long enough for it to be waiting. Were it too short, the case would pass for nothing, and never fail for nothing.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    first.set_binding(one, &bound("first")).await.expect("a binding");
    commit(first).await;
    assert_eq!(second.await.expect("its task"), Some(bound("first")));
}

/// Of many starts with keys of their own one gets the name; the others are told so.
pub async fn a_name_is_bound_by_one_of_many_starts<F: StoreFixture<Store: HorizonStore>>(setup: Setup<F>) {
    let name = Arc::new(ConsumerName::new("one").expect("a name"));
    let mut starts = Vec::new();
    for n in 0..8 {
        let (store, name) = (setup.fixture.reopen(&setup.store).await, Arc::clone(&name));
        #[allow(clippy::disallowed_methods, reason = "awaited below")]
        starts.push(tokio::spawn(async move {
            let offer = Offer { scheme: Scheme::of_caller(format!("{n}")), was: None, legacy: None };
            identity::bind(&store, &name, &offer).await
        }));
    }
    let mut let_in = 0;
    for start in starts {
        match start.await.expect("its task") {
            Ok(_) => let_in += 1,
            Err(error) => assert_eq!(error.code(), Code::IdentityChanged, "{error}"),
        }
    }
    assert_eq!(let_in, 1);
}

/// A horizon that is raised goes forward only, is that of one consumer, and is no checkpoint.
pub async fn a_raised_horizon_never_goes_back<F: StoreFixture<Store: HorizonStore>>(setup: Setup<F>) {
    let (one, other) = (consumer(&setup.store, "one").await, consumer(&setup.store, "other").await);
    let at = |second| Timestamp::from_second(second).expect("a time");
    for (raised, expected) in [(at(2_000), at(2_000)), (at(1_000), at(2_000)), (at(3_000), at(3_000))] {
        let mut tx = begin(&setup.store).await;
        tx.raise_horizon(one, raised).await.expect("a horizon can be raised");
        commit(tx).await;
        let mut tx = begin(&setup.store).await;
        tx.raise_horizon(one, at(9_000)).await.expect("a horizon can be raised");
        tx.rollback().await;
        let mut tx = begin(&setup.store).await;
        assert_eq!(tx.horizon(one).await.expect("a horizon can be read"), Some(expected));
        assert_eq!(tx.horizon(other).await.expect("a horizon can be read"), None);
        let listed = tx.consumers().await.expect("the list");
        let known = listed.iter().find(|known| known.id == one).expect("it is known");
        assert_eq!((known.horizon, known.checkpoint), (Some(expected), None));
        tx.rollback().await;
    }
}
