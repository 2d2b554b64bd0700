//! The store itself: one transaction at a time, in the order they asked.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use super::db::{MemoryDb, MemoryError, State};
use crate::error::{StoreError, StoreErrorKind};
use crate::identity::{self, Bound, Offer};
use crate::outbox::OutboxStore;
use crate::store::{ConsumerId, ConsumerName, DriverError, Ended, Session, Store, StoreCapabilities, Transaction};
use crate::time::{Clock, SystemClock};

/// A transactional store in memory. Clones share their data; nothing survives the process.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Arc<Mutex<State>>,
    enqueued: Notify,
    emitted: Notify,
    identity: String,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store whose leases run by `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        // Counted, not drawn from the clock: two stores whose test clocks share a seed are still two stores.
        static STORES: AtomicU64 = AtomicU64::new(1);
        let identity = format!("memory:{}", STORES.fetch_add(1, Ordering::Relaxed));
        let (enqueued, emitted) = (Notify::new(), Notify::new());
        let shared = Shared { state: Arc::default(), enqueued, emitted, identity, clock };
        Self { shared: Arc::new(shared) }
    }

    /// Reads or prepares tables outside any message: runs `work` in a transaction of its own and commits.
    pub async fn with_db<T>(
        &self,
        work: impl FnOnce(&mut MemoryDb) -> Result<T, MemoryError>,
    ) -> Result<T, MemoryError> {
        let mut db = MemoryDb::new(Arc::clone(&self.shared.state).lock_owned().await);
        let done = work(&mut db)?;
        db.commit();
        Ok(done)
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    pub(super) fn enqueued_signal(&self) -> &Notify {
        &self.shared.enqueued
    }

    pub(super) fn emitted_signal(&self) -> &Notify {
        &self.shared.emitted
    }

    pub(super) async fn state(&self) -> tokio::sync::OwnedMutexGuard<State> {
        Arc::clone(&self.shared.state).lock_owned().await
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryStore").field(&self.shared.identity).finish()
    }
}

impl Store for MemoryStore {
    type Session = MemorySession;
    type Tx = MemoryTx;
    type Doubt = MemoryDoubt;

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities { error_aborts: true, ..StoreCapabilities::none("memory") }
    }

    fn identity(&self) -> &str {
        &self.shared.identity
    }

    async fn connect(&self) -> Result<MemorySession, StoreError> {
        Ok(MemorySession { store: self.clone() })
    }

    async fn consumer(&self, name: &ConsumerName) -> Result<ConsumerId, StoreError> {
        let mut state = self.state().await;
        let next = i16::try_from(state.consumers.len()).map_err(|_| {
            StoreError::new(StoreErrorKind::Configuration, format!("register consumer {name}"), "there are too many")
        })?;
        Ok(*state.consumers.entry(name.as_str().to_owned()).or_insert(ConsumerId(next)))
    }

    async fn bind(&self, name: &ConsumerName, offer: &Offer) -> Result<Bound, StoreError> {
        identity::bind(self, name, offer).await
    }

    async fn resolve(&self, _doubt: &MemoryDoubt) -> Result<(), StoreError> {
        // An abandoned transaction was rolled back when it was dropped: there is nobody to wait for.
        Ok(())
    }

    fn read_error(&self, error: &(dyn Error + 'static)) -> Option<DriverError> {
        let error = error.downcast_ref::<MemoryError>()?;
        let unique = match error {
            MemoryError::Unique { table } => Some(table.clone()),
            _ => None,
        };
        Some(DriverError { kind: StoreErrorKind::Refused, reason: error.to_string(), unique })
    }
}

/// A connection to a memory store.
#[derive(Debug)]
pub struct MemorySession {
    store: MemoryStore,
}

impl Session for MemorySession {
    type Tx = MemoryTx;

    async fn begin(self, lock_wait: Duration) -> Result<MemoryTx, StoreError> {
        // The whole store is one lock; a transaction is short, so the wait gets some room beyond a row's.
        let wait = lock_wait.max(Duration::from_secs(5));
        match tokio::time::timeout(wait, self.store.state()).await {
            Ok(state) => Ok(MemoryTx { store: self.store, db: MemoryDb::new(state), emits: false }),
            Err(_) => Err(StoreError::new(
                StoreErrorKind::Contended,
                "begin a transaction in memory",
                "another transaction holds the store",
            )),
        }
    }
}

/// An open transaction; it holds the whole store.
#[derive(Debug)]
pub struct MemoryTx {
    store: MemoryStore,
    db: MemoryDb,
    /// Something was added to the outbox.
    pub(super) emits: bool,
}

/// What is left of an abandoned transaction: nothing.
#[derive(Clone, Copy, Debug)]
pub struct MemoryDoubt;

impl MemoryTx {
    pub(super) fn store(&self) -> &MemoryStore {
        &self.store
    }

    pub(super) fn usable(&mut self, attempted: &str) -> Result<&mut MemoryDb, StoreError> {
        if self.db.is_aborted() { Err(aborted(attempted)) } else { Ok(&mut self.db) }
    }
}

fn aborted(attempted: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::TransactionLost,
        attempted,
        "the transaction is aborted; a statement failed and its error was swallowed",
    )
}

impl Transaction for MemoryTx {
    type Session = MemorySession;
    type Doubt = MemoryDoubt;
    type Db = MemoryDb;

    fn db(&mut self) -> &mut MemoryDb {
        &mut self.db
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.db.is_aborted() { Err(aborted("go on in a transaction")) } else { Ok(()) }
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        self.alive()?;
        self.db.mark();
        Ok(())
    }

    async fn back_to_mark(&mut self) -> Result<(), StoreError> {
        if self.db.back_to_mark() { Ok(()) } else { Err(aborted("go back to a mark")) }
    }

    async fn commit(self) -> Ended<MemorySession, MemoryDoubt> {
        let session = MemorySession { store: self.store };
        if self.db.is_aborted() {
            drop(self.db);
            return Ended::RolledBack { session: Some(session), error: aborted("commit") };
        }
        self.db.commit();
        if self.emits {
            session.store.announce_emitted();
        }
        Ended::Committed(session)
    }

    async fn rollback(self) -> Option<MemorySession> {
        drop(self.db);
        Some(MemorySession { store: self.store })
    }

    fn abandon(self) -> MemoryDoubt {
        MemoryDoubt
    }
}
