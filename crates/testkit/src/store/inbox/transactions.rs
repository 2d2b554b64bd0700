//! The claim and the business share one fate.

use oncebox_core::{Claim, Ended, Session, Store, StoreErrorKind, Transaction};

use crate::store::steps::{
    LOCK_WAIT, assert_duplicate, begin, claim, claim_and_commit, commit, connect, consumer, look, request,
};
use crate::store::{Setup, StoreFixture};

/// A claim and what the handler wrote are durable together.
pub async fn business_writes_commit_with_the_claim<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    tx.alive().expect("a transaction in which nothing failed is alive");
    commit(tx).await;
    assert_eq!(F::effects(&setup.store).await, ["paid"]);
    assert_duplicate(&look(&setup.store, &request).await);
}

/// A claim and what the handler wrote are gone together.
pub async fn business_writes_roll_back_with_the_claim<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    F::write_effect(tx.db(), "before the claim").await.expect("an effect can be written");
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "after the claim").await.expect("an effect can be written");
    tx.rollback().await;
    assert!(F::effects(&setup.store).await.is_empty());
    assert_eq!(look(&setup.store, &request).await, Claim::Fresh);
}

/// A panicking handler drops its transaction, and nothing that it wrote stays.
pub async fn a_dropped_transaction_takes_its_business_writes_along<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    drop(tx);
    // The next transaction waits for the dropped one, so what it leaves is visible from here on.
    assert_eq!(claim_and_commit(&setup.store, &request).await, Claim::Fresh);
    assert!(F::effects(&setup.store).await.is_empty());
}

/// What an open transaction wrote is nobody else's business yet. Only where transactions run side by side.
pub async fn nothing_is_seen_before_the_commit<F: StoreFixture>(setup: Setup<F>) {
    if !setup.store.capabilities().concurrent {
        return;
    }
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    assert!(F::effects(&setup.store).await.is_empty());
    commit(tx).await;
    assert_eq!(F::effects(&setup.store).await, ["paid"]);
}

/// A lane keeps its connection: what comes back from a commit or a rollback serves the next transaction, untouched by
/// the last.
pub async fn a_session_that_came_back_serves_the_next_transaction<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let mut session = connect(&setup.store).await;
    for round in 0..3 {
        let (kept, returned) = (format!("kept {round}"), format!("returned {round}"));
        let mut tx = session.begin(LOCK_WAIT).await.expect("a connection that came back can begin");
        assert_eq!(claim(&mut tx, &request(consumer, &kept)).await, Claim::Fresh);
        F::write_effect(tx.db(), &kept).await.expect("an effect can be written");
        session = commit(tx).await;

        let mut tx = session.begin(LOCK_WAIT).await.expect("a connection that came back can begin");
        assert_eq!(claim(&mut tx, &request(consumer, &returned)).await, Claim::Fresh);
        F::write_effect(tx.db(), &returned).await.expect("an effect can be written");
        session = tx.rollback().await.expect("a sound connection comes back from a rollback");
    }
    drop(session);
    let mut effects = F::effects(&setup.store).await;
    effects.sort();
    assert_eq!(effects, ["kept 0", "kept 1", "kept 2"]);
}

/// A handler that ignores a failed statement does not get half of its transaction committed. Where an error aborts the
/// transaction, the commit says so instead of reporting a success that was none (trap 1).
pub async fn a_swallowed_error_never_parts_a_claim_from_its_effect<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    F::swallow_error(tx.db()).await;
    match tx.commit().await {
        Ended::Committed(_) => {
            assert!(!setup.store.capabilities().error_aborts, "a lost transaction was reported as committed");
            assert_eq!(F::effects(&setup.store).await, ["paid"]);
            assert_duplicate(&look(&setup.store, &request).await);
        }
        Ended::RolledBack { error, .. } => {
            assert_eq!(error.kind(), StoreErrorKind::TransactionLost, "{error}");
            assert!(F::effects(&setup.store).await.is_empty());
            assert_eq!(look(&setup.store, &request).await, Claim::Fresh);
        }
        Ended::Unknown { error, .. } => panic!("a swallowed error is no doubt: {error}"),
    }
}

