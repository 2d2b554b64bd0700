//! The operations, and how each gets its transaction.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::archive::Archives;
use oncebox_core::audit::{Action, Audits};
use oncebox_core::horizon::{Consumers, KnownConsumer};
use oncebox_core::key::KeyError;
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox_core::replay::ReplayId;
use oncebox_core::versions::VersionPolicy;
use oncebox_core::{
    Clock, ConsumerId, ConsumerName, Ended, Fingerprint, Fingerprinter, Key, KeyStrategy, Message, Session, Store,
    StoreError, SystemClock, Timestamp, Transaction,
};

use crate::actor::Actor;
use crate::error::Error;
use crate::forecast::{Judge, Limits, Said};

/// How long an operator's statement waits for a lock: long enough for a short transaction, short enough for a person.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// How many messages one transaction looks at. Each holds its payload in memory, and SQLite has one writer at a time.
pub(crate) const PAGE: usize = 200;

/// How a consumer tells messages apart, for those who edit one: the key that it would claim, and the fingerprint.
pub type Identify = dyn Fn(&Message) -> Result<(Key, Fingerprint), KeyError> + Send + Sync;

/// Whether today's handler can read a message; if not, why, in words without payload.
pub type Readable = dyn Fn(&Message) -> Result<(), String> + Send + Sync;

/// What operators do on a store. Cheap to clone.
pub struct Admin<S: Store> {
    store: S,
    /// A connection that the last transaction left, for the next one.
    idle: Arc<Mutex<Option<S::Session>>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) identify: Arc<Identify>,
    pub(crate) readable: Option<Arc<Readable>>,
    pub(crate) versions: Option<Arc<dyn VersionPolicy>>,
}

impl<S: QuarantineStore> Admin<S> {
    /// Operations on this store.
    pub fn new(store: S) -> Self {
        let fingerprinter = Fingerprinter::default();
        let identify = move |message: &Message| {
            let key = KeyStrategy::MessageId.key(message, None)?;
            Ok((key, fingerprinter.fingerprint(message)))
        };
        Self {
            store,
            idle: Arc::default(),
            clock: Arc::new(SystemClock),
            identify: Arc::new(identify),
            readable: None,
            versions: None,
        }
    }

    /// Ages are judged by this clock, and ids of edited messages come from it.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Edited messages get keys and fingerprints in this way, which must be the consumer's. By default: by message id.
    #[must_use]
    pub fn identified_by(
        mut self,
        identify: impl Fn(&Message) -> Result<(Key, Fingerprint), KeyError> + Send + Sync + 'static,
    ) -> Self {
        self.identify = Arc::new(identify);
        self
    }

    /// Plans and replays ask this whether today's handler can read a message. By default nobody is asked.
    #[must_use]
    pub fn readable_by(mut self, readable: impl Fn(&Message) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.readable = Some(Arc::new(readable));
        self
    }

    /// Plans forecast what versions will say, by the consumer's own policy: what `Consumer::versioned` was given. By
    /// default nobody reads versions.
    #[must_use]
    pub fn versioned_by(mut self, versions: impl VersionPolicy + 'static) -> Self {
        self.versions = Some(Arc::new(versions));
        self
    }

