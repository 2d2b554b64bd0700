//! How far back the consumers of a memory store remember, how their old records go, and what is archived of them.

use std::collections::{HashMap, HashSet};

use super::db::{MemoryDb, State};
use super::inbox::set_record;
use super::store::MemoryTx;
use crate::archive::{ArchiveSize, Archived, Archives, KeyHash, block, look};
use crate::error::StoreError;
use crate::horizon::{
    Consumers, Expired, Expiry, HELD_MAX, KnownConsumer, OldRecords, Place, SweepReceived, check_age, check_checkpoint,
};
use crate::identity::Binding;
use crate::key::Key;
use crate::outcome::OutcomeKind;
use crate::queue::QueueSpec;
use crate::store::{ConsumerId, ConsumerName};
use crate::time::Timestamp;

/// What is left of records that are gone.
#[derive(Debug, Default)]
pub(super) struct Horizons {
    newest_deleted: HashMap<ConsumerId, Timestamp>,
    checkpoints: HashMap<ConsumerId, Timestamp>,
    archive: Vec<Block>,
}

/// The keys of one step.
#[derive(Clone, Debug)]
struct Block {
    at: Archived,
    hashes: Vec<u8>,
}

/// One of the two times that are kept for each consumer.
type Times = fn(&mut Horizons) -> &mut HashMap<ConsumerId, Timestamp>;

fn set_time(db: &mut MemoryDb, times: Times, consumer: ConsumerId, at: Timestamp) {
    db.change(move |state| {
        let before = times(&mut state.horizons).insert(consumer, at);
        Box::new(move |state: &mut State| {
            let times = times(&mut state.horizons);
            match before {
                Some(before) => times.insert(consumer, before),
                None => times.remove(&consumer),
            };
        })
    });
}

impl Consumers for MemoryTx {
    async fn consumers(&mut self) -> Result<Vec<KnownConsumer>, StoreError> {
        let state = self.usable("list consumers")?.state();
        let known = |(name, id): (&String, &ConsumerId)| {
            let horizon = state.horizons.newest_deleted.get(id).copied();
            let checkpoint = state.horizons.checkpoints.get(id).copied();
            let binding = state.bindings.get(id).cloned();
            Some(KnownConsumer { id: *id, name: ConsumerName::from_stored(name)?, horizon, checkpoint, binding })
        };
        let mut consumers: Vec<KnownConsumer> = state.consumers.iter().filter_map(known).collect();
        consumers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(consumers)
    }

    async fn horizon(&mut self, consumer: ConsumerId) -> Result<Option<Timestamp>, StoreError> {
        let horizons = &self.usable("read a horizon")?.state().horizons;
        let (deleted, checkpoint) = (horizons.newest_deleted.get(&consumer), horizons.checkpoints.get(&consumer));
        Ok(deleted.max(checkpoint).copied())
    }

