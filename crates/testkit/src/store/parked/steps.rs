//! The steps that cases on parked messages are made of.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::parked::{
    Cause, LeasedPark, Park, ParkLease, ParkReceipt, ParkStore, Parking, PutBack, Verdict, Waits,
};
use oncebox_core::{Class, ConsumerId, Message, StoreError, Transaction};

use crate::clock::ManualClock;
use crate::store::steps::{begin, commit, fingerprint, key};

/// The lease in every case.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Long enough for a lease to be over.
pub(super) const LEASE_AND_MORE: Duration = Duration::from_secs(31);
/// Due at once.
pub(super) const NOW: Waits = Waits::Retry(Duration::ZERO);

/// A message that says `text`.
pub(super) fn message(text: &str) -> Message {
    Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())
}

pub(super) fn verdict(waits: Waits, attempts: u32) -> Verdict {
    let class = Some(Class::Transient);
    let reason = "the bank is closed".to_owned();
    Verdict { waits, class, cause: Cause::new(class, "noted", "bank-closed"), reason, attempts }
}

/// A message that says `text` and is found under it, due at once.
pub(super) fn parked(consumer: ConsumerId, text: &str) -> Park {
    Park {
        consumer,
        message: Arc::new(message(text)),
        key: key(text),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: None,
        verdict: verdict(NOW, 1),
    }
}

/// A message that says `text`, in its place among those of `order_key`.
pub(super) fn in_order(consumer: ConsumerId, order_key: &str, text: &str, waits: Waits) -> Park {
    let order_key = Some(order_key.to_owned());
    Park { order_key, verdict: verdict(waits, 1), ..parked(consumer, text) }
}

/// What a leased row says.
pub(super) fn text(leased: &LeasedPark) -> String {
    String::from_utf8_lossy(&leased.message.payload).into_owned()
}

pub(super) fn texts(leased: &[LeasedPark]) -> Vec<String> {
    leased.iter().map(text).collect()
}

pub(super) fn receipts(leased: &[LeasedPark]) -> Vec<ParkReceipt> {
    leased.iter().map(|leased| leased.receipt).collect()
}

/// Parks in a transaction of its own, and commits.
pub(super) async fn park<S: ParkStore>(store: &S, parks: &[Park]) -> Vec<bool> {
    let mut tx = begin(store).await;
    let added = tx.park(parks).await.expect("messages can be parked");
    commit(tx).await;
    assert_eq!(added.len(), parks.len(), "each message gets an answer");
    added
}

/// Parks what was not parked before.
pub(super) async fn add<S: ParkStore>(store: &S, parks: &[Park]) {
    let added = park(store, parks).await;
    assert!(added.iter().all(|added| *added), "{added:?}");
}

/// Leases as many as there are, and commits.
pub(super) async fn lease<S: ParkStore>(store: &S, consumer: ConsumerId) -> Vec<LeasedPark> {
    lease_up_to(store, consumer, 100).await
}

pub(super) async fn lease_up_to<S: ParkStore>(store: &S, consumer: ConsumerId, max: usize) -> Vec<LeasedPark> {
    let mut tx = begin(store).await;
    let request = ParkLease { consumer, max, lease: LEASE };
    let leased = tx.lease_parked(&request).await.expect("parked rows can be leased");
    commit(tx).await;
    leased
}

/// Ends rows and commits, or rolls back and returns why.
pub(super) async fn end<S: ParkStore>(store: &S, rows: &[ParkReceipt]) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    let done = tx.end_parked(rows).await;
    finish(tx, done).await
}

/// Puts one row back and commits, or rolls back and returns why.
pub(super) async fn put_back<S: ParkStore>(store: &S, row: ParkReceipt, verdict: Verdict) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    let done = tx.put_back(&[PutBack::new(row, verdict)]).await;
    finish(tx, done).await
}

/// The same for one that waits for a missing version, or did, with its order key of now.
pub(super) async fn put_back_under<S: ParkStore>(
    store: &S,
    row: ParkReceipt,
    verdict: Verdict,
    order_key: &str,
) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    let done = tx.put_back(&[PutBack::new(row, verdict).under(Some(order_key.to_owned()))]).await;
    finish(tx, done).await
}

async fn finish<T: Transaction>(tx: T, done: Result<(), StoreError>) -> Result<(), StoreError> {
    match done {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    done
}

pub(super) async fn release<S: ParkStore>(store: &S, rows: &[ParkReceipt], delay: Duration) {
    let mut tx = begin(store).await;
    tx.release_parked(rows, delay).await.expect("parked rows can be released");
    commit(tx).await;
}

pub(super) async fn extend<S: ParkStore>(store: &S, rows: &[ParkReceipt], lease: Duration) {
    let mut tx = begin(store).await;
    tx.extend_parked(rows, lease).await.expect("leases can be extended");
    commit(tx).await;
}

pub(super) async fn blocked<S: ParkStore>(store: &S, consumer: ConsumerId, order_keys: &[&str]) -> Vec<bool> {
    let mut tx = begin(store).await;
    let blocked = tx.is_blocked(consumer, order_keys).await.expect("order keys can be looked up");
    tx.rollback().await;
    blocked
}
