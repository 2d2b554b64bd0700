//! The inbox on your own connection.
//!
//! Begin a transaction with sqlx as you always do, claim the key in it, do your work, record an outcome if you have
//! one, commit. Nothing here commits or rolls back, so the claim stands or falls with your work.
//!
//! PostgreSQL: use READ COMMITTED, its default, for such a transaction.

use std::fmt;
use std::sync::Arc;

use oncebox_core::claim::{Claim, ClaimRequest};
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::fingerprint::Fingerprint;
use oncebox_core::key::Key;
use oncebox_core::outcome::Outcome;
use oncebox_core::store::{ConsumerId, ConsumerName, Store};

use crate::connection::Call;
use crate::dialect::Dialect;
use crate::inbox;
use crate::store::{Shared, SqlStore};

/// The inbox of one consumer, for use in your own transactions. Cheap to clone; keep it.
pub struct ConsumerInbox<D: Dialect> {
    store: Arc<Shared<D>>,
    consumer: ConsumerId,
}

impl<D: Dialect> SqlStore<D> {
    /// The inbox of the consumer `name`.
    pub async fn inbox(&self, name: &str) -> Result<ConsumerInbox<D>, StoreError> {
        let name = ConsumerName::new(name).map_err(|error| {
            StoreError::new(StoreErrorKind::Configuration, "open the inbox of a consumer", error.to_string())
        })?;
        let consumer = self.consumer(&name).await?;
        Ok(ConsumerInbox { store: Arc::clone(self.shared()), consumer })
    }
}

impl<D: Dialect> ConsumerInbox<D> {
    /// The id under which this consumer's records are kept, for [`claim_all`](Self::claim_all).
    pub fn consumer(&self) -> ConsumerId {
        self.consumer
    }

    /// Claims a key in the transaction that is open on `db`.
    ///
    /// `Fresh`: do the work, in the same transaction. `Duplicate`: it was done before; commit or roll back, as you
    /// like, and acknowledge. A key that another open transaction holds is waited for, up to your `lock_timeout`.
    pub async fn claim(&self, db: &mut D::Db, key: &Key, fingerprint: Fingerprint) -> Result<Claim, StoreError> {
        let request = ClaimRequest { consumer: self.consumer, key: key.clone(), fingerprint, id_hash: None };
        let claims = self.claim_all(db, &[request]).await?;
        Ok(claims.into_iter().next().unwrap_or(Claim::Undecided))
    }

    /// Claims several keys, all different, and answers in their order.
    pub async fn claim_all(&self, db: &mut D::Db, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        inbox::claim(db, &self.store.queries.inbox, requests).await.map(|answers| answers.claims)
    }

    /// Replaces the outcome of a key that this transaction claimed.
    pub async fn record(&self, db: &mut D::Db, key: &Key, outcome: &Outcome) -> Result<(), StoreError> {
        inbox::record(db, &self.store.queries.inbox, &[(self.consumer, key.clone(), outcome.clone())]).await
    }

    /// The last statement before your COMMIT: fails if the transaction is dead.
    ///
    /// PostgreSQL aborts a transaction at its first failed statement and then answers COMMIT with a rollback that
    /// drivers report as success. If any error of yours was swallowed on the way, this is where you learn it.
    pub async fn seal(&self, db: &mut D::Db) -> Result<(), StoreError> {
        Call::new("seal a transaction", &self.store.queries.inbox.alive).fetch(db).await.map(drop)
    }

    /// Takes back a key that this transaction claimed.
    pub async fn unclaim(&self, db: &mut D::Db, key: &Key) -> Result<(), StoreError> {
        inbox::unclaim(db, &self.store.queries.inbox, &[(self.consumer, key.clone())]).await
    }
}

impl<D: Dialect> Clone for ConsumerInbox<D> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), consumer: self.consumer }
    }
}

impl<D: Dialect> fmt::Debug for ConsumerInbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerInbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
