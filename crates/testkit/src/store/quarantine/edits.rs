//! A message that takes the place of another.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::parked::{Park, Waits};
use oncebox_core::quarantine::{Quarantine, QuarantineStore, Superseded};
use oncebox_core::{Claim, ConsumerName, Inbox, Outcome, OutcomeKind, Store};

use super::steps::{
    apply, dead, dead_in_order, lease, leased_texts, message, park, request, revive, rows, texts, waiting,
};
use crate::store::steps::{begin, claim, claim_and_commit, commit, consumer, fingerprint, key, look};
use crate::store::{Setup, StoreFixture};

/// What `park` becomes when its message says `text`, and is found under it.
fn edited(park: &Park, text: &str) -> Park {
    Park { message: Arc::new(message(text)), key: key(text), fingerprint: fingerprint(8), ..park.clone() }
}

async fn supersede<S: QuarantineStore>(store: &S, row: i64, with: &Park) -> Superseded {
    let mut tx = begin(store).await;
    let done = tx.supersede(row, with, 41, "superseded by 9").await.expect("a message can be replaced");
    commit(tx).await;
    done
}

async fn outcome<S: QuarantineStore>(store: &S, request: &oncebox_core::ClaimRequest) -> OutcomeKind {
    match look(store, request).await {
        Claim::Duplicate(earlier) => earlier.outcome.kind(),
        other => panic!("expected a record, found {other:?}"),
    }
}

/// An edited message stands in the place of the old one: same row, same order; the old one is answered, not run.
pub async fn an_edited_message_takes_the_place_of_the_old_one<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let parks = ["1", "2"].map(|text| dead_in_order(consumer, "a", text));
    let ids = park(store, &parks).await;
    let new = edited(&parks[0], "9");
    assert_eq!(supersede(store, ids[0], &new).await, Superseded::Done);
    let shown = rows(store, consumer).await;
    assert_eq!(texts(&shown), ["9", "2"]);
    assert_eq!((shown[0].row, &shown[0].key, shown[0].supersedes), (ids[0], &new.key, Some(41)));
    assert_eq!((&shown[0].message, shown[0].fingerprint), (&*new.message, fingerprint(8)));
    assert_eq!((shown[0].attempts, shown[0].owns_record), (2, true));
    assert_eq!(outcome(store, &request(consumer, "1")).await, OutcomeKind::Rejected);
    let renewed = oncebox_core::ClaimRequest { fingerprint: fingerprint(8), ..request(consumer, "9") };
    assert_eq!(outcome(store, &renewed).await, OutcomeKind::Parked);
    revive(store, &ids, None).await;
    let leased = lease(store, consumer).await;
    assert_eq!(leased_texts(&leased), ["9"], "it keeps its place before the second");
    assert!(apply(store, &leased[0], &key("9"), consumer).await);
    assert_eq!(outcome(store, &renewed).await, OutcomeKind::Applied);
}

/// An edit under the same key keeps the record, which carries the new content.
pub async fn an_edit_under_the_same_key_keeps_the_record<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let old = dead(consumer, "1");
    let ids = park(store, std::slice::from_ref(&old)).await;
    let new = Park { key: old.key.clone(), ..edited(&old, "9") };
    assert_eq!(supersede(store, ids[0], &new).await, Superseded::Done);
    let renewed = oncebox_core::ClaimRequest { fingerprint: fingerprint(8), ..request(consumer, "1") };
    assert_eq!(outcome(store, &renewed).await, OutcomeKind::Parked);
    assert!(matches!(look(store, &request(consumer, "1")).await, Claim::Conflict(_)), "the old content is another");
}

/// While another scope is bridged, a parked message has a record in both places, and both carry the new content: one that did not
/// would be a conflict for ever.
pub async fn an_edit_under_the_same_key_of_two_scopes_keeps_both_records<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let shared = store.consumer(&ConsumerName::global()).await.expect("shared records have an id");
    let old = dead(consumer, "1");
    let ids = park(store, std::slice::from_ref(&old)).await;
    let mut tx = begin(store).await;
    assert_eq!(claim(&mut tx, &request(shared, "1")).await, Claim::Fresh);
    let parked = (shared, old.key.clone(), Outcome::of(OutcomeKind::Parked));
    tx.record(&[parked]).await.expect("a claimed key can be recorded");
    commit(tx).await;
    let new = Park { key: old.key.clone(), ..edited(&old, "9") };
    assert_eq!(supersede(store, ids[0], &new).await, Superseded::Done);
    for owner in [consumer, shared] {
        let renewed = oncebox_core::ClaimRequest { fingerprint: fingerprint(8), ..request(owner, "1") };
        assert_eq!(outcome(store, &renewed).await, OutcomeKind::Parked);
        assert!(matches!(look(store, &request(owner, "1")).await, Claim::Conflict(_)), "the old content is another");
    }
}

/// An edit to a key that another message has changes nothing.
pub async fn an_edit_to_a_key_that_is_taken_changes_nothing<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    claim_and_commit(store, &request(consumer, "9")).await;
    let old = dead(consumer, "1");
    let ids = park(store, std::slice::from_ref(&old)).await;
    let before = rows(store, consumer).await;
    assert_eq!(supersede(store, ids[0], &edited(&old, "9")).await, Superseded::Taken);
    assert_eq!(rows(store, consumer).await, before);
    assert_eq!(outcome(store, &request(consumer, "1")).await, OutcomeKind::Parked);
}

/// Only a dead message is edited.
pub async fn a_message_that_is_not_dead_is_not_edited<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let old = waiting(dead(consumer, "1"), Waits::Retry(Duration::from_secs(60)));
    let ids = park(store, std::slice::from_ref(&old)).await;
    assert_eq!(supersede(store, ids[0], &edited(&old, "9")).await, Superseded::Refused);
    assert_eq!(supersede(store, ids[0] + 1000, &edited(&old, "9")).await, Superseded::Refused);
    assert_eq!(outcome(store, &request(consumer, "1")).await, OutcomeKind::Parked);
}