    /// A judge that asks the same questions as this set-up.
    pub(crate) fn judge(&self, limits: Limits, force: bool) -> Judge<'_> {
        Judge::new(limits, force, self.readable.as_deref(), self.versions.as_deref())
    }

    /// All consumers that were ever registered, with their horizons.
    pub async fn consumers(&self) -> Result<Vec<KnownConsumer>, Error> {
        let mut tx = self.begin().await?;
        let consumers = tx.consumers().await?;
        self.end(tx).await;
        Ok(consumers)
    }

    /// The consumer of this name. A name with a mistake in it is an error, and registers nobody.
    pub(crate) async fn consumer(&self, name: &str) -> Result<KnownConsumer, Error> {
        let consumers = self.consumers().await?;
        if let Some(found) = consumers.iter().find(|consumer| consumer.name.as_str() == name) {
            return Ok(found.clone());
        }
        let names: Vec<&str> = consumers.iter().map(|consumer| consumer.name.as_str()).filter(|n| *n != "*").collect();
        let known = if names.is_empty() { "none yet".to_owned() } else { names.join(", ") };
        Err(Error::NoConsumer { name: name.to_owned(), known })
    }

    /// How far back a consumer looks, read anew. Nobody can tell here whether it has keys of its own or shares them, so what
    /// went of the shared records counts too: a message more is refused, and none applied twice.
    pub(crate) async fn limits(tx: &mut S::Tx, consumer: ConsumerId) -> Result<Limits, StoreError> {
        let global = ConsumerName::global();
        let known = tx.consumers().await?.into_iter().filter(|known| known.id == consumer || known.name == global);
        Ok(known.fold(Limits::default(), |limits, known| Limits {
            horizon: limits.horizon.max(known.horizon),
            own_horizon: if known.id == consumer { known.horizon } else { limits.own_horizon },
            checkpoint: limits.checkpoint.max(known.checkpoint),
        }))
    }

    /// What the store knows of each of these messages. The archive is looked into for those that are meant, have no record
    /// and may have had one: for most pages that is none.
    pub(crate) async fn said(
        tx: &mut S::Tx,
        consumer: ConsumerId,
        page: &[ParkedRow],
        limits: Limits,
        is_meant: impl Fn(&ParkedRow) -> bool,
    ) -> Result<Vec<Said>, StoreError> {
        let keys: Vec<Key> = page.iter().map(|row| row.key.clone()).collect();
        let records = tx.remembered(consumer, &keys).await?;
        let mut said: Vec<Said> = records.into_iter().map(|record| Said { record, archived: None }).collect();
        let forgotten = |place: &usize| {
            let row = &page[*place];
            said[*place].record.is_none_or(|record| record.is_shared) && limits.may_have_forgotten(row) && is_meant(row)
        };
        let places: Vec<usize> = (0..page.len()).filter(forgotten).collect();
        if places.is_empty() {
            return Ok(said);
        }
        let keys: Vec<Key> = places.iter().map(|place| keys[*place].clone()).collect();
        // All of it: another message under the same key may have been handled before this one was made.
        for (place, archived) in places.into_iter().zip(tx.archived(consumer, &keys).await?) {
            said[place].archived = archived;
        }
        Ok(said)
    }

    pub(crate) async fn begin(&self) -> Result<S::Tx, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(session) = idle
            && let Ok(tx) = session.begin(LOCK_WAIT).await
        {
            return Ok(tx);
        }
        // None was left, or the server has closed it meanwhile.
        self.store.connect().await?.begin(LOCK_WAIT).await
    }

    fn keep(&self, session: S::Session) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Ends a transaction that changed nothing worth keeping.
    pub(crate) async fn end(&self, tx: S::Tx) {
        if let Some(session) = tx.rollback().await {
            self.keep(session);
        }
    }

    /// Commits. When it returns `Unknown`, the transaction has ended one way or the other.
    pub(crate) async fn commit(&self, tx: S::Tx) -> Result<(), Error> {
        match tx.commit().await {
            Ended::Committed(session) => {
                self.keep(session);
                Ok(())
            }
            Ended::RolledBack { error, .. } => Err(error.into()),
            Ended::Unknown { doubt, error } => {
                self.store.resolve(&doubt).await?;
                Err(Error::Unknown(error))
            }
        }
    }

    /// A page of parked messages, in a transaction of its own: no export keeps the store's writer waiting.
    pub(crate) async fn page(&self, consumer: ConsumerId, after: i64) -> Result<Vec<ParkedRow>, Error> {
        let mut tx = self.begin().await?;
        let page = tx.page(consumer, after, PAGE).await?;
        self.end(tx).await;
        Ok(page)
    }

    /// The time, as precisely as every store keeps it.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// What an entry in the audit log tells beside who and why.
pub(crate) struct Deed<'d> {
    pub(crate) verb: &'static str,
    pub(crate) consumer: Option<ConsumerId>,
    pub(crate) replay: Option<ReplayId>,
    pub(crate) messages: u64,
    /// JSON.
    pub(crate) detail: &'d (dyn fmt::Display + Sync),
}

/// Writes an entry into the audit log, in the transaction of what it tells of.
pub(crate) async fn note_deed(tx: &mut impl Audits, actor: &Actor, deed: Deed<'_>) -> Result<i64, StoreError> {
    let Deed { verb, consumer, replay, messages, detail } = deed;
    let action = Action {
        who: actor.who().to_owned(),
        why: actor.why().to_owned(),
        verb: verb.to_owned(),
        consumer,
        replay,
        messages,
        detail: detail.to_string(),
    };
    tx.audit(&action).await
}

impl<S: Store> Clone for Admin<S> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            idle: Arc::clone(&self.idle),
            clock: Arc::clone(&self.clock),
            identify: Arc::clone(&self.identify),
            readable: self.readable.clone(),
            versions: self.versions.clone(),
        }
    }
}

impl<S: Store> fmt::Debug for Admin<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("store", &self.store).finish_non_exhaustive()
    }
}
