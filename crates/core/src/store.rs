//! The seam to a transactional store.
//!
//! ```text
//!  Store ──connect──▶ Session ──begin──▶ Transaction ──commit──▶ Committed(Session)
//!    ▲                   ▲                    │                  RolledBack(Session?)
//!    │                   └────rollback────────┤                  Unknown(Doubt)
//!    └───────────────────resolve──────────────┴──abandon──▶ Doubt
//! ```
//!
//! Nothing changes state without a transaction in hand. Every type is owned (`Send + 'static`), so that a handler can
//! be a plain `async fn` that takes the transaction with it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::claim::{Claim, ClaimRequest};
use crate::error::{StoreError, StoreErrorKind};
use crate::horizon::HorizonStore;
use crate::identity::{Bound, Offer};
use crate::key::Key;
use crate::outbox::OutboxStore;
use crate::outcome::Outcome;
use crate::parked::ParkStore;
use crate::versions::VersionStore;

/// A transactional store: where keys are claimed and effects are written, in one transaction.
pub trait Store: Clone + fmt::Debug + Send + Sync + 'static {
    /// A connection that a lane keeps for itself.
    type Session: Session<Tx = Self::Tx>;
    /// An open transaction, with the inbox on it.
    type Tx: Transaction<Session = Self::Session, Doubt = Self::Doubt>;
    /// What is left of a transaction whose end is not known.
    type Doubt: fmt::Debug + Send + 'static;

    /// What this store guarantees.
    fn capabilities(&self) -> StoreCapabilities;

    /// Which database this is. Two stores with one identity see the same rows; a queue in one can be settled in a
    /// transaction of the other.
    fn identity(&self) -> &str;

    /// Opens a connection. Fails with `Unavailable` while the store is away.
    fn connect(&self) -> impl Future<Output = Result<Self::Session, StoreError>> + Send;

    /// The small id under which a consumer's records are kept. Durable when it returns; the same name gets the same
    /// id, from any process, at any time.
    fn consumer(&self, name: &ConsumerName) -> impl Future<Output = Result<ConsumerId, StoreError>> + Send;

    /// Binds the name of a consumer to the way that a start makes its keys, or refuses the start; see
    /// [`identity::bind`](crate::identity::bind), which does it for any store. Durable when it returns.
    fn bind(&self, name: &ConsumerName, offer: &Offer) -> impl Future<Output = Result<Bound, StoreError>> + Send;

    /// Returns once the transaction behind `doubt` can't change its mind any more: it has committed, or it never will.
    /// It does not say which; claim each key again to find out. Safe to repeat. On error nothing is settled: resolve
    /// again before you claim.
    fn resolve(&self, doubt: &Self::Doubt) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What commits of this process wait for at the moment, if that is known and isn't the store itself: a replica, say. It
    /// is shown to operators.
    fn commits_wait_for(&self) -> Option<String> {
        None
    }

    /// Reads an error that a handler got from this store's driver; `None` if it is not one of its driver's.
    fn read_error(&self, error: &(dyn Error + 'static)) -> Option<DriverError>;
}

/// A store that a consumer can run on: it can also set messages aside, keep versions and an outbox, and say how far back
/// it remembers.
pub trait ConsumerStore: ParkStore + VersionStore + HorizonStore + OutboxStore {}

impl<S: ParkStore + VersionStore + HorizonStore + OutboxStore> ConsumerStore for S {}

/// A connection that is not in a transaction.
pub trait Session: fmt::Debug + Send + 'static {
    /// The transaction that it turns into.
    type Tx;

    /// Begins a transaction in which no statement waits longer than `lock_wait` for someone else's lock.
    ///
    /// Must be awaited to its end. On error the connection is gone: open another.
    fn begin(self, lock_wait: Duration) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;
}

