//! What retention would remove, and removing it now.

use std::time::Duration;

use oncebox_core::archive::Archives;
use oncebox_core::audit::Audits;
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
    /// gone. The audit log gets two entries, however many steps there are: `retention.begin`, in the transaction of the first
    /// step that removes something, and `retention.apply` with what was removed, at the end or where it fails half-way. A
    /// `retention.begin` with no other after it is of a process that died.
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
        let mut run = Run { known: &known, older_than, archive, actor, begun: None, received: 0 };
        let mut ended = self.remove_records(&mut pass, &mut run, &mut progress).await;
        if ended.is_ok() {
            ended = self.remove_received(&mut run, bounds).await;
        }
        let mut tries = 0;
        while let Err(error) = self.note_removal(&run, &pass, ended.is_ok()).await {
            // What was removed is; why it ended is the better answer.
            if !error.is_retryable() || tries == TRIES_MAX {
                return Err(ended.err().unwrap_or(error));
            }
            tries += 1;
            tokio::time::sleep(FAILURE_REST).await;
        }
        ended?;
        let (deleted, received) = (pass.deleted(), run.received);
        let horizon = pass.horizon().or(known.horizon);
        let (consumer, cut_short) = (consumer.to_owned(), pass.is_cut_short() || received >= bounds.pass_max);
        Ok(RetentionDone { consumer, deleted, archived: archive && deleted > 0, received, horizon, cut_short })
    }

    async fn remove_records(
        &self,
        pass: &mut Pass,
        run: &mut Run<'_>,
        progress: &mut (impl FnMut(u64) + Send),
    ) -> Result<(), Error> {
        let mut tries = 0;
        while let Some(step) = pass.next() {
            let started = Instant::now();
            let wait = match self.expire(step, run).await {
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
        Ok(())
    }

    /// Removes what stored mode keeps of messages that were processed as long ago, step by step.
    async fn remove_received(&self, run: &mut Run<'_>, bounds: RetentionBounds) -> Result<(), Error> {
        let limit = bounds.step_max.max(1);
        let mut tries = 0;
        while run.received < bounds.pass_max {
            let started = Instant::now();
            match self.sweep_received(limit, run).await {
                Ok(swept) => {
                    tries = 0;
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
        Ok(())
    }

    async fn sweep_received(&self, limit: usize, run: &mut Run<'_>) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let (consumer, name, older_than) = (run.known.id, &run.known.name, run.older_than);
        let swept = tx.sweep_received(SweepReceived { consumer, name, older_than, limit }).await?;
        if swept == 0 {
            self.end(tx).await;
            return Ok(0);
        }
        let begun = run.begin(&mut tx).await?;
        self.commit(tx).await?;
        run.begun = Some(begun);
        run.received += swept;
        Ok(swept)
    }

    async fn expire(&self, step: Expiry, run: &mut Run<'_>) -> Result<Expired, Error> {
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
        let begun = run.begin(&mut tx).await?;
        self.commit(tx).await?;
        run.begun = Some(begun);
        Ok(done)
    }

    /// Notes what was removed, if anything was: all that was meant, or what it came to.
    async fn note_removal(&self, run: &Run<'_>, pass: &Pass, is_whole: bool) -> Result<(), Error> {
        let Some(begun) = run.begun else { return Ok(()) };
        let detail = json!({
            "begun": begun, "older_than": run.older_than.to_string(), "archived": run.archive, "records": pass.deleted(),
            "processed": run.received, "horizon": pass.horizon().map(|at| at.to_string()), "whole": is_whole,
        });
        let (consumer, messages) = (Some(run.known.id), pass.deleted() + run.received);
        let deed = Deed { verb: "retention.apply", consumer, replay: None, messages, detail: &detail };
        let mut tx = self.begin().await?;
        note_deed(&mut tx, run.actor, deed).await?;
        self.commit(tx).await
    }
}

/// One removal, over all of its steps.
struct Run<'r> {
    known: &'r KnownConsumer,
    older_than: Timestamp,
    archive: bool,
    actor: &'r Actor,
    /// The entry in the audit log that says that it began; `None` while nothing is removed.
    begun: Option<i64>,
    /// How much was removed of what stored mode keeps.
    received: u64,
}

impl Run<'_> {
    /// Notes that it begins, with the first thing that it removes: an entry of its own for each step would push out of
    /// sight what people did.
    async fn begin(&self, tx: &mut impl Audits) -> Result<i64, Error> {
        if let Some(begun) = self.begun {
            return Ok(begun);
        }
        let detail = json!({ "older_than": self.older_than.to_string(), "archive": self.archive });
        let (verb, consumer) = ("retention.begin", Some(self.known.id));
        let deed = Deed { verb, consumer, replay: None, messages: 0, detail: &detail };
        Ok(note_deed(tx, self.actor, deed).await?)
    }
}

async fn older_than(tx: &mut impl Consumers, retention: Duration) -> Result<Timestamp, Error> {
    let now = tx.store_time().await?;
    Ok(now.checked_sub(retention).unwrap_or(Timestamp::MIN))
}
