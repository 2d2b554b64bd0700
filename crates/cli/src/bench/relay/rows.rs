//! What is published: the same messages in every variant.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use oncebox::outbox::{Backlog, Outbox};
use oncebox::queue::QueueStore;
use oncebox::{Ended, Message, Outgoing, Session, Store, SystemClock, Transaction};

/// How messages look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) payload_bytes: u32,
    /// How many order keys they share; 0: none has one.
    pub(super) keys: u32,
}

impl Shape {
    /// `count` messages to `topic`.
    pub(super) fn rows(self, topic: &str, count: u32) -> Vec<Outgoing> {
        let payload = vec![b'x'; self.payload_bytes as usize];
        let row = |n: u32| {
            let mut message = Message::made_by(&SystemClock, "bench.row").with_payload(payload.clone());
            // Spread: neighbours have different keys, as with many customers at work at once.
            message.order_key = (self.keys > 0).then(|| format!("key-{}", n % self.keys));
            Outgoing { topic: topic.to_owned(), message: Arc::new(message) }
        };
        (0..count).map(row).collect()
    }

    pub(super) fn name(self) -> String {
        match self.keys {
            0 => "no key".to_owned(),
            1 => "1 key".to_owned(),
            keys => format!("{keys} keys"),
        }
    }
}

/// How long a statement waits for a lock.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// A connection that emits.
pub(super) struct Writer<S: Store> {
    store: S,
    session: Option<S::Session>,
}

impl<S: QueueStore> Writer<S> {
    pub(super) fn new(store: &S) -> Self {
        Self { store: store.clone(), session: None }
    }

    /// Emits rows in one transaction, and returns when COMMIT has.
    pub(super) async fn emit(&mut self, rows: &[Outgoing]) -> anyhow::Result<()> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.store.connect().await?,
        };
        let mut tx = session.begin(LOCK_WAIT).await?;
        tx.emit(rows).await?;
        match tx.commit().await {
            Ended::Committed(session) => {
                self.session = Some(session);
                Ok(())
            }
            Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => bail!(error),
        }
    }
}

/// How much is in the outbox.
pub(super) async fn backlog<S: QueueStore>(store: &S) -> anyhow::Result<Backlog> {
    let mut tx = store.connect().await?.begin(LOCK_WAIT).await?;
    let backlog = tx.outbox_backlog().await;
    tx.rollback().await;
    Ok(backlog?)
}