/// An open transaction. Dropped, it rolls back and its connection is closed, not reused.
pub trait Transaction: Inbox + fmt::Debug + Send + 'static {
    /// The connection that is handed back when it ends.
    type Session;
    /// See [`Store::Doubt`].
    type Doubt;
    /// What a handler writes through.
    type Db: Send;

    /// What a handler writes through. Everything written here commits with the claim or not at all.
    fn db(&mut self) -> &mut Self::Db;

    /// Whether, as far as this side can tell without asking, it is still the transaction that was begun. Cheap;
    /// called after each handler. [`commit`](Self::commit) asks the store itself.
    fn alive(&self) -> Result<(), StoreError>;

    /// Asks the store whether this is still the transaction that was begun, before it is rolled back after a failure.
    /// `Breached` if a handler ended it. Other errors mean nothing here.
    fn verify(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Sets a mark that [`back_to_mark`](Self::back_to_mark) comes back to. The one before is given up.
    fn mark(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes what was done since the mark, a failed statement included. The mark stays. After an error the transaction
    /// is fit only to be rolled back.
    fn back_to_mark(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Seals, then commits.
    ///
    /// The *seal* is a checked last statement: the transaction is alive, is the one that claimed, and is as durable as
    /// configured. Where it fails, nothing is committed. `Committed` means durable. Must be awaited to its end.
    fn commit(self) -> impl Future<Output = Ended<Self::Session, Self::Doubt>> + Send;

    /// Rolls back. `None` if the connection had to be closed.
    fn rollback(self) -> impl Future<Output = Option<Self::Session>> + Send;

    /// Gives up a transaction that a cancelled handler may have left in the middle of a statement. Resolve the doubt
    /// before you touch its keys again.
    fn abandon(self) -> Self::Doubt;
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Ended<S, D> {
    /// Durable.
    Committed(S),
    /// Not committed by us, and certainly not at all, unless the error is `Breached`: then a handler ended the
    /// transaction, and nobody may go on as if nothing had been committed.
    RolledBack {
        /// The connection, if it can be used again.
        session: Option<S>,
        /// Why.
        error: StoreError,
    },
    /// Nobody knows: the answer to COMMIT was lost. [Resolve](Store::resolve) the doubt, then claim each key again.
    Unknown {
        /// What to resolve.
        doubt: D,
        /// What was lost.
        error: StoreError,
    },
}

/// The inbox on a transaction.
pub trait Inbox {
    /// Claims keys, all different, and answers in their order.
    ///
    /// A claimed key counts as applied, with no result, once the transaction commits; nothing is durable before. A key
    /// that another open transaction holds is waited for and then answered by that transaction's fate; a wait beyond
    /// the transaction's lock wait fails with `Contended`, as do deadlocks: roll back and run again.
    fn claim(&mut self, requests: &[ClaimRequest]) -> impl Future<Output = Result<Vec<Claim>, StoreError>> + Send;

    /// Replaces the outcome of keys that this transaction claimed.
    fn record(
        &mut self,
        outcomes: &[(ConsumerId, Key, Outcome)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Turns the records of parked messages back into claims of this transaction. Answers for each whether it did;
    /// `false`: the record is not, or no longer, one of a parked message. Waits for others as [`claim`](Self::claim)
    /// does.
    fn reclaim(&mut self, keys: &[(ConsumerId, Key)]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Takes back keys that this transaction claimed, as if it had not. What it [reclaimed](Self::reclaim) is the
    /// record of a parked message again.
    fn unclaim(&mut self, keys: &[(ConsumerId, Key)]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What a store guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCapabilities {
    /// What it is, for logs: `postgres`.
    pub name: &'static str,
    /// What it acknowledged survives the loss of power, as configured.
    pub durable: bool,
    /// Several processes can share it.
    pub shared: bool,
    /// Transactions run side by side; otherwise one at a time.
    pub concurrent: bool,
    /// An error in one statement aborts the whole transaction.
    pub error_aborts: bool,
}

impl StoreCapabilities {
    /// Capabilities of a store called `name` that promises nothing yet.
    pub const fn none(name: &'static str) -> Self {
        Self { name, durable: false, shared: false, concurrent: false, error_aborts: false }
    }
}

/// What a store makes of its driver's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// What can be done about it.
    pub kind: StoreErrorKind,
    /// Why, without values: a driver's own text may quote them.
    pub reason: String,
    /// The unique constraint that was violated, by the name the store gives it.
    pub unique: Option<String>,
}

/// The name of a consumer: 1 to 100 visible ASCII characters, and not `*`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerName(String);

impl ConsumerName {
    /// Checks a name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        // `*` is the name of the records that consumers with global keys share.
        let fits = (1..=100).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) && name != "*";
        if fits { Ok(Self(name)) } else { Err(InvalidName { name }) }
    }

    /// The records of all consumers that choose [`Scope::Global`](crate::key::Scope::Global).
    pub fn global() -> Self {
        Self("*".to_owned())
    }

    /// The queue in which a stored-mode consumer keeps what it received. The space keeps it apart from names people
    /// choose.
    pub(crate) fn received(consumer: &Self) -> Self {
        Self(format!("received {consumer}"))
    }

    /// The queue under which the lanes of the outbox are held.
    pub(crate) fn outbox() -> Self {
        Self("the outbox".to_owned())
    }

    /// Takes back what a store kept; `None` if it is no name.
    pub fn from_stored(name: &str) -> Option<Self> {
        if name == "*" { Some(Self::global()) } else { Self::new(name).ok() }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name that can't be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {name:?} as a name: it needs 1 to 100 visible ASCII characters, and may not be `*`")]
pub struct InvalidName {
    name: String,
}

/// The small id of a consumer within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub i16);
