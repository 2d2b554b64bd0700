//! Putting a consumer together.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::key::TemplateError;
use oncebox_core::queue::QueueStore;
use oncebox_core::store::InvalidName;
use oncebox_core::{
    Class, Clock, ConsumerName, Content, KeyStrategy, Message, Outcome, Scope, Source, Store, SystemClock, Template,
};
use serde::de::DeserializeOwned;
use tokio::sync::RwLock;

use super::breaker::Breaker;
use super::engine::{Drained, Engine, RunError};
use super::identity::Identity;
use super::retry::{Retries, Retry};
use super::routes::{Route, Routes, Shape};
use super::settle::{HookRuns, SettledHook};
use super::stop::Stop;
use super::together::{Running, together};
use super::versioned::Versioned;
use super::{Bounds, Stats, StoredConsumer};
use crate::handler::{Batch, BatchHandler, Each, Erased, Handler, Raw};
use crate::parked_source::Due;

/// A named reader of a source, with its own records in a store: the unit of "once".
///
/// ```
/// use oncebox::memory::{MemorySource, MemoryStore};
/// use oncebox::{Consumer, Context, Message, Outcome};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Payment { account: String, amount: u64 }
///
/// async fn record(mut ctx: Context<MemoryStore>, payment: Payment) -> oncebox::Result<Outcome> {
///     ctx.db().append("payments", &payment)?;
///     Ok(Outcome::applied())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, source) = (MemoryStore::new(), MemorySource::new());
/// let message = Message::new("payment.received").with_json(&Payment { account: "a".into(), amount: 7 })?;
/// source.send_all([message.clone(), message]); // the same message twice
///
/// let consumer = Consumer::new("ledger", store.clone(), source.clone()).on("payment.received", record);
/// let done = async move { while source.backlog() > 0 { tokio::task::yield_now().await } };
/// consumer.run(done).await?;
///
/// let payments: Vec<Payment> = store.with_db(|db| db.rows("payments")).await?;
/// assert_eq!(payments.len(), 1);
/// # Ok(()) }
/// ```
pub struct Consumer<S: Store, Src> {
    pub(super) setup: Setup<S>,
    pub(super) source: Src,
}

/// Everything about a consumer but its source.
pub(super) struct Setup<S: Store> {
    pub(super) name: String,
    pub(super) store: S,
    pub(super) routes: Routes<S>,
    pub(super) bounds: Bounds,
    pub(super) identity: Identity,
    pub(super) order: OrderBy,
    pub(super) constraints: HashSet<String>,
    pub(super) hooks: Vec<Arc<SettledHook>>,
    pub(super) versioned: Option<Versioned>,
    pub(super) retries: Retries,
    pub(super) classify: Vec<Classify>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stats: Arc<Stats>,
    pub(super) flow: Flow,
    /// Tells the parked flow when something is due.
    pub(super) due: Arc<Due>,
    pub(super) breaker: Arc<Breaker>,
    /// Held alone by a suspect that is put to the proof.
    pub(super) alone: Arc<RwLock<()>>,
    /// Types that were given two handlers.
    twice: Vec<String>,
}

/// Which part of a consumer an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// What comes from the source, or from the table of stored mode.
    Main,
    /// What stored mode stores.
    Front,
    /// What was set aside and is tried again.
    Parked,
}

/// Lanes for what was set aside.
const PARKED_LANES_MAX: usize = 4;

/// Reads the class of an error that a handler returned.
pub(super) type Classify = Arc<dyn Fn(&(dyn Error + 'static)) -> Option<Class> + Send + Sync>;

/// The order key of a message that came through us is what the order asks for.
pub(super) fn by_message_key(order: &OrderBy) -> OrderBy {
    if order.is_kept() { OrderBy::MessageKey } else { OrderBy::Nothing }
}

/// What messages are kept in order by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderBy {
    /// No order is kept.
    #[default]
    Nothing,
    /// The message's own order key. Messages without one are free.
    MessageKey,
    /// A key built from the message: `{invoice_id}`.
    Template(Template),
}

impl OrderBy {
    /// A key built from the message: `{invoice_id}`.
    pub fn template(text: &str) -> Result<Self, TemplateError> {
        Template::parse(text).map(Self::Template)
    }

    pub(super) fn is_kept(&self) -> bool {
        *self != Self::Nothing
    }
}

impl fmt::Display for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::MessageKey => f.write_str("order key"),
            Self::Template(template) => template.fmt(f),
        }
    }
}

/// Why a consumer does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its name can't be one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// It has nothing to do.
    #[error("cannot start consumer {0}: it has no handler; add one with `on`")]
    NoHandler(String),
    /// A type has two handlers.
    #[error("cannot start consumer {name}: type `{kind}` has two handlers")]
    TwoHandlers {
        /// The consumer.
        name: String,
        /// The type.
        kind: String,
    },
    /// A bound makes no sense.
    #[error("cannot start consumer {name}: {mistake}")]
    Bounds {
        /// The consumer.
        name: String,
        /// What is wrong.
        mistake: &'static str,
    },
    /// Order is asked for and nothing owns it.
    #[error(
        "cannot start consumer {name} with order: its source `{source_name}` gives no order key an owner, so two \
         processes could handle one key at once; use a source that does (a queue opened with lanes)"
    )]
    NoOrder {
        /// The consumer.
        name: String,
        /// The source.
        source_name: &'static str,
    },
}

