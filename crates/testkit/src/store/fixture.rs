//! What an adapter supplies so that the suites can run on it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{Failure, Store, Transaction};

use crate::clock::ManualClock;
use crate::skip::skipped;

/// What a handler on the fixture's store writes through.
pub type DbOf<F> = <<<F as StoreFixture>::Store as Store>::Tx as Transaction>::Db;

/// Gives each case a store of its own, and reaches the business tables beside the store's own.
///
/// The business tables are two: one that takes any text, many times ([`write_effect`](Self::write_effect)), and one
/// whose key is unique ([`insert_unique`](Self::insert_unique)). `fresh` makes them.
pub trait StoreFixture: Send + Sync + 'static {
    /// The store under test.
    type Store: Store;

    /// An empty store that shares nothing with any other, so that cases run side by side: a database, a schema or a
    /// file of its own. Its leases run by `clock`; a store that can't be told the time implements
    /// [`advance`](Self::advance) instead.
    ///
    /// `None` if the server is not there: the case is skipped, and [`skipped`](crate::skipped) notes its name.
    fn fresh(&self, clock: Arc<ManualClock>) -> impl Future<Output = Option<Self::Store>> + Send;

    /// Another handle on the same store, as another process would open it. Give it connections of its own where the
    /// store has any; the default is a clone.
    fn reopen(&self, store: &Self::Store) -> impl Future<Output = Self::Store> + Send {
        let store = store.clone();
        async move { store }
    }

    /// Lets time pass for leases in `store`. By default moves the clock that `fresh` got.
    fn advance(&self, store: &Self::Store, clock: &ManualClock, by: Duration) -> impl Future<Output = ()> + Send {
        let _ = store;
        clock.advance(by);
        std::future::ready(())
    }

    /// Adds `id` to the business table that takes anything, in the transaction behind `db`.
    fn write_effect(db: &mut DbOf<Self>, id: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// All committed ids in that table, in any order, each as often as it was written.
    fn effects(store: &Self::Store) -> impl Future<Output = Vec<String>> + Send;

    /// Adds `key` to the business table with a unique key. A key that is there makes the statement fail; hand the
    /// driver's error on with `?`, so that the store can read it.
    fn insert_unique(db: &mut DbOf<Self>, key: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Runs a statement that fails, and ignores its error, as a careless handler would.
    fn swallow_error(db: &mut DbOf<Self>) -> impl Future<Output = ()> + Send;
}

/// A fresh store with its clock, as each case gets it.
pub struct Setup<F: StoreFixture> {
    /// Whose it is.
    pub fixture: F,
    /// What its leases run by.
    pub clock: Arc<ManualClock>,
    /// The store under test.
    pub store: F::Store,
}

impl<F: StoreFixture> Setup<F> {
    /// Lets time pass for leases in the store.
    pub async fn advance(&self, by: Duration) {
        self.fixture.advance(&self.store, &self.clock, by).await;
    }
}

impl<F: StoreFixture> fmt::Debug for Setup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Runs one case on a fresh store, or notes under `name` that it was skipped. The suites' macros call this.
pub async fn run<F, C, Case>(name: &str, fixture: F, case: C)
where
    F: StoreFixture,
    C: FnOnce(Setup<F>) -> Case,
    Case: Future<Output = ()>,
{
    let clock = Arc::new(ManualClock::new());
    match fixture.fresh(Arc::clone(&clock)).await {
        Some(store) => case(Setup { fixture, clock, store }).await,
        None => skipped(name),
    }
}
