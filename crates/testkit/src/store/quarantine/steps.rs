//! The steps that cases on the quarantine are made of.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::parked::{Cause, LeasedPark, Park, ParkLease, Parking, PutBack, Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::replay::{ReplayId, ReplaySpec};
use oncebox_core::{
    ClaimRequest, Class, Clock, ConsumerId, Inbox, Key, Message, MessageId, Outcome, OutcomeKind, Timestamp,
    Transaction,
};

use crate::clock::ManualClock;
use crate::store::steps::{begin, claim, commit, fingerprint, key};

/// The lease in every case.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Long enough for a lease to be over.
pub(super) const LEASE_AND_MORE: Duration = Duration::from_secs(31);

/// A message that says `text`, under the id `text`.
pub(super) fn message(text: &str) -> Message {
    let id = MessageId::new(text).expect("cases use sound ids");
    Message::made_by(&ManualClock::new(), "noted").with_id(id).with_payload(text.to_owned())
}

/// A dead message that says `text` and is found under it.
pub(super) fn dead(consumer: ConsumerId, text: &str) -> Park {
    let class = Some(Class::Permanent);
    let cause = Cause::new(class, "noted", "bank-closed");
    Park {
        consumer,
        message: Arc::new(message(text)),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: None,
        verdict: Verdict { waits: Waits::Person, class, cause, reason: "the bank is closed".to_owned(), attempts: 2 },
    }
}

/// The same, which later messages of `order_key` wait for.
pub(super) fn dead_in_order(consumer: ConsumerId, order_key: &str, text: &str) -> Park {
    Park { order_key: Some(order_key.to_owned()), ..dead(consumer, text) }
}

/// The same, and it waits for something else.
pub(super) fn waiting(park: Park, waits: Waits) -> Park {
    let verdict = Verdict { waits, ..park.verdict };
    Park { verdict, ..park }
}

pub(super) fn request(consumer: ConsumerId, text: &str) -> ClaimRequest {
    ClaimRequest { consumer, key: key(text), fingerprint: fingerprint(7), id_hash: None }
}

/// Parks messages as an engine does: each with its record, which says so. Answers with the rows.
pub(super) async fn park<S: QuarantineStore>(store: &S, parks: &[Park]) -> Vec<i64> {
    let mut tx = begin(store).await;
    for park in parks.iter().filter(|park| park.owns_record) {
        let Park { consumer, key, fingerprint, .. } = park.clone();
        claim(&mut tx, &ClaimRequest { consumer, key: key.clone(), fingerprint, id_hash: None }).await;
        let outcome = Outcome::of(OutcomeKind::Parked);
        tx.record(&[(consumer, key, outcome)]).await.expect("a claimed key can be recorded");
    }
    let added = tx.park(parks).await.expect("messages can be parked");
    assert!(added.iter().all(|added| *added), "{added:?}");
    commit(tx).await;
    let rows = rows(store, parks[0].consumer).await;
    rows[rows.len() - parks.len()..].iter().map(|row| row.row).collect()
}

/// All parked messages of a consumer.
pub(super) async fn rows<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> Vec<ParkedRow> {
    let mut tx = begin(store).await;
    let rows = tx.page(consumer, 0, 1000).await.expect("parked messages can be listed");
    tx.rollback().await;
    rows
}

pub(super) fn texts(rows: &[ParkedRow]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(&row.message.payload).into_owned()).collect()
}

pub(super) async fn discard<S: QuarantineStore>(store: &S, rows: &[i64]) -> Vec<bool> {
    let mut tx = begin(store).await;
    let done = tx.discard(rows, "a test order").await.expect("rows can be discarded");
    commit(tx).await;
    done
}

pub(super) async fn revive<S: QuarantineStore>(store: &S, rows: &[i64], replay: Option<ReplayId>) -> Vec<bool> {
    let mut tx = begin(store).await;
    let done = tx.revive(rows, replay).await.expect("rows can be revived");
    commit(tx).await;
    done
}

pub(super) async fn lease<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> Vec<LeasedPark> {
    let mut tx = begin(store).await;
    let request = ParkLease { consumer, max: 1000, lease: LEASE };
    let leased = tx.lease_parked(&request).await.expect("parked messages can be leased");
    commit(tx).await;
    leased
}

pub(super) fn leased_texts(leased: &[LeasedPark]) -> Vec<String> {
    leased.iter().map(|leased| String::from_utf8_lossy(&leased.message.payload).into_owned()).collect()
}

/// Applies what is in hand, as a runner does.
pub(super) async fn apply<S: QuarantineStore>(store: &S, leased: &LeasedPark, key: &Key, consumer: ConsumerId) -> bool {
    let mut tx = begin(store).await;
    let ours = tx.reclaim(&[(consumer, key.clone())]).await.expect("a key can be reclaimed")[0];
    tx.end_parked(&[leased.receipt]).await.expect("a row in hand can be ended");
    commit(tx).await;
    ours
}

/// Gives what is in hand a new verdict: dead again.
pub(super) async fn fail<S: QuarantineStore>(store: &S, leased: &LeasedPark) {
    let mut tx = begin(store).await;
    let verdict = dead(ConsumerId(0), "x").verdict;
    tx.put_back(&[PutBack::new(leased.receipt, verdict)]).await.expect("a row in hand can be put back");
    commit(tx).await;
}

pub(super) fn spec(consumer: ConsumerId) -> ReplaySpec {
    ReplaySpec {
        consumer,
        filter: "type = noted and \"ä\"".to_owned(),
        as_of: ManualClock::new().now(),
        until: 77,
        canary: 3,
        rate: Some(50),
        in_flight_max: 100,
        stop_permille: 100,
        force: true,
        who: "ada".to_owned(),
        why: "the bank is open again".to_owned(),
    }
}

/// Later than any record that a case makes.
pub(super) fn far_future() -> Timestamp {
    Timestamp::from_second(4_102_444_800).expect("the year 2100 is a time")
}
