//! One worker of a relay.
//!
//! ```text
//!  ┌─▶ one transaction: end what was confirmed · set aside what was refused · fetch what is unsent ──▶ publish ─┐
//!  └───────────────────────────────────────── confirmations ◀──────────────────────────────────────────────────┘
//! ```
//!
//! While there is more than one batch takes, that transaction runs beside the publishing of the batch before: it settles the
//! last but one and fetches the next. The next is published only after the one before was confirmed to the last row; if
//! anything was not, it is dropped unpublished and fetched again, because it may hold what must wait for that row.
//!
//! No transaction waits for the broker. Killed anywhere, it leaves rows that are unsent, and the next one publishes them
//! again under the same ids.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::crashpoint::crashpoint;
use oncebox_core::outbox::{Fetch, Fetched, KeepSent, Outbox, OutboxStore, Unsent};
use oncebox_core::queue::HeldLane;
use oncebox_core::{Sink, StoreError, StoreErrorKind, planted};
use tokio::time::Instant;

use super::publish::{Published, Settled, publish};
use super::relay::Shared;
use super::stats::RelayStats;
use crate::own_session::OwnSession;

/// How long a worker waits for a store that is away before it looks again.
const STORE_AWAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How many batches in a row are fetched ahead: so long a row that commits late waits, at most.
const AHEAD_MAX: usize = 15;

/// Rows to publish, and the lanes that they were fetched from.
struct Batch {
    lanes: Vec<HeldLane>,
    rows: Vec<Unsent>,
}

/// A worker and what it has in hand.
pub(super) struct Worker<S: OutboxStore, K> {
    shared: Arc<Shared<S, K>>,
    number: usize,
    own: OwnSession<S>,
    settled: Settled,
    /// Lanes that it must not lose before what it has in hand is settled.
    in_hand: Vec<HeldLane>,
    /// Batches that were fetched ahead, since it last looked from the beginning.
    ahead: usize,
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
            ahead: 0,
            idle: Duration::ZERO,
            away: Duration::ZERO,
            last_row: 0,
        }
    }

    /// Runs until it is told to stop, and settles what it has in hand.
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let mut ahead = None;
        while !shared.stop.is_set() {
            let batch = match ahead.take() {
                Some(batch) => Ok(batch),
                None => self.next(None).await,
            };
            match batch {
                Ok(batch) if batch.rows.is_empty() => self.rest().await,
                Ok(batch) => {
                    self.idle = Duration::ZERO;
                    ahead = self.publish(batch).await;
                }
                Err(error) => self.wait_for_store(error).await,
            }
            if self.settled.is_empty() && ahead.is_none() {
                self.keep(Vec::new());
            }
        }
        while !self.settled.is_empty() {
            if let Err(error) = self.step(&[], &[]).await {
                if shared.failed.is_set() {
                    // Tried once more; what can't be noted as sent is published again by whoever comes next.
                    return;
                }
                self.wait_for_store(error).await;
            }
        }
    }

    /// The next batch, beside the one that is being published; settles what there is to settle.
    async fn next(&mut self, publishing: Option<&Batch>) -> Result<Batch, StoreError> {
        let lanes = self.shared.lanes.take(self.number, self.shared.bounds.workers);
        self.in_hand.extend(&lanes);
        let rows = self.step(&lanes, publishing.map_or(&[], |batch| &batch.rows)).await?;
        // What was settled is out of hand, and with it lanes that others may want.
        self.keep(publishing.into_iter().flat_map(|batch| &batch.lanes).chain(&lanes).copied().collect());
        Ok(Batch { lanes, rows })
    }

    /// Settles what there is to settle and fetches what comes after what is `under_way`, in one transaction.
    async fn step(&mut self, lanes: &[HeldLane], under_way: &[Unsent]) -> Result<Vec<Unsent>, StoreError> {
        if lanes.is_empty() && self.settled.is_empty() {
            return Ok(Vec::new());
        }
        let (shared, settled) = (Arc::clone(&self.shared), &self.settled);
        let without = shared.pauses.topics();
        // Oldest first: of each lane, the last one stays.
        let after = under_way.iter().map(|row| (row.receipt.lane.lane, row.receipt.row)).collect();
        let fetch = Fetch { lanes, max: shared.bounds.batch_messages_max, without: &without, after: &after };
        let keep = shared.keep;
        let work = async |mut tx| {
            let fetched = settle_and_fetch(&mut tx, settled, keep, fetch).await;
            (tx, fetched)
        };
        // A look that found nothing has only read: an idle relay writes nothing. What it found is published once its commit
        // has waited for whatever commits wait for: a row that no standby has would be made again after a failover, under
        // another id.
        let is_worth_it = |fetched: &Fetched| fetched.noted || !settled.is_empty() || !fetched.rows.is_empty();
        let done = self.own.run(work, is_worth_it).await;
        match done {
            Ok(Fetched { rows: mut batch, .. }) => {
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

    /// Publishes a batch, and has the next one fetched meanwhile if there is more. Answers with that one, if it may go.
    async fn publish(&mut self, batch: Batch) -> Option<Batch> {
        let shared = Arc::clone(&self.shared);
        if crashpoint("relay-fetched").await.is_err() || !shared.lanes.are_ours(&batch.lanes) {
            return None;
        }
        RelayStats::add(&shared.stats.batches, 1);
        if planted::is("relay-deletes-first") {
            self.settled.confirmed = batch.rows.iter().map(|row| row.receipt).collect();
            let _ = self.step(&[], &[]).await;
        }
        let max = shared.bounds.batch_messages_max;
        let is_more = batch.rows.len() >= max - max / 4 && !shared.stop.is_set();
        // What commits late is before what is under way, and is found only by looking from the beginning.
        self.ahead = if is_more && self.ahead < AHEAD_MAX { self.ahead + 1 } else { 0 };
        let is_more = self.ahead > 0;
        let ahead = async { if is_more { Some(self.next(Some(&batch)).await) } else { None } };
        let (Published { settled, is_whole }, ahead) = tokio::join!(publish(&shared, &batch.lanes, &batch.rows), ahead);
        self.settled.add(settled);
        let _ = crashpoint("relay-confirmed").await;
        match ahead {
            Some(Ok(next)) if is_whole && !next.rows.is_empty() => Some(next),
            Some(Err(error)) => {
                self.wait_for_store(error).await;
                None
            }
            _ => None,
        }
    }

    /// Of the lanes in hand, only these are still needed.
    fn keep(&mut self, lanes: Vec<HeldLane>) {
        self.in_hand.retain(|held| lanes.iter().all(|kept| kept.lane != held.lane));
        self.shared.lanes.done(&self.in_hand);
        self.in_hand = lanes;
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
            tracing::warn!(code = %error.code(), "the outbox cannot be read; trying again: {error}");
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
    fetch: Fetch<'_>,
) -> Result<Fetched, StoreError> {
    if !settled.confirmed.is_empty() {
        tx.end_sent(&settled.confirmed, keep).await?;
    }
    if !settled.refused.is_empty() {
        tx.set_unsent_aside(&settled.refused).await?;
    }
    if fetch.lanes.is_empty() { Ok(Fetched::default()) } else { tx.fetch_unsent(fetch).await }
}
