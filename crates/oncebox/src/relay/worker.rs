//! One worker of a relay.
//!
//! ```text
//!  ┌─▶ one transaction: end what was confirmed · set aside what was refused · fetch what is unsent ──▶ publish ─┐
//!  └───────────────────────────────────────── confirmations ◀──────────────────────────────────────────────────┘
//! ```
//!
//! No transaction is open while it talks to the broker. Killed anywhere, it leaves rows that are unsent, and the next one
//! publishes them again under the same ids.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::crashpoint::crashpoint;
use oncebox_core::outbox::{KeepSent, Outbox, OutboxStore, SentReceipt, Unsent};
use oncebox_core::queue::HeldLane;
use oncebox_core::{Outgoing, Sink, SinkError, SinkErrorKind, StoreError, StoreErrorKind, planted};
use tokio::time::Instant;

use super::pauses::{Cause, Failing};
use super::relay::Shared;
use super::rounds::{HeldUp, rounds};
use super::stats::RelayStats;
use crate::own_session::OwnSession;

/// How long a worker waits for a store that is away before it looks again.
const STORE_AWAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Settled {
    confirmed: Vec<SentReceipt>,
    refused: Vec<(SentReceipt, String)>,
}

impl Settled {
    fn is_empty(&self) -> bool {
        self.confirmed.is_empty() && self.refused.is_empty()
    }
}

/// A worker and what it has in hand.
pub(super) struct Worker<S: OutboxStore, K> {
    shared: Arc<Shared<S, K>>,
    number: usize,
    own: OwnSession<S>,
    settled: Settled,
    /// Lanes that it must not lose before what it has in hand is settled.
    in_hand: Vec<HeldLane>,
    idle: Duration,
    away: Duration,
    /// For the planted bug that goes by numbers.
    last_row: i64,
}

impl<S: OutboxStore, K: Sink> Worker<S, K> {
    pub(super) fn new(shared: Arc<Shared<S, K>>, number: usize) -> Self {
        Self {
            own: OwnSession::new(shared.store.clone()),
            shared,
            number,
            settled: Settled::default(),
            in_hand: Vec::new(),
            idle: Duration::ZERO,
            away: Duration::ZERO,
            last_row: 0,
        }
    }

