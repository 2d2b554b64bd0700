//! Everything in a file, running in one process until it is told to stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use oncebox::consumer::{Drained, RunError, Stats};
use oncebox::postgres::Postgres;
use oncebox::relay::RelayStats;
use oncebox::retention::RetentionStats;
use oncebox::sqlite::Sqlite;
use oncebox::{Code, Consumer, Ended, Relay, Retry, Session, StoreError, Transaction};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend::{Backend, says};
use crate::feed::Feed;
use crate::file::{ConsumerSpec, Mistake, Mistakes, Pipeline, StoreAt, StoreSpec};
use crate::handler::{self, Ready};
use crate::identity::identified;
use crate::journal;
use crate::outlet::Outlet;
use crate::retention::{Retiring, kept};
use crate::watching::Watching;

/// How long the check of a statement may wait for someone's lock.
const CHECK: Duration = Duration::from_secs(5);

/// Why a file could not be run, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFileError {
    /// Something in it does not fit the database.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// The store can't be had.
    #[error("cannot run {file}: {error}")]
    Store {
        /// The file.
        file: String,
        /// Why.
        #[source]
        error: StoreError,
    },
    /// The statements that run at each start could not.
    #[error("cannot run {file} at the start: {reason}")]
    Setup {
        /// The file with the statements.
        file: String,
        /// Why.
        reason: String,
    },
    /// The address for metrics can't be had.
    #[error("{reason}")]
    Metrics {
        /// Which, and why.
        reason: String,
    },
    /// A part ended with an error; the others were told to stop.
    #[error("{part}: {reason}")]
    Part {
        /// Which: `consumer invoices`.
        part: String,
        /// Why.
        reason: String,
        /// The page that tells what to do.
        code: Code,
    },
    /// Not everything was finished when the time for that was over. Nothing is lost: it comes again.
    #[error("{part} was not done within its drain time; what it had in hand comes again")]
    Unfinished {
        /// Which.
        part: String,
    },
}

impl RunFileError {
    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self {
            Self::Mistakes(_) => Code::FileMistakes,
            Self::Store { error, .. } => error.code(),
            Self::Setup { .. } => Code::Setup,
            Self::Metrics { .. } => Code::MetricsAway,
            Self::Part { code, .. } => *code,
            Self::Unfinished { .. } => Code::NotDrained,
        }
    }
}

/// What runs, told once everything has been checked.
#[derive(Debug)]
#[non_exhaustive]
pub struct Running {
    /// Each consumer's name and counters.
    pub consumers: Vec<(String, Arc<Stats>)>,
    /// The relay's counters.
    pub relay: Option<Arc<RelayStats>>,
    /// How far the removal of old records is.
    pub retention: Arc<RetentionStats>,
}

/// Which parts of a file to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All of it.
    All,
    /// The relay alone.
    Relay,
    /// None: all of it is checked, which takes the statements of `setup`, and nothing is started.
    Nothing,
}

