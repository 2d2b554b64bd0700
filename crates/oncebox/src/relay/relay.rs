//! A relay: its parts, and starting and ending them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::outbox::{KeepSent, OutboxStore};
use oncebox_core::queue::{LaneRequest, QueueStore};
use oncebox_core::{Clock, Code, Sink, SinkError, SinkErrorKind, StoreError, StoreErrorKind, SystemClock, planted};
use tokio::task::JoinSet;

use super::bounds::RelayBounds;
use super::lanes::{self, Lanes};
use super::pauses::{Back, Pauses};
use super::stats::RelayStats;
use super::worker::Worker;
use crate::consumer::{Drained, Stop};
use crate::own_session::OwnSession;

/// How long the store and the broker have to be told that a relay ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Publishes what is in the outbox of a store.
///
/// ```no_run
/// # async fn run(store: oncebox::memory::MemoryStore, sink: oncebox::memory::MemorySink) -> Result<(), Box<dyn std::error::Error>> {
/// oncebox::Relay::new(store, sink).run(oncebox::shutdown::signal()).await?;
/// # Ok(())
/// # }
/// ```
///
/// In the application it is woken by each commit that emits; by itself it polls. Any number of relays share the lanes of
/// one outbox, and when one dies the others have its lanes within its lease. A message is published at least once, always
/// under the same id, and in order per topic and order key.
pub struct Relay<S, K> {
    store: S,
    sink: K,
    bounds: RelayBounds,
    keep: KeepSent,
    stats: Arc<RelayStats>,
    clock: Arc<dyn Clock>,
}

