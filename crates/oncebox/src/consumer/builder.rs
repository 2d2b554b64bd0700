//! Putting a consumer together.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::journal::JournalStore;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::queue::QueueStore;
use oncebox_core::{Class, Clock, Content, KeyStrategy, Message, Outcome, Scope, Source, Store};
use serde::de::DeserializeOwned;

use super::alerts::{Dead, Missing};
use super::archived;
use super::breaker::Breaker;
use super::engine::{Drained, Engine, RunError};
use super::guarantee::{Guarantee, promise};
use super::journal::{self, Journaling};
use super::order_by::OrderBy;
use super::retry::Retry;
use super::routes::{Route, Shape};
use super::settle::{HookRuns, SettledHook};
use super::setup::{Setup, StartError};
use super::stop::Stop;
use super::together::{Running, together};
use super::versioned::Versioned;
use super::{Bounds, Stats, StoredConsumer};
use crate::handler::{Batch, BatchHandler, Each, Erased, Handler, Raw};

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

impl<S: ConsumerStore, Src: Source<S>> Consumer<S, Src> {
    /// A consumer of `source` that keeps its records in `store` under `name`. The name is its identity: renamed, it
    /// starts with no memory.
    pub fn new(name: impl Into<String>, store: S, source: Src) -> Self {
        let setup = Setup::new(name.into(), store);
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

    /// How keys were made before, where that is not how they are now: the change is bridged. For each message the key of both
    /// is claimed, so that what was handled under the former is found, until its records have expired. Processes that
    /// make the former alone may run beside, and start again, for as long as that takes.
    ///
    /// Without it, a start with another key than its name is bound to is refused.
    #[must_use]
    pub fn key_was(mut self, key: KeyStrategy) -> Self {
        self.setup.identity.was.key = Some(key);
        self
    }

    /// Within what keys were unique before; see [`key_was`](Self::key_was).
    #[must_use]
    pub fn scope_was(mut self, scope: Scope) -> Self {
        self.setup.identity.was.scope = Some(scope);
        self
    }

    /// What the business key was before, `None` where there was none; see [`key_was`](Self::key_was).
    #[must_use]
    pub fn business_key_was(mut self, key: Option<KeyStrategy>) -> Self {
        self.setup.identity.was.business = Some(key);
        self
    }

    /// What messages were kept in order by before. There is nothing to bridge: processes that keep the former order stop
    /// within seconds of this one's start. What is parked already keeps the place it was parked with: where there was no order
    /// before, it holds nobody up, and later messages of its key go past it.
    #[must_use]
    pub fn order_was(mut self, order: OrderBy) -> Self {
        self.setup.identity.was.order = Some(order);
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

    /// Tells `tell` of each message that is set aside for a person: to page its owner, to call a webhook. After the
    /// commit, at most once for each time that a message dies; a process that dies in between tells nobody. It holds up
    /// its lane: hand over what takes long.
    #[must_use]
    pub fn on_dead<F, Fut>(mut self, tell: F) -> Self
    where
        F: Fn(Dead) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.setup.alerts.on_dead.push(Arc::new(move |dead| Box::pin(tell(dead))));
        self
    }

    /// Asks `fetch` for versions that a message has waited for in vain, for as long as [`Gap::Wait`](super::Gap::Wait)
    /// says. It has them sent again, to the source of this consumer; the message then waits once more for as long, and
    /// is parked for a person only after that. Asked after the commit, at least once for each message that waits so
    /// long, unless the process dies.
    #[must_use]
    pub fn on_missing<F, Fut>(mut self, fetch: F) -> Self
    where
        F: Fn(Missing) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.setup.alerts.on_missing.push(Arc::new(move |missing| Box::pin(fetch(missing))));
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

    /// Keeps a journal of every delivery: how it ended, when, in which process, and how long its handler took. For people who
    /// ask what happened to a message; no promise rests on it. Each delivery adds a row, written within a second or so
    /// beside the messages: it never holds one up, and what could not be written is counted. A process that dies takes the
    /// last second with it. [`Retention`](crate::Retention) removes rows after a week, or as it is told.
    #[must_use]
    pub fn journal(mut self) -> Self
    where
        S: JournalStore,
    {
        self.setup.journal = Some(Journaling::new());
        self
    }

    /// Asks the [archive](oncebox_core::archive) of keys about what has no record: a message whose key, or business key, is
    /// archived was handled before, however long ago, and is a duplicate. Without it, a message that is older than what is
    /// remembered is parked for a person, and a business key whose record has expired is free again.
    ///
    /// It helps where [`Retention`](crate::Retention) archives keys, and costs a look through the archive for each batch
    /// with such messages: with a business key, that is every batch, and it grows with the archive.
    #[must_use]
    pub fn ask_archive(mut self) -> Self
    where
        S: QuarantineStore,
    {
        self.setup.archive = Some(archived::look::<S>());
        self
    }

    /// What it can promise as it is set up, and the part that keeps it from promising more.
    pub fn promises(&self) -> (Guarantee, Option<String>) {
        let source = self.source.capabilities();
        let promise = promise(&self.setup.store.capabilities(), &source, &self.setup.identity, &self.setup.routes);
        (promise.guarantee, promise.because)
    }

    /// Whether its parts fit together, as far as that can be told without starting it; [`run`](Self::run) asks the same.
    pub fn check(&self) -> Result<(), StartError> {
        self.setup.check_with(&self.source.capabilities()).map(drop)
    }

    /// Whether its store lets it start under its name: [`run`](Self::run) is refused where its key or its order was
    /// another before. Changes nothing.
    pub async fn check_identity(&self) -> Result<(), RunError> {
        self.setup.parked().would_bind(self.setup.offer()).await
    }

    /// Refuses to start if it can't promise this, and names the part that weakens it.
    #[must_use]
    pub fn require(mut self, guarantee: Guarantee) -> Self {
        self.setup.required = guarantee;
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
        let Self { mut setup, source } = self;
        // Whether its parts fit together comes first: nothing is kept of a start that can't be.
        setup.check_with(&source.capabilities())?;
        setup.bind().await?;
        let (parked, journal) = (setup.parked(), setup.journal_writer());
        let main = Engine::start(setup, source).await?;
        let parked = Engine::start_parked(parked).await?;
        let stop = Stop::default();
        let flows = [Box::pin(main.run(stop.wait())) as Running<'_>, Box::pin(parked.run(stop.wait()))];
        journal::beside(journal, together(&stop, flows, shutdown)).await
    }
}

impl<S: Store, Src> fmt::Debug for Consumer<S, Src> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("name", &self.setup.name).finish_non_exhaustive()
    }
}
