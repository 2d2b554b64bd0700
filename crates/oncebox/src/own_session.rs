//! A connection that a source keeps for its own statements, beside those of the lanes.

use std::future::Future;
use std::time::Duration;

use oncebox_core::store::{Ended, Session, Transaction};
use oncebox_core::{Store, StoreError};
use tokio::sync::Mutex;

/// One connection, used by one transaction at a time.
pub(crate) struct OwnSession<S: Store> {
    store: S,
    own: Mutex<Own<S>>,
}

/// A connection, and what became of an earlier one.
struct Own<S: Store> {
    session: Option<S::Session>,
    /// A transaction whose end is unknown. As long as it may live, it may hold locks that nobody else gets past.
    doubt: Option<S::Doubt>,
}

/// How long its statements wait for someone else's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

impl<S: Store> OwnSession<S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store, own: Mutex::new(Own { session: None, doubt: None }) }
    }

    /// Runs `work` in a transaction and commits. An unknown commit is an error here: leases and releases that may or
    /// may not have happened are put right by time, once its session is gone.
    pub(crate) async fn in_transaction<T, Fut>(&self, work: impl FnOnce(S::Tx) -> Fut) -> Result<T, StoreError>
    where
        Fut: Future<Output = (S::Tx, Result<T, StoreError>)>,
    {
        self.run(work, |_| true).await
    }

    /// The same for a look that mostly finds nothing: then there is nothing to commit.
    pub(crate) async fn look<T, Fut>(&self, work: impl FnOnce(S::Tx) -> Fut) -> Result<Vec<T>, StoreError>
    where
        Fut: Future<Output = (S::Tx, Result<Vec<T>, StoreError>)>,
    {
        self.run(work, |found| !found.is_empty()).await
    }

    /// The same for work that says itself whether there is something to commit.
    pub(crate) async fn run<T, Fut>(
        &self,
        work: impl FnOnce(S::Tx) -> Fut,
        is_worth_a_commit: impl FnOnce(&T) -> bool,
    ) -> Result<T, StoreError>
    where
        Fut: Future<Output = (S::Tx, Result<T, StoreError>)>,
    {
        let mut own = self.own.lock().await;
        self.resolve(&mut own).await?;
        let session = match own.session.take() {
            Some(session) => session,
            None => self.store.connect().await?,
        };
        let tx = session.begin(LOCK_WAIT).await?;
        let (tx, done) = work(tx).await;
        match done {
            Err(error) => {
                let session = tx.rollback().await;
                // A session may have lost what it had prepared; with the next one it works again, or the store is away.
                own.session = session.filter(|_| !error.is_outage());
                Err(error)
            }
            Ok(done) if !is_worth_a_commit(&done) => {
                own.session = tx.rollback().await;
                Ok(done)
            }
            Ok(done) => match tx.commit().await {
                Ended::Committed(session) => {
                    own.session = Some(session);
                    Ok(done)
                }
                Ended::RolledBack { session, error } => {
                    own.session = session.filter(|_| !error.is_outage());
                    Err(error)
                }
                Ended::Unknown { doubt, error } => {
                    own.doubt = Some(doubt);
                    // Now, because there may be no next time; if the store is away, then the next time.
                    let _ = self.resolve(&mut own).await;
                    Err(error)
                }
            },
        }
    }

    /// Makes sure that a transaction whose end is unknown holds nothing any more.
    async fn resolve(&self, own: &mut Own<S>) -> Result<(), StoreError> {
        if let Some(doubt) = &own.doubt {
            self.store.resolve(doubt).await?;
            own.doubt = None;
        }
        Ok(())
    }
}
