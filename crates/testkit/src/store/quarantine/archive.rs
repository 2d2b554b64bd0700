//! What is known of keys whose records are gone, and what a checkpoint forbids.

use std::time::Duration;

use oncebox_core::archive::{ArchiveSize, Archived, Archives, HASH_BYTES};
use oncebox_core::horizon::{Consumers, Expiry, RETENTION_MIN};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{Claim, Clock, ConsumerId, ConsumerName, Key, Store, StoreErrorKind, Timestamp, Transaction};

use super::history::let_retention_pass;
use super::steps::{dead, far_future, park, request};
use crate::store::steps::{assert_duplicate, assert_kind, begin, claim_and_commit, commit, consumer, key, look};
use crate::store::{Setup, StoreFixture};

/// One step of a pass that archives. Answers how many records it deleted.
async fn archive<S: QuarantineStore>(store: &S, consumer: ConsumerId, limit: usize) -> u64 {
    let mut tx = begin(store).await;
    let step = Expiry::first(consumer, far_future(), limit).archiving();
    let deleted = tx.expire(step).await.expect("records can expire").deleted;
    commit(tx).await;
    deleted
}

async fn archived<S: QuarantineStore>(store: &S, consumer: ConsumerId, texts: &[&str]) -> Vec<Option<Archived>> {
    let keys: Vec<Key> = texts.iter().map(|text| key(text)).collect();
    let mut tx = begin(store).await;
    let found = tx.archived(consumer, &keys).await.expect("the archive can be looked into");
    tx.rollback().await;
    found
}

async fn is_archived<S: QuarantineStore>(store: &S, consumer: ConsumerId, texts: &[&str]) -> Vec<bool> {
    archived(store, consumer, texts).await.into_iter().map(|found| found.is_some()).collect()
}

async fn size<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> ArchiveSize {
    let mut tx = begin(store).await;
    let size = tx.archive_size(consumer).await.expect("the archive can be measured");
    tx.rollback().await;
    size
}

/// A key whose record went is known by the archive, with the times between which it was handled; no other is.
pub async fn keys_of_records_that_went_are_archived<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for number in 0..25 {
        claim_and_commit(store, &request(ours, &number.to_string())).await;
    }
    claim_and_commit(store, &request(other, "elsewhere")).await;
    park(store, &[dead(ours, "parked")]).await;
    let_retention_pass(&setup).await;
    assert_eq!(is_archived(store, ours, &["0", "24"]).await, [false, false], "their records are there");
    while archive(store, ours, 10).await > 0 {}
    let all: Vec<String> = (0..25).map(|number| number.to_string()).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(is_archived(store, ours, &all).await, [true; 25]);
    assert_eq!(is_archived(store, ours, &["parked", "25", "elsewhere"]).await, [false; 3]);
    assert_eq!(is_archived(store, other, &["1", "elsewhere"]).await, [false; 2]);
    assert_eq!(look(store, &request(ours, "7")).await, Claim::Fresh, "the record itself is gone");
    let known = size(store, ours).await;
    assert_eq!((known.keys, known.bytes), (25, 25 * HASH_BYTES as u64));
    assert_eq!(size(store, other).await, ArchiveSize::default());
    let at = archived(store, ours, &["7"]).await[0].expect("it is archived");
    assert!(at.first_at <= at.last_at && known.oldest.is_some_and(|oldest| oldest <= at.first_at), "{at:?} {known:?}");
    let mut tx = begin(store).await;
    let horizon = tx.horizon(ours).await.expect("a horizon can be read").expect("records went");
    tx.rollback().await;
    assert!(at.last_at <= horizon, "what is archived was handled before the horizon");
}

/// A step that archives nothing leaves no trace of its keys.
pub async fn keys_are_archived_only_where_it_is_asked_for<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    claim_and_commit(store, &request(ours, "1")).await;
    let_retention_pass(&setup).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.expire(Expiry::first(ours, far_future(), 10)).await.expect("records can expire").deleted, 1);
    commit(tx).await;
    assert_eq!(is_archived(store, ours, &["1"]).await, [false]);
    assert_eq!(size(store, ours).await, ArchiveSize::default());
}

