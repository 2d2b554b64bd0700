//! A store whose calls go wrong by a plan.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use oncebox_core::identity::{Bound, Offer};
use oncebox_core::store::{DriverError, StoreCapabilities};
use oncebox_core::{
    Claim, ClaimRequest, ConsumerId, ConsumerName, Ended, Inbox, Key, Outcome, Session, Store, StoreError,
    StoreErrorKind, Transaction,
};

use tokio::sync::watch;

use super::plan::{Fault, FaultPlan, Moment};

/// A store whose calls go wrong by a [`FaultPlan`]. It has the identity and the capabilities of the one inside.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: FaultPlan,
}

impl<S: Store> Faulty<S> {
    /// Wraps a store.
    pub fn new(store: S, plan: FaultPlan) -> Self {
        Self { inner: store, plan }
    }

    /// The store inside, on which nothing goes wrong.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    pub(super) fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

/// The error of a call that was made to fail.
pub(super) fn injected(call: &str, fault: Fault) -> StoreError {
    let (kind, reason) = match fault {
        Fault::AfterDoing => (StoreErrorKind::Unavailable, "a test lost the answer"),
        Fault::Contended => (StoreErrorKind::Contended, "a test stood in the way"),
        Fault::Misconfigured => (StoreErrorKind::Configuration, "a test took the table away; give it back"),
        Fault::Stale => (StoreErrorKind::Stale, "a test spoilt the session"),
        _ => (StoreErrorKind::Unavailable, "a test lost the call"),
    };
    StoreError::new(kind, call, reason)
}

/// Makes a call that can be repeated, as the fault says.
pub(super) async fn with_fault<T, Call>(
    call: &'static str,
    fault: Option<Fault>,
    mut inner: impl FnMut() -> Call,
) -> Result<T, StoreError>
where
    Call: Future<Output = Result<T, StoreError>> + Send,
    T: Send,
{
    match fault {
        None | Some(Fault::Delay(_)) => inner().await,
        Some(fault @ Fault::AfterDoing) => inner().await.and(Err(injected(call, fault))),
        Some(Fault::Repeat) => {
            let first = inner().await;
            if first.is_ok() {
                // Whoever sent it again does not look at the second answer.
                let _ = inner().await;
            }
            first
        }
        Some(fault) => Err(injected(call, fault)),
    }
}

impl<S: Store> Store for Faulty<S> {
    type Session = FaultySession<S>;
    type Tx = FaultyTx<S>;
    type Doubt = FaultyDoubt<S>;

    fn capabilities(&self) -> StoreCapabilities {
        self.inner.capabilities()
    }

    fn identity(&self) -> &str {
        self.inner.identity()
    }

    async fn connect(&self) -> Result<FaultySession<S>, StoreError> {
        let fault = self.plan.next("connect").await;
        let inner = with_fault("connect", fault, || self.inner.connect()).await?;
        Ok(FaultySession { inner, plan: self.plan.clone() })
    }

    async fn consumer(&self, name: &ConsumerName) -> Result<ConsumerId, StoreError> {
        let fault = self.plan.next("consumer").await;
        with_fault("consumer", fault, || self.inner.consumer(name)).await
    }

    async fn bind(&self, name: &ConsumerName, offer: &Offer) -> Result<Bound, StoreError> {
        let fault = self.plan.next("bind").await;
        with_fault("bind", fault, || self.inner.bind(name, offer)).await
    }

    fn resolve(&self, doubt: &FaultyDoubt<S>) -> impl Future<Output = Result<(), StoreError>> + Send {
        // Made here and awaited below, because a doubt need not be `Sync` and can't be kept across an await.
        let mut inner = [(); 2].map(|()| doubt.inner.as_ref().map(|inner| self.inner.resolve(inner))).into_iter();
        let late = doubt.late.clone();
        async move {
            let fault = self.plan.next("resolve").await;
            with_fault("resolve", fault, || {
                let (inner, late) = (inner.next().flatten(), late.clone());
                async move {
                    if let Some(mut late) = late {
                        // Nothing is ever sent: it fails when the late commit is over.
                        let _ = late.changed().await;
                    }
                    match inner {
                        Some(inner) => inner.await,
                        None => Ok(()),
                    }
                }
            })
            .await
        }
    }

