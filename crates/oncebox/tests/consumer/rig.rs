//! The steps that cases are made of.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::{RunError, Snapshot, Stats};
use oncebox::horizon::{Consumers, Expiry, RETENTION_MIN};
use oncebox::memory::MemorySource;
use oncebox::parked::{ParkLease, Parking};
use oncebox::quarantine::{Quarantine, QuarantineStore};
use oncebox::queue::QueueStore;
use oncebox::{
    Class, Clock, Consumer, ConsumerId, ConsumerName, ConsumerStore, Context, Drained, Ended, Failure, Message,
    MessageId, Outcome, Outcomes, Retry, Session, Source, Store, Timestamp, Transaction,
};
use oncebox_testkit::store::{Setup, StoreFixture};
use oncebox_testkit::{ManualClock, eventually};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A store that consumers are tested on.
pub(crate) trait EngineFixture: StoreFixture<Store: QueueStore + QuarantineStore> {
    /// What the store calls the unique constraint behind `insert_unique`.
    fn unique_constraint() -> &'static str;

    /// What is set aside, in the order in which it was parked.
    fn parked(store: &Self::Store) -> impl Future<Output = Vec<ParkedRow>> + Send;
}

/// A message that is set aside, as a case looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParkedRow {
    /// The message's own id, or nothing.
    pub(crate) id: String,
    /// What it waits for, as [`Waits::code`](oncebox::parked::Waits::code).
    pub(crate) state: i16,
    pub(crate) class: Option<Class>,
    pub(crate) cause: String,
    pub(crate) reason: String,
    pub(crate) attempts: u32,
}

/// The codes of what a parked message waits for.
pub(crate) const RETRIES: i16 = 0;
pub(crate) const BEHIND: i16 = 1;
pub(crate) const GAP: i16 = 2;
pub(crate) const DEAD: i16 = 3;

/// The ids and states of what is set aside.
pub(crate) async fn states<F: EngineFixture>(setup: &Setup<F>) -> Vec<(String, i16)> {
    F::parked(&setup.store).await.into_iter().map(|row| (row.id, row.state)).collect()
}

/// The only message that is set aside. Its reason quotes nothing of a payload.
pub(crate) async fn only_parked<F: EngineFixture>(setup: &Setup<F>) -> ParkedRow {
    let mut rows = F::parked(&setup.store).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = rows.remove(0);
    assert!(!row.reason.contains("CANARY") && !row.cause.contains("CANARY"), "{row:?}");
    row
}

/// What a handler of a case returns where it has to be named.
pub(crate) type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// What the cases' messages say.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Note {
    pub(crate) text: String,
}

/// A message of type `noted` with this id, which says `text`.
pub(crate) fn note(id: &str, text: &str) -> Message {
    Message::new("noted").with_id(MessageId::new(id).unwrap()).with_json(&json!({ "text": text })).unwrap()
}

/// A handler that writes what the message says.
pub(crate) async fn write<F: EngineFixture>(mut ctx: Context<F::Store>, note: Note) -> oncebox::Result<Outcome> {
    F::write_effect(ctx.db(), &note.text).await?;
    Ok(Outcome::applied())
}

/// The sizes of the batches that a handler got.
pub(crate) type Sizes = Arc<Mutex<Vec<usize>>>;

/// A batch handler that writes what its messages say, and fails at a bad one.
pub(crate) async fn write_all<F: EngineFixture>(
    mut ctx: Context<F::Store>,
    notes: Vec<Note>,
    sizes: Sizes,
) -> oncebox::Result<Outcomes> {
    sizes.lock().unwrap().push(notes.len());
    for note in notes {
        F::write_effect(ctx.db(), &note.text).await?;
        if note.text == "bad" {
            return Err(refuse());
        }
    }
    Ok(Outcomes::Applied)
}

/// A consumer of `source` that tries again at once, for ever.
pub(crate) fn consumer<S: ConsumerStore, Src: Source<S>>(name: &str, store: &S, source: Src) -> Consumer<S, Src> {
    Consumer::new(name, store.clone(), source).retry(at_once(u32::MAX))
}

/// Tries again at once, this often. No waits: the store's clock stands still unless a case moves it.
pub(crate) fn at_once(attempts: u32) -> Retry {
    Retry::new().attempts(attempts).first(Duration::ZERO).within(Duration::MAX)
}

/// Runs a consumer until `done` answers true.
pub(crate) async fn run_until<S: ConsumerStore, Src: Source<S>>(
    consumer: Consumer<S, Src>,
    awaited: &str,
    mut done: impl AsyncFnMut(&Snapshot) -> bool,
) -> Snapshot {
    let stats = consumer.stats();
    let drained = consumer.run(eventually(awaited, async || done(&stats.snapshot()).await)).await;
    assert_eq!(drained.unwrap(), Drained::Clean);
    stats.snapshot()
}

