//! A session, and the transaction that it turns into.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::key::Key;
use oncebox_core::outcome::Outcome;
use oncebox_core::parked::FoundParked;
use oncebox_core::store::{ConsumerId, Ended, Session, Transaction};

use sqlx::SqlSafeStr;

use crate::claimed::Claimed;
use crate::connection::Connection;
use crate::dialect::Dialect;
use crate::error::ours;
use crate::hope::Hope;
use crate::queries::Queries;
use crate::store::Shared;

/// How long transactions that are not a message's wait for a lock: at start, when ten processes may start together.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(30);

/// A connection that is not in a transaction.
pub struct SqlSession<D: Dialect> {
    store: Arc<Shared<D>>,
    idle: D::Idle,
    hope: Hope,
}

/// An open transaction.
pub struct SqlTx<D: Dialect> {
    store: Arc<Shared<D>>,
    open: D::Open,
    pub(crate) claimed: Claimed,
    /// Those of its claims that were reclaimed, with what their records said before.
    pub(crate) reclaimed: HashMap<(ConsumerId, Key), Outcome>,
    /// Keys that were asked for and whose records say that their message is parked, whoever keeps them.
    pub(crate) found_parked: FoundParked,
    /// Consumers of which nothing was parked that may block an order key, as the last claim has seen it.
    pub(crate) unblocked: Vec<ConsumerId>,
    pub(crate) hope: Hope,
    /// Nothing was done in it yet.
    untouched: bool,
    is_marked: bool,
    /// Something was added to the outbox, or can be sent again.
    pub(crate) emits: bool,
}

impl<D: Dialect> SqlSession<D> {
    pub(crate) fn new(store: Arc<Shared<D>>, idle: D::Idle) -> Self {
        Self { store, idle, hope: Hope::default() }
    }
}

impl<D: Dialect> Session for SqlSession<D> {
    type Tx = SqlTx<D>;

    async fn begin(self, lock_wait: Duration) -> Result<SqlTx<D>, StoreError> {
        let open = self.store.dialect.begin(self.idle, lock_wait).await?;
        Ok(SqlTx {
            store: self.store,
            open,
            claimed: Claimed::default(),
            reclaimed: HashMap::new(),
            found_parked: FoundParked::default(),
            unblocked: Vec::new(),
            hope: self.hope,
            untouched: true,
            is_marked: false,
            emits: false,
        })
    }
}

impl<D: Dialect> SqlTx<D> {
    /// The statements, the time if a test keeps it, and the connection.
    pub(crate) fn parts(&mut self) -> (&Queries, Option<i64>, &mut D::Db) {
        self.untouched = false;
        (&self.store.queries, self.store.now(), D::db(&mut self.open))
    }

    /// Whether nothing would be lost if it started over.
    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Starts over after a failed statement.
    pub(crate) async fn restart(&mut self) -> Result<(), StoreError> {
        self.store.dialect.restart(&mut self.open).await
    }

    async fn run_script(&mut self, attempted: &str, sql: &'static str) -> Result<(), StoreError> {
        let patience = self.patience();
        let (_, _, db) = self.parts();
        bounded(patience, async { db.script(sql.into_sql_str()).await.map_err(|error| ours(attempted, error)) }).await
    }

    pub(crate) fn patience(&self) -> Duration {
        self.store.dialect.patience()
    }
}

/// Runs some of our own statements, and does not wait forever for a server that is gone without a word.
pub(crate) async fn bounded<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        let why = "the store did not answer in time";
        Err(StoreError::new(StoreErrorKind::Unavailable, "run a statement", why))
    })
}

impl<D: Dialect> Transaction for SqlTx<D> {
    type Session = SqlSession<D>;
    type Doubt = D::Doubt;
    type Db = D::Db;

    fn db(&mut self) -> &mut D::Db {
        self.untouched = false;
        D::db(&mut self.open)
    }

    fn alive(&self) -> Result<(), StoreError> {
        self.store.dialect.alive(&self.open)
    }

    async fn verify(&mut self) -> Result<(), StoreError> {
        let Self { store, open, claimed, .. } = self;
        store.dialect.verify(open).await.map_err(|error| with_keys(error, claimed))
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        // Given up, not kept: many that are open at once slow down everyone's look at what is committed.
        let sql = if self.is_marked { "RELEASE SAVEPOINT oncebox; SAVEPOINT oncebox" } else { "SAVEPOINT oncebox" };
        self.run_script("set a mark", sql).await?;
        self.is_marked = true;
        Ok(())
    }

    async fn back_to_mark(&mut self) -> Result<(), StoreError> {
        self.unblocked.clear();
        self.run_script("go back to a mark", "ROLLBACK TO SAVEPOINT oncebox").await?;
        self.alive()
    }

    async fn commit(self) -> Ended<SqlSession<D>, D::Doubt> {
        let Self { store, open, claimed, hope, emits, .. } = self;
        match store.dialect.commit(open).await {
            Ended::Committed(idle) => {
                if emits {
                    store.announce_emitted();
                }
                Ended::Committed(SqlSession { store, idle, hope })
            }
            Ended::RolledBack { session, error } => {
                let error = with_keys(error, &claimed);
                Ended::RolledBack { session: session.map(|idle| SqlSession { store, idle, hope }), error }
            }
            Ended::Unknown { doubt, error } => Ended::Unknown { doubt, error },
        }
    }

    async fn rollback(self) -> Option<SqlSession<D>> {
        let Self { store, open, hope, .. } = self;
        let idle = store.dialect.rollback(open).await?;
        Some(SqlSession { store, idle, hope })
    }

    fn abandon(self) -> D::Doubt {
        self.store.dialect.abandon(self.open)
    }
}

/// Names the keys whose claims someone else may have committed: a person has to look at each of their messages.
fn with_keys(error: StoreError, claimed: &Claimed) -> StoreError {
    const NAMED_MAX: usize = 20;
    if error.kind() != StoreErrorKind::Breached {
        return error;
    }
    let mut keys: Vec<String> = claimed.iter().map(ToString::to_string).take(NAMED_MAX).collect();
    keys.sort_unstable();
    let (all, keys) = (claimed.len(), keys.join(", "));
    let reason = format!("{}; the claims of {all} keys may be committed without their effects: {keys}", error.reason());
    StoreError::new(StoreErrorKind::Breached, "end a transaction", reason)
}

/// Ends a transaction of our own: commits what was done, or rolls back what failed. An unknown end is an error; what
/// runs here is safe to run again.
pub(crate) async fn finish<D: Dialect, T>(
    dialect: &D,
    open: D::Open,
    done: Result<T, StoreError>,
) -> Result<T, StoreError> {
    if done.is_err() {
        dialect.rollback(open).await;
        return done;
    }
    match dialect.commit(open).await {
        Ended::Committed(_) => done,
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => Err(error),
    }
}

impl<D: Dialect> fmt::Debug for SqlSession<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlSession").field(&self.idle).finish()
    }
}

impl<D: Dialect> fmt::Debug for SqlTx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlTx").field(&self.open).finish()
    }
}
