//! The task that counts.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncebox_core::counters::{CounterStore, Counters};
use oncebox_core::depths::{DepthStore, Depths};
use oncebox_core::horizon::Consumers;
use oncebox_core::outbox::Outbox;
use oncebox_core::{Clock, Code, ConsumerStore, StoreError, SystemClock};
use tokio::time::Instant;

use super::flush::Flush;
use super::overview::{InStore, Overview};
use super::rise::{self, Rise};
use crate::consumer::Stats;
use crate::own_session::OwnSession;
use crate::process;
use crate::relay::RelayStats;
use crate::retention::RetentionStats;

/// Flushes take at most this part of the time: one that takes 50 ms is followed by a second of rest.
const REST: u32 = 20;

/// How long the last flush may take.
const LAST_MAX: Duration = Duration::from_secs(5);

/// Keeps what this process counts in its store. See [the module](super).
///
/// ```no_run
/// # use oncebox::memory::{MemorySource, MemoryStore};
/// # use oncebox::{Consumer, Context, Outcome};
/// # async fn greet(_: Context<MemoryStore>, _: String) -> oncebox::Result<Outcome> { Ok(Outcome::applied()) }
/// # async fn run(store: MemoryStore, source: MemorySource) -> Result<(), Box<dyn std::error::Error>> {
/// use oncebox::counting::Counting;
///
/// let consumer = Consumer::new("greeter", store.clone(), source).on("greet", greet);
/// let counting = Counting::new(store).consumer("greeter", consumer.stats());
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let (ended, ()) = tokio::join!(
///     async { let ended = consumer.run(oncebox::shutdown::signal()).await; drop(stop); ended },
///     // Until the consumer has ended, so that the last flush has everything.
///     counting.run(async { let _ = stopped.await; }),
/// );
/// ended?;
/// # Ok(()) }
/// ```
pub struct Counting<S: ConsumerStore> {
    own: OwnSession<S>,
    overview: Overview,
    bounds: CountingBounds,
    clock: Arc<dyn Clock>,
}

/// How often what is done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CountingBounds {
    /// Between two flushes, where there is something to write: the first while all is well, the last when the store is
    /// slow or away. A process that dies loses what it counted in between. Default 1 s and 30 s.
    pub flush: (Duration, Duration),
    /// A process that counts nothing says after this long that it is there. Default 10 s.
    pub sign_of_life: Duration,
    /// Between two looks at what waits in the store. Default 10 s.
    pub look: Duration,
    /// The rows of a process that was not seen for this long are added up with those of others that are gone. Default
    /// 10 min.
    pub gone_after: Duration,
    /// So many processes at a time. Default 100.
    pub fold_max: usize,
}

impl Default for CountingBounds {
    fn default() -> Self {
        Self {
            flush: (Duration::from_secs(1), Duration::from_secs(30)),
            sign_of_life: Duration::from_secs(10),
            look: Duration::from_secs(10),
            gone_after: Duration::from_secs(600),
            fold_max: 100,
        }
    }
}

impl<S: ConsumerStore + CounterStore + DepthStore> Counting<S> {
    /// Counts nothing yet.
    pub fn new(store: S) -> Self {
        Self {
            own: OwnSession::new(store),
            overview: Overview::default(),
            bounds: CountingBounds::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Counts what a consumer does; its counters are `Consumer::stats`.
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>, stats: Arc<Stats>) -> Self {
        self.overview.consumers.push((name.into(), stats));
        self
    }

    /// Counts what the relay does; its counters are `Relay::stats`.
    #[must_use]
    pub fn relay(mut self, stats: Arc<RelayStats>) -> Self {
        self.overview.relay = Some(stats);
        self
    }

    /// Shows what retention does; its counters are `Retention::stats`. They are told by this process alone, and not
    /// written to the store: `oncebox retention plan` looks at what is there.
    #[must_use]
    pub fn retention(mut self, stats: Arc<RetentionStats>) -> Self {
        self.overview.retention = Some(stats);
        self
    }

    /// Changes bounds.
    #[must_use]
    pub fn bounds(mut self, change: impl FnOnce(&mut CountingBounds)) -> Self {
        change(&mut self.bounds);
        self
    }

    /// Takes ids from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Runs until `shutdown` resolves, which should be after what is counted has ended; then flushes once more. It never
    /// fails: what can't be written is written later, or not at all.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        self.run_with(|_| (), shutdown).await;
    }

    /// The same, and hands out what this process knows, for metrics and health.
    pub async fn run_with(self, show: impl FnOnce(Arc<Overview>), shutdown: impl Future<Output = ()>) {
        let overview = Arc::new(self.overview);
        show(Arc::clone(&overview));
        let mut counter = Counter {
            flush: Flush::new(process::label(), Arc::clone(&self.clock)),
            rises: overview.consumers.iter().map(|_| Rise::default()).collect(),
            // The first at once: whoever looks sees that it is there.
            pause: Duration::ZERO,
            flushed: None,
            looked: None,
            folded: None,
            rise_looked: None,
            own: self.own,
            bounds: self.bounds,
            overview,
        };
        tokio::pin!(shutdown);
        loop {
            // Between two steps, never inside one: a transaction is awaited to its end.
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = tokio::time::sleep(counter.pause) => {}
            }
            counter.step().await;
        }
        let last = async {
            counter.flush().await?;
            counter.flush.end(&counter.own).await
        };
        let why = match tokio::time::timeout(LAST_MAX, last).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the store did not answer in {LAST_MAX:?}"),
        };
        tracing::info!("the last counters were not written: {why}");
    }
}