    fn commits_wait_for(&self) -> Option<String> {
        self.inner.commits_wait_for()
    }

    fn read_error(&self, error: &(dyn Error + 'static)) -> Option<DriverError> {
        self.inner.read_error(error)
    }
}

/// A connection of a [`Faulty`] store.
#[derive(Debug)]
pub struct FaultySession<S: Store> {
    inner: S::Session,
    plan: FaultPlan,
}

impl<S: Store> Session for FaultySession<S> {
    type Tx = FaultyTx<S>;

    async fn begin(self, lock_wait: Duration) -> Result<FaultyTx<S>, StoreError> {
        match self.plan.next("begin").await {
            None | Some(Fault::Delay(_) | Fault::Repeat) => {
                let inner = self.inner.begin(lock_wait).await?;
                self.plan.tell(Moment::Begun);
                Ok(FaultyTx { inner, plan: self.plan, broken: false })
            }
            Some(fault @ Fault::AfterDoing) => {
                let begun = self.inner.begin(lock_wait).await?;
                self.plan.tell(Moment::Begun);
                drop(begun);
                Err(injected("begin", fault))
            }
            Some(fault) => Err(injected("begin", fault)),
        }
    }
}

/// A transaction of a [`Faulty`] store.
#[derive(Debug)]
pub struct FaultyTx<S: Store> {
    pub(super) inner: S::Tx,
    pub(super) plan: FaultPlan,
    /// Whether a call on it was made to fail. As with a connection that is gone, nothing can be done on it any more.
    pub(super) broken: bool,
}

/// What is left of a transaction of a [`Faulty`] store whose end is not known.
#[derive(Debug)]
pub struct FaultyDoubt<S: Store> {
    /// `None` if the transaction ended and only the answer was lost.
    inner: Option<S::Doubt>,
    /// Closed when a commit that was made late is over.
    late: Option<watch::Receiver<()>>,
}

impl<S: Store> FaultyDoubt<S> {
    fn over() -> Self {
        Self { inner: None, late: None }
    }

    fn of(inner: S::Doubt) -> Self {
        Self { inner: Some(inner), late: None }
    }
}

/// Makes a call on a transaction, which breaks it if the call is made to fail.
macro_rules! on_transaction {
    ($tx:ident, $call:literal, $inner:expr) => {{
        if $tx.broken {
            return Err(lost($call));
        }
        let fault = $tx.plan.next($call).await;
        let done = match fault {
            None | Some(Fault::Delay(_)) => return $inner.await,
            Some(Fault::Repeat) => {
                let first = $inner.await;
                if first.is_ok() {
                    // Whoever sent it again does not look at the second answer.
                    let _ = $inner.await;
                }
                return first;
            }
            Some(fault @ Fault::AfterDoing) => $inner.await.and(Err(injected($call, fault))),
            Some(fault) => Err(injected($call, fault)),
        };
        $tx.broken = true;
        done
    }};
}
pub(super) use on_transaction;

/// Tells those who watch, once it is done.
async fn telling(
    doing: impl Future<Output = Result<(), StoreError>>,
    plan: &FaultPlan,
    moment: Moment,
) -> Result<(), StoreError> {
    doing.await?;
    plan.tell(moment);
    Ok(())
}

pub(super) fn lost(call: &str) -> StoreError {
    StoreError::new(StoreErrorKind::TransactionLost, call, "an earlier call on the transaction was made to fail")
}

impl<S: Store> Inbox for FaultyTx<S> {
    async fn claim(&mut self, requests: &[ClaimRequest]) -> Result<Vec<Claim>, StoreError> {
        on_transaction!(self, "claim", self.inner.claim(requests))
    }

    async fn record(&mut self, outcomes: &[(ConsumerId, Key, Outcome)]) -> Result<(), StoreError> {
        on_transaction!(self, "record", self.inner.record(outcomes))
    }