impl<S: ConsumerStore, Src: Source<S>> Consumer<S, Src> {
    /// A consumer of `source` that keeps its records in `store` under `name`. The name is its identity: renamed, it
    /// starts with no memory.
    pub fn new(name: impl Into<String>, store: S, source: Src) -> Self {
        let setup = Setup {
            name: name.into(),
            store,
            routes: Routes::default(),
            bounds: Bounds::default(),
            identity: Identity::default(),
            order: OrderBy::Nothing,
            constraints: HashSet::new(),
            hooks: Vec::new(),
            versioned: None,
            retries: Retries::default(),
            classify: Vec::new(),
            clock: Arc::new(SystemClock),
            stats: Arc::default(),
            flow: Flow::Main,
            due: Arc::default(),
            breaker: Arc::new(Breaker::new(Bounds::default().breaker_sample)),
            alone: Arc::default(),
            twice: Vec::new(),
        };
        Self { setup, source }
    }

    /// Handles messages of this type with `handler`, decoded from JSON, once each.
    #[must_use]
    pub fn on<T, H>(self, kind: impl Into<String>, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Handler<S, T>,
    {
        self.route(kind, Arc::new(Each(handler, PhantomData)), Shape::Each, true)
    }

    /// The same with the message as it came, for payloads that are not JSON.
    #[must_use]
    pub fn on_raw<H: Handler<S, Message>>(self, kind: impl Into<String>, handler: H) -> Self {
        self.route(kind, Arc::new(Raw(handler)), Shape::Each, true)
    }

    /// Handles messages of this type many at a time, for set-based SQL: that is where the large numbers come from.
    #[must_use]
    pub fn on_batch<T, H>(self, kind: impl Into<String>, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: BatchHandler<S, T>,
    {
        self.route(kind, Arc::new(Batch(handler, PhantomData)), Shape::Batch, true)
    }

    /// Handles messages of this type with a handler that is idempotent by nature (set, upsert, delete by id), so that
    /// it needs no inbox and pays for none. A relative update (`x = x + 1`) or a bare insert here **is** applied twice
    /// when a message comes twice.
    #[must_use]
    pub fn on_idempotent<T, H>(self, kind: impl Into<String>, handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Handler<S, T>,
    {
        self.route(kind, Arc::new(Each(handler, PhantomData)), Shape::Each, false)
    }

    fn route<E>(mut self, kind: impl Into<String>, handler: E, shape: Shape, claims: bool) -> Self
    where
        E: Erased<S> + 'static,
    {
        let route = Route { handler: Arc::new(handler), shape, claims };
        self.setup.twice.extend(self.setup.routes.add(kind.into(), route));
        self
    }

    /// How keys are made. By default from the message's id.
    #[must_use]
    pub fn key(mut self, key: KeyStrategy) -> Self {
        self.setup.identity.key = key;
        self
    }

    /// Within what a key is unique. By default this consumer.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.setup.identity.scope = scope;
        self
    }

    /// A second key, claimed in the same transaction, that catches the same intent under another message id: it is a
    /// business duplicate, counted apart.
    #[must_use]
    pub fn business_key(mut self, key: KeyStrategy) -> Self {
        self.setup.identity.business = Some(key);
        self
    }

    /// What two deliveries of one message must have in common. By default the whole payload.
    #[must_use]
    pub fn fingerprint(mut self, content: Content) -> Self {
        self.setup.identity.covers(content);
        self
    }

    /// Keeps order per key. Different keys go side by side. It is also the fast path for contended rows: choose the
    /// entity that the handlers update.
    #[must_use]
    pub fn order_by(mut self, order: OrderBy) -> Self {
        self.setup.order = order;
        self
    }

    /// A unique business constraint whose violation means that the effect is there already. On PostgreSQL by its name;
    /// on SQLite, which does not tell names, by its columns: `payments.provider, payments.reference`.
    ///
    /// For handlers whose one write is the insert under that constraint: everything else that the handler wrote is
    /// rolled back with it, and a handler that inserts the same row twice collides with itself. With more than one
    /// write, use `InsertOnce`, which tells you what is there and aborts nothing.
    #[must_use]
    pub fn already_applied_on(mut self, constraint: impl Into<String>) -> Self {
        self.setup.constraints.insert(constraint.into());
        self
    }

    /// Runs `hook` after each commit of a message. Best effort, unless it also runs on duplicates: then a crash between
    /// commit and hook heals with the redelivery.
    #[must_use]
    pub fn after_commit<F, Fut>(mut self, runs: HookRuns, hook: F) -> Self
    where
        F: Fn(Arc<Message>, Outcome) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let hook = Box::new(move |message, outcome| Box::pin(hook(message, outcome)) as _);
        self.setup.hooks.push(Arc::new(SettledHook { runs, hook }));
        self
    }

    /// Reads versions: a message is applied if it is the next of its aggregate, and never turns its state back.
    #[must_use]
    pub fn versioned(mut self, versioned: Versioned) -> Self {
        self.setup.versioned = Some(versioned);
        self
    }

    /// How often and when a message that failed is tried again; for all types that have no policy of their own.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.setup.retries.usual = retry;
        self
    }

