//! What a claim is answered.

use oncebox_core::{Claim, ClaimRequest, Conflict, Fingerprint, Inbox, Transaction};

use crate::store::steps::{
    assert_duplicate, begin, claim, claim_and_commit, commit, consumer, fingerprint, key, look, request,
};
use crate::store::{Setup, StoreFixture};

/// A key that nobody claimed is ours to claim.
pub async fn a_fresh_key_is_fresh<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    assert_eq!(claim_and_commit(&setup.store, &request(consumer, "a")).await, Claim::Fresh);
}

/// Once its transaction is committed, a key is a duplicate for everyone, for good.
pub async fn a_committed_key_is_a_duplicate<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let request = request(consumer, "a");
    claim_and_commit(&setup.store, &request).await;
    assert_duplicate(&claim_and_commit(&setup.store, &request).await);
    let other = setup.fixture.reopen(&setup.store).await;
    assert_duplicate(&claim_and_commit(&other, &request).await);
}

/// A claim whose transaction is rolled back leaves no trace: the message can still be handled.
pub async fn a_rolled_back_claim_never_was<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let request = request(consumer, "a");
    let mut tx = begin(&setup.store).await;
    assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
    tx.rollback().await;
    assert_eq!(claim_and_commit(&setup.store, &request).await, Claim::Fresh);
}

/// A transaction that is dropped, as a panicking task drops it, rolls back.
pub async fn a_dropped_transaction_rolls_back<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let request = request(consumer, "a");
    let mut tx = begin(&setup.store).await;
    assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
    drop(tx);
    assert_eq!(claim_and_commit(&setup.store, &request).await, Claim::Fresh);
}

/// A key that its own transaction took back can be claimed again, in it and after it; the others stay claimed.
pub async fn an_unclaimed_key_is_fresh_again<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let (kept, returned, again) =
        (request(consumer, "kept"), request(consumer, "returned"), request(consumer, "again"));
    let mut tx = begin(&setup.store).await;
    tx.claim(&[kept.clone(), returned.clone(), again.clone()]).await.expect("three keys can be claimed");
    tx.unclaim(&[(consumer, key("returned")), (consumer, key("again"))]).await.expect("claims can be taken back");
    assert_eq!(claim(&mut tx, &again).await, Claim::Fresh);
    commit(tx).await;
    assert_duplicate(&look(&setup.store, &kept).await);
    assert_eq!(look(&setup.store, &returned).await, Claim::Fresh);
    assert_duplicate(&look(&setup.store, &again).await);
}

/// Taking back a key that an earlier transaction committed does not make its message run again, whether the store
/// answers with an error or with nothing.
pub async fn unclaiming_leaves_what_others_committed<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let request = request(consumer, "a");
    claim_and_commit(&setup.store, &request).await;
    let mut tx = begin(&setup.store).await;
    assert_duplicate(&claim(&mut tx, &request).await);
    match tx.unclaim(&[(consumer, key("a"))]).await {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    assert_duplicate(&look(&setup.store, &request).await);
}

/// Another message under a known key is a conflict that names both fingerprints, and never a duplicate.
pub async fn a_conflict_is_told_apart_from_a_duplicate<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    // The extremes of the number must survive the store.
    for (id, stored, offered) in [("a", 1, 2), ("b", i64::MIN, i64::MAX), ("c", i64::MAX, -1), ("d", 0, i64::MIN)] {
        let (stored, offered) = (fingerprint(stored), fingerprint(offered));
        let first = ClaimRequest { fingerprint: stored, ..request(consumer, id) };
        let second = ClaimRequest { fingerprint: offered, ..request(consumer, id) };
        assert_eq!(claim_and_commit(&setup.store, &first).await, Claim::Fresh);
        let conflict = Claim::Conflict(Conflict { stored, offered });
        assert_eq!(claim_and_commit(&setup.store, &second).await, conflict);
        assert_duplicate(&look(&setup.store, &first).await);
    }
}

