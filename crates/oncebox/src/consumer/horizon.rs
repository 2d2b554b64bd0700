//! How far back a consumer can tell a duplicate.
//!
//! Records are deleted one day, and a message older than the newest deleted one may have been handled or not: nobody can
//! tell. So it is not handled; it is set aside for a person, with both dates.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::horizon::Consumers;
use oncebox_core::store::{Session, Transaction};
use oncebox_core::{ConsumerId, ConsumerStore, Failure, Message, Source, Store, StoreError, Timestamp};

use super::Engine;

/// The horizon as it was last seen, in microseconds since 1970.
#[derive(Debug)]
pub(super) struct Horizon(AtomicI64);

/// How often it is looked at. Whoever deletes records deletes old ones, so a minute is soon enough.
const LOOK_EVERY: Duration = Duration::from_secs(60);

const LOCK_WAIT: Duration = Duration::from_secs(5);

impl Default for Horizon {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Horizon {
    /// Refuses a message that is older.
    pub(super) fn check(&self, message: &Message) -> Result<(), Failure> {
        let horizon = self.0.load(SeqCst);
        if message.time.as_microsecond() >= horizon {
            return Ok(());
        }
        let horizon = Timestamp::from_microsecond(horizon).unwrap_or(Timestamp::MAX);
        let reason = format!(
            "it was made at {}, and records up to {horizon} are deleted, so nobody can tell whether it was handled",
            message.time
        );
        Err(Failure::permanent(reason).code("too-old"))
    }

    /// Looks at it.
    pub(super) async fn look<S: ConsumerStore>(&self, store: &S, consumer: ConsumerId) -> Result<(), StoreError> {
        let mut tx = Store::connect(store).await?.begin(LOCK_WAIT).await?;
        let consumers = tx.consumers().await;
        tx.rollback().await;
        let known = consumers?.into_iter().find(|known| known.id == consumer);
        if let Some(horizon) = known.and_then(|known| known.horizon) {
            self.0.fetch_max(horizon.as_microsecond(), SeqCst);
        }
        Ok(())
    }
}

/// Keeps looking. Ends with the process's last lane.
pub(super) async fn watch<S: ConsumerStore, Src: Source<S>>(engine: Arc<Engine<S, Src>>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = engine.horizon.look(&engine.store, engine.records.own).await {
            tracing::debug!(consumer = %engine.name, "the horizon was not read: {error}");
        }
    }
}
