//! What a handler works with.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use oncebox_core::archive::Archives;
use oncebox_core::claim::{Claim, ClaimRequest, Earlier};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::store::{Inbox, Transaction};
use oncebox_core::versions::{Standing, Versions};
use oncebox_core::{
    ConsumerId, ConsumerStore, Failure, Fingerprint, Fingerprinter, Key, Message, Outcome, OutcomeKind, Store,
    StoreError, StoreErrorKind,
};

use crate::consumer::guard::Guarded;
use crate::event::Event;

/// A future that may go anywhere.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One that goes no further than what it borrows.
pub(crate) type BorrowedFuture<'b, T> = Pin<Box<dyn Future<Output = T> + Send + 'b>>;

/// What a handler works with: the open transaction and the messages.
///
/// It owns the transaction and hands it back when it is dropped, at the end of the handler. A handler that keeps it
/// alive elsewhere leaves the engine without a transaction, and nothing commits.
pub struct Context<S: Store> {
    /// `None` only while it is being dropped.
    tx: Option<S::Tx>,
    messages: Arc<[Arc<Message>]>,
    consumer: ConsumerId,
    left: Left,
    home: Arc<Home<S>>,
}

/// What a handler leaves behind beside its writes.
#[derive(Default)]
pub(crate) struct Left {
    pub(crate) hooks: Vec<Hook>,
    pub(crate) events: Vec<Event>,
}

/// Work for after the commit. Dropped with others when that does not come, so what it holds must not panic through.
pub(crate) type Hook = Guarded<dyn Future<Output = ()> + Send>;

/// Where a context leaves its transaction.
pub(crate) struct Home<S: Store>(Mutex<Option<(S::Tx, Left)>>);

