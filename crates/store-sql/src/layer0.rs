//! The inbox on your own connection.
//!
//! Begin a transaction with sqlx as you always do, claim the key in it, do your work, record an outcome if you have
//! one, commit. Nothing here commits or rolls back, so the claim stands or falls with your work.
//!
//! PostgreSQL: use READ COMMITTED, its default, for such a transaction.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::claim::{Claim, ClaimRequest};
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::fingerprint::{Fingerprint, Fingerprinter};
use oncebox_core::identity::{self, Binding, LOOK_AGAIN, Offer, Scheme};
use oncebox_core::key::{Key, KeyError, KeyStrategy};
use oncebox_core::message::Message;
use oncebox_core::outcome::Outcome;
use oncebox_core::store::{ConsumerId, ConsumerName};
use oncebox_core::time::{Clock, SystemClock, Timestamp};
use tokio::time::Instant;

use crate::connection::Call;
use crate::dialect::Dialect;
use crate::store::{Shared, SqlStore};
use crate::{horizon, inbox};

/// The inbox of one consumer, for use in your own transactions. Cheap to clone; keep it.
///
/// Its name is bound to the way its keys are made, in the [same record](oncebox_core::identity) as a consumer that Oncebox runs.
/// Keys that you make yourself ([`inbox`](SqlStore::inbox)) are bound as such, and those of a strategy
/// ([`inbox_by`](SqlStore::inbox_by)) as that strategy's, so that a consumer with the same strategy can take over. Where the name
/// is bound to something else, opening is refused; where that changes later, claims are, within seconds.
pub struct ConsumerInbox<D: Dialect> {
    store: Arc<Shared<D>>,
    consumer: ConsumerId,
    name: ConsumerName,
    keys: Option<KeyStrategy>,
    scheme: Scheme,
    /// When it was last held against what is bound to the name.
    looked: Arc<Mutex<Instant>>,
    look_every: Duration,
}

impl<D: Dialect> SqlStore<D> {
    /// The inbox of the consumer `name`, with keys that you make yourself.
    pub async fn inbox(&self, name: &str) -> Result<ConsumerInbox<D>, StoreError> {
        self.bound_inbox(name, None).await
    }

    /// The inbox of the consumer `name`, with the keys of a strategy:
    /// [`key_of`](ConsumerInbox::key_of) and [`claim_message`](ConsumerInbox::claim_message) make them.
    pub async fn inbox_by(&self, name: &str, keys: KeyStrategy) -> Result<ConsumerInbox<D>, StoreError> {
        self.bound_inbox(name, Some(keys)).await
    }

    async fn bound_inbox(&self, name: &str, keys: Option<KeyStrategy>) -> Result<ConsumerInbox<D>, StoreError> {
        let name = ConsumerName::new(name).map_err(|error| {
            StoreError::new(StoreErrorKind::Configuration, "open the inbox of a consumer", error.to_string())
        })?;
        let scheme = match &keys {
            Some(keys) => Scheme::of_caller(keys.scheme_text()),
            None => Scheme::own_keys(),
        };
        let offer = Offer { scheme: scheme.clone(), was: None, legacy: None };
        let consumer = identity::bind(self, &name, &offer).await?.own;
        let looked = Arc::new(Mutex::new(Instant::now()));
        let (store, look_every) = (Arc::clone(self.shared()), LOOK_AGAIN);
        Ok(ConsumerInbox { store, consumer, name, keys, scheme, looked, look_every })
    }
}

impl<D: Dialect> ConsumerInbox<D> {
    /// How long ago at most a claim looked whether the name is still bound to these keys. Default 5 s; a look is one small
    /// read in your transaction.
    #[must_use]
    pub fn look_every(mut self, every: Duration) -> Self {
        self.look_every = every;
        self
    }

    /// The id under which this consumer's records are kept, for [`claim_all`](Self::claim_all).
    pub fn consumer(&self) -> ConsumerId {
        self.consumer
    }

