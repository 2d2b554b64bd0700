//! What the tasks of one running consumer share, and starting and ending them.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::journal;
use oncebox_core::store::{Ended, Transaction};
use oncebox_core::{Clock, Code, ConsumerName, Source, SourceError, StoreError, planted};
use tokio::sync::{RwLock, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::alerts::Alerts;
use super::archived::Look;
use super::backlog;
use super::breaker::Breaker;
use super::guarantee::Promise;
use super::heartbeat::{self, Held};
use super::identity::{Identity, Records};
use super::intake::{self, room_kib};
use super::journal::Notes;
use super::lane::Lane;
use super::opening;
use super::order_by::OrderBy;
use super::outage::{Outage, Pause};
use super::retry::Retries;
use super::routes::Routes;
use super::settle::SettledHook;
use super::setup::{Classify, Flow, Setup, StartError};
use super::stop::Stop;
use super::versioned::Versioned;
use super::{Bounds, Stats};
use crate::parked_source::{Due, ParkedSource};
use crate::trace::Place;

/// What the tasks of one running consumer share. Only counters and signals change.
pub(crate) struct Engine<S: ConsumerStore, Src: Source<S>> {
    pub(super) name: ConsumerName,
    pub(super) store: S,
    pub(super) source: Src,
    /// For traces.
    pub(super) place: Place,
    /// What it can promise.
    promise: Promise,
    pub(super) routes: Routes<S>,
    pub(super) bounds: Bounds,
    pub(super) identity: Identity,
    pub(super) order: OrderBy,
    pub(super) constraints: HashSet<String>,
    pub(super) hooks: Vec<Arc<SettledHook>>,
    pub(super) alerts: Alerts,
    /// Where deliveries are noted, if a journal is kept.
    pub(super) journal: Option<Arc<Notes>>,
    /// Asks the archive of keys, if it is to be asked.
    pub(super) archive: Option<Look<S>>,
    pub(super) versioned: Option<Versioned>,
    pub(super) retries: Retries,
    pub(super) classify: Vec<Classify>,
    pub(super) flow: Flow,
    pub(super) due: Arc<Due>,
    /// Shared by all flows of the consumer.
    pub(super) breaker: Arc<Breaker>,
    /// Held shared by whatever runs, and alone by a suspect that is put to the proof.
    pub(super) alone: Arc<RwLock<()>>,
    pub(super) records: Records,
    /// What was handled is known by the source's offsets in the store: messages have no claims, and each partition is
    /// handled in its order.
    pub(super) by_offset: bool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stats: Arc<Stats>,
    pub(super) outage: Outage,
    /// Room for messages in hand.
    pub(super) room: Arc<Semaphore>,
    /// Room for their bytes.
    pub(super) room_kib: Arc<Semaphore>,
    /// Raised with each release of a message that others wait behind; see `Work::wave`.
    wave: AtomicU64,
    /// Counts batches of lanes without order that met others on the same rows; what one lane learns, all know.
    conflicts: AtomicU64,
    stop: Stop,
    /// Why it stops by itself.
    failed: Mutex<Option<String>>,
}

/// A store that can be reached again.
pub(super) struct Back<T> {
    pub(super) session: T,
    /// Whether it was away for a while, or just this connection was.
    pub(super) was_away: bool,
}

/// How often in a row a connection may be lost before it is called an outage.
const LOST_QUIETLY: u32 = 2;

/// How often to look what a commit waits for that takes long.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// How long a source has to give back what it holds, after the drain.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How a consumer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Everything in hand was finished or given back.
    Clean,
    /// The deadline came first. What was in hand comes again; nothing of it was acknowledged.
    DeadlinePassed,
}

/// Why a consumer could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store refused to start.
    #[error("cannot start consumer {name}: {error}")]
    Store {
        /// The consumer.
        name: String,
        /// What the store said.
        #[source]
        error: StoreError,
    },
    /// The source refused to start.
    #[error("cannot start consumer {name}: {error}")]
    Source {
        /// The consumer.
        name: String,
        /// What the source said.
        #[source]
        error: SourceError,
    },
    /// Something happened that only a person can mend.
    #[error("consumer {name} stopped: {reason}")]
    Stopped {
        /// The consumer.
        name: String,
        /// What happened.
        reason: String,
    },
}

impl RunError {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Start(_) => Code::ConsumerStart,
            Self::Store { error, .. } => error.code(),
            Self::Source { error, .. } => error.code(),
            Self::Stopped { .. } => Code::ConsumerStopped,
        }
    }
}

impl<S: ConsumerStore> Engine<S, ParkedSource<S>> {
    /// The flow of what was set aside.
    pub(super) async fn start_parked(setup: Setup<S>) -> Result<Arc<Self>, RunError> {
        let name = setup.check()?;
        let refused = |error| RunError::Store { name: name.to_string(), error };
        let consumer = setup.store.consumer(&name).await.map_err(refused)?;
        let source =
            ParkedSource::new(setup.store.clone(), consumer, Arc::clone(&setup.due), setup.bounds.parked_lease);
        Self::start(setup, source).await
    }
}

