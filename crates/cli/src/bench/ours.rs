//! The same work through Oncebox: messages from the memory source, accounts partitioned over lanes by order.

use std::sync::Arc;
use std::time::Duration;

use oncebox::memory::{MemoryReceipt, MemorySource};
use oncebox::source::SourceCapabilities;
use oncebox::{
    Clock, Consumer, Context, Delivery, OrderBy, Outcome, Outcomes, Release, Source, SourceError, Store, StoreError,
    SystemClock,
};
use tokio::time::Instant;

use super::BATCH;
use super::database::{Database, Keys, Statements};
use super::hand::Took;
use super::load::{Latencies, Latency, Pace};
use super::report;
use super::work::{Credit, Work, messages};

/// Which handlers a run registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handlers {
    /// `on`: one message per call.
    Each,
    /// `on_batch`: set-based.
    Batch,
    /// The same two, with a journal.
    EachJournaled,
    BatchJournaled,
}

/// A consumer to be run.
pub(super) type Bench<D> = Consumer<<D as Database>::Store, Clocked>;

async fn each<D: Database, W: Work>(mut ctx: Context<D::Store>, work: W) -> oncebox::Result<Outcome> {
    work.apply(ctx.db()).await?;
    Ok(Outcome::applied())
}

async fn batch<D: Database>(mut ctx: Context<D::Store>, credits: Vec<Credit>) -> oncebox::Result<Outcomes> {
    let (accounts, amounts): (Vec<i64>, Vec<i64>) =
        credits.iter().map(|credit| (credit.account, credit.amount)).unzip();
    ctx.db().credit_all(&accounts, &amounts).await?;
    Ok(Outcomes::Applied)
}

/// A consumer of `source` with these handlers. `Batch` handles [`Credit`]s alone.
pub(super) fn consumer<D: Database, W: Work>(db: &D, source: Clocked, lanes: u16, handlers: Handlers) -> Bench<D> {
    let lanes = usize::from(lanes);
    let ordered = W::number(0).order_key().is_some();
    // A name is bound to what its messages are kept in order by.
    let name = if ordered { "bench" } else { "bench-unordered" };
    let consumer = Consumer::new(name, db.store().clone(), source)
        .order_by(if ordered { OrderBy::MessageKey } else { OrderBy::Nothing })
        .lanes(lanes)
        .bounds(|bounds| {
            bounds.batch_messages_max = BATCH;
            bounds.in_flight_max = 4 * BATCH * lanes;
        });
    match handlers {
        Handlers::Each => consumer.on("work", each::<D, W>),
        Handlers::Batch => consumer.on_batch("work", batch::<D>),
        Handlers::EachJournaled => consumer.on("work", each::<D, W>).journal(),
        Handlers::BatchJournaled => consumer.on_batch("work", batch::<D>).journal(),
    }
}

/// All messages are there from the beginning. The clock starts when the first few are through: they warm up connections,
/// statements and batches, as hand-written connections are warmed up too.
pub(super) async fn run<D: Database, W: Work>(
    db: &D,
    count: u32,
    lanes: u16,
    handlers: Handlers,
    keys: Keys,
) -> anyhow::Result<Took> {
    let source = Clocked::default();
    source.memory.send_all(messages::<W>(0..count, keys)?);
    let consumer = consumer::<D, W>(db, source, lanes, handlers);
    let stats = consumer.stats();
    let reach = async |handled: u32| loop {
        let now = stats.snapshot();
        if now.handled >= handled.into() || now.failures > 0 {
            return (now, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let mut took = Took { messages: 0, commits: 0, seconds: 0.0 };
    let done = async {
        let (before, started) = reach(count.div_ceil(10).min(WARM_UP_MAX)).await;
        let (after, ended) = reach(count).await;
        // Before the drain, which belongs to a shutdown and not to the work.
        took = Took {
            messages: after.handled - before.handled,
            commits: after.commits - before.commits,
            seconds: (ended - started).as_secs_f64(),
        };
    };
    consumer.run(done).await?;
    anyhow::ensure!(stats.snapshot().failures == 0, "a handler failed, so there is nothing to measure");
    let missing = stats.snapshot().journal_lost;
    if missing > 0 {
        // Part of the answer: a journal that can't keep up is cheaper than it looks.
        report::progress(&format!("{missing} of {count} deliveries are not in the journal"));
    }
    anyhow::ensure!(took.messages > 0, "too few messages to measure anything");
    Ok(took)
}

/// Messages handled before the clock starts.
const WARM_UP_MAX: u32 = 2_000;

/// The same while messages arrive evenly.
pub(super) async fn paced<D: Database, W: Work>(
    db: &D,
    pace: Pace,
    lanes: u16,
    handlers: Handlers,
) -> anyhow::Result<Option<Latency>> {
    let mut work = messages::<W>(0..pace.messages, Keys::TimeOrdered)?.into_iter();
    let latencies = Latencies::default();
    let source = Clocked { latencies: Some(latencies.clone()), ..Clocked::default() };
    let consumer = consumer::<D, W>(db, source.clone(), lanes, handlers);
    let stats = consumer.stats();
    let done = async {
        pace.run(|numbers| {
            let now = SystemClock.now();
            source.memory.send_all(work.by_ref().take(numbers.len()).map(|mut message| {
                message.time = now;
                message
            }));
        })
        .await;
        while source.memory.backlog() > 0 && stats.snapshot().failures == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    consumer.run(done).await?;
    anyhow::ensure!(stats.snapshot().failures == 0, "a handler failed, so there is nothing to measure");
    Ok(latencies.summary(pace.per_second))
}

/// The memory source, and a note of when each message was acknowledged, which is right after its commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Clocked {
    pub(super) memory: MemorySource,
    latencies: Option<Latencies>,
}

impl<S: Store> Source<S> for Clocked {
    type Receipt = MemoryReceipt;

    fn capabilities(&self) -> SourceCapabilities {
        Source::<S>::capabilities(&self.memory)
    }

    async fn open(&self, store: &S) -> Result<(), SourceError> {
        self.memory.open(store).await
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<Delivery<MemoryReceipt>>, SourceError> {
        Source::<S>::receive(&self.memory, max, wait).await
    }

    async fn ack_in(&self, tx: &mut S::Tx, receipts: &[&MemoryReceipt]) -> Result<(), StoreError> {
        Source::<S>::ack_in(&self.memory, tx, receipts).await
    }

    async fn ack(&self, deliveries: Vec<Delivery<MemoryReceipt>>) -> Result<(), SourceError> {
        if let Some(latencies) = &self.latencies {
            latencies.add(deliveries.iter().map(|delivery| delivery.message.time));
        }
        Source::<S>::ack(&self.memory, deliveries).await
    }

    async fn release(&self, deliveries: Vec<Delivery<MemoryReceipt>>, release: Release) -> Result<(), SourceError> {
        Source::<S>::release(&self.memory, deliveries, release).await
    }

    async fn extend(&self, receipts: &[Arc<MemoryReceipt>]) -> Result<(), SourceError> {
        Source::<S>::extend(&self.memory, receipts).await
    }
}
