//! The store itself.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use oncebox_core::code::Code;
use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::identity::{self, Bound, Offer};
use oncebox_core::store::{ConsumerId, ConsumerName, DriverError, Store, StoreCapabilities};
use oncebox_core::time::Clock;
use tokio::sync::Notify;

use crate::connection::Call;
use crate::dialect::Dialect;
use crate::queries::Queries;
use crate::schema::{self, Migrate, SchemaState};
use crate::transaction::{SHORT_WAIT, SqlSession, SqlTx, finish};
use crate::{error, names};

/// A transactional store in an SQL database: [`Postgres`](crate::Postgres) or [`Sqlite`](crate::Sqlite).
///
/// Clones share one store.
pub struct SqlStore<D: Dialect> {
    shared: Arc<Shared<D>>,
}

/// What all sessions and transactions of a store share.
pub(crate) struct Shared<D> {
    pub(crate) dialect: D,
    pub(crate) queries: Queries,
    identity: String,
    /// Leases run by this clock instead of the store's own; only tests set it.
    clock: Option<Arc<dyn Clock>>,
    pub(crate) enqueued: Notify,
    pub(crate) emitted: Notify,
}

impl<D> Shared<D> {
    /// The time for leases in microseconds; `None`: ask the store.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_microsecond())
    }

    /// Wakes who waits for the outbox: all who wait now, and one who is just about to.
    pub(crate) fn announce_emitted(&self) {
        self.emitted.notify_waiters();
        self.emitted.notify_one();
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Connects once, brings the schema up to date or checks it, and learns which database this is.
    pub(crate) async fn start(dialect: D, migrate: Migrate, clock: Option<Arc<dyn Clock>>) -> Result<Self, StoreError> {
        let queries = dialect.queries();
        match migrate {
            Migrate::Apply => schema::migrate(&dialect, &queries.schema).await?,
            Migrate::Check => {
                let state = schema::check(&dialect, &queries.schema).await?;
                if !state.is_current() {
                    return Err(schema::outdated(&dialect, &state));
                }
            }
        }
        let identity = identity(&dialect, &queries).await?;
        let (enqueued, emitted) = (Notify::new(), Notify::new());
        Ok(Self { shared: Arc::new(Shared { dialect, queries, identity, clock, enqueued, emitted }) })
    }

    /// Compares the tables with what this version needs.
    pub async fn schema_check(&self) -> Result<SchemaState, StoreError> {
        schema::check(&self.shared.dialect, &self.shared.queries.schema).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<D>> {
        &self.shared
    }
}

async fn identity<D: Dialect>(dialect: &D, queries: &Queries) -> Result<String, StoreError> {
    let attempted = "read which database this is";
    let mut open = dialect.begin(dialect.connect().await?, SHORT_WAIT).await?;
    let rows = Call::new(attempted, &queries.schema.identity).fetch(D::db(&mut open)).await;
    dialect.rollback(open).await;
    let Some(mut row) = rows?.into_iter().next() else {
        let why = "the table meta has no identity; its migrations were not applied by this program";
        return Err(StoreError::new(StoreErrorKind::Configuration, attempted, why).with_code(Code::SchemaOther));
    };
    Ok(format!("{}:{}", dialect.capabilities().name, row.text()?))
}

impl<D: Dialect> Store for SqlStore<D> {
    type Session = SqlSession<D>;
    type Tx = SqlTx<D>;
    type Doubt = D::Doubt;

    fn capabilities(&self) -> StoreCapabilities {
        self.shared.dialect.capabilities()
    }

    fn identity(&self) -> &str {
        &self.shared.identity
    }

    async fn connect(&self) -> Result<SqlSession<D>, StoreError> {
        let idle = self.shared.dialect.connect().await?;
        Ok(SqlSession::new(Arc::clone(&self.shared), idle))
    }

    async fn consumer(&self, name: &ConsumerName) -> Result<ConsumerId, StoreError> {
        let Shared { dialect, queries, .. } = &*self.shared;
        let mut open = dialect.begin(dialect.connect().await?, SHORT_WAIT).await?;
        let id = names::consumer(D::db(&mut open), &queries.names, name).await;
        finish(dialect, open, id).await
    }

    async fn bind(&self, name: &ConsumerName, offer: &Offer) -> Result<Bound, StoreError> {
        identity::bind(self, name, offer).await
    }

    async fn resolve(&self, doubt: &D::Doubt) -> Result<(), StoreError> {
        self.shared.dialect.resolve(doubt).await
    }

    fn commits_wait_for(&self) -> Option<String> {
        self.shared.dialect.commits_wait_for()
    }

    fn read_error(&self, error: &(dyn Error + 'static)) -> Option<DriverError> {
        error::find(error).map(error::read)
    }
}

impl<D: Dialect> Clone for SqlStore<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Dialect> fmt::Debug for SqlStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("dialect", &self.shared.dialect)
            .field("identity", &self.shared.identity)
            .finish_non_exhaustive()
    }
}
