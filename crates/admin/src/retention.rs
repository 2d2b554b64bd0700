//! What retention would remove, and removing it now.

use std::time::Duration;

use oncebox_core::archive::Archives;
use oncebox_core::horizon::{Consumers, Expired, Expiry, KnownConsumer, RETENTION_MIN, SweepReceived};
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

/// So many replays that are not at their end are counted.
const REPLAYS_SEEN: usize = 1_000;

/// How often in a row a step may fail before it is given up.
const TRIES_MAX: u32 = 10;

/// How long to rest after a step that failed, at least.
const FAILURE_REST: Duration = Duration::from_millis(100);

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
    /// What was made before this is not replayed, also by force.
    #[serde(serialize_with = "maybe_time")]
    pub checkpoint: Option<Timestamp>,
    /// How many keys of records that are gone are archived.
    pub archived_keys: u64,
    /// What their hashes take.
    pub archived_bytes: u64,
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
    /// Whether their keys are archived.
    pub archived: bool,
    /// How much was removed of what stored mode keeps of processed messages.
    pub received: u64,
    /// Where the horizon is now.
    #[serde(serialize_with = "maybe_time")]
    pub horizon: Option<Timestamp>,
    /// It stopped at its most, and there may be more.
    pub cut_short: bool,
}

/// How old records are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// For how long records are kept.
    pub retention: Duration,
    /// Whether the keys of those that go are archived.
    pub archive: bool,
    /// What it may take.
    pub bounds: RetentionBounds,
}

impl<S: QuarantineStore> Admin<S> {
    /// What would go if the records of a consumer were kept for `retention`. Cheap, whatever the number of records.
    pub async fn plan_retention(&self, consumer: &str, retention: Duration) -> Result<RetentionPlan, Error> {
        let known = self.consumer(consumer).await?;
        let mut tx = self.begin().await?;
        let older_than = older_than(&mut tx, retention).await?;
        let old = tx.old_records(known.id, older_than).await?;
        let replays = tx.open_replays(Some(known.id), REPLAYS_SEEN).await?;
        let archive = tx.archive_size(known.id).await?;
        self.end(tx).await;
        Ok(RetentionPlan {
            consumer: consumer.to_owned(),
            retention_seconds: retention.as_secs(),
            older_than,
            old: old.records,
            counted: old.counted,
            held: old.held,
            open_replays: replays.len() as u64,
            oldest: old.oldest,
            horizon: known.horizon,
            checkpoint: known.checkpoint,
            archived_keys: archive.keys,
            archived_bytes: archive.bytes,
        })
    }

    /// Removes the records of a consumer that are older than its retention, step by step, and moves its horizon with them;
    /// then what stored mode keeps of messages that it processed as long ago. After each step `progress` is told how many are
    /// gone. Each step has its entry in the audit log, in its own transaction: where it fails half-way, what was removed until
    /// then is there.
    pub async fn apply_retention(
        &self,
        consumer: &str,
        removal: Removal,
        actor: &Actor,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<RetentionDone, Error> {
        let Removal { retention, archive, bounds } = removal;
        if retention < RETENTION_MIN {
            return Err(Error::RetentionTooShort { asked: retention });
        }
        let known = self.consumer(consumer).await?;
        let mut tx = self.begin().await?;
        let older_than = older_than(&mut tx, retention).await?;
        self.end(tx).await;
        let mut pass = Pass::new(known.id, older_than, bounds).archiving(archive);
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
                    pass.failed(started.elapsed()).max(FAILURE_REST)
                }
                Err(error) => return Err(error),
            };
            progress(pass.deleted());
            tokio::time::sleep(wait).await;
        }
        let received = self.remove_received(&known, older_than, bounds, actor).await?;
        let horizon = pass.horizon().or(known.horizon);
        let (consumer, cut_short) = (consumer.to_owned(), pass.is_cut_short() || received >= bounds.pass_max);
        let deleted = pass.deleted();
        Ok(RetentionDone { consumer, deleted, archived: archive && deleted > 0, received, horizon, cut_short })
    }

    /// Removes what stored mode keeps of messages that were processed before `older_than`, step by step.
    async fn remove_received(
        &self,
        known: &KnownConsumer,
        older_than: Timestamp,
        bounds: RetentionBounds,
        actor: &Actor,
    ) -> Result<u64, Error> {
        let limit = bounds.step_max.max(1);
        let sweep = SweepReceived { consumer: known.id, name: &known.name, older_than, limit };
        let (mut removed, mut tries) = (0, 0);
        while removed < bounds.pass_max {
            let started = Instant::now();
            match self.sweep_received(sweep, actor).await {
                Ok(swept) => {
                    (removed, tries) = (removed + swept, 0);
                    if swept < limit as u64 {
                        break;
                    }
                    tokio::time::sleep(bounds.rest_after(started.elapsed())).await;
                }
                Err(error) if error.is_retryable() && tries < TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(FAILURE_REST).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    async fn sweep_received(&self, sweep: SweepReceived<'_>, actor: &Actor) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let messages = tx.sweep_received(sweep).await?;
        if messages == 0 {
            self.end(tx).await;
            return Ok(0);
        }
        let detail = json!({ "older_than": sweep.older_than.to_string(), "of": "processed messages of stored mode" });
        let deed =
            Deed { verb: "retention.apply", consumer: Some(sweep.consumer), replay: None, messages, detail: &detail };
        note_deed(&mut tx, actor, deed).await?;
        self.commit(tx).await?;
        Ok(messages)
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
        let detail = json!({ "older_than": step.older_than.to_string(), "horizon": horizon, "archived": step.archive });
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
