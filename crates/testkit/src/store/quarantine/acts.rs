//! What an operator does: discard and revive.

use std::time::Duration;

use oncebox_core::horizon::Consumers;
use oncebox_core::identity::{Binding, Scheme};
use oncebox_core::parked::{Park, Parking, Waits};
use oncebox_core::quarantine::{ParkedState, Quarantine, QuarantineStore};
use oncebox_core::{Claim, ConsumerName, Inbox, Outcome, OutcomeKind, Store, StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use super::steps::{
    apply, dead, dead_in_order, discard, fail, lease, leased_texts, park, request, revive, rows, waiting,
};
use crate::eventually::stays_pending;
use crate::store::steps::{assert_kind, begin, claim, commit, consumer, fingerprint, key, look};
use crate::store::{Setup, StoreFixture};

/// A discarded message is gone, and a redelivery of it is answered with the reason.
pub async fn a_discarded_message_is_rejected_for_its_duplicates<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &[dead(consumer, "1"), dead(consumer, "2")]).await;
    assert_eq!(discard(store, &[ids[0], ids[0] + 1000]).await, [true, false]);
    assert_eq!(discard(store, &[ids[0]]).await, [false], "it is gone");
    assert_eq!(rows(store, consumer).await.len(), 1);
    let Claim::Duplicate(earlier) = look(store, &request(consumer, "1")).await else { panic!("a duplicate would run") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Rejected);
    assert_eq!(earlier.outcome.result().map(|reason| &reason[..]), Some(&b"a test order"[..]));
    let Claim::Duplicate(other) = look(store, &request(consumer, "2")).await else { panic!("a duplicate would run") };
    assert_eq!(other.outcome.kind(), OutcomeKind::Parked);
}

/// A discarded conflict leaves the record of the message whose key it had.
pub async fn a_discarded_conflict_leaves_the_record<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let mut conflict = dead(consumer, "1");
    conflict.owns_record = false;
    conflict.fingerprint = fingerprint(8);
    let ids = park(store, &[dead(consumer, "1"), conflict]).await;
    assert_eq!(discard(store, &ids[1..]).await, [true]);
    let Claim::Duplicate(earlier) = look(store, &request(consumer, "1")).await else { panic!("a duplicate would run") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Parked);
}

/// A row that was parked before it had a record takes that along: else a redelivery would be answered with "parked" for
/// ever.
pub async fn a_discarded_row_takes_along_a_record_that_came_later<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let mut early = dead(consumer, "1");
    early.owns_record = false;
    let ids = park(store, &[early]).await;
    let mut tx = begin(store).await;
    let request = request(consumer, "1");
    assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
    let parked = (consumer, request.key.clone(), Outcome::of(OutcomeKind::Parked));
    tx.record(&[parked]).await.expect("a claimed key can be recorded");
    commit(tx).await;
    assert_eq!(discard(store, &ids).await, [true]);
    let Claim::Duplicate(earlier) = look(store, &request).await else { panic!("a duplicate would run") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Rejected);
}

/// While another scope is bridged, a parked message has a record in both places, and neither stays behind. One that belongs to
/// another consumer's row does.
pub async fn a_discarded_message_is_rejected_in_both_scopes<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (here, there) = (consumer(store, "invoices").await, consumer(store, "letters").await);
    let shared = store.consumer(&ConsumerName::global()).await.expect("shared records have an id");
    let ids = park(store, &[dead(here, "both"), dead(here, "mine")]).await;
    let other_content = Park { owns_record: false, fingerprint: fingerprint(8), ..dead(there, "both") };
    park(store, &[dead(there, "mine"), other_content]).await;
    let mut tx = begin(store).await;
    for text in ["both", "mine"] {
        let request = request(shared, text);
        assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
        let parked = (shared, request.key, Outcome::of(OutcomeKind::Parked));
        tx.record(&[parked]).await.expect("a claimed key can be recorded");
    }
    commit(tx).await;
    assert_eq!(discard(store, &ids).await, [true, true]);
    for (consumer, text, expected) in [
        (here, "both", OutcomeKind::Rejected),
        (shared, "both", OutcomeKind::Rejected),
        (here, "mine", OutcomeKind::Rejected),
        (shared, "mine", OutcomeKind::Parked),
    ] {
        let said = look(store, &request(consumer, text)).await;
        let Claim::Duplicate(earlier) = said else { panic!("a duplicate would run: {said:?}") };
        assert_eq!(earlier.outcome.kind(), expected, "{text}");
    }
}