    /// Claims a key in the transaction that is open on `db`.
    ///
    /// `Fresh`: do the work, in the same transaction. `Duplicate`: it was done before; commit, and acknowledge after that.
    /// (Where commits wait for a standby, yours waits until a standby has what was found.) A key that another open
    /// transaction holds is waited for, up to your `lock_timeout`.
    ///
    /// It can't tell a new message from one whose record has expired. Where records do, say when the message was made:
    /// [`claim_made_at`](Self::claim_made_at).
    pub async fn claim(&self, db: &mut D::Db, key: &Key, fingerprint: Fingerprint) -> Result<Claim, StoreError> {
        let request = ClaimRequest { consumer: self.consumer, key: key.clone(), fingerprint, id_hash: None };
        let claims = self.claim_all(db, &[request]).await?;
        Ok(claims.into_iter().next().unwrap_or(Claim::Undecided))
    }

    /// The same for a message that was made at `made_at`. Where it has no record and is older than what is remembered, the
    /// answer is [`Forgotten`](Claim::Forgotten), and the key is not claimed.
    pub async fn claim_made_at(
        &self,
        db: &mut D::Db,
        key: &Key,
        fingerprint: Fingerprint,
        made_at: Timestamp,
    ) -> Result<Claim, StoreError> {
        let claim = self.claim(db, key, fingerprint).await?;
        let now = match self.store.now().map(Timestamp::from_microsecond) {
            Some(Ok(now)) => now,
            _ => SystemClock.now(),
        };
        if claim != Claim::Fresh || !oncebox_core::horizon::needs_a_look(made_at, now) {
            return Ok(claim);
        }
        // After the claim: if the key was free because its record was just deleted, that deletion has moved the horizon.
        let horizon = horizon::read(db, &self.store.queries.operators.horizon, self.consumer).await?;
        match horizon.filter(|horizon| oncebox_core::horizon::is_forgotten(made_at, Some(*horizon))) {
            None => Ok(claim),
            Some(horizon) => {
                self.unclaim(db, key).await?;
                Ok(Claim::Forgotten { horizon })
            }
        }
    }

    /// The key of a message, if this inbox was opened [with a strategy](SqlStore::inbox_by).
    pub fn key_of(&self, message: &Message) -> Result<Key, KeyError> {
        self.keys.as_ref().ok_or(KeyError::NoStrategy)?.key(message, None)
    }

    /// Claims a message under the key that the strategy makes of it, with all that a consumer would ask: its whole payload is
    /// its fingerprint, and its time is held against what is remembered.
    pub async fn claim_message(&self, db: &mut D::Db, message: &Message) -> Result<Claim, StoreError> {
        let key = self.key_of(message).map_err(|error| {
            let attempted = format!("claim message {}", message.label());
            StoreError::new(StoreErrorKind::Refused, attempted, error.to_string())
        })?;
        let fingerprint = Fingerprinter::default().fingerprint(message);
        self.claim_made_at(db, &key, fingerprint, message.time).await
    }

    /// Holds the keys of this inbox against what its name is bound to, every few seconds.
    async fn look(&self, db: &mut D::Db) -> Result<(), StoreError> {
        let looked = || self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked().elapsed() < self.look_every {
            return Ok(());
        }
        let at = Instant::now();
        let names = &self.store.queries.names;
        let kept = horizon::binding(db, names, self.consumer, false).await?;
        let now = horizon::store_time(db, &self.store.queries.operators.horizon, self.store.now()).await?;
        let look = |kept: Option<&Binding>| identity::look(&self.name, &self.scheme, kept, now);
        if look(kept.as_ref())?.is_some() {
            // Once more with a lock: a start may have changed it since.
            let kept = horizon::binding(db, names, self.consumer, true).await?;
            if let Some(binding) = look(kept.as_ref())? {
                horizon::set_binding(db, names, self.consumer, &binding).await?;
            }
        }
        *looked() = at;
        Ok(())
    }

    /// Claims several keys, all different, and answers in their order.
    pub async fn claim_all(&self, db: &mut D::Db, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        self.look(db).await?;
        let queries = &self.store.queries.inbox;
        let claims = inbox::claim(db, queries, requests).await?.claims;
        if let Some(witness) = &queries.witness
            && claims.iter().any(|claim| !matches!(claim, Claim::Fresh))
        {
            Call::new("write beside what was found", witness).fetch(db).await?;
        }
        Ok(claims)
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
        Self {
            store: Arc::clone(&self.store),
            consumer: self.consumer,
            name: self.name.clone(),
            keys: self.keys.clone(),
            scheme: self.scheme.clone(),
            looked: Arc::clone(&self.looked),
            look_every: self.look_every,
        }
    }
}

impl<D: Dialect> fmt::Debug for ConsumerInbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerInbox").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