/// Everything that one step needs.
struct Counter<S: ConsumerStore> {
    own: OwnSession<S>,
    overview: Arc<Overview>,
    bounds: CountingBounds,
    flush: Flush,
    rises: Vec<Rise>,
    pause: Duration,
    flushed: Option<Instant>,
    looked: Option<Instant>,
    folded: Option<Instant>,
    rise_looked: Option<Instant>,
}

/// Whether it is time again.
fn is_due(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}

impl<S: ConsumerStore + CounterStore + DepthStore> Counter<S> {
    async fn step(&mut self) {
        let began = Instant::now();
        let done = self.chores().await;
        let (usual, most) = self.bounds.flush;
        let is_news = self.overview.set_reached(done.as_ref().map(|_| ()).map_err(ToString::to_string));
        match done {
            Ok(()) => {
                if is_news {
                    tracing::info!("counters are written again");
                }
                self.pause = (began.elapsed() * REST).clamp(usual, most);
            }
            Err(error) => {
                self.overview.failed_flushes.fetch_add(1, Relaxed);
                if is_news {
                    tracing::warn!(
                        code = %error.code(),
                        "counters are not written, and `oncebox status` shows older ones meanwhile: {error}"
                    );
                }
                self.pause = (self.pause * 2).clamp(usual, most);
            }
        }
        if is_due(self.rise_looked, rise::LOOK_EVERY) {
            self.rise_looked = Some(Instant::now());
            self.look_for_rises();
        }
    }

    async fn chores(&mut self) -> Result<(), StoreError> {
        if self.flush.has_news(&self.overview) || is_due(self.flushed, self.bounds.sign_of_life) {
            self.flush().await?;
        }
        if is_due(self.looked, self.bounds.look) {
            self.looked = Some(Instant::now());
            self.look().await?;
        }
        if is_due(self.folded, self.bounds.gone_after / 10) {
            self.folded = Some(Instant::now());
            let (unseen, max) = (self.bounds.gone_after, self.bounds.fold_max);
            self.own
                .run(
                    async |mut tx| {
                        let folded = tx.fold_counters(unseen, max).await;
                        (tx, folded)
                    },
                    |folded| *folded > 0,
                )
                .await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.flush.write(&self.own, &self.overview).await?;
        self.flushed = Some(Instant::now());
        self.overview.flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Looks at what waits in the store.
    async fn look(&self) -> Result<(), StoreError> {
        let places = self.overview.consumers.iter().filter_map(|(_, stats)| stats.backlog()?.place);
        let places: Vec<String> = places.collect();
        let names: Vec<&str> = self.overview.consumers.iter().map(|(name, _)| name.as_str()).collect();
        let seen = self
            .own
            .run(
                async |mut tx| {
                    let seen = look(&mut tx, &names, &places).await;
                    (tx, seen)
                },
                |_| false,
            )
            .await?;
        self.overview.set_in_store(seen);
        Ok(())
    }

    fn look_for_rises(&mut self) {
        for ((name, stats), rise) in self.overview.consumers.iter().zip(&mut self.rises) {
            if let Some(told) = rise.look(stats) {
                let (cause, count) = told.cause;
                tracing::warn!(
                    code = %Code::DuplicatesRise, consumer = %name, duplicates = told.duplicates, arrivals = told.arrivals, cause = cause.name(),
                    "suddenly {} of {} messages are duplicates, where {} % were usual; {count} of them look like {}: {}",
                    told.duplicates, told.arrivals, told.usual, cause.name(), cause.advice()
                );
            }
        }
    }
}

async fn look<Tx: Consumers + Depths + Outbox + Counters>(
    tx: &mut Tx,
    names: &[&str],
    places: &[String],
) -> Result<InStore, StoreError> {
    let mut seen = InStore::default();
    for known in tx.consumers().await? {
        if names.contains(&known.name.as_str()) {
            seen.parked.insert(known.name.to_string(), tx.parked_depth(known.id).await?);
        }
    }
    for place in places {
        if let Some(queue) = place.strip_prefix("queue:")
            && let Some(depth) = tx.queue_depth(queue).await?
        {
            seen.queues.insert(place.clone(), depth);
        }
    }
    for row in tx.read_counters().await?.rows {
        let sums = seen.counted.entry(row.tally.part.to_string()).or_default();
        for (name, count) in row.tally.body.counts {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    seen.lanes = tx.lane_depths().await?;
    let backlog = tx.outbox_backlog().await?;
    seen.outbox_lag_seconds = Some(seen.lanes.iter().map(|lane| lane.lag_seconds).max().unwrap_or(0));
    seen.outbox = Some(backlog);
    Ok(seen)
}

impl<S: ConsumerStore> fmt::Debug for Counting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