    async fn raise_horizon(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<(), StoreError> {
        let db = self.usable("raise a horizon")?;
        if db.state().horizons.newest_deleted.get(&consumer).is_none_or(|before| *before < at) {
            set_time(db, |horizons| &mut horizons.newest_deleted, consumer, at);
        }
        Ok(())
    }

    async fn binding(&mut self, consumer: ConsumerId, _to_change: bool) -> Result<Option<Binding>, StoreError> {
        Ok(self.usable("read how a consumer tells messages apart")?.state().bindings.get(&consumer).cloned())
    }

    async fn set_binding(&mut self, consumer: ConsumerId, binding: &Binding) -> Result<(), StoreError> {
        let (db, binding) = (self.usable("keep how a consumer tells messages apart")?, binding.clone());
        db.change(move |state| {
            let before = state.bindings.insert(consumer, binding);
            Box::new(move |state: &mut State| {
                match before {
                    Some(before) => state.bindings.insert(consumer, before),
                    None => state.bindings.remove(&consumer),
                };
            })
        });
        Ok(())
    }

    async fn store_time(&mut self) -> Result<Timestamp, StoreError> {
        Ok(self.store().clock().now())
    }

    async fn expire(&mut self, step: Expiry) -> Result<Expired, StoreError> {
        let Expiry { consumer, older_than, limit, archive, .. } = step;
        check_age(older_than, self.store().clock().now())?;
        let db = self.usable("delete old records")?;
        let state = db.state();
        let kept = parked_keys(state);
        let old = state.inbox.iter().filter(|((owner, key), record)| {
            let done = record.outcome.kind() != OutcomeKind::Parked;
            *owner == consumer && done && record.processed_at < older_than && !kept.contains(key)
        });
        let old: Vec<_> = old.take(limit).map(|(place, record)| (place.clone(), record.processed_at)).collect();
        let before = state.horizons.newest_deleted.get(&consumer).copied();
        let times = || old.iter().map(|(_, at)| *at);
        let horizon = times().chain(before).max();
        let deleted = old.len() as u64;
        if let (true, Some(first_at), Some(last_at)) = (archive, times().min(), times().max()) {
            let hashes = block(old.iter().map(|((_, key), _)| KeyHash::of(key)).collect());
            let added = Block { at: Archived { consumer, first_at, last_at }, hashes };
            db.change(move |state| {
                state.horizons.archive.push(added);
                Box::new(|state: &mut State| drop(state.horizons.archive.pop()))
            });
        }
        for (place, _) in old {
            set_record(db, place, None);
        }
        if let Some(horizon) = horizon {
            set_time(db, |horizons| &mut horizons.newest_deleted, consumer, horizon);
        }
        let next = (deleted == limit as u64).then(Place::default);
        Ok(Expired { deleted, horizon, next })
    }

    async fn old_records(&mut self, consumer: ConsumerId, older_than: Timestamp) -> Result<OldRecords, StoreError> {
        let state = self.usable("count old records")?.state();
        let kept = parked_keys(state);
        let mut found = OldRecords { counted: true, ..OldRecords::default() };
        for ((owner, key), record) in &state.inbox {
            if *owner != consumer || record.processed_at >= older_than {
                continue;
            }
            found.records += 1;
            found.held += u64::from(kept.contains(key) || record.outcome.kind() == OutcomeKind::Parked);
            let oldest = found.oldest.map_or(record.processed_at, |oldest| oldest.min(record.processed_at));
            found.oldest = Some(oldest);
        }
        found.held = found.held.min(HELD_MAX);
        Ok(found)
    }

    async fn has_records(&mut self, consumer: ConsumerId) -> Result<bool, StoreError> {
        let state = self.usable("look for records")?.state();
        Ok(state.inbox.keys().any(|(owner, _)| *owner == consumer))
    }

    async fn sweep_received(&mut self, sweep: SweepReceived<'_>) -> Result<u64, StoreError> {
        check_age(sweep.older_than, self.store().clock().now())?;
        let db = self.usable("remove processed messages")?;
        let queue = QueueSpec::received(sweep.name, false).name;
        let kept = parked_keys_of(db.state(), sweep.consumer);
        let old = db.state().queues.processed(queue.as_str(), sweep.older_than.as_microsecond(), &kept, sweep.limit);
        for row in &old {
            super::queue::forget(db, *row);
        }
        Ok(old.len() as u64)
    }

    async fn set_checkpoint(&mut self, consumer: ConsumerId, at: Timestamp) -> Result<bool, StoreError> {
        check_checkpoint(at, self.store().clock().now())?;
        let db = self.usable("set a checkpoint")?;
        if db.state().horizons.checkpoints.get(&consumer).is_some_and(|before| *before > at) {
            return Ok(false);
        }
        set_time(db, |horizons| &mut horizons.checkpoints, consumer, at);
        Ok(true)
    }
}

impl Archives for MemoryTx {
    async fn archived(&mut self, consumer: ConsumerId, keys: &[Key]) -> Result<Vec<Option<Archived>>, StoreError> {
        let state = self.usable("look into the archive")?.state();
        let hashes: Vec<KeyHash> = keys.iter().map(KeyHash::of).collect();
        let mut found = vec![None; keys.len()];
        let places = [Some(consumer), state.consumers.get("*").copied()];
        for place in places.into_iter().flatten() {
            for block in &state.horizons.archive {
                if block.at.consumer == place {
                    look(&mut found, &hashes, &block.hashes, block.at)?;
                }
            }
        }
        Ok(found)
    }

    async fn archive_size(&mut self, consumer: ConsumerId) -> Result<ArchiveSize, StoreError> {
        let state = self.usable("measure the archive")?.state();
        let mut size = ArchiveSize::default();
        for block in state.horizons.archive.iter().filter(|block| block.at.consumer == consumer) {
            size.keys += (block.hashes.len() / crate::archive::HASH_BYTES) as u64;
            size.bytes += block.hashes.len() as u64;
            size.oldest = Some(size.oldest.map_or(block.at.first_at, |oldest| oldest.min(block.at.first_at)));
        }
        Ok(size)
    }

    async fn sweep_archive(&mut self, consumer: ConsumerId, before: Timestamp, max: usize) -> Result<u64, StoreError> {
        let db = self.usable("shorten the archive")?;
        let all = db.state().horizons.archive.clone();
        let mut removed = 0;
        let mut is_kept = |block: &Block| {
            let goes = block.at.consumer == consumer && block.at.last_at < before && removed < max;
            removed += usize::from(goes);
            !goes
        };
        let left: Vec<Block> = all.iter().filter(|block| is_kept(block)).cloned().collect();
        db.change(move |state| {
            state.horizons.archive = left;
            Box::new(move |state: &mut State| state.horizons.archive = all)
        });
        Ok(removed as u64)
    }
}

/// A shared record may be that of any consumer's parked message.
fn parked_keys(state: &State) -> HashSet<&Key> {
    state.parked.rows.values().map(|row| &row.park.key).collect()
}

fn parked_keys_of(state: &State, consumer: ConsumerId) -> HashSet<&Key> {
    state.parked.rows.values().filter(|row| row.park.consumer == consumer).map(|row| &row.park.key).collect()
}