/// Why a relay could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A bound makes no sense.
    #[error("cannot start the relay: {0}")]
    Bounds(&'static str),
    /// The store refused to start.
    #[error("cannot start the relay: {0}")]
    Store(#[source] StoreError),
    /// The sink refused to start.
    #[error("cannot start the relay: {0}")]
    Sink(#[source] SinkError),
    /// The store said something that waiting does not mend. What was published and could not be noted is published again,
    /// under the same ids; nothing is lost.
    #[error("the relay stopped, and messages wait in the outbox: {0}; mend it, and start the relay again")]
    Stopped(#[source] StoreError),
    /// One of its tasks broke down.
    #[error("the relay stopped: one of its tasks broke down: {0}")]
    Broken(String),
}

impl RelayError {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Bounds(_) | Self::Stopped(_) => Code::RelayStopped,
            Self::Store(error) => error.code(),
            Self::Sink(error) => error.code(),
            Self::Broken(_) => Code::TaskBroke,
        }
    }
}

/// What the tasks of one running relay share.
pub(super) struct Shared<S, K> {
    pub(super) store: S,
    pub(super) sink: K,
    pub(super) bounds: RelayBounds,
    pub(super) keep: KeepSent,
    pub(super) stats: Arc<RelayStats>,
    pub(super) lanes: Lanes,
    pub(super) pauses: Pauses,
    pub(super) stop: Stop,
    /// What only a person can mend.
    pub(super) failed: Failed,
}

/// The first error that only a person can mend, and a signal that there is one.
#[derive(Debug, Default)]
pub(super) struct Failed {
    error: Mutex<Option<StoreError>>,
    is_there: Stop,
}

impl Failed {
    /// Takes an error that waiting does not mend; gives back any other.
    pub(super) fn take(&self, error: StoreError) -> Option<StoreError> {
        use StoreErrorKind::{Breached, Configuration, Corrupt};
        if !matches!(error.kind(), Configuration | Corrupt | Breached) || planted::is("relay-waits-for-ever") {
            return Some(error);
        }
        tracing::error!(code = %Code::RelayStopped, "the relay stops, and messages wait in the outbox: {error}");
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.is_there.set();
        None
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_there.is_set()
    }
}

impl<S, K> Shared<S, K> {
    /// A destination works.
    pub(super) fn works(&self, topic: &str) {
        if let Some(Back { after, is_last }) = self.pauses.works(topic) {
            if is_last {
                tracing::info!(topic, "messages to {topic} are published again, after {after:.1?}");
            }
            if self.pauses.is_empty() {
                self.stats.set_waiting_for(None);
            }
        }
    }
}

impl<S: OutboxStore + QueueStore, K: Sink> Relay<S, K> {
    /// A relay from the outbox of `store` to `sink`.
    pub fn new(store: S, sink: K) -> Self {
        Self {
            store,
            sink,
            bounds: RelayBounds::default(),
            keep: KeepSent::Nothing,
            stats: Arc::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Keeps what was sent, marked so, until retention removes it.
    #[must_use]
    pub fn keep_sent(mut self) -> Self {
        self.keep = KeepSent::Sent;
        self
    }

    /// Changes bounds.
    #[must_use]
    pub fn bounds(mut self, change: impl FnOnce(&mut RelayBounds)) -> Self {
        change(&mut self.bounds);
        self
    }

    /// Takes ids from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The live counters.
    pub fn stats(&self) -> Arc<RelayStats> {
        Arc::clone(&self.stats)
    }

    /// Waits for a broker that is away: the outbox is there so that nobody else has to. `false` if a shutdown came first.
    async fn open_sink(&self, mut shutdown: Pin<&mut impl Future<Output = ()>>) -> Result<bool, RelayError> {
        let (first, last) = self.bounds.pause;
        let mut pause = first;
        loop {
            match self.sink.open().await {
                Ok(()) => {
                    self.stats.set_waiting_for(None);
                    return Ok(true);
                }
                Err(error) if error.kind() == SinkErrorKind::Unavailable => {
                    if pause == first {
                        tracing::warn!(code = %error.code(), "the relay waits for its broker, and messages wait in the outbox: {error}");
                    }
                    self.stats.set_waiting_for(Some(error.to_string()));
                }
                Err(error) => return Err(RelayError::Sink(error)),
            }
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(false),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(last),
            }
        }
    }

    /// Runs until `shutdown` resolves, then finishes what is in hand and gives back its lanes.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Drained, RelayError> {
        if let Some(mistake) = self.bounds.mistake() {
            return Err(RelayError::Bounds(mistake));
        }
        let queue = self.store.outbox().await.map_err(RelayError::Store)?;
        tokio::pin!(shutdown);
        if !self.open_sink(shutdown.as_mut()).await? {
            return Ok(Drained::Clean);
        }
        let owner = self.clock.id();
        let own = OwnSession::new(self.store.clone());
        let shared = Arc::new(Shared {
            pauses: Pauses::new(self.bounds.pause, self.bounds.destinations_max),
            store: self.store,
            sink: self.sink,
            bounds: self.bounds,
            keep: self.keep,
            stats: self.stats,
            lanes: Lanes::default(),
            stop: Stop::default(),
            failed: Failed::default(),
        });
        tracing::info!(sink = shared.sink.capabilities().name, workers = shared.bounds.workers, "relay starts");
        let mut workers = JoinSet::new();
        for number in 0..shared.bounds.workers {
            workers.spawn(Worker::new(Arc::clone(&shared), number).run());
        }
        let end = Stop::default();
        let request = LaneRequest { queue, owner, lease: shared.bounds.lease, give_back: Vec::new() };
        let mut hold = Box::pin(lanes::hold(&own, request, &shared, &end));
        let broken = tokio::select! {
            biased;
            () = &mut shutdown => {
                tracing::info!("shutdown asked for; the relay finishes what is in hand");
                None
            }
            // None of them ends before it is told to, unless it broke down.
            Some(Err(error)) = workers.join_next() => Some(error.to_string()),
            () = shared.failed.is_there.wait() => None,
            () = &mut hold => None,
        };
        shared.stop.set();
        // Lanes are kept meanwhile: what is in hand can be settled only as long as they are ours.
        let drain = async {
            tokio::select! {
                () = async { while workers.join_next().await.is_some() {} } => {}
                () = &mut hold => {}
            }
        };
        let drained = match tokio::time::timeout(shared.bounds.drain_deadline, drain).await {
            Ok(()) => Drained::Clean,
            Err(_) => {
                let deadline = shared.bounds.drain_deadline;
                tracing::warn!(code = %Code::NotDrained, "the relay did not finish in {deadline:?}; what is in hand is published again");
                Drained::DeadlinePassed
            }
        };
        // A renewal that is under way has the connection in hand: it is waited for, and only then is there one to leave with.
        end.set();
        let _ = tokio::time::timeout(CLOSE_MAX, &mut hold).await;
        drop(hold);
        let left = tokio::time::timeout(CLOSE_MAX, lanes::leave(&own, queue, owner)).await;
        if let Ok(Err(error)) = left {
            tracing::info!(
                "the outbox was not told that the relay ends; its lanes are free in {:?}: {error}",
                shared.bounds.lease
            );
        }
        if tokio::time::timeout(CLOSE_MAX, shared.sink.close()).await.is_err() {
            tracing::info!("the broker was not told that the relay ends");
        }
        let failed = shared.failed.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (broken, failed) {
            (Some(error), _) => Err(RelayError::Broken(error)),
            (None, Some(error)) => Err(RelayError::Stopped(error)),
            (None, None) => Ok(drained),
        }
    }
}

impl<S, K> fmt::Debug for Relay<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