/// Record and archive change together: a step that rolled back leaves the record, and nothing in the archive.
pub async fn an_archive_that_rolled_back_never_was<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    claim_and_commit(store, &request(ours, "1")).await;
    let_retention_pass(&setup).await;
    let mut tx = begin(store).await;
    let step = Expiry::first(ours, far_future(), 10).archiving();
    assert_eq!(tx.expire(step).await.expect("records can expire").deleted, 1);
    let keys = [key("1")];
    let within = tx.archived(ours, &keys).await.expect("the archive can be looked into");
    assert!(within[0].is_some(), "in the same transaction, or a crash comes between");
    tx.rollback().await;
    assert_duplicate(&look(store, &request(ours, "1")).await);
    assert_eq!(is_archived(store, ours, &["1"]).await, [false]);
}

/// Whoever has global keys finds in the archive what went of the records that consumers share.
pub async fn shared_keys_are_archived_for_everyone<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let shared = store.consumer(&ConsumerName::global()).await.expect("there is an id for all");
    claim_and_commit(store, &request(shared, "1")).await;
    let_retention_pass(&setup).await;
    assert_eq!(archive(store, shared, 10).await, 1);
    assert_eq!(is_archived(store, ours, &["1", "2"]).await, [true, false]);
    assert_eq!(is_archived(store, shared, &["1", "2"]).await, [true, false]);
}

/// Blocks that are old as a whole go, a bounded number at a time; others stay.
pub async fn an_archive_is_shortened_in_steps<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for number in 0..5 {
        claim_and_commit(store, &request(ours, &number.to_string())).await;
    }
    claim_and_commit(store, &request(other, "1")).await;
    let_retention_pass(&setup).await;
    while archive(store, ours, 2).await > 0 {}
    assert_eq!(archive(store, other, 2).await, 1);
    let sweep = async |before, max| {
        let mut tx = begin(store).await;
        let swept = tx.sweep_archive(ours, before, max).await.expect("the archive can be shortened");
        commit(tx).await;
        swept
    };
    assert_eq!(sweep(Timestamp::UNIX_EPOCH, 10).await, 0);
    assert_eq!(sweep(far_future(), 2).await, 2);
    assert_eq!(size(store, ours).await.keys, 1, "two blocks of two went, one of one is left");
    let mut tx = begin(store).await;
    assert_eq!(tx.sweep_archive(ours, far_future(), 10).await.expect("the archive can be shortened"), 1);
    tx.rollback().await;
    assert_eq!(size(store, ours).await.keys, 1);
    assert_eq!(sweep(far_future(), 10).await, 1);
    assert_eq!((size(store, ours).await.keys, size(store, other).await.keys), (0, 1));
}

/// A checkpoint goes forward only, and whoever claims sees it as far as the horizon does not go beyond it.
pub async fn a_checkpoint_never_goes_back<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let_retention_pass(&setup).await;
    let now = setup.clock.now();
    let set = async |at| {
        let mut tx = begin(store).await;
        let is_set = tx.set_checkpoint(ours, at).await.expect("a checkpoint can be set");
        commit(tx).await;
        is_set
    };
    let seen = async |whose| {
        let mut tx = begin(store).await;
        let known = tx.consumers().await.expect("consumers can be listed");
        let horizon = tx.horizon(whose).await.expect("a horizon can be read");
        tx.rollback().await;
        let known = known.into_iter().find(|known| known.id == whose).expect("a registered consumer is listed");
        (known.checkpoint, known.horizon, horizon)
    };
    let at = |hours: u64| {
        let at = now - Duration::from_secs(hours * 3600);
        Timestamp::from_microsecond(at.as_microsecond()).expect("a time")
    };
    assert_eq!(seen(ours).await, (None, None, None));
    assert!(set(at(20)).await);
    assert_eq!(seen(ours).await, (Some(at(20)), None, Some(at(20))), "the horizon itself did not move");
    assert!(!set(at(21)).await, "a checkpoint went back");
    assert!(set(at(20)).await, "the same again is no step back");
    assert_eq!(seen(ours).await.0, Some(at(20)));
    assert!(set(at(2)).await);
    assert_eq!(seen(ours).await.2, Some(at(2)));
    assert_eq!(seen(other).await, (None, None, None));
    // Where consumers do not look, a checkpoint would be a promise that nobody keeps.
    let mut tx = begin(store).await;
    let young = now - RETENTION_MIN + Duration::from_secs(1);
    assert_kind(tx.set_checkpoint(ours, young).await, StoreErrorKind::Refused);
    tx.rollback().await;
    let mut tx = begin(store).await;
    assert!(tx.set_checkpoint(ours, at(1)).await.expect("a checkpoint can be set"));
    tx.rollback().await;
    assert_eq!(seen(ours).await.0, Some(at(2)), "what rolled back never was");
}
