//! The roles that operators need of a store, whose calls go wrong by a plan.

use std::time::Duration;

use oncebox_core::archive::{ArchiveSize, Archived, Archives};
use oncebox_core::audit::{Action, AuditEntry, Audits};
use oncebox_core::horizon::{Consumers, Expired, Expiry, KnownConsumer, OldRecords, SweepReceived};
use oncebox_core::identity::Binding;
use oncebox_core::parked::{LeasedPark, Park};
use oncebox_core::quarantine::{CauseCount, ParkedRow, Quarantine, QuarantineStore, Remembered, Superseded};
use oncebox_core::replay::{Hold, OnTheirWay, Replay, ReplayId, ReplaySpec, Replays};
use oncebox_core::{ConsumerId, Key, Store, StoreError, Timestamp};

use super::plan::Fault;
use super::store::{FaultyTx, injected, lost, on_transaction};

impl<S: QuarantineStore> Quarantine for FaultyTx<S> {
    async fn page(&mut self, consumer: ConsumerId, after: i64, limit: usize) -> Result<Vec<ParkedRow>, StoreError> {
        on_transaction!(self, "page", self.inner.page(consumer, after, limit))
    }

    async fn parked(&mut self, row: i64) -> Result<Option<ParkedRow>, StoreError> {
        on_transaction!(self, "parked", self.inner.parked(row))
    }

    async fn causes(&mut self, consumer: ConsumerId) -> Result<Vec<CauseCount>, StoreError> {
        on_transaction!(self, "causes", self.inner.causes(consumer))
    }

    async fn remembered(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Remembered>>, StoreError> {
        on_transaction!(self, "remembered", self.inner.remembered(consumer, keys))
    }

    async fn annotate(&mut self, rows: &[i64], note: Option<&str>) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "annotate", self.inner.annotate(rows, note))
    }

    async fn discard(&mut self, rows: &[i64], reason: &str) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "discard", self.inner.discard(rows, reason))
    }

    async fn revive(&mut self, rows: &[i64], replay: Option<ReplayId>) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "revive", self.inner.revive(rows, replay))
    }

    async fn take_in_hand(&mut self, row: i64) -> Result<Option<LeasedPark>, StoreError> {
        on_transaction!(self, "take-in-hand", self.inner.take_in_hand(row))
    }

    async fn supersede(&mut self, row: i64, with: &Park, link: i64, reason: &str) -> Result<Superseded, StoreError> {
        on_transaction!(self, "supersede", self.inner.supersede(row, with, link, reason))
    }
}

impl<S: QuarantineStore> Replays for FaultyTx<S> {
    async fn create_replay(&mut self, spec: &ReplaySpec) -> Result<ReplayId, StoreError> {
        on_transaction!(self, "create-replay", self.inner.create_replay(spec))
    }

    async fn replay(&mut self, id: ReplayId) -> Result<Option<Replay>, StoreError> {
        on_transaction!(self, "replay", self.inner.replay(id))
    }

    async fn replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        on_transaction!(self, "replays", self.inner.replays(consumer, limit))
    }

    async fn open_replays(&mut self, consumer: Option<ConsumerId>, limit: usize) -> Result<Vec<Replay>, StoreError> {
        on_transaction!(self, "open-replays", self.inner.open_replays(consumer, limit))
    }

    async fn hold_replay(&mut self, id: ReplayId, fence: Option<i32>, lease: Duration) -> Result<Hold, StoreError> {
        on_transaction!(self, "hold-replay", self.inner.hold_replay(id, fence, lease))
    }

    async fn let_go_replay(&mut self, id: ReplayId, fence: i32) -> Result<(), StoreError> {
        on_transaction!(self, "let-go-replay", self.inner.let_go_replay(id, fence))
    }

    async fn save_replay(&mut self, replay: &Replay) -> Result<(), StoreError> {
        on_transaction!(self, "save-replay", self.inner.save_replay(replay))
    }

    async fn on_their_way(&mut self, consumer: ConsumerId, id: ReplayId) -> Result<OnTheirWay, StoreError> {
        on_transaction!(self, "on-their-way", self.inner.on_their_way(consumer, id))
    }

    async fn sweep_replays(&mut self, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        on_transaction!(self, "sweep-replays", self.inner.sweep_replays(before, max))
    }
}

impl<S: QuarantineStore> Audits for FaultyTx<S> {
    async fn audit(&mut self, action: &Action) -> Result<i64, StoreError> {
        on_transaction!(self, "audit", self.inner.audit(action))
    }

    async fn audit_log(&mut self, before: Option<i64>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        on_transaction!(self, "audit-log", self.inner.audit_log(before, limit))
    }
}

impl<S: Store<Tx: Consumers>> Consumers for FaultyTx<S> {
    async fn consumers(&mut self) -> Result<Vec<KnownConsumer>, StoreError> {
        on_transaction!(self, "consumers", self.inner.consumers())
    }

    async fn horizon(&mut self, consumer: ConsumerId) -> Result<Option<Timestamp>, StoreError> {
        on_transaction!(self, "horizon", self.inner.horizon(consumer))
    }

    async fn raise_horizon(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<(), StoreError> {
        on_transaction!(self, "raise-horizon", self.inner.raise_horizon(consumer, at))
    }

    async fn binding(&mut self, consumer: ConsumerId, to_change: bool) -> Result<Option<Binding>, StoreError> {
        on_transaction!(self, "binding", self.inner.binding(consumer, to_change))
    }

    async fn set_binding(&mut self, consumer: ConsumerId, binding: &Binding) -> Result<(), StoreError> {
        on_transaction!(self, "set-binding", self.inner.set_binding(consumer, binding))
    }

    async fn store_time(&mut self) -> Result<Timestamp, StoreError> {
        on_transaction!(self, "store-time", self.inner.store_time())
    }

    async fn expire(&mut self, step: Expiry) -> Result<Expired, StoreError> {
        on_transaction!(self, "expire", self.inner.expire(step))
    }

    async fn old_records(&mut self, consumer: ConsumerId, older_than: Timestamp) -> Result<OldRecords, StoreError> {
        on_transaction!(self, "old-records", self.inner.old_records(consumer, older_than))
    }

    async fn has_records(&mut self, consumer: ConsumerId) -> Result<bool, StoreError> {
        on_transaction!(self, "has-records", self.inner.has_records(consumer))
    }

    async fn sweep_received(&mut self, sweep: SweepReceived<'_>) -> Result<u64, StoreError> {
        on_transaction!(self, "sweep-received", self.inner.sweep_received(sweep))
    }

    async fn set_checkpoint(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<bool, StoreError> {
        on_transaction!(self, "set-checkpoint", self.inner.set_checkpoint(consumer, at))
    }
}

impl<S: QuarantineStore> Archives for FaultyTx<S> {
    async fn archived(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Archived>>, StoreError> {
        on_transaction!(self, "archived", self.inner.archived(consumer, keys))
    }

    async fn archive_size(&mut self, consumer: ConsumerId) -> Result<ArchiveSize, StoreError> {
        on_transaction!(self, "archive-size", self.inner.archive_size(consumer))
    }

    async fn sweep_archive(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        on_transaction!(self, "sweep-archive", self.inner.sweep_archive(consumer, before, max))
    }
}