/// The store reads its driver's error: a violated unique constraint is refused and named, so that a handler can mean
/// "already applied" by it; and the transaction can be rolled back and run again.
pub async fn a_violated_unique_constraint_is_told_by_its_name<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    F::insert_unique(tx.db(), "invoice-1").await.expect("a new key can be inserted");
    commit(tx).await;

    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    let failure = F::insert_unique(tx.db(), "invoice-1").await.expect_err("a key that is there is refused");
    let cause = failure.cause().expect("the fixture hands the driver's error on");
    let read = setup.store.read_error(cause).expect("a store reads its own driver's errors");
    assert_eq!(read.kind, StoreErrorKind::Refused);
    assert!(read.unique.as_deref().is_some_and(|name| !name.is_empty()), "got {read:?}");
    assert!(!read.reason.contains("invoice-1"), "the reason quotes a value: {}", read.reason);
    tx.rollback().await;

    let mut tx = begin(&setup.store).await;
    assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
    F::insert_unique(tx.db(), "invoice-2").await.expect("a new key can be inserted");
    commit(tx).await;
}

/// An error that is not the store's driver's is left to others to judge.
pub async fn an_error_of_someone_else_is_not_read<F: StoreFixture>(setup: Setup<F>) {
    assert_eq!(setup.store.read_error(&std::fmt::Error), None);
}

/// A transaction that was given up in the middle has changed nothing once its doubt is resolved, and its keys can be
/// claimed. Resolving again does no harm.
pub async fn an_abandoned_transaction_leaves_nothing_once_it_is_resolved<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    let doubt = tx.abandon();
    setup.store.resolve(&doubt).await.expect("a doubt can be resolved while the store is there");
    setup.store.resolve(&doubt).await.expect("a doubt can be resolved again");
    assert!(F::effects(&setup.store).await.is_empty());
    assert_eq!(claim_and_commit(&setup.store, &request).await, Claim::Fresh);
    setup.store.resolve(&doubt).await.expect("a doubt can be resolved late");
    assert_duplicate(&look(&setup.store, &request).await);
}

/// What was done since a mark is undone, a failed statement included; what was done before stays, and so does the mark.
pub async fn a_mark_is_come_back_to<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    F::write_effect(tx.db(), "before").await.expect("an effect can be written");
    tx.mark().await.expect("a mark can be set");
    for undone in ["first", "second"] {
        F::write_effect(tx.db(), undone).await.expect("an effect can be written");
        F::insert_unique(tx.db(), "once").await.expect("the key is free again");
        F::insert_unique(tx.db(), "once").await.expect_err("the key is taken");
        tx.back_to_mark().await.expect("a mark can be gone back to");
        tx.alive().expect("a transaction that went back is alive");
    }
    F::write_effect(tx.db(), "between").await.expect("an effect can be written");
    tx.mark().await.expect("a second mark can be set");
    F::write_effect(tx.db(), "third").await.expect("an effect can be written");
    tx.back_to_mark().await.expect("the second mark can be gone back to");
    F::write_effect(tx.db(), "after").await.expect("an effect can be written");
    commit(tx).await;
    let mut effects = F::effects(&setup.store).await;
    effects.sort_unstable();
    assert_eq!(effects, ["after", "before", "between"]);
    assert_duplicate(&look(&setup.store, &request).await);
}

/// A mark belongs to its transaction.
pub async fn a_mark_ends_with_its_transaction<F: StoreFixture>(setup: Setup<F>) {
    let mut tx = begin(&setup.store).await;
    tx.mark().await.expect("a mark can be set");
    F::write_effect(tx.db(), "kept").await.expect("an effect can be written");
    let session = commit(tx).await;
    let mut tx = session.begin(LOCK_WAIT).await.expect("a connection that came back can begin");
    F::write_effect(tx.db(), "lost").await.expect("an effect can be written");
    tx.back_to_mark().await.expect_err("there is no mark in this transaction");
    tx.rollback().await;
    assert_eq!(F::effects(&setup.store).await, ["kept"]);
}
