//! The steps that cases on queues are made of.

use std::time::Duration;

use oncebox_core::queue::{
    Enqueue, Enqueued, HeldLane, HeldLanes, Keep, LaneRequest, LeaseRequest, Leased, QueueId, QueueSpec, QueueStore,
    QueueTx, RowReceipt,
};
use oncebox_core::{Clock, ConsumerName, Message, StoreError, Transaction};
use uuid::Uuid;

use crate::clock::ManualClock;
use crate::store::steps::{begin, commit};

/// The lease in every case, of rows and of lanes.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Long enough for a lease to be over.
pub(super) const LEASE_AND_MORE: Duration = Duration::from_secs(31);
/// How many lanes an ordered queue has in every case.
pub(super) const LANES: u16 = 8;

pub(super) fn unordered(name: &str) -> QueueSpec {
    QueueSpec { name: ConsumerName::new(name).expect("cases use sound names"), lanes: None }
}

pub(super) fn ordered(name: &str) -> QueueSpec {
    QueueSpec { lanes: Some(LANES), ..unordered(name) }
}

pub(super) async fn open<S: QueueStore>(store: &S, spec: &QueueSpec) -> QueueId {
    store.queue(spec).await.expect("a queue can be opened")
}

/// A message that says `text`.
pub(super) fn message(text: &str) -> Message {
    Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())
}

/// A message that says `text`, in its place among those of `order_key`.
pub(super) fn in_order(order_key: &str, text: &str) -> Message {
    message(text).with_order_key(order_key)
}

/// What a leased row says.
pub(super) fn text(leased: &Leased) -> String {
    String::from_utf8_lossy(&leased.message.payload).into_owned()
}

pub(super) fn texts(leased: &[Leased]) -> Vec<String> {
    leased.iter().map(text).collect()
}

pub(super) fn receipts(leased: &[Leased]) -> Vec<RowReceipt> {
    leased.iter().map(|leased| leased.receipt).collect()
}

/// Adds messages in a transaction of their own, each in its lane where the queue has lanes.
pub(super) async fn add<S: QueueStore>(store: &S, spec: &QueueSpec, messages: impl IntoIterator<Item = Message>) {
    let queue = open(store, spec).await;
    let rows: Vec<Enqueue> = (messages.into_iter())
        .map(|message| Enqueue { lane: spec.lane(message.order_key.as_deref()), message, once: None })
        .collect();
    let answers = enqueue(store, queue, &rows).await;
    assert!(answers.iter().all(|answer| *answer == Enqueued::Added), "{answers:?}");
    assert_eq!(answers.len(), rows.len(), "each message gets an answer");
}

pub(super) async fn enqueue<S: QueueStore>(store: &S, queue: QueueId, rows: &[Enqueue]) -> Vec<Enqueued> {
    let mut tx = begin(store).await;
    let answers = tx.enqueue(queue, rows).await.expect("messages can be enqueued");
    commit(tx).await;
    answers
}

/// Leases from a queue without order, and commits.
pub(super) async fn lease<S: QueueStore>(store: &S, queue: QueueId, max: usize) -> Vec<Leased> {
    lease_as(store, LeaseRequest { queue, max, lease: LEASE, lanes: None }).await
}

/// Leases from lanes, and commits.
pub(super) async fn lease_lanes<S: QueueStore>(store: &S, queue: QueueId, lanes: &[HeldLane]) -> Vec<Leased> {
    lease_as(store, LeaseRequest { queue, max: 100, lease: LEASE, lanes: Some(lanes.to_vec()) }).await
}

pub(super) async fn lease_as<S: QueueStore>(store: &S, request: LeaseRequest) -> Vec<Leased> {
    let mut tx = begin(store).await;
    let leased = tx.lease(&request).await.expect("rows can be leased");
    commit(tx).await;
    leased
}

/// Settles and commits, or rolls back and returns why.
pub(super) async fn settle<S: QueueStore>(store: &S, queue: QueueId, rows: &[RowReceipt]) -> Result<(), StoreError> {
    settle_and(store, queue, rows, Keep::Nothing).await
}

pub(super) async fn settle_and<S: QueueStore>(
    store: &S,
    queue: QueueId,
    rows: &[RowReceipt],
    keep: Keep,
) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    match tx.settle(queue, rows, keep).await {
        Ok(()) => drop(commit(tx).await),
        Err(error) => {
            tx.rollback().await;
            return Err(error);
        }
    }
    Ok(())
}

pub(super) async fn release<S: QueueStore>(store: &S, queue: QueueId, rows: &[RowReceipt], delay: Duration) {
    let mut tx = begin(store).await;
    tx.release(queue, rows, delay, Some("the case said so")).await.expect("rows can be released");
    commit(tx).await;
}

pub(super) async fn extend<S: QueueStore>(store: &S, queue: QueueId, rows: &[RowReceipt], lease: Duration) {
    let mut tx = begin(store).await;
    tx.extend(queue, rows, lease).await.expect("leases can be extended");
    commit(tx).await;
}

/// An owner of lanes; one per process.
pub(super) fn owner(clock: &ManualClock) -> Uuid {
    clock.id()
}

pub(super) async fn hold<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) -> HeldLanes {
    hold_as(store, LaneRequest { queue, owner, lease: LEASE, give_back: vec![] }).await
}

pub(super) async fn hold_as<S: QueueStore>(store: &S, request: LaneRequest) -> HeldLanes {
    let mut tx = begin(store).await;
    let held = tx.hold_lanes(&request).await.expect("lanes can be held");
    commit(tx).await;
    held
}
