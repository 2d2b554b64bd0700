//! The inbox of a memory store.

use super::db::MemoryDb;
use super::store::MemoryTx;
use crate::claim::{Claim, ClaimRequest, Earlier, judge};
use crate::error::{StoreError, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Outcome, OutcomeKind};
use crate::store::{ConsumerId, Inbox};
use crate::time::Timestamp;

/// What is remembered of a key.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) fingerprint: Fingerprint,
    pub(super) outcome: Outcome,
    pub(super) id_hash: Option<i32>,
    pub(super) processed_at: Timestamp,
}

impl Inbox for MemoryTx {
    async fn claim(&mut self, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        let processed_at = self.store().clock().now();
        let db = self.usable("claim keys")?;
        let mut claims = Vec::with_capacity(requests.len());
        for request in requests {
            let place = (request.consumer, request.key.clone());
            if let Some(found) = db.state().inbox.get(&place) {
                let outcome = found.outcome.clone().replayed();
                let earlier = Earlier { outcome, id_hash: found.id_hash, fingerprint: found.fingerprint };
                let claim = judge(request.fingerprint, earlier);
                if let Claim::Duplicate(earlier) = &claim
                    && earlier.is_parked()
                {
                    db.found_parked.add(place, Some(earlier.fingerprint));
                }
                claims.push(claim);
                continue;
            }
            let record = Record {
                fingerprint: request.fingerprint,
                outcome: Outcome::of(OutcomeKind::Applied),
                id_hash: request.id_hash,
                processed_at,
            };
            db.claimed.insert(place.clone());
            set_record(db, place, Some(record));
            claims.push(Claim::Fresh);
        }
        Ok(claims)
    }

    async fn record(&mut self, outcomes: &[(ConsumerId, Key, Outcome)]) -> Result<(), StoreError> {
        let db = self.usable("record outcomes")?;
        for (consumer, key, outcome) in outcomes {
            let place = (*consumer, key.clone());
            let claimed = db.claimed.contains(&place).then(|| db.state().inbox.get(&place).cloned()).flatten();
            let Some(before) = claimed else {
                let why = "the key was not claimed in this transaction";
                return Err(StoreError::new(StoreErrorKind::Corrupt, format!("record the outcome of {key}"), why));
            };
            if outcome.kind() == OutcomeKind::Parked {
                db.found_parked.add(place.clone(), None);
            }
            set_record(db, place, Some(Record { outcome: outcome.clone(), ..before }));
        }
        Ok(())
    }

    async fn reclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<Vec<bool>, StoreError> {
        let db = self.usable("reclaim keys")?;
        let mut answers = Vec::with_capacity(keys.len());
        for place in keys {
            let found = db.state().inbox.get(place).filter(|found| found.outcome.kind() == OutcomeKind::Parked);
            let Some(before) = found.cloned() else {
                answers.push(false);
                continue;
            };
            db.found_parked.remove(place);
            // A key that this transaction claimed itself was free before, whatever was recorded since.
            if db.claimed.insert(place.clone()) {
                db.reclaimed.insert(place.clone(), before.clone());
            }
            set_record(db, place.clone(), Some(Record { outcome: Outcome::of(OutcomeKind::Applied), ..before }));
            answers.push(true);
        }
        Ok(answers)
    }

    async fn unclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        let db = self.usable("take back claims")?;
        for place in keys {
            // A record that someone else committed stays, or its message would run again.
            if !db.claimed.remove(place) {
                continue;
            }
            // One that was parked before is parked again: its message waits, and must not be taken for a new one.
            let before = db.reclaimed.remove(place);
            if before.is_some() {
                db.found_parked.add(place.clone(), None);
            }
            set_record(db, place.clone(), before);
        }
        Ok(())
    }
}

/// Replaces a record, undoably.
pub(super) fn set_record(db: &mut MemoryDb, place: (ConsumerId, Key), after: Option<Record>) {
    db.change(move |state| {
        let before = match after {
            Some(after) => state.inbox.insert(place.clone(), after),
            None => state.inbox.remove(&place),
        };
        Box::new(move |state| {
            match before {
                Some(before) => state.inbox.insert(place, before),
                None => state.inbox.remove(&place),
            };
        })
    });
}