impl<S: ConsumerStore, Src: Source<S>> Engine<S, Src> {
    /// Checks that the parts fit together and makes them one.
    pub(super) async fn start(setup: Setup<S>, source: Src) -> Result<Arc<Self>, RunError> {
        let capabilities = source.capabilities();
        let (name, promise) = setup.check_with(&capabilities)?;
        let store_error = |error| RunError::Store { name: name.to_string(), error };
        let records = Records {
            own: setup.store.consumer(&name).await.map_err(store_error)?,
            shared: setup.store.consumer(&ConsumerName::global()).await.map_err(store_error)?,
        };
        source.serve(records.own);
        let place = Place {
            consumer: name.to_string(),
            source: capabilities.name,
            destination: source.destination().to_owned(),
        };
        let engine = Self {
            store: setup.store,
            source,
            place,
            promise,
            routes: setup.routes,
            room: Arc::new(Semaphore::new(setup.bounds.in_flight_max)),
            room_kib: Arc::new(Semaphore::new(room_kib(setup.bounds.in_flight_bytes_max))),
            bounds: setup.bounds,
            identity: setup.identity,
            order: setup.order,
            constraints: setup.constraints,
            hooks: setup.hooks,
            alerts: setup.alerts,
            journal: setup.journal.map(|journaling| journaling.notes),
            archive: setup.archive,
            versioned: setup.versioned,
            retries: setup.retries,
            classify: setup.classify,
            flow: setup.flow,
            due: setup.due,
            breaker: setup.breaker,
            alone: setup.alone,
            records,
            clock: setup.clock,
            stats: setup.stats,
            outage: Outage::default(),
            wave: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            stop: Stop::default(),
            failed: Mutex::new(None),
            by_offset: capabilities.offsets_in_store,
            name,
        };
        engine.stats.sight.promise(engine.promise.guarantee);
        Ok(Arc::new(engine))
    }

    /// What was set aside is tried again, and is not parked behind itself.
    pub(super) fn parks_behind(&self) -> bool {
        self.order.is_kept() && self.flow == Flow::Main
    }

    /// Whether messages that share a key go one after another: an order key, or the partition that they came in.
    pub(super) fn in_sequence(&self) -> bool {
        self.order.is_kept() || self.by_offset
    }

    pub(super) fn say_hello(&self) {
        let promise = &self.promise;
        if self.flow != Flow::Main {
            return;
        }
        let (store, source) = (self.store.capabilities(), self.source.capabilities());
        tracing::info!(
            consumer = %self.name, store = store.name, source = source.name, key = %self.identity.key,
            order = %self.order, lanes = self.bounds.lanes, durable = store.durable, guarantee = %promise.guarantee,
            "consumer starts"
        );
        if let Some(because) = &promise.because {
            tracing::info!(consumer = %self.name, "each message is handled {}: {because}", promise.guarantee);
        }
        if self.journal.is_some() {
            tracing::info!(consumer = %self.name, "a journal is kept of every delivery: {}", journal::cost(store.name));
        }
        if self.identity.scope.is_global() {
            tracing::warn!(consumer = %self.name, "its keys are global: a message that another consumer with global keys handled counts as a duplicate here");
        }
        if !store.durable {
            tracing::warn!(consumer = %self.name, "the {} store forgets everything when the process ends", store.name);
        }
    }