/// A consumer that shares its keys with nobody leaves shared records alone: whoever parked one may have its row under another
/// key, while a change of key is bridged.
pub async fn a_shared_record_is_nothing_to_a_consumer_with_keys_of_its_own<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (here, there) = (consumer(store, "invoices").await, consumer(store, "letters").await);
    let shared = store.consumer(&ConsumerName::global()).await.expect("shared records have an id");
    let ids = park(store, &[dead(here, "a"), dead(here, "b")]).await;
    park(store, &[dead(there, "under another key")]).await;
    let mut tx = begin(store).await;
    let binding = Binding { scheme: Scheme::own_keys(), was: None };
    tx.set_binding(here, &binding).await.expect("a name can be bound");
    for text in ["a", "b"] {
        let request = request(shared, text);
        assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
        tx.record(&[(shared, request.key, Outcome::of(OutcomeKind::Parked))])
            .await
            .expect("a claimed key can be recorded");
    }
    commit(tx).await;
    assert_eq!(discard(store, &ids[..1]).await, [true]);
    assert_eq!(revive(store, &ids[1..2], None).await, [true]);
    let leased = lease(store, here).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.reclaim(&[(here, key("b"))]).await.expect("its own record can be reclaimed"), [true]);
    tx.end_parked(&[leased[0].receipt]).await.expect("a row that is done can be ended");
    commit(tx).await;
    for text in ["a", "b"] {
        let Claim::Duplicate(earlier) = look(store, &request(shared, text)).await else { panic!("{text} would run") };
        assert!(earlier.is_parked(), "{text}: {:?}", earlier.outcome);
    }
}

/// A message comes again while an operator discards it. Its record must not say parked of a row that goes: either it is parked
/// anew, or whoever parks it tries again.
pub async fn what_is_parked_again_during_a_discard_has_a_row<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let early = Park { owns_record: false, ..waiting(dead(consumer, "1"), Waits::Retry(Duration::from_secs(60))) };
    let ids = park(store, std::slice::from_ref(&early)).await;
    let mut operator = begin(store).await;
    // It waits for its next try, so nothing is revived, but its row is locked from here on.
    assert_eq!(operator.revive(&ids, None).await.expect("a row can be looked at"), [false]);
    let mut redelivered = JoinSet::new();
    let beside = store.clone();
    redelivered.spawn(async move {
        let mut tx = begin(&beside).await;
        let request = request(early.consumer, "1");
        assert_eq!(claim(&mut tx, &request).await, Claim::Fresh);
        let parked = (early.consumer, request.key, Outcome::of(OutcomeKind::Parked));
        tx.record(&[parked]).await.expect("a claimed key can be recorded");
        let added = tx.park(&[Park { owns_record: true, ..early }]).await;
        match added {
            Ok(_) => drop(commit(tx).await),
            Err(_) => drop(tx.rollback().await),
        }
        added
    });
    assert!(stays_pending(redelivered.join_next()).await, "it was parked while its row was held");
    assert_eq!(operator.discard(&ids, "a test order").await.expect("a row can be discarded"), [true]);
    commit(operator).await;
    match redelivered.join_all().await.remove(0) {
        Ok(added) => assert_eq!((added, rows(store, consumer).await.len()), (vec![true], 1)),
        Err(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Contended);
            assert_eq!(look(store, &super::steps::request(consumer, "1")).await, Claim::Fresh);
        }
    }
}

/// A discard whose transaction rolled back leaves the row and its record.
pub async fn a_discard_that_rolled_back_never_was<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &[dead(consumer, "1")]).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.discard(&ids, "never").await.expect("a row can be discarded"), [true]);
    tx.rollback().await;
    assert_eq!(rows(store, consumer).await.len(), 1);
    let Claim::Duplicate(earlier) = look(store, &request(consumer, "1")).await else { panic!("a duplicate would run") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Parked);
}

/// A runner that leased a message before it was discarded can't apply it any more.
pub async fn a_discard_fences_off_whoever_leased_the_row<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &[waiting(dead(consumer, "1"), Waits::Retry(Duration::ZERO))]).await;
    let leased = lease(store, consumer).await;
    assert_eq!(discard(store, &ids).await, [true]);
    let mut tx = begin(store).await;
    assert_eq!(tx.reclaim(&[(consumer, key("1"))]).await.expect("a key can be reclaimed"), [false]);
    assert_kind(tx.end_parked(&[leased[0].receipt]).await, StoreErrorKind::Fenced);
    tx.rollback().await;
}

/// A message that a handler is just applying is passed over, not waited for. Where transactions run one at a time,
/// nobody can look while it does.
pub async fn a_message_in_a_handler_is_passed_over<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    if !store.capabilities().concurrent {
        return;
    }
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &[waiting(dead(consumer, "1"), Waits::Retry(Duration::ZERO)), dead(consumer, "2")]).await;
    let leased = lease(store, consumer).await;
    let mut runner = begin(store).await;
    assert_eq!(runner.reclaim(&[(consumer, key("1"))]).await.expect("a key can be reclaimed"), [true]);
    assert_eq!(discard(store, &ids).await, [false, true], "the handler's message was touched");
    runner.end_parked(&[leased[0].receipt]).await.expect("a row in hand can be ended");
    commit(runner).await;
    let Claim::Duplicate(earlier) = look(store, &request(consumer, "1")).await else { panic!("a duplicate would run") };
    assert_eq!(earlier.outcome.kind(), OutcomeKind::Applied);
}

