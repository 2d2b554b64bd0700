//! Sources that live in the store settle in the message's own transaction. Others skip these cases.

use oncebox_core::{Ended, StoreErrorKind, Transaction};

use super::fixture::{Setup, SourceFixture, texts};

/// The message is gone when its transaction is committed, before the source hears of it.
pub async fn an_acknowledgement_commits_with_its_transaction<F: SourceFixture>(setup: Setup<F>) {
    if !setup.capabilities().settles_in_transaction {
        return;
    }
    setup.send(setup.messages(&["1"])).await;
    let got = setup.receive_all(1).await;
    let mut tx = setup.begin().await;
    setup.ack_in(&mut tx, &got).await.expect("a delivery can be settled in a transaction");
    assert!(matches!(tx.commit().await, Ended::Committed(_)), "a sound transaction commits");
    // The process dies here, before the acknowledgement proper.
    drop(got);
    setup.let_leases_end().await;
    setup.assert_nothing_comes().await;
}

/// A message whose transaction rolled back comes again.
pub async fn an_acknowledgement_rolls_back_with_its_transaction<F: SourceFixture>(setup: Setup<F>) {
    if !setup.capabilities().settles_in_transaction {
        return;
    }
    setup.send(setup.messages(&["1"])).await;
    let got = setup.receive_all(1).await;
    let mut tx = setup.begin().await;
    setup.ack_in(&mut tx, &got).await.expect("a delivery can be settled in a transaction");
    tx.rollback().await;
    drop(got);
    setup.let_leases_end().await;
    assert_eq!(texts(&setup.receive_all(1).await), ["1"]);
}

/// A delivery that was given to someone else meanwhile fences the transaction that would settle it, so that its effect
/// is not committed beside the new owner's.
pub async fn a_stale_acknowledgement_fences_its_transaction<F: SourceFixture>(setup: Setup<F>) {
    if !setup.capabilities().settles_in_transaction || setup.capabilities().lease.is_none() {
        return;
    }
    setup.send(setup.messages(&["1"])).await;
    let stale = setup.receive_all(1).await;
    setup.let_leases_end().await;
    let current = setup.receive_all(1).await;
    let mut tx = setup.begin().await;
    let error = setup.ack_in(&mut tx, &stale).await.expect_err("a stale delivery can't be settled");
    assert_eq!(error.kind(), StoreErrorKind::Fenced, "{error}");
    tx.rollback().await;
    setup.ack(current).await.expect("the present owner can acknowledge");
}