/// Runs a consumer until its source is empty and what it set aside has come again.
pub(crate) async fn run_dry<S: ConsumerStore>(consumer: Consumer<S, MemorySource>, source: &MemorySource) -> Snapshot {
    // Of two looks: what had arrived at the first is settled at the second, and everything parked by then had arrived.
    let mut arrived = 0;
    run_until(consumer, "the source is empty and nothing waits to be tried again", async |seen| {
        let before = std::mem::replace(&mut arrived, seen.retried);
        source.backlog() == 0 && seen.in_hand == 0 && before >= seen.parked + seen.parked_behind
    })
    .await
}

/// How many parked messages of consumer `c` could be leased now.
pub(crate) async fn due<F: EngineFixture>(setup: &Setup<F>) -> usize {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let request = ParkLease { consumer, max: 100, lease: Duration::from_secs(1) };
    let leased = tx.lease_parked(&request).await.unwrap().len();
    tx.rollback().await;
    leased
}

/// Deletes up to `records` of the records of consumer `c`, and answers how far its horizon came. The clock of the case
/// stands at the year 2100 afterwards.
pub(crate) async fn forget<F: EngineFixture>(setup: &Setup<F>, records: usize) -> Timestamp {
    forget_of(setup, &ConsumerName::new("c").unwrap(), |consumer, before| Expiry::first(consumer, before, records))
        .await
}

/// The same for the records of any consumer, by a step of any kind.
pub(crate) async fn forget_of<F: EngineFixture>(
    setup: &Setup<F>,
    name: &ConsumerName,
    step: impl FnOnce(ConsumerId, Timestamp) -> Expiry,
) -> Timestamp {
    // Databases write records by their own clocks; whatever these show, it is before this.
    let now: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    setup.advance(now.duration_since(setup.clock.now()).unsigned_abs()).await;
    let consumer = setup.store.consumer(name).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let expired = tx.expire(step(consumer, now - RETENTION_MIN)).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
    assert!(expired.deleted > 0, "nothing was deleted: the case tests nothing");
    expired.horizon.unwrap()
}

/// Discards the first parked message of consumer `c`, or revives it.
pub(crate) async fn deal_with_first<F: EngineFixture>(setup: &Setup<F>, is_discarded: bool) {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let first = tx.page(consumer, 0, 1).await.unwrap()[0].row;
    let done =
        if is_discarded { tx.discard(&[first], "the case said so").await } else { tx.revive(&[first], None).await };
    assert_eq!(done.unwrap(), [true]);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

/// Revives what is dead of consumer `c`.
pub(crate) async fn revive_all<F: EngineFixture>(setup: &Setup<F>) {
    let consumer = setup.store.consumer(&ConsumerName::new("c").unwrap()).await.unwrap();
    let mut tx = setup.store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let rows: Vec<i64> = tx.page(consumer, 0, 100).await.unwrap().iter().map(|row| row.row).collect();
    tx.revive(&rows, None).await.unwrap();
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

/// The committed effects, sorted.
pub(crate) async fn effects<F: EngineFixture>(setup: &Setup<F>) -> Vec<String> {
    let mut effects = F::effects(&setup.store).await;
    effects.sort();
    effects
}

/// Lets a manual clock follow the real one while `work` runs, for cases whose leases must end by themselves.
pub(crate) async fn in_real_time<T>(clock: &Arc<ManualClock>, work: impl Future<Output = T>) -> T {
    let tick = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        let mut last = tokio::time::Instant::now();
        loop {
            let now = ticks.tick().await;
            clock.advance(now - last);
            last = now;
        }
    };
    tokio::select! {
        done = work => done,
        () = tick => unreachable!("the clock never stops"),
    }
}

/// A failure that a test's handler makes.
pub(crate) fn refuse() -> Failure {
    Failure::transient("the case said so")
}

/// A consumer that was started on a task, to be stopped by hand.
pub(crate) struct Running {
    pub(crate) stats: Arc<Stats>,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<Drained, RunError>>,
}

impl Running {
    pub(crate) fn start<S: QueueStore, Src: Source<S>>(consumer: Consumer<S, Src>) -> Self {
        let stats = consumer.stats();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        #[allow(clippy::disallowed_methods, reason = "the handle is kept")]
        let task = tokio::spawn(consumer.run(async move {
            let _ = stopped.await;
        }));
        Self { stats, stop, task }
    }

    pub(crate) async fn stop(self) -> Drained {
        let _ = self.stop.send(());
        self.task.await.unwrap().unwrap()
    }

    /// Dies like a process: nothing is settled, nothing given back.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