/// Fingerprints that were computed in different ways can't be compared, so a change of the way causes no conflicts.
pub async fn another_fingerprint_scheme_is_no_conflict<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let with =
        |scheme, hash| ClaimRequest { fingerprint: Fingerprint::from_stored(scheme, hash), ..request(consumer, "a") };
    assert_eq!(claim_and_commit(&setup.store, &with(i16::MIN, 1)).await, Claim::Fresh);
    assert_duplicate(&look(&setup.store, &with(i16::MAX, 2)).await);
    let same_scheme = look(&setup.store, &with(i16::MIN, 2)).await;
    assert!(matches!(same_scheme, Claim::Conflict(_)), "got {same_scheme:?}");
}

/// Answers come in the order of the requests, whatever order the store works in, and each is about its own key.
pub async fn a_batch_of_claims_is_answered_in_its_order<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    for id in ["b", "d", "f"] {
        claim_and_commit(&setup.store, &request(consumer, id)).await;
    }
    let conflict = ClaimRequest { fingerprint: fingerprint(8), ..request(consumer, "d") };
    let sorted = ["a", "b", "c", "d", "e", "f"];
    let unsorted = ["f", "a", "e", "b", "d", "c"];
    for order in [sorted, unsorted] {
        let requests = order.map(|id| if id == "d" { conflict.clone() } else { request(consumer, id) });
        let mut tx = begin(&setup.store).await;
        let claims = tx.claim(&requests).await.expect("a batch of keys can be claimed");
        tx.rollback().await;
        let kinds: Vec<&str> = claims.iter().map(kind).collect();
        let expected = order.map(|id| match id {
            "b" | "f" => "duplicate",
            "d" => "conflict",
            _ => "fresh",
        });
        assert_eq!(kinds, expected, "for {order:?}");
    }
}

fn kind(claim: &Claim) -> &'static str {
    match claim {
        Claim::Fresh => "fresh",
        Claim::Duplicate(_) => "duplicate",
        Claim::Conflict(_) => "conflict",
        _ => "undecided",
    }
}

/// No requests are no error, and the transaction goes on.
pub async fn an_empty_batch_is_answered_with_nothing<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let mut tx = begin(&setup.store).await;
    assert_eq!(tx.claim(&[]).await.expect("nothing can be claimed"), []);
    tx.record(&[]).await.expect("nothing can be recorded");
    tx.unclaim(&[]).await.expect("nothing can be taken back");
    assert_eq!(claim(&mut tx, &request(consumer, "a")).await, Claim::Fresh);
    commit(tx).await;
    assert_duplicate(&look(&setup.store, &request(consumer, "a")).await);
}

/// Each consumer keeps its own records: what one has handled, another has still to handle.
pub async fn one_key_in_two_consumers_is_two_records<F: StoreFixture>(setup: Setup<F>) {
    let billing = request(consumer(&setup.store, "billing").await, "a");
    let shipping = request(consumer(&setup.store, "shipping").await, "a");
    let mut tx = begin(&setup.store).await;
    let claims = tx.claim(&[billing.clone(), shipping.clone()]).await.expect("two keys can be claimed");
    assert_eq!(claims, [Claim::Fresh, Claim::Fresh]);
    tx.unclaim(&[(shipping.consumer, shipping.key.clone())]).await.expect("a claim can be taken back");
    commit(tx).await;
    assert_duplicate(&look(&setup.store, &billing).await);
    assert_eq!(look(&setup.store, &shipping).await, Claim::Fresh);
}

/// The short hash of the message id comes back with a duplicate, so that a second arrival and a second request can be
/// told apart.
pub async fn the_hash_of_the_message_id_is_kept<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    for (id, id_hash) in [("a", None), ("b", Some(0)), ("c", Some(i32::MIN)), ("d", Some(i32::MAX))] {
        let first = ClaimRequest { id_hash, ..request(consumer, id) };
        claim_and_commit(&setup.store, &first).await;
        let second = ClaimRequest { id_hash: Some(42), ..first };
        match look(&setup.store, &second).await {
            Claim::Duplicate(earlier) => assert_eq!(earlier.id_hash, id_hash, "for key {id}"),
            other => panic!("expected a duplicate, got {other:?}"),
        }
    }
}