    /// Runs until `shutdown` resolves or something stops it, then drains.
    pub(super) async fn run(self: Arc<Self>, shutdown: impl Future<Output = ()>) -> Result<Drained, RunError> {
        tokio::pin!(shutdown);
        if !opening::open(&self, shutdown.as_mut()).await? {
            return Ok(Drained::Clean);
        }
        let held = Arc::new(Held::new(self.bounds.in_flight_max));
        let feeds = if self.in_sequence() { self.bounds.lanes } else { 1 };
        // As much as there is room for, so that sending never waits for one lane while others idle.
        let (outlets, feeds): (Vec<_>, Vec<_>) = (0..feeds).map(|_| mpsc::channel(self.bounds.in_flight_max)).unzip();
        let feeds: Vec<_> = feeds.into_iter().map(|feed| Arc::new(tokio::sync::Mutex::new(feed))).collect();

        let mut tasks = JoinSet::new();
        for number in 0..self.bounds.lanes {
            let feed = Arc::clone(&feeds[number % feeds.len()]);
            tasks.spawn(Lane::new(Arc::clone(&self), feed).run());
        }
        drop(feeds);
        tasks.spawn(intake::run(Arc::clone(&self), outlets, Arc::clone(&held)));
        let mut beats = JoinSet::new();
        if let Some(lease) = self.source.capabilities().lease {
            beats.spawn(heartbeat::run(Arc::clone(&self), held, lease));
        }
        if self.flow != Flow::Parked {
            beats.spawn(backlog::run(Arc::clone(&self)));
            self.stats.sight.set_running(true);
        }
        tokio::select! {
            biased;
            () = &mut shutdown => {
                // Once for the consumer, not once for each of its parts.
                if self.flow == Flow::Main {
                    tracing::info!(consumer = %self.name, "shutdown asked for; finishing what is in hand");
                }
            }
            () = self.stopping() => {}
            // None of them ends before it is told to, unless it broke down: then its messages have nobody.
            Some(Err(error)) = tasks.join_next() => self.fail(format!("one of its tasks broke down: {error}")),
        }
        if self.flow != Flow::Parked {
            self.stats.sight.set_running(false);
        }
        self.stop.set();
        let drained = self.drain(tasks).await;
        drop(beats);
        if tokio::time::timeout(CLOSE_MAX, self.source.close()).await.is_err() {
            tracing::info!(consumer = %self.name, "the source was not told; what it leased ends by itself");
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match failed {
            Some(reason) => Err(RunError::Stopped { name: self.name.to_string(), reason }),
            None => Ok(drained),
        }
    }

    async fn drain(&self, mut tasks: JoinSet<()>) -> Drained {
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(code = %Code::TaskBroke, consumer = %self.name, "a task of the consumer broke down: {error}");
                }
            }
        };
        match tokio::time::timeout(self.bounds.drain_deadline, ended).await {
            Ok(()) => Drained::Clean,
            Err(_) => {
                // Transactions run in tasks of their own, so none is cancelled half-way by dropping these.
                tracing::warn!(code = %Code::NotDrained, consumer = %self.name, "not drained in {:?}; what is in hand comes again", self.bounds.drain_deadline);
                Drained::DeadlinePassed
            }
        }
    }

    /// Whether a shutdown was asked for.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }

    /// Returns once a shutdown is asked for.
    pub(super) async fn stopping(&self) {
        self.stop.wait().await;
    }

    /// Stops the consumer because of something that only a person can mend.
    pub(super) fn fail(&self, reason: String) {
        tracing::error!(code = %Code::ConsumerStopped, consumer = %self.name, "consumer stops: {reason}");
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.set();
    }

    pub(super) fn wave(&self) -> u64 {
        self.wave.load(SeqCst)
    }

    /// The wave from which on deliveries are known to come after a release that is done now.
    pub(super) fn next_wave(&self) -> u64 {
        self.wave.fetch_add(1, SeqCst) + 1
    }

    /// How many conflicts lanes without order had with each other.
    pub(super) fn conflicts(&self) -> u64 {
        self.conflicts.load(SeqCst)
    }

    /// One more; how many there are now. Lanes with order do not share rows, so there it is nobody else's business.
    pub(super) fn note_conflict(&self) -> u64 {
        let one = u64::from(!self.order.is_kept());
        self.conflicts.fetch_add(one, SeqCst) + one
    }

    /// Waits while the store is away; a connection once it is back, `None` if a shutdown came first. `lost` counts how
    /// often in a row this happened with nothing done in between: a store that lets in and then fails is away as well.
    pub(super) async fn wait_for_store(&self, error: StoreError, lost: u32) -> Option<Back<S::Session>> {
        tracing::debug!(consumer = %self.name, lost, "the connection is lost: {error}");
        let mut pause = Pause::new(&*self.clock, lost);
        let wait = |error: &StoreError| self.outage.wait(&self.stats, self.name.as_str(), error.to_string());
        let mut waiting = (lost > LOST_QUIETLY).then(|| wait(&error));
        let mut was_away = false;
        loop {
            tokio::select! {
                biased;
                () = self.stopping() => return None,
                () = pause.wait() => {}
            }
            match self.store.connect().await {
                Ok(session) => return Some(Back { session, was_away }),
                // One lost connection is no outage; a second one that can't be opened is, and its error says where.
                Err(error) if error.is_outage() => {
                    was_away = true;
                    waiting.get_or_insert_with(|| wait(&error));
                }
                Err(error) => {
                    self.fail(error.to_string());
                    return None;
                }
            }
        }
    }

    /// Commits, and says what a commit waits for that the store isn't to blame for.
    pub(super) async fn commit(&self, tx: S::Tx) -> Ended<S::Session, S::Doubt> {
        let mut commit = pin!(tx.commit());
        let mut waiting = None;
        loop {
            match tokio::time::timeout(LOOK_AFTER, &mut commit).await {
                Ok(ended) => return ended,
                Err(_) if waiting.is_some() => {}
                Err(_) => {
                    let what = self.store.commits_wait_for();
                    waiting = what.map(|what| self.outage.wait(&self.stats, self.name.as_str(), what));
                }
            }
        }
    }

    /// Makes sure that a lost transaction can't change its mind any more. `false` if a shutdown came first.
    pub(super) async fn resolve(&self, doubt: S::Doubt) -> bool {
        if planted::is("unknown-as-failed") {
            return true;
        }
        for lost in 1.. {
            match self.store.resolve(&doubt).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::warn!(code = %error.code(), consumer = %self.name, "an unknown commit is still in doubt: {error}");
                    if self.wait_for_store(error, lost).await.is_none() {
                        return false;
                    }
                }
            }
        }
        false
    }
}

impl<S: ConsumerStore, Src: Source<S>> fmt::Debug for Engine<S, Src> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.name).field("stats", &self.stats).finish_non_exhaustive()
    }
}
