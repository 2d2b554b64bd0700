//! The outbox on your own connection.
//!
//! Begin a transaction with sqlx as you always do, do your work, add what is to be published, commit. Nothing here commits
//! or rolls back: the messages are published if your work is committed, and never otherwise.

use std::fmt;
use std::sync::Arc;

use oncebox_core::error::StoreError;
use oncebox_core::sink::Outgoing;

use crate::dialect::Dialect;
use crate::outbox;
use crate::store::{Shared, SqlStore};

/// Adds messages to the outbox in your own transactions. Cheap to clone; keep it.
///
/// Rows are numbered as they are added. Two transactions that emit under one order key keep their order if something makes
/// the second wait for the first before it emits: lock the row that the messages are about, then emit.
pub struct Emitter<D: Dialect> {
    store: Arc<Shared<D>>,
}

impl<D: Dialect> SqlStore<D> {
    /// The outbox, for use in your own transactions.
    pub fn emitter(&self) -> Emitter<D> {
        Emitter { store: Arc::clone(self.shared()) }
    }
}

impl<D: Dialect> Emitter<D> {
    /// Adds messages, in order, in the transaction that is open on `db`.
    ///
    /// Each has an id; one that a message in the outbox has already is `Refused`. Roll back after an error: some of them
    /// may have been added.
    pub async fn emit(&self, db: &mut D::Db, messages: &[Outgoing]) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        outbox::emit(db, &self.store.queries.outbox, self.store.now(), messages).await
    }

    /// Tells a relay in this process that there is something to publish; call it after your commit. Without it the relay
    /// finds out when it looks the next time.
    pub fn committed(&self) {
        self.store.announce_emitted();
    }
}

impl<D: Dialect> Clone for Emitter<D> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store) }
    }
}

impl<D: Dialect> fmt::Debug for Emitter<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("store", &self.store.dialect).finish()
    }
}
