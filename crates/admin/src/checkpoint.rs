//! A time from before which nothing is replayed, whoever asks.

use oncebox_core::horizon::{Consumers, KnownConsumer, check_checkpoint};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::{ConsumerName, StoreErrorKind, Timestamp};
use serde::Serialize;
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, note_deed};
use crate::error::Error;
use crate::view::{maybe_time, time};

/// A checkpoint that was set, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Of which consumer.
    pub consumer: String,
    /// What was made before this is not replayed, and not applied where it has no record.
    #[serde(serialize_with = "time")]
    pub checkpoint: Timestamp,
    /// Where it was before.
    #[serde(serialize_with = "maybe_time")]
    pub was: Option<Timestamp>,
    /// How many messages that wait for a person are older: they can only be discarded.
    pub dead: u64,
}

impl<S: QuarantineStore> Admin<S> {
    /// What a checkpoint at `at` would mean. One that would go back, or lies where consumers do not look, is refused.
    pub async fn plan_checkpoint(&self, consumer: &str, at: Timestamp) -> Result<Checkpoint, Error> {
        let known = self.consumer(consumer).await?;
        let mut tx = self.begin().await?;
        let now = tx.store_time().await?;
        self.end(tx).await;
        check(&known, at, now)?;
        // One for the keys that consumers share holds for all of them.
        let is_for_all = known.name == ConsumerName::global();
        let whose = if is_for_all { self.consumers().await? } else { vec![known.clone()] };
        let mut dead = 0;
        for one in whose {
            let mut after = 0;
            loop {
                let page = self.page(one.id, after).await?;
                let Some(last) = page.last() else { break };
                after = last.row;
                dead += page.iter().filter(|row| row.is_dead() && row.message.time < at).count() as u64;
            }
        }
        Ok(Checkpoint { consumer: consumer.to_owned(), checkpoint: at, was: known.checkpoint, dead })
    }

    /// Forbids for good to replay what was made before a checkpoint, and to apply it where it has no record. What is on
    /// its way already goes on.
    pub async fn set_checkpoint(&self, plan: &Checkpoint, actor: &Actor) -> Result<Checkpoint, Error> {
        let known = self.consumer(&plan.consumer).await?;
        let at = plan.checkpoint;
        let mut tx = self.begin().await?;
        let is_set = match tx.set_checkpoint(known.id, at).await {
            Err(error) if error.kind() == StoreErrorKind::Refused => {
                let now = tx.store_time().await?;
                self.end(tx).await;
                return Err(Error::CheckpointYoung { consumer: plan.consumer.clone(), asked: at, now });
            }
            done => done?,
        };
        if !is_set {
            self.end(tx).await;
            // Somebody else has set a later one since the plan was made.
            let is = self.consumer(&plan.consumer).await?.checkpoint.unwrap_or(at);
            return Err(Error::CheckpointBack { consumer: plan.consumer.clone(), asked: at, is });
        }
        let was = known.checkpoint.map(|was| was.to_string());
        let detail = json!({ "checkpoint": at.to_string(), "was": was });
        let (consumer, messages) = (Some(known.id), plan.dead);
        let deed = Deed { verb: "retention.checkpoint", consumer, replay: None, messages, detail: &detail };
        note_deed(&mut tx, actor, deed).await?;
        self.commit(tx).await?;
        Ok(Checkpoint { was: known.checkpoint, ..plan.clone() })
    }
}

fn check(known: &KnownConsumer, asked: Timestamp, now: Timestamp) -> Result<(), Error> {
    let consumer = known.name.as_str().to_owned();
    if let Some(is) = known.checkpoint.filter(|is| *is > asked) {
        return Err(Error::CheckpointBack { consumer, asked, is });
    }
    check_checkpoint(asked, now).map_err(|_| Error::CheckpointYoung { consumer, asked, now })
}