    async fn reclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<Vec<bool>, StoreError> {
        on_transaction!(self, "reclaim", self.inner.reclaim(keys))
    }

    async fn unclaim(&mut self, keys: &[(ConsumerId, Key)]) -> Result<(), StoreError> {
        on_transaction!(self, "unclaim", self.inner.unclaim(keys))
    }
}

impl<S: Store> Transaction for FaultyTx<S> {
    type Session = FaultySession<S>;
    type Doubt = FaultyDoubt<S>;
    type Db = <S::Tx as Transaction>::Db;

    fn db(&mut self) -> &mut Self::Db {
        self.inner.db()
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.broken { Err(lost("go on")) } else { self.inner.alive() }
    }

    async fn verify(&mut self) -> Result<(), StoreError> {
        self.inner.verify().await
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        on_transaction!(self, "mark", telling(self.inner.mark(), &self.plan, Moment::Marked))
    }

    async fn back_to_mark(&mut self) -> Result<(), StoreError> {
        on_transaction!(self, "back-to-mark", telling(self.inner.back_to_mark(), &self.plan, Moment::WentBack))
    }

    async fn commit(self) -> Ended<FaultySession<S>, FaultyDoubt<S>> {
        let Self { inner, plan, broken } = self;
        let fault = plan.next("commit").await;
        if broken {
            inner.rollback().await;
            return Ended::RolledBack { session: None, error: lost("commit") };
        }
        match fault {
            None | Some(Fault::Delay(_) | Fault::Repeat) => wrapped(told(inner, &plan).await, plan),
            Some(fault @ (Fault::BeforeDoing | Fault::Contended | Fault::Misconfigured | Fault::Stale)) => {
                inner.rollback().await;
                Ended::RolledBack { session: None, error: injected("commit", fault) }
            }
            Some(fault @ Fault::AfterDoing) => match told(inner, &plan).await {
                Ended::Committed(_) => Ended::Unknown { doubt: FaultyDoubt::over(), error: injected("commit", fault) },
                other => wrapped(other, plan),
            },
            Some(fault @ Fault::Lost) => {
                inner.rollback().await;
                Ended::Unknown { doubt: FaultyDoubt::over(), error: injected("commit", fault) }
            }
            Some(fault @ Fault::Late(after)) => {
                let (over, late) = watch::channel(());
                #[allow(clippy::disallowed_methods, reason = "it is the other side, which goes on without its client")]
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = told(inner, &plan).await;
                    drop(over);
                });
                let doubt = FaultyDoubt { inner: None, late: Some(late) };
                Ended::Unknown { doubt, error: injected("commit", fault) }
            }
        }
    }

    async fn rollback(self) -> Option<FaultySession<S>> {
        let fault = self.plan.next("rollback").await;
        let session = self.inner.rollback().await;
        // However a rollback goes wrong, nothing is committed; only the connection is gone.
        match fault {
            None | Some(Fault::Delay(_) | Fault::Repeat) if !self.broken => {
                session.map(|inner| FaultySession { inner, plan: self.plan })
            }
            _ => None,
        }
    }

    fn abandon(self) -> FaultyDoubt<S> {
        FaultyDoubt::of(self.inner.abandon())
    }
}

/// Commits, and tells whoever watches before anyone else can begin.
async fn told<T: Transaction>(tx: T, plan: &FaultPlan) -> Ended<T::Session, T::Doubt> {
    let ended = tx.commit().await;
    if matches!(ended, Ended::Committed(_)) {
        plan.tell(Moment::Committed);
    }
    ended
}

fn wrapped<S: Store>(ended: Ended<S::Session, S::Doubt>, plan: FaultPlan) -> Ended<FaultySession<S>, FaultyDoubt<S>> {
    match ended {
        Ended::Committed(inner) => Ended::Committed(FaultySession { inner, plan }),
        Ended::RolledBack { session, error } => {
            Ended::RolledBack { session: session.map(|inner| FaultySession { inner, plan }), error }
        }
        Ended::Unknown { doubt, error } => Ended::Unknown { doubt: FaultyDoubt::of(doubt), error },
    }
}
