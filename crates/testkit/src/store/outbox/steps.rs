//! The steps that cases on the outbox are made of.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::outbox::{AsideRow, Backlog, Fetch, KeepSent, Outbox, OutboxStore, SentReceipt, Unsent};
use oncebox_core::queue::{HeldLane, LaneRequest, QueueStore, QueueTx};
use oncebox_core::{Clock, Message, MessageId, Outgoing, StoreError, Transaction};

use crate::clock::ManualClock;
use crate::store::steps::{begin, commit};

/// The lease of lanes in every case.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Long enough for a lease to be over.
pub(super) const LEASE_AND_MORE: Duration = Duration::from_secs(31);
/// More than most cases have.
pub(super) const ALL: usize = 1000;

/// A message for `topic` that says `text`, which is its id as well.
pub(super) fn outgoing(topic: &str, text: &str) -> Outgoing {
    let message = Message::made_by(&ManualClock::new(), "noted")
        .with_id(MessageId::new(text).expect("cases use ids that are not empty"))
        .with_payload(text.to_owned());
    Outgoing { topic: topic.to_owned(), message: message.into() }
}

/// The same in its place among those of `order_key`.
pub(super) fn in_order(topic: &str, order_key: &str, text: &str) -> Outgoing {
    let Outgoing { topic, message } = outgoing(topic, text);
    let message = Message::clone(&message).with_order_key(order_key);
    Outgoing { topic, message: message.into() }
}

/// Emits in a transaction of its own, or rolls back and returns why.
pub(super) async fn try_emit<S: OutboxStore>(store: &S, rows: &[Outgoing]) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    end_or_roll_back(tx.emit(rows).await, tx).await
}

pub(super) async fn emit<S: OutboxStore>(store: &S, rows: &[Outgoing]) {
    try_emit(store, rows).await.expect("rows can be emitted");
}

async fn end_or_roll_back<T: Transaction>(done: Result<(), StoreError>, tx: T) -> Result<(), StoreError> {
    match done {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    done
}

/// Takes all lanes that are free, as a new relay does.
pub(super) async fn hold<S: QueueStore>(store: &S, clock: &ManualClock) -> Vec<HeldLane> {
    let queue = store.outbox().await.expect("the outbox can be opened");
    let mut tx = begin(store).await;
    let request = LaneRequest { queue, owner: clock.id(), lease: LEASE, give_back: vec![] };
    let held = tx.hold_lanes(&request).await.expect("lanes can be held");
    commit(tx).await;
    held.lanes
}

pub(super) async fn fetch<S: OutboxStore>(store: &S, lanes: &[HeldLane], max: usize) -> Vec<Unsent> {
    fetch_without(store, lanes, max, &[]).await
}

pub(super) async fn fetch_without<S: OutboxStore>(
    store: &S,
    lanes: &[HeldLane],
    max: usize,
    without: &[String],
) -> Vec<Unsent> {
    fetch_by(store, Fetch { lanes, max, without, after: &BTreeMap::new() }).await
}

pub(super) async fn fetch_by<S: OutboxStore>(store: &S, fetch: Fetch<'_>) -> Vec<Unsent> {
    let mut tx = begin(store).await;
    let fetched = tx.fetch_unsent(fetch).await.expect("rows can be fetched").rows;
    commit(tx).await;
    fetched
}

/// What a fetch of everything says.
pub(super) async fn fetch_texts<S: OutboxStore>(store: &S, lanes: &[HeldLane]) -> Vec<String> {
    texts(&fetch(store, lanes, ALL).await)
}

pub(super) fn texts(rows: &[Unsent]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(&row.outgoing.message.payload).into_owned()).collect()
}

pub(super) fn receipts(rows: &[Unsent]) -> Vec<SentReceipt> {
    rows.iter().map(|row| row.receipt).collect()
}

/// The receipt of the row that says `text`.
pub(super) fn receipt(rows: &[Unsent], text: &str) -> SentReceipt {
    let found = rows.iter().find(|row| row.outgoing.message.payload == text.as_bytes());
    found.expect("the row was fetched").receipt
}

/// Ends rows and commits, or rolls back and returns why.
pub(super) async fn end<S: OutboxStore>(store: &S, rows: &[SentReceipt]) -> Result<(), StoreError> {
    end_and(store, rows, KeepSent::Nothing).await
}

pub(super) async fn end_and<S: OutboxStore>(store: &S, rows: &[SentReceipt], keep: KeepSent) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    end_or_roll_back(tx.end_sent(rows, keep).await, tx).await
}

/// Sets a row aside and commits, or rolls back and returns why.
pub(super) async fn set_aside<S: OutboxStore>(store: &S, row: SentReceipt, reason: &str) -> Result<(), StoreError> {
    let mut tx = begin(store).await;
    end_or_roll_back(tx.set_unsent_aside(&[(row, reason.to_owned())]).await, tx).await
}

/// Fetches everything and sets the row aside that says `text`. Returns its number.
pub(super) async fn refuse<S: OutboxStore>(store: &S, lanes: &[HeldLane], text: &str) -> i64 {
    let receipt = receipt(&fetch(store, lanes, ALL).await, text);
    set_aside(store, receipt, "too large").await.expect("a row of ours can be set aside");
    receipt.row
}

pub(super) async fn aside<S: OutboxStore>(store: &S) -> Vec<AsideRow> {
    let mut tx = begin(store).await;
    let rows = tx.page_aside(0, ALL).await.expect("what is set aside can be read");
    tx.rollback().await;
    rows
}

pub(super) async fn retry<S: OutboxStore>(store: &S, rows: &[i64]) -> Vec<bool> {
    let mut tx = begin(store).await;
    let answers = tx.retry_aside(rows).await.expect("rows can be tried again");
    commit(tx).await;
    answers
}

pub(super) async fn skip<S: OutboxStore>(store: &S, rows: &[i64]) -> Vec<bool> {
    let mut tx = begin(store).await;
    let answers = tx.skip_aside(rows).await.expect("rows can be skipped");
    commit(tx).await;
    answers
}

pub(super) async fn backlog<S: OutboxStore>(store: &S) -> Backlog {
    let mut tx = begin(store).await;
    let backlog = tx.outbox_backlog().await.expect("the outbox can be counted");
    tx.rollback().await;
    backlog
}

/// Fetches and ends, `max` rows at a time, until nothing comes any more. Returns what came, in order.
pub(super) async fn drain<S: OutboxStore>(store: &S, lanes: &[HeldLane], max: usize) -> Vec<String> {
    let mut came = Vec::new();
    loop {
        let rows = fetch(store, lanes, max).await;
        if rows.is_empty() {
            return came;
        }
        came.extend(texts(&rows));
        end(store, &receipts(&rows)).await.expect("rows of ours can be ended");
    }
}