/// What leases found to be behind a dead message comes when that is discarded.
pub async fn a_discard_lets_the_next_of_its_order_key_go<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let behind = |text: &str| waiting(dead_in_order(consumer, "a", text), Waits::Turn);
    let ids = park(store, &[dead_in_order(consumer, "a", "1"), behind("2"), behind("3")]).await;
    assert!(lease(store, consumer).await.is_empty());
    let mut tx = begin(store).await;
    assert_eq!(tx.discard(&ids[..1], "never").await.expect("a row can be discarded"), [true]);
    tx.rollback().await;
    assert!(lease(store, consumer).await.is_empty(), "that was rolled back");
    // One in the middle makes nobody the first.
    assert_eq!(discard(store, &ids[1..2]).await, [true]);
    assert!(lease(store, consumer).await.is_empty());
    assert_eq!(discard(store, &ids[..1]).await, [true]);
    assert_eq!(leased_texts(&lease(store, consumer).await), ["3"]);
}

/// A revived message is due at once and is applied like any other.
pub async fn a_revived_message_is_due_at_once<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &[dead(consumer, "1"), dead(consumer, "2")]).await;
    assert!(lease(store, consumer).await.is_empty(), "dead rows are not due");
    assert_eq!(revive(store, &ids[..1], None).await, [true]);
    assert_eq!(rows(store, consumer).await[0].state, ParkedState::Retrying);
    let leased = lease(store, consumer).await;
    assert_eq!(leased_texts(&leased), ["1"]);
    assert_eq!(leased[0].attempts, 2, "its past is kept");
    assert!(apply(store, &leased[0], &key("1"), consumer).await, "its record says that it is parked");
}

/// Only a dead row is revived; one that is due, in hand or gone is not.
pub async fn only_dead_messages_are_revived<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let later = waiting(dead(consumer, "2"), Waits::Retry(Duration::from_secs(60)));
    let ids = park(store, &[dead(consumer, "1"), later]).await;
    assert_eq!(revive(store, &[ids[0], ids[1], ids[1] + 1000], None).await, [true, false, false]);
    assert_eq!(revive(store, &ids[..1], None).await, [false], "it is due already");
    let leased = lease(store, consumer).await;
    assert_eq!(revive(store, &ids[..1], None).await, [false], "it is in hand");
    fail(store, &leased[0]).await;
    assert_eq!(revive(store, &ids[..1], None).await, [true], "it is dead again");
}

/// A dead row that is taken in hand can be ended or put back in the same transaction; rolled back, it never was.
pub async fn a_dead_message_is_taken_in_hand_within_a_transaction<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let later = waiting(dead(consumer, "2"), Waits::Retry(Duration::from_secs(60)));
    let ids = park(store, &[dead(consumer, "1"), later]).await;
    let before = rows(store, consumer).await;
    let mut tx = begin(store).await;
    for nothing in [ids[1], ids[1] + 1000] {
        assert!(tx.take_in_hand(nothing).await.expect("a row can be looked for").is_none(), "it is not dead");
    }
    let taken = tx.take_in_hand(ids[0]).await.expect("a row can be taken").expect("it is dead");
    assert_eq!((taken.receipt.row, taken.owns_record, taken.attempts), (ids[0], true, 2));
    assert_eq!(leased_texts(std::slice::from_ref(&taken)), ["1"]);
    assert!(tx.take_in_hand(ids[0]).await.expect("a row can be looked for").is_none(), "it is in hand");
    assert_eq!(tx.reclaim(&[(consumer, key("1"))]).await.expect("a key can be reclaimed"), [true]);
    tx.end_parked(&[taken.receipt]).await.expect("a row in hand can be ended");
    tx.rollback().await;
    assert_eq!(rows(store, consumer).await, before);
    assert!(lease(store, consumer).await.is_empty(), "it is due");
}

/// Revived messages keep the order of their key.
pub async fn revived_messages_keep_their_order<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let ids = park(store, &["1", "2"].map(|text| dead_in_order(consumer, "a", text))).await;
    revive(store, &ids[1..], None).await;
    assert!(lease(store, consumer).await.is_empty(), "the second overtook the first, which is dead");
    revive(store, &ids[..1], None).await;
    let first = lease(store, consumer).await;
    assert_eq!(leased_texts(&first), ["1"]);
    apply(store, &first[0], &key("1"), consumer).await;
    assert_eq!(leased_texts(&lease(store, consumer).await), ["2"]);
}

/// However many revive the same messages at once, each message is revived by one of them.
pub async fn a_message_revived_by_many_at_once_is_revived_once<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    const ROWS: usize = 50;
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let parks: Vec<_> = (0..ROWS).map(|n| dead(consumer, &format!("m{n}"))).collect();
    let ids = park(store, &parks).await;
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (store, ids) = (store.clone(), ids.clone());
        tasks.spawn(async move { revive(&store, &ids, None).await.into_iter().filter(|done| *done).count() });
    }
    let revived: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(revived, ROWS);
    assert_eq!(lease(store, consumer).await.len(), ROWS);
}
