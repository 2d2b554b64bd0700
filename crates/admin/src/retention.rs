//! What retention would remove, and removing it now.

use std::time::Duration;

use oncebox_core::horizon::{Consumers, Expired, Expiry, RETENTION_MIN};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::Replays;
use oncebox_core::retention::{Pass, RetentionBounds};
use oncebox_core::{StoreErrorKind, Timestamp};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, note_deed};
use crate::error::Error;
use crate::view::{maybe_time, time};

/// Open replays are looked for among so many of the newest.
const REPLAYS_SEEN: usize = 1_000;

/// How often in a row a step may fail before it is given up.
const TRIES_MAX: u32 = 10;

/// What a pass over the records of one consumer would remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetentionPlan {
    /// Whose records.
    pub consumer: String,
    /// For how long they are kept, in seconds.
    pub retention_seconds: u64,
    /// What was handled before this goes.
    #[serde(serialize_with = "time")]
    pub older_than: Timestamp,
    /// How many are older, those that stay among them.
    pub old: u64,
    /// They were counted. Otherwise this is an estimate from a part of the records, or there are at least so many.
    pub counted: bool,
    /// How many of them stay because a message is parked under their key; 10,000 are 10,000 or more.
    pub held: u64,
    /// Replays that are not at their end; what they put back is parked until it is applied, and so its records stay.
    pub open_replays: u64,
    /// When the oldest that was seen was handled.
    #[serde(serialize_with = "maybe_time")]
    pub oldest: Option<Timestamp>,
    /// Where the horizon is now: nothing older can be told from a duplicate.
    #[serde(serialize_with = "maybe_time")]
    pub horizon: Option<Timestamp>,
}

impl RetentionPlan {
    /// How many records would go.
    pub fn goes(&self) -> u64 {
        self.old.saturating_sub(self.held)
    }
}

/// What a pass over the records of one consumer removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RetentionDone {
    /// Whose records.
    pub consumer: String,
    /// How many were deleted.
    pub deleted: u64,
    /// Where the horizon is now.
    #[serde(serialize_with = "maybe_time")]
    pub horizon: Option<Timestamp>,
    /// It stopped at its most, and there may be more.
    pub cut_short: bool,
}

impl<S: QuarantineStore> Admin<S> {
    /// What would go if the records of a consumer were kept for `retention`. Cheap, whatever the number of records.
    pub async fn plan_retention(&self, consumer: &str, retention: Duration) -> Result<RetentionPlan, Error> {
        let known = self.consumer(consumer).await?;
        let mut tx = self.begin().await?;
        let older_than = older_than(&mut tx, retention).await?;
        let old = tx.old_records(known.id, older_than).await?;
        let replays = tx.replays(Some(known.id), REPLAYS_SEEN).await?;
        self.end(tx).await;
        Ok(RetentionPlan {
            consumer: consumer.to_owned(),
            retention_seconds: retention.as_secs(),
            older_than,
            old: old.records,
            counted: old.counted,
            held: old.held,
            open_replays: replays.iter().filter(|replay| !replay.state.is_final()).count() as u64,
            oldest: old.oldest,
            horizon: known.horizon,
        })
    }

    /// Removes the records of a consumer that are older than `retention`, step by step, and moves its horizon with them.
    /// After each step `progress` is told how many are gone. Each step has its entry in the audit log, in its own
    /// transaction: where it fails half-way, what was removed until then is there.
    pub async fn apply_retention(
        &self,
        consumer: &str,
        retention: Duration,
        bounds: RetentionBounds,
        actor: &Actor,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<RetentionDone, Error> {
        if retention < RETENTION_MIN {
            return Err(Error::RetentionTooShort { asked: retention });
        }
        let known = self.consumer(consumer).await?;
        let mut tx = self.begin().await?;
        let older_than = older_than(&mut tx, retention).await?;
        self.end(tx).await;
        let mut pass = Pass::new(known.id, older_than, bounds);
        let mut tries = 0;
        while let Some(step) = pass.next() {
            let started = Instant::now();
            let wait = match self.expire(step, actor).await {
                Ok(done) => {
                    tries = 0;
                    pass.stepped(&done, started.elapsed())
                }
                Err(error) if error.is_retryable() && tries < TRIES_MAX => {
                    tries += 1;
                    pass.failed(started.elapsed()).max(Duration::from_millis(100))
                }
                Err(error) => return Err(error),
            };
            progress(pass.deleted());
            tokio::time::sleep(wait).await;
        }
        let horizon = pass.horizon().or(known.horizon);
        let (consumer, cut_short) = (consumer.to_owned(), pass.is_cut_short());
        Ok(RetentionDone { consumer, deleted: pass.deleted(), horizon, cut_short })
    }

    async fn expire(&self, step: Expiry, actor: &Actor) -> Result<Expired, Error> {
        let mut tx = self.begin().await?;
        let done = match tx.expire(step).await {
            Ok(done) => done,
            Err(error) => {
                if error.kind() == StoreErrorKind::Contended {
                    self.end(tx).await;
                }
                return Err(error.into());
            }
        };
        if done.deleted == 0 {
            self.end(tx).await;
            return Ok(done);
        }
        let horizon = done.horizon.map(|at| at.to_string());
        let detail = json!({ "older_than": step.older_than.to_string(), "horizon": horizon });
        let (consumer, messages) = (Some(step.consumer), done.deleted);
        let deed = Deed { verb: "retention.apply", consumer, replay: None, messages, detail: &detail };
        note_deed(&mut tx, actor, deed).await?;
        self.commit(tx).await?;
        Ok(done)
    }
}

async fn older_than(tx: &mut impl Consumers, retention: Duration) -> Result<Timestamp, Error> {
    let now = tx.store_time().await?;
    Ok(now.checked_sub(retention).unwrap_or(Timestamp::MIN))
}
