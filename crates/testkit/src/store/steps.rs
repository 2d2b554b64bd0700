//! The steps that cases are made of. Each panics where the store does not do what every case takes for granted.

use std::time::Duration;

use oncebox_core::{
    Claim, ClaimRequest, ConsumerId, ConsumerName, Ended, Fingerprint, Inbox, Key, Session, Store, StoreError,
    StoreErrorKind, Transaction,
};

/// Longer than any case holds a lock on purpose, even on a slow machine.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);

pub(crate) async fn connect<S: Store>(store: &S) -> S::Session {
    store.connect().await.expect("a store that is there can be connected to")
}

pub(crate) async fn begin<S: Store>(store: &S) -> S::Tx {
    connect(store).await.begin(LOCK_WAIT).await.expect("a fresh connection can begin a transaction")
}

pub(crate) async fn commit<T: Transaction>(tx: T) -> T::Session {
    match tx.commit().await {
        Ended::Committed(session) => session,
        Ended::RolledBack { error, .. } => panic!("a sound transaction was rolled back: {error}"),
        Ended::Unknown { error, .. } => panic!("nobody knows how a sound transaction ended: {error}"),
    }
}

pub(crate) async fn consumer<S: Store>(store: &S, name: &str) -> ConsumerId {
    let name = ConsumerName::new(name).expect("cases use sound names");
    store.consumer(&name).await.expect("a consumer can be registered")
}

pub(crate) fn key(id: &str) -> Key {
    Key::id(id).expect("cases use ids that are not empty")
}

pub(crate) fn fingerprint(hash: i64) -> Fingerprint {
    Fingerprint::from_stored(1, hash)
}

/// A request for the key of `id`, with a fingerprint that every request for it shares.
pub(crate) fn request(consumer: ConsumerId, id: &str) -> ClaimRequest {
    ClaimRequest { consumer, key: key(id), fingerprint: fingerprint(7), id_hash: None }
}

pub(crate) async fn claim<T: Inbox>(tx: &mut T, request: &ClaimRequest) -> Claim {
    let mut claims = tx.claim(std::slice::from_ref(request)).await.expect("a key can be claimed");
    assert_eq!(claims.len(), 1, "one request gets one answer");
    claims.remove(0)
}

/// Claims in a transaction of its own and commits it.
pub(crate) async fn claim_and_commit<S: Store>(store: &S, request: &ClaimRequest) -> Claim {
    let mut tx = begin(store).await;
    let answer = claim(&mut tx, request).await;
    commit(tx).await;
    answer
}

/// What a claim would be answered now; leaves nothing behind.
pub(crate) async fn look<S: Store>(store: &S, request: &ClaimRequest) -> Claim {
    let mut tx = begin(store).await;
    let answer = claim(&mut tx, request).await;
    tx.rollback().await;
    answer
}

#[track_caller]
pub(crate) fn assert_duplicate(claim: &Claim) {
    assert!(matches!(claim, Claim::Duplicate(_)), "expected a duplicate, got {claim:?}");
}

#[track_caller]
pub(crate) fn assert_kind<T>(result: Result<T, StoreError>, kind: StoreErrorKind) {
    match result {
        Ok(_) => panic!("expected an error of kind {kind:?}, and it succeeded"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}