impl<S: Store> Home<S> {
    /// The transaction, if the handler gave it back.
    pub(crate) fn take(&self) -> Option<(S::Tx, Left)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<S: Store> Context<S> {
    pub(crate) fn new(tx: S::Tx, messages: Arc<[Arc<Message>]>, consumer: ConsumerId) -> (Self, Arc<Home<S>>) {
        let home = Arc::new(Home(Mutex::new(None)));
        let context = Self { tx: Some(tx), messages, consumer, left: Left::default(), home: Arc::clone(&home) };
        (context, home)
    }

    /// The database, inside the message's transaction. What is written here commits with the claim or not at all.
    ///
    /// Begin and commit belong to the engine: a nested `begin` is a savepoint, and a handler that runs `COMMIT` itself
    /// is found out before anything is acknowledged.
    pub fn db(&mut self) -> &mut <S::Tx as Transaction>::Db {
        self.tx().db()
    }

    /// The message. A batch handler sees its first; see [`messages`](Self::messages).
    pub fn message(&self) -> &Message {
        &self.messages[0]
    }

    /// All messages of this call, in order.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Runs `hook` after the commit: refresh a cache, wake someone. Best effort: a crash between the commit and the
    /// hook skips it. For one that heals by itself, see [`Consumer::after_commit`](crate::Consumer::after_commit).
    pub fn after_commit(&mut self, hook: impl Future<Output = ()> + Send + 'static) {
        self.left.hooks.push(Guarded::new(Box::pin(hook)));
    }

    /// Publishes `event` if the transaction commits, and not otherwise: it is written to the outbox with the claim, and a
    /// [relay](crate::Relay) does the rest. Goes on with the trace of the message.
    ///
    /// A handler without a claim ([`on_idempotent`](crate::Consumer::on_idempotent)) runs again for a duplicate, so its
    /// events must have ids of their own.
    pub fn emit(&mut self, event: Event) {
        self.left.events.push(event);
    }

    /// Claims an operation on an entity within this message's transaction: `Fresh` the first time `operation` is
    /// applied to `entity` by this consumer, `Duplicate` afterwards, whatever message asks for it.
    ///
    /// It is remembered for as long as this consumer's records are kept. [`Retention`](crate::Retention) deletes it with the
    /// others, and a young message that asks again then finds it fresh. Where that matters, let retention archive keys and ask
    /// with [`apply_once_ever`](Self::apply_once_ever).
    pub async fn apply_once(&mut self, entity: &str, operation: &str) -> Result<Claim, Failure> {
        let key = operation_key(entity, operation)?;
        let fingerprint = operation_fingerprint(operation);
        let request = ClaimRequest { consumer: self.consumer, key, fingerprint, id_hash: None };
        let claims = self.tx().claim(&[request]).await?;
        match claims.into_iter().next() {
            // Never the handler's to judge: skipped, the operation would be lost.
            None | Some(Claim::Undecided) => {
                let why = "its record came and went; claim again";
                Err(StoreError::new(StoreErrorKind::Contended, format!("apply {operation:?} once"), why).into())
            }
            Some(claim) => Ok(claim),
        }
    }

    /// The same, and if there is no record, the [archive](oncebox_core::archive) is asked for one that has expired: `Duplicate` for
    /// as long as keys are archived. A look costs more the more is archived.
    pub async fn apply_once_ever(&mut self, entity: &str, operation: &str) -> Result<Claim, Failure>
    where
        S: QuarantineStore,
    {
        let claim = self.apply_once(entity, operation).await?;
        if claim != Claim::Fresh {
            return Ok(claim);
        }
        let (key, consumer) = (operation_key(entity, operation)?, self.consumer);
        // After the claim: a record and its place in the archive change together, so the key is in one of them.
        let found = self.tx().archived(consumer, std::slice::from_ref(&key)).await?;
        if !found.into_iter().flatten().any(|found| found.consumer == consumer) {
            return Ok(claim);
        }
        self.tx().unclaim(&[(consumer, key)]).await?;
        // How it ended went with its record.
        let outcome = Outcome::of(OutcomeKind::Applied).replayed();
        Ok(Claim::Duplicate(Earlier { outcome, id_hash: None, fingerprint: operation_fingerprint(operation) }))
    }

    pub(crate) fn tx(&mut self) -> &mut S::Tx {
        self.tx.as_mut().expect("a context holds its transaction until it is dropped")
    }
}

fn operation_key(entity: &str, operation: &str) -> Result<Key, Failure> {
    Ok(Key::parts([&b"apply-once"[..], entity.as_bytes(), operation.as_bytes()])?)
}

/// The operation is the content: there is nothing else that could differ.
fn operation_fingerprint(operation: &str) -> Fingerprint {
    Fingerprinter::default().fingerprint(&Message::new("apply-once").with_payload(operation.to_owned()))
}

impl<S: ConsumerStore> Context<S> {
    /// Where `version` stands towards `aggregate`, which comes as far as that if it is the next one; the first one is 1.
    /// The aggregate's record stays locked until the transaction ends, so what is written after
    /// [`Standing::Next`](crate::versions::Standing::Next) never turns its state back.
    ///
    /// For handlers that decide themselves; [`Consumer::versioned`](crate::Consumer::versioned) decides for all of a
    /// consumer's messages, and lets gaps wait.
    pub async fn advance(&mut self, aggregate: &str, version: u64) -> Result<Standing, Failure> {
        let key = Key::parts([&b"advance"[..], aggregate.as_bytes()])?;
        let consumer = self.consumer;
        let applied = self.tx().lock_versions(consumer, std::slice::from_ref(&key)).await?;
        let standing = Standing::of(version, applied.into_iter().next().flatten(), 1);
        if standing == Standing::Next {
            self.tx().advance_versions(consumer, &[(key, version)]).await?;
        }
        Ok(standing)
    }
}

impl<S: Store> Drop for Context<S> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            let returned = (tx, std::mem::take(&mut self.left));
            *self.home.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
        }
    }
}

impl<S: Store> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("messages", &self.messages).finish_non_exhaustive()
    }
}
