//! What is remembered of a message, and given back to its duplicates.

use oncebox_core::outcome::RESULT_BYTES_MAX;
use oncebox_core::{Claim, ClaimRequest, Inbox, Outcome, OutcomeKind, Store, Transaction};

use crate::store::steps::{assert_duplicate, begin, claim, claim_and_commit, commit, consumer, look, request};
use crate::store::{Setup, StoreFixture};

/// Claims, records and commits.
async fn handle<S: Store>(store: &S, request: &ClaimRequest, outcome: Outcome) {
    let mut tx = begin(store).await;
    assert_eq!(claim(&mut tx, request).await, Claim::Fresh);
    record(&mut tx, request, outcome).await;
    commit(tx).await;
}

async fn record<T: Inbox>(tx: &mut T, request: &ClaimRequest, outcome: Outcome) {
    let outcomes = [(request.consumer, request.key.clone(), outcome)];
    tx.record(&outcomes).await.expect("the outcome of a claimed key can be recorded");
}

async fn stored<S: Store>(store: &S, request: &ClaimRequest) -> Outcome {
    match look(store, request).await {
        Claim::Duplicate(earlier) => earlier.outcome,
        other => panic!("expected a duplicate, got {other:?}"),
    }
}

/// A claim that commits with nothing recorded counts as applied: the common case writes one row and no more.
pub async fn a_claim_alone_counts_as_applied_with_no_result<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    claim_and_commit(&setup.store, &request).await;
    let outcome = stored(&setup.store, &request).await;
    assert_eq!(outcome, Outcome::applied());
    assert!(outcome.is_replayed());
}

/// A duplicate gets the first outcome, whatever it was, marked as replayed.
pub async fn every_kind_of_outcome_comes_back_marked_as_replayed<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let outcomes = [
        ("applied", Outcome::applied()),
        ("applied with a result", Outcome::applied().with_json(&42).expect("a number is JSON")),
        ("rejected", Outcome::rejected("the invoice is closed")),
        ("rejected without words", Outcome::of(OutcomeKind::Rejected)),
        ("already applied", Outcome::of(OutcomeKind::AlreadyApplied)),
        ("stale", Outcome::of(OutcomeKind::Stale)),
        ("parked", Outcome::of(OutcomeKind::Parked)),
    ];
    for (id, outcome) in outcomes {
        let request = request(consumer, id);
        handle(&setup.store, &request, outcome.clone()).await;
        let stored = stored(&setup.store, &request).await;
        assert_eq!(stored, outcome, "{id}");
        assert!(stored.is_replayed(), "{id}");
    }
}

/// A result is bytes, and comes back as the same bytes: none, very many, and those that text would not survive.
pub async fn a_result_comes_back_byte_for_byte<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let largest: Vec<u8> = every_byte.iter().copied().cycle().take(RESULT_BYTES_MAX).collect();
    let results = [
        ("empty", vec![]),
        ("nul", vec![0]),
        ("spaces", b" \t\n ".to_vec()),
        ("every", every_byte),
        ("largest", largest),
    ];
    for (id, result) in results {
        let request = request(consumer, id);
        let outcome = Outcome::from_stored(OutcomeKind::Applied, Some(result.into()));
        handle(&setup.store, &request, outcome.clone()).await;
        assert!(stored(&setup.store, &request).await == outcome, "the result `{id}` changed on its way");
    }
}

/// An outcome that is recorded twice in one transaction is the last one.
pub async fn the_last_recorded_outcome_counts<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    record(&mut tx, &request, Outcome::rejected("too early to tell")).await;
    record(&mut tx, &request, Outcome::applied()).await;
    commit(tx).await;
    assert_eq!(stored(&setup.store, &request).await, Outcome::applied());
}

/// What was recorded in a transaction that is rolled back is not found by the message's next run.
pub async fn an_outcome_rolls_back_with_its_claim<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tx = begin(&setup.store).await;
    claim(&mut tx, &request).await;
    record(&mut tx, &request, Outcome::rejected("never mind")).await;
    tx.rollback().await;
    assert_eq!(claim_and_commit(&setup.store, &request).await, Claim::Fresh);
    assert_eq!(stored(&setup.store, &request).await, Outcome::applied());
}

/// An outcome is never changed by a transaction that did not claim its key, and none is recorded for a key that nobody
/// claimed, whether the store answers with an error or with nothing.
pub async fn only_the_claiming_transaction_records_an_outcome<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    let (committed, unknown) = (request(consumer, "committed"), request(consumer, "unknown"));
    handle(&setup.store, &committed, Outcome::rejected("the first answer")).await;
    for request in [&committed, &unknown] {
        let mut tx = begin(&setup.store).await;
        let outcomes = [(request.consumer, request.key.clone(), Outcome::applied())];
        match tx.record(&outcomes).await {
            Ok(()) => drop(commit(tx).await),
            Err(_) => drop(tx.rollback().await),
        }
    }
    assert_eq!(stored(&setup.store, &committed).await, Outcome::rejected("the first answer"));
    assert_eq!(look(&setup.store, &unknown).await, Claim::Fresh);
    // Not even after seeing the key as a duplicate.
    let mut tx = begin(&setup.store).await;
    assert_duplicate(&claim(&mut tx, &committed).await);
    let outcomes = [(committed.consumer, committed.key.clone(), Outcome::applied())];
    match tx.record(&outcomes).await {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    assert_eq!(stored(&setup.store, &committed).await, Outcome::rejected("the first answer"));
}