    /// The same for messages of one type.
    #[must_use]
    pub fn retry_for(mut self, kind: impl Into<String>, retry: Retry) -> Self {
        self.setup.retries.by_kind.insert(kind.into(), retry);
        self
    }

    /// Says what errors of type `E` allow when a handler returns one with `?`. A class that the handler named itself
    /// counts more, and an error of the store's driver is known already.
    #[must_use]
    pub fn classify<E: Error + 'static>(mut self, class: impl Fn(&E) -> Class + Send + Sync + 'static) -> Self {
        self.setup.classify.push(Arc::new(move |error| error.downcast_ref().map(&class)));
        self
    }

    /// Changes bounds.
    #[must_use]
    pub fn bounds(mut self, change: impl FnOnce(&mut Bounds)) -> Self {
        change(&mut self.setup.bounds);
        self.setup.breaker = Arc::new(Breaker::new(self.setup.bounds.breaker_sample));
        self
    }

    /// Sets how many lanes run side by side.
    #[must_use]
    pub fn lanes(self, lanes: usize) -> Self {
        self.bounds(|bounds| bounds.lanes = lanes)
    }

    /// Takes time, ids and jitter from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.setup.clock = clock;
        self
    }

    /// The live counters.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.setup.stats)
    }

    /// Stored mode: each message is first stored with its payload and acknowledged to the source, then handled from
    /// the table. For sources that can't wait, and for a record of what came.
    pub fn stored(self) -> StoredConsumer<S, Src>
    where
        S: QueueStore,
    {
        StoredConsumer::new(self)
    }

    /// Runs until `shutdown` resolves, then finishes or gives back what is in hand.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Drained, RunError> {
        let Self { setup, source } = self;
        let parked = setup.parked();
        let main = Engine::start(setup, source).await?;
        let parked = Engine::start_parked(parked).await?;
        let stop = Stop::default();
        together(&stop, [Box::pin(main.run(stop.wait())) as Running<'_>, Box::pin(parked.run(stop.wait()))], shutdown)
            .await
    }
}

impl<S: Store> Setup<S> {
    /// A consumer beside this one, with other handlers and counters of its own.
    pub(super) fn front(&self, routes: Routes<S>, stats: Arc<Stats>) -> Self {
        Self {
            name: self.name.clone(),
            store: self.store.clone(),
            routes,
            bounds: self.bounds.clone(),
            identity: self.identity.clone(),
            order: self.order.clone(),
            constraints: HashSet::new(),
            hooks: Vec::new(),
            versioned: None,
            retries: self.retries.clone(),
            classify: Vec::new(),
            clock: Arc::clone(&self.clock),
            stats,
            flow: Flow::Front,
            due: Arc::clone(&self.due),
            breaker: Arc::new(Breaker::new(0)),
            alone: Arc::clone(&self.alone),
            twice: Vec::new(),
        }
    }

    /// The flow of what was set aside, beside this one: the same handlers, policies and counters.
    pub(super) fn parked(&self) -> Self {
        Self {
            name: self.name.clone(),
            store: self.store.clone(),
            routes: self.routes.clone(),
            bounds: Bounds { lanes: self.bounds.lanes.min(PARKED_LANES_MAX), ..self.bounds.clone() },
            identity: self.identity.clone(),
            order: by_message_key(&self.order),
            constraints: self.constraints.clone(),
            hooks: self.hooks.clone(),
            versioned: self.versioned.clone(),
            retries: self.retries.clone(),
            classify: self.classify.clone(),
            clock: Arc::clone(&self.clock),
            stats: Arc::clone(&self.stats),
            flow: Flow::Parked,
            due: Arc::clone(&self.due),
            breaker: Arc::clone(&self.breaker),
            alone: Arc::clone(&self.alone),
            twice: Vec::new(),
        }
    }

    pub(super) fn check(&self) -> Result<ConsumerName, StartError> {
        let checked = ConsumerName::new(self.name.clone())?;
        let name = self.name.clone();
        if self.routes.is_empty() {
            return Err(StartError::NoHandler(name));
        }
        if let Some(kind) = self.twice.first().cloned() {
            return Err(StartError::TwoHandlers { name, kind });
        }
        match self.bounds.mistake() {
            Some(mistake) => Err(StartError::Bounds { name, mistake }),
            None => Ok(checked),
        }
    }
}

impl<S: Store, Src> fmt::Debug for Consumer<S, Src> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("name", &self.setup.name).finish_non_exhaustive()
    }
}
