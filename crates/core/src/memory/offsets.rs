//! The offsets of a memory store.

use super::db::MemoryDb;
use super::store::MemoryTx;
use crate::error::StoreError;
use crate::offsets::{HeldLog, OffsetStep, Offsets, TakenOffset, log_elsewhere, log_lost};
use crate::planted;
use crate::store::ConsumerId;

/// Where a log is.
type Place = (ConsumerId, String);

fn set(db: &mut MemoryDb, place: Place, after: TakenOffset) {
    db.change(move |state| {
        let before = state.offsets.insert(place.clone(), after);
        Box::new(move |state| {
            match before {
                Some(before) => state.offsets.insert(place, before),
                None => state.offsets.remove(&place),
            };
        })
    });
}

/// The record of a log under this epoch.
fn held(db: &MemoryDb, consumer: ConsumerId, held: &HeldLog) -> Option<TakenOffset> {
    let found = db.state().offsets.get(&(consumer, held.log.clone())).copied()?;
    (found.epoch == held.epoch || planted::is("offset-not-fenced")).then_some(found)
}

impl Offsets for MemoryTx {
    async fn take_offsets(&mut self, consumer: ConsumerId, logs: &[String]) -> Result<Vec<TakenOffset>, StoreError> {
        let db = self.usable("take offsets over")?;
        let take = |log: &String| {
            let place = (consumer, log.clone());
            let before = db.state().offsets.get(&place).copied();
            let before = before.unwrap_or(TakenOffset { epoch: 0, next: None, witness: None });
            let taken = TakenOffset { epoch: before.epoch + 1, ..before };
            set(db, place, taken);
            taken
        };
        Ok(logs.iter().map(take).collect())
    }

    async fn begin_offsets(&mut self, consumer: ConsumerId, starts: &[(HeldLog, i64)]) -> Result<(), StoreError> {
        let attempted = "begin with offsets";
        let db = self.usable(attempted)?;
        for (log, next) in starts {
            let Some(found) = held(db, consumer, log).filter(|found| found.next.is_none()) else {
                db.set_aborted();
                return Err(log_lost(attempted));
            };
            set(db, (consumer, log.log.clone()), TakenOffset { next: Some(*next), ..found });
        }
        Ok(())
    }

    async fn lock_offsets(&mut self, consumer: ConsumerId, logs: &[HeldLog]) -> Result<Vec<i64>, StoreError> {
        // The one open transaction holds everything.
        let attempted = "look at offsets";
        let db = self.usable(attempted)?;
        let found: Option<Vec<i64>> = logs.iter().map(|log| held(db, consumer, log)?.next).collect();
        found.ok_or_else(|| {
            db.set_aborted();
            log_lost(attempted)
        })
    }

    async fn advance_offsets(&mut self, consumer: ConsumerId, steps: &[OffsetStep]) -> Result<(), StoreError> {
        let attempted = "advance offsets";
        let db = self.usable(attempted)?;
        for step in steps {
            let refused = match held(db, consumer, &step.held) {
                None => log_lost(attempted),
                Some(found) if found.next == Some(step.from) || planted::is("offset-not-compared") => {
                    let after = TakenOffset { next: Some(step.to), witness: Some(step.witness), ..found };
                    set(db, (consumer, step.held.log.clone()), after);
                    continue;
                }
                Some(_) => log_elsewhere(attempted),
            };
            db.set_aborted();
            return Err(refused);
        }
        Ok(())
    }
}