/// Runs what a file says until `shutdown` resolves, then drains.
pub async fn run(
    file: &str,
    pipeline: &Pipeline,
    parts: Parts,
    started: impl FnOnce(&Running),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunFileError> {
    let store_error = |error| RunFileError::Store { file: file.to_owned(), error };
    match &pipeline.store.at {
        StoreAt::Sqlite(path) => {
            let store = Sqlite::open(path).await.map_err(store_error)?;
            run_on(file, pipeline, parts, store, started, shutdown).await
        }
        StoreAt::Postgres(url) => {
            let store = postgres(url, &pipeline.store).await.map_err(store_error)?;
            run_on(file, pipeline, parts, store, started, shutdown).await
        }
    }
}

pub(crate) async fn postgres(url: &str, spec: &StoreSpec) -> Result<Postgres, StoreError> {
    let builder = Postgres::builder(url);
    match &spec.schema {
        Some(schema) => builder.schema(schema).connect().await,
        None => builder.connect().await,
    }
}

async fn run_on<S: Backend>(
    file: &str,
    pipeline: &Pipeline,
    parts: Parts,
    store: S,
    started: impl FnOnce(&Running),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunFileError> {
    let specs = if parts == Parts::Relay { &[] } else { pipeline.consumers.as_slice() };
    if parts != Parts::Relay {
        setup(&pipeline.store, &store).await?;
    }
    let mut consumers = Vec::new();
    let mut mistakes = Vec::new();
    for spec in specs {
        match consumer(spec, &store, pipeline, &mut mistakes).await {
            Ok(consumer) => consumers.extend(consumer.map(|consumer| (spec.name.clone(), consumer))),
            Err(error) => return Err(RunFileError::Store { file: file.to_owned(), error }),
        }
    }
    let relay = match &pipeline.relay {
        None => None,
        Some(spec) => match Outlet::new(&spec.to, &store, pipeline) {
            Ok(outlet) if spec.keep_sent => Some(Relay::new(store.clone(), outlet).keep_sent()),
            Ok(outlet) => Some(Relay::new(store.clone(), outlet)),
            Err(reason) => {
                mistakes.push(Mistake { line: spec.line, says: format!("`to` of the relay: {reason}") });
                None
            }
        },
    };
    let kept = if parts == Parts::Relay { Vec::new() } else { kept(pipeline, &mut mistakes).await };
    if !mistakes.is_empty() {
        mistakes.sort();
        return Err(Mistakes { file: file.to_owned(), found: mistakes }.into());
    }
    // Before anything runs, so that what is fit does not start beside what is not.
    for (name, consumer) in &consumers {
        ending(format!("consumer {name}"), consumer.check_identity().await.map(|()| Drained::Clean), RunError::code)?;
    }
    if parts == Parts::Nothing {
        journal::tell_costs(pipeline);
        return Ok(());
    }
    let retiring = Retiring::new(pipeline, &kept, &store).map_err(|error| RunFileError::Part {
        part: "retention".to_owned(),
        reason: error.to_string(),
        code: Code::RetentionShort,
    })?;
    let watching = Watching::start(&store, pipeline, &consumers, relay.as_ref(), &retiring).await?;
    started(&Running {
        consumers: consumers.iter().map(|(name, consumer)| (name.clone(), consumer.stats())).collect(),
        relay: relay.as_ref().map(Relay::stats),
        retention: retiring.stats(),
    });

    let (stop, stopped) = watch::channel(false);
    let ended = || told_to_stop(stopped.clone());
    let mut running: JoinSet<Result<(), RunFileError>> = JoinSet::new();
    for (name, consumer) in consumers {
        let (ended, part) = (ended(), format!("consumer {name}"));
        running.spawn(async move { ending(part, consumer.run(ended).await, |error| error.code()) });
    }
    if let Some(relay) = relay {
        let ended = ended();
        running.spawn(async move { ending("relay".to_owned(), relay.run(ended).await, |error| error.code()) });
    }
    if retiring.is_needed() {
        let (stopped, part) = (stopped.clone(), "retention".to_owned());
        running.spawn(async move {
            let code = Code::RetentionStopped;
            let done = retiring.run(|| told_to_stop(stopped.clone())).await;
            done.map_err(|error| RunFileError::Part { part, reason: error.to_string(), code })
        });
    }
    tokio::pin!(shutdown);
    let mut first = None;
    while !running.is_empty() {
        let done = tokio::select! {
            biased;
            () = &mut shutdown, if !*stop.borrow() => {
                let _ = stop.send(true);
                continue;
            }
            Some(done) = running.join_next() => done,
        };
        let failed = match done {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(error) => {
                RunFileError::Part { part: "a task".to_owned(), reason: error.to_string(), code: Code::TaskBroke }
            }
        };
        // One part alone is half a pipeline: whoever watches us should see that we ended.
        let _ = stop.send(true);
        first.get_or_insert(failed);
    }
    watching.end().await;
    first.map_or(Ok(()), Err)
}

async fn told_to_stop(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Runs the user's own statements, in one transaction.
async fn setup<S: Backend>(spec: &StoreSpec, store: &S) -> Result<(), RunFileError> {
    let Some(path) = &spec.setup else { return Ok(()) };
    let failed = |reason: String| RunFileError::Setup { file: path.display().to_string(), reason };
    let script = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let begun = async { store.connect().await?.begin(CHECK).await };
    let mut tx = begun.await.map_err(|error| failed(error.to_string()))?;
    if let Err(error) = S::script(tx.db(), script).await {
        tx.rollback().await;
        return Err(failed(says(&error)));
    }
    match tx.commit().await {
        Ended::Committed(_) => Ok(()),
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => Err(failed(error.to_string())),
    }
}

fn ending<E: std::fmt::Display>(
    part: String,
    ended: Result<Drained, E>,
    code: impl FnOnce(&E) -> Code,
) -> Result<(), RunFileError> {
    match ended {
        Ok(Drained::Clean) => Ok(()),
        Ok(_) => Err(RunFileError::Unfinished { part }),
        Err(error) => Err(RunFileError::Part { part, reason: error.to_string(), code: code(&error) }),
    }
}

/// A consumer of the file, with every statement seen by the server.
pub(crate) async fn consumer<S: Backend>(
    spec: &ConsumerSpec,
    store: &S,
    pipeline: &Pipeline,
    mistakes: &mut Vec<Mistake>,
) -> Result<Option<Consumer<S, Feed<S>>>, StoreError> {
    let feed = match Feed::new(spec, store, pipeline) {
        Ok(feed) => feed,
        Err(reason) => {
            mistakes.push(Mistake { line: spec.line, says: format!("`from` of consumer `{}`: {reason}", spec.name) });
            return Ok(None);
        }
    };
    let mut consumer = identified(Consumer::new(&spec.name, store.clone(), feed), spec).retry(retry(spec));
    match spec.versioned() {
        None => {}
        Some(Ok(versioned)) => consumer = consumer.versioned(versioned),
        Some(Err(says)) => mistakes.push(Mistake { line: spec.line, says }),
    }
    if let Some(lanes) = spec.lanes {
        consumer = consumer.lanes(lanes);
    }
    if spec.journal.is_some() {
        consumer = consumer.journal();
    }
    if spec.ask_archive {
        consumer = consumer.ask_archive();
    }
    if let Some(guarantee) = spec.require {
        consumer = consumer.require(guarantee);
    }
    let mut tx = store.connect().await?.begin(CHECK).await?;
    for on in &spec.on {
        let mut statements = Vec::new();
        for (place, statement) in on.sql.iter().enumerate() {
            match S::prepare(tx.db(), statement).await {
                Ok(prepared) => statements.push(prepared),
                Err(error) => {
                    let says = format!("statement {} of type `{}` cannot run: {}", place + 1, on.kind, says(&error));
                    mistakes.push(Mistake { line: on.line, says });
                    // After an error PostgreSQL takes no more in this transaction.
                    tx.rollback().await;
                    tx = store.connect().await?.begin(CHECK).await?;
                }
            }
        }
        let ready = Arc::new(Ready::new(statements, on));
        consumer =
            consumer.on_raw(&on.kind, move |ctx, message| handler::handle::<S>(ctx, message, Arc::clone(&ready)));
    }
    tx.rollback().await;
    if let Err(error) = consumer.check() {
        mistakes.push(Mistake { line: spec.line, says: error.to_string() });
    }
    Ok(Some(consumer))
}

fn retry(spec: &ConsumerSpec) -> Retry {
    let mut retry = Retry::new();
    if let Some(attempts) = spec.retry.attempts {
        retry = retry.attempts(attempts);
    }
    if let Some(first) = spec.retry.first {
        retry = retry.first(first);
    }
    if let Some(max) = spec.retry.max {
        retry = retry.max(max);
    }
    retry
}
