//! The inbox of a memory store.

use super::store::MemoryTx;
use crate::claim::{Claim, ClaimRequest, Earlier, judge};
use crate::error::{StoreError, StoreErrorKind};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::outcome::{Outcome, OutcomeKind};
use crate::store::{ConsumerId, Inbox};

/// What is remembered of a key.
#[derive(Clone, Debug)]
pub(super) struct Record {
    fingerprint: Fingerprint,
    outcome: Outcome,
    id_hash: Option<i32>,
}

impl Inbox for MemoryTx {
    async fn claim(&mut self, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        let db = self.usable("claim keys")?;
        let mut claims = Vec::with_capacity(requests.len());
        for request in requests {
            let place = (request.consumer, request.key.clone());
            if let Some(found) = db.state().inbox.get(&place) {
                let outcome = found.outcome.clone().replayed();
                let earlier = Earlier { outcome, id_hash: found.id_hash };
                claims.push(judge(request.fingerprint, found.fingerprint, earlier));
                continue;
            }
            let record = Record {
                fingerprint: request.fingerprint,
                outcome: Outcome::of(OutcomeKind::Applied),
                id_hash: request.id_hash,
            };
            db.claimed.insert(place.clone());
            db.change(move |state| {
                state.inbox.insert(place.clone(), record);
                Box::new(move |state| {
                    state.inbox.remove(&place);
                })
            });
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
            let after = Record { outcome: outcome.clone(), ..before.clone() };
            db.change(move |state| {
                state.inbox.insert(place.clone(), after);
                Box::new(move |state| {
                    state.inbox.insert(place, before);
                })
            });
        }
        Ok(())
    }

    async fn unclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        let db = self.usable("take back claims")?;
        for place in keys {
            // A record that someone else committed stays, or its message would run again.
            if !db.claimed.remove(place) {
                continue;
            }
            let place = place.clone();
            db.change(move |state| {
                let before = state.inbox.remove(&place);
                Box::new(move |state| {
                    if let Some(before) = before {
                        state.inbox.insert(place, before);
                    }
                })
            });
        }
        Ok(())
    }
}