    /// Runs until it is told to stop, and settles what it has in hand.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !shared.stop.is_set() {
            let lanes = shared.lanes.take(self.number, shared.bounds.workers);
            self.in_hand.extend(&lanes);
            let batch = self.step(&lanes, shared.bounds.batch_messages_max).await;
            match batch {
                Ok(batch) if batch.is_empty() => self.rest().await,
                Ok(batch) => {
                    self.idle = Duration::ZERO;
                    self.publish(&lanes, &batch).await;
                }
                Err(error) => self.wait_for_store(error).await,
            }
            if self.settled.is_empty() {
                shared.lanes.done(&std::mem::take(&mut self.in_hand));
            }
        }
        while !self.settled.is_empty() {
            if let Err(error) = self.step(&[], 0).await {
                if shared.failed.is_set() {
                    // Tried once more; what can't be noted as sent is published again by whoever comes next.
                    return;
                }
                self.wait_for_store(error).await;
            }
        }
    }

    /// Settles the last batch and fetches the next, in one transaction.
    async fn step(&mut self, lanes: &[HeldLane], max: usize) -> Result<Vec<Unsent>, StoreError> {
        if lanes.is_empty() && self.settled.is_empty() {
            return Ok(Vec::new());
        }
        let (shared, settled) = (Arc::clone(&self.shared), &self.settled);
        let without = shared.pauses.topics();
        let keep = shared.keep;
        let done = self
            .own
            .in_transaction(async |mut tx| {
                let fetched = settle_and_fetch(&mut tx, settled, keep, lanes, max, &without).await;
                (tx, fetched)
            })
            .await;
        match done {
            Ok(mut batch) => {
                self.store_is_back();
                RelayStats::add(&shared.stats.set_aside, self.settled.refused.len());
                self.settled = Settled::default();
                let _ = crashpoint("relay-ended").await;
                if planted::is("relay-by-cursor") {
                    batch.retain(|row| row.receipt.row > self.last_row);
                    self.last_row = batch.iter().map(|row| row.receipt.row).fold(self.last_row, i64::max);
                }
                Ok(batch)
            }
            // Their new owner publishes them again, under the same ids.
            Err(error) if error.kind() == StoreErrorKind::Fenced => {
                RelayStats::add(&shared.stats.lanes_lost, 1);
                tracing::debug!("lanes of the outbox have a new owner: {error}");
                self.settled = Settled::default();
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    async fn publish(&mut self, lanes: &[HeldLane], batch: &[Unsent]) {
        let shared = Arc::clone(&self.shared);
        if crashpoint("relay-fetched").await.is_err() || !shared.lanes.are_ours(lanes) {
            return;
        }
        RelayStats::add(&shared.stats.batches, 1);
        if planted::is("relay-deletes-first") {
            self.settled.confirmed = batch.iter().map(|row| row.receipt).collect();
            let _ = self.step(&[], 0).await;
        }
        let mut held_up = HeldUp::default();
        let by_prefix = shared.sink.capabilities().fails_by_prefix || planted::is("relay-in-one-round");
        for round in rounds(batch, by_prefix) {
            let rows: Vec<&Unsent> =
                round.into_iter().map(|place| &batch[place]).filter(|row| !held_up.holds(row)).collect();
            if rows.is_empty() {
                continue;
            }
            // Between two rounds the lanes may have gone.
            if !shared.lanes.are_ours(lanes) {
                break;
            }
            let outgoing: Vec<Outgoing> = rows.iter().map(|row| row.outgoing.clone()).collect();
            let answers = shared.sink.publish(&outgoing).await;
            let _ = crashpoint("relay-published").await;
            for (row, answer) in rows.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.settled.confirmed.push(row.receipt);
                        RelayStats::add(&shared.stats.published, 1);
                        shared.works(&row.outgoing.topic);
                    }
                    // A sink that confirms by prefix stops there by itself.
                    Err(_) if held_up.holds(row) => {}
                    Err(error) => {
                        held_up.by(row);
                        self.failed(row, error, &mut held_up);
                    }
                }
            }
        }
        let _ = crashpoint("relay-confirmed").await;
    }

    fn failed<'b>(&mut self, row: &'b Unsent, error: SinkError, held_up: &mut HeldUp<'b>) {
        let shared = Arc::clone(&self.shared);
        let topic = &row.outgoing.topic;
        match error.kind() {
            SinkErrorKind::Refused => {
                let label = row.outgoing.message.label().to_string();
                tracing::warn!(
                    topic,
                    "cannot publish message {label}; it is set aside until someone looks at it: {error}"
                );
                self.settled.refused.push((row.receipt, error.reason().to_owned()));
            }
            kind => {
                RelayStats::add(&shared.stats.failed, 1);
                held_up.by_topic(row);
                let cause = if kind == SinkErrorKind::Unavailable { Cause::Away } else { Cause::Own };
                if shared.pauses.failed(topic, cause) == Failing::New {
                    tracing::warn!(topic, "cannot publish to {topic}; its messages wait in the outbox: {error}");
                    shared.stats.set_waiting_for(Some(error.to_string()));
                }
            }
        }
    }

    /// Nothing to do: until something is emitted, lanes come, or it is time to look again.
    async fn rest(&mut self) {
        let shared = Arc::clone(&self.shared);
        let (first, last) = shared.bounds.poll;
        self.idle = (self.idle * 2).clamp(first, last);
        let wait = shared.pauses.next().map_or(self.idle, |next| next.min(self.idle)).max(Duration::from_millis(1));
        let started = Instant::now();
        tokio::select! {
            () = shared.stop.wait() => {}
            () = shared.store.emitted() => self.idle = Duration::ZERO,
            () = shared.lanes.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        tracing::trace!(worker = self.number, "rested for {:?}", started.elapsed());
    }

    fn store_is_back(&mut self) {
        if !self.away.is_zero() && self.shared.pauses.is_empty() {
            self.shared.stats.set_waiting_for(None);
        }
        self.away = Duration::ZERO;
    }

    async fn wait_for_store(&mut self, error: StoreError) {
        let shared = Arc::clone(&self.shared);
        let Some(error) = shared.failed.take(error) else {
            // All are told to stop, and nobody tries this again meanwhile.
            return shared.stop.wait().await;
        };
        if error.kind() == StoreErrorKind::Contended {
            tracing::debug!("others are in the way in the outbox: {error}");
            return tokio::time::sleep(STORE_AWAY.0).await;
        }
        if self.away.is_zero() {
            tracing::warn!("the outbox cannot be read; trying again: {error}");
        }
        self.away = (self.away * 2).clamp(STORE_AWAY.0, STORE_AWAY.1);
        shared.stats.set_waiting_for(Some(error.to_string()));
        tokio::select! {
            () = shared.stop.wait(), if !shared.stop.is_set() => {}
            () = tokio::time::sleep(self.away) => {}
        }
    }
}

async fn settle_and_fetch<T: Outbox>(
    tx: &mut T,
    settled: &Settled,
    keep: KeepSent,
    lanes: &[HeldLane],
    max: usize,
    without: &[String],
) -> Result<Vec<Unsent>, StoreError> {
    if !settled.confirmed.is_empty() {
        tx.end_sent(&settled.confirmed, keep).await?;
    }
    if !settled.refused.is_empty() {
        tx.set_unsent_aside(&settled.refused).await?;
    }
    if lanes.is_empty() || max == 0 { Ok(Vec::new()) } else { tx.fetch_unsent(lanes, max, without).await }
}
