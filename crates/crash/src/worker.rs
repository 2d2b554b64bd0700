//! One worker: an ordinary consumer, in a process that someone will kill, stop or cut off.
//!
//! It reports on stdout, a line at a time, unbuffered, so that what it said survives its death: `received N` before it
//! handles anything, `at NAME` when it hangs at a crash point and waits to be killed, `stopped NAME` before it stops
//! itself, `parks KEY` just before a message of that key is parked, `unknown N` at an orderly end.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::Context as _;
use oncebox::consumer::Stats;
use oncebox::crashpoint::{self, Action};
use oncebox::postgres::Postgres;
use oncebox::queue::QueueStore;
use oncebox::sqlite::Sqlite;
use oncebox::store::Transaction;
use oncebox::{Consumer, Context, Failure, KeyStrategy, OrderBy, Outcome, Outcomes, Retry, Source, Versioned};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};
use tokio::io::AsyncReadExt;

use crate::feed::{BATCH, KINDS, Order, ROLE_OFTEN, Role, TIMES};
use crate::misfortune;
use crate::place::{self, NAME, Place};
use crate::process::JOB;
use crate::row::{Faults, FeedKind, HandlerKind, Row, SourceKind};
use crate::wire::Wire;

/// What a worker is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Job {
    pub(crate) row: Row,
    pub(crate) place: Place,
    pub(crate) broker: Option<SocketAddr>,
    /// For journals, and for notes on which message has played its role how often.
    pub(crate) folder: PathBuf,
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) doom: Doom,
    /// It has the handler of the type that is deployed later.
    pub(crate) deployed: bool,
    /// It builds keys in another way than the others.
    pub(crate) strange: bool,
}

/// What a worker does to itself at one pass of one crash point.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Doom {
    None,
    /// Hangs, to be killed.
    Hang,
    /// Stops itself, to be continued.
    Stop,
}

/// The key of the message that failed last in this process.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// How long a message takes to be parked where partitions change hands at that moment: long enough for the new owner to meet
/// the old one, and less than its statements wait for.
const PARKING: Duration = Duration::from_millis(35);

/// Acts at one of the first this many passes of the chosen crash point.
const PASSES: u32 = 5;

pub(crate) async fn run() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let job: Job = serde_json::from_str(&std::env::var(JOB).context("a worker is started by the matrix")?)?;
    match job.place.clone() {
        Place::Sqlite { path } => serve(place::sqlite(&path).await?, job).await,
        Place::Postgres { url, schema } if job.row.faults == Faults::CommitKill => {
            serve(place::impatient_postgres(&url, &schema).await?, job).await
        }
        Place::Postgres { url, schema } => serve(place::postgres(&url, &schema).await?, job).await,
    }
}

async fn serve<S: Business>(store: S, job: Job) -> anyhow::Result<()> {
    match (job.row.source, job.broker) {
        (kind @ (SourceKind::Broker | SourceKind::Partitions | SourceKind::Uncounted), addr) => {
            let addr = addr.context("a worker of this row needs a broker")?;
            consume(store, Wire::new(addr, kind), job).await
        }
        _ => {
            let queue = place::queue(&job.row, store.clone())?;
            consume(store, queue, job).await
        }
    }
}

async fn consume<S: Business, Src: Source<S>>(store: S, source: Src, job: Job) -> anyhow::Result<()> {
    let desk = Arc::new(Desk::open(&job)?);
    let mut consumer = Consumer::new(NAME, store, source).classify(misfortune::class);
    for kind in &KINDS[..if job.deployed || !job.row.late { 2 } else { 1 }] {
        let desk = Arc::clone(&desk);
        consumer = match job.row.handler {
            HandlerKind::Each => consumer.on(*kind, move |ctx, order| one::<S>(ctx, order, Arc::clone(&desk))),
            HandlerKind::Fenced => {
                consumer.on_idempotent(*kind, move |ctx, order| one::<S>(ctx, order, Arc::clone(&desk)))
            }
            HandlerKind::Batch => {
                consumer.on_batch(*kind, move |ctx, orders| many::<S>(ctx, orders, Arc::clone(&desk)))
            }
        };
    }
    if job.strange {
        consumer = consumer.key(KeyStrategy::template("another:{id}")?);
    }
    let order = if job.row.orders_by_key() { OrderBy::MessageKey } else { OrderBy::Nothing };
    let retry = Retry::new().first(Duration::from_millis(20)).max(Duration::from_millis(100));
    let consumer = consumer.retry(retry).order_by(order).lanes(job.row.lanes).bounds(|bounds| {
        // Small steps, so that faults find every stage of many messages.
        // Slow messages one by one: those that wait for their turn are what leases run out on.
        bounds.batch_messages_max = if job.row.feed == FeedKind::Slow { 1 } else { BATCH };
        bounds.in_flight_max = 24;
        bounds.suspect_wait = Duration::from_millis(300);
        bounds.parked_lease = job.row.lease();
        if job.row.feed == FeedKind::Panicking {
            // Some of them are to be dropped in the middle of their work.
            bounds.handler_deadline = job.row.lease() / 2;
        }
    });
    let consumer = match job.row.feed {
        FeedKind::Versions => consumer.versioned(Versioned::by_order_key()),
        FeedKind::Rekeyed if job.number % 2 == 1 => {
            consumer.key(KeyStrategy::template("order:{@id}")?).key_was(KeyStrategy::MessageId)
        }
        _ => consumer,
    };
    if job.row.stored {
        let consumer = consumer.stored().lease(job.row.lease());
        let (stats, front) = (consumer.stats(), consumer.front_stats());
        arm(&job, Arc::clone(&front));
        consumer.run(parent_gone()).await?;
        say(&format!("unknown {}", stats.snapshot().unknown_commits + front.snapshot().unknown_commits));
    } else {
        let stats = consumer.stats();
        arm(&job, Arc::clone(&stats));
        consumer.run(parent_gone()).await?;
        say(&format!("unknown {}", stats.snapshot().unknown_commits));
    }
    Ok(())
}

/// Reports what is received, and acts at one pass of one crash point.
fn arm(job: &Job, stats: Arc<Stats>) {
    let mut random = fastrand::Rng::with_seed(job.seed);
    let passed: Vec<&'static str> = crashpoint::ALL.iter().copied().filter(|point| job.row.passes(point)).collect();
    let chosen = passed[random.usize(..passed.len())];
    let passes = AtomicU32::new(random.u32(1..=PASSES));
    let (doom, reported) = (job.doom, AtomicU64::new(0));
    let rebalances = job.row.faults == Faults::Rebalance;
    crashpoint::install(move |name| {
        say_works();
        if name == "received" {
            let deliveries = stats.snapshot().deliveries;
            say(&format!("received {}", deliveries - reported.swap(deliveries, Relaxed)));
        }
        if rebalances && name == "parking" {
            say(&format!("parks {}", FAILED.load(Relaxed)));
            #[allow(
                clippy::disallowed_methods,
                reason = "a crash point is no place to await, and this one is to take long"
            )]
            std::thread::sleep(PARKING);
        }
        if doom == Doom::None || name != chosen || passes.fetch_sub(1, Relaxed) != 1 {
            return Action::Go;
        }
        match doom {
            Doom::Stop => {
                say(&format!("stopped {name}"));
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
                Action::Go
            }
            _ => {
                say(&format!("at {name}"));
                Action::Hang
            }
        }
    });
}

/// One line to the parent. If it is gone, so are we.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Tells, once, that there is something to lose from here on.
pub(crate) fn say_works() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| say("works now"));
}

/// Resolves when the parent closes our stdin, on purpose or by dying.
pub(crate) async fn parent_gone() {
    let mut byte = [0; 1];
    while let Ok(1..) = tokio::io::stdin().read(&mut byte).await {}
}

/// What handlers need beside the store: tables' names, and files that survive the process.
struct Desk {
    effects: String,
    totals: String,
    folder: PathBuf,
    journal: std::fs::File,
    row: Row,
}

impl Desk {
    fn open(job: &Job) -> anyhow::Result<Self> {
        let path = job.folder.join(format!("journal-{}", job.number));
        let journal = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        let (effects, totals) = (job.place.table("crash_effects"), job.place.table("crash_totals"));
        Ok(Self { effects, totals, folder: job.folder.clone(), journal, row: job.row.clone() })
    }

    /// One line in one write: the kernel has it, whatever becomes of us.
    fn note(&self, what: &str, n: u64) {
        let _ = (&self.journal).write_all(format!("{what} {n}\n").as_bytes());
    }
}

/// Whether a message still plays its role, counted in a file of `folder`.
pub(crate) fn plays(folder: &Path, n: u64) -> bool {
    let path = folder.join(format!("played-{n}"));
    let played = std::fs::metadata(&path).map_or(0, |file| file.len());
    if played >= TIMES {
        return false;
    }
    let noted = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let _ = noted.and_then(|mut file| file.write_all(b"x"));
    true
}

async fn one<S: Business>(mut ctx: Context<S>, order: Order, desk: Arc<Desk>) -> oncebox::Result<Outcome> {
    apply::<S>(&mut ctx, order, &desk).await?;
    Ok(Outcome::applied())
}

async fn many<S: Business>(mut ctx: Context<S>, orders: Vec<Order>, desk: Arc<Desk>) -> oncebox::Result<Outcomes> {
    for order in orders {
        apply::<S>(&mut ctx, order, &desk).await?;
    }
    Ok(Outcomes::Applied)
}

async fn apply<S: Business>(ctx: &mut Context<S>, order: Order, desk: &Arc<Desk>) -> Result<(), Failure> {
    desk.note("call", order.n);
    let Order { n, key, seq, role, .. } = order;
    let insert = format!("insert into {} (n, key, seq) values ({n}, {key}, {seq})", desk.effects);
    S::run(ctx.db(), insert).await?;
    let total = format!("update {} set total = total + 1 where key = {key}", desk.totals);
    match desk.row.feed {
        FeedKind::HotKeys => S::run(ctx.db(), total).await?,
        FeedKind::Slow => tokio::time::sleep(desk.row.lease() * 2).await,
        FeedKind::Star => S::run(ctx.db(), format!("select * from {} where key = {key}", desk.totals)).await?,
        _ => {}
    }
    match role {
        Role::Killer => std::process::abort(),
        Role::Failing if plays(&desk.folder, n) => {
            FAILED.store(key, Relaxed);
            return Err(Failure::transient("it fails the first times"));
        }
        Role::Foreign if plays(&desk.folder, n) => {
            for statement in misfortune::foreign(n / ROLE_OFTEN) {
                S::run_raw(ctx.db(), statement).await?;
            }
        }
        Role::Deallocating if plays(&desk.folder, n) => S::run_raw(ctx.db(), "deallocate all".to_owned()).await?,
        Role::Panicking if plays(&desk.folder, n) => {
            if let Some(hook) = misfortune::panicking(n / ROLE_OFTEN).await? {
                ctx.after_commit(hook);
            }
        }
        Role::Swallowing if plays(&desk.folder, n) => {
            let _ = S::run(ctx.db(), "select n from there_is_no_such_table".to_owned()).await;
        }
        _ => {}
    }
    let desk = Arc::clone(desk);
    ctx.after_commit(async move { desk.note("hook", n) });
    Ok(())
}

/// A store whose handlers can write the business tables.
pub(crate) trait Business: QueueStore {
    fn run(db: &mut <Self::Tx as Transaction>::Db, sql: String) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The same without a prepared statement.
    fn run_raw(db: &mut <Self::Tx as Transaction>::Db, sql: String)
    -> impl Future<Output = Result<(), Failure>> + Send;
}

impl Business for Sqlite {
    async fn run(db: &mut SqliteConnection, sql: String) -> Result<(), Failure> {
        sqlx::query(AssertSqlSafe(sql)).execute(db).await?;
        Ok(())
    }

    async fn run_raw(db: &mut SqliteConnection, sql: String) -> Result<(), Failure> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await?;
        Ok(())
    }
}

impl Business for Postgres {
    async fn run(db: &mut PgConnection, sql: String) -> Result<(), Failure> {
        sqlx::query(AssertSqlSafe(sql)).execute(db).await?;
        Ok(())
    }

    async fn run_raw(db: &mut PgConnection, sql: String) -> Result<(), Failure> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await?;
        Ok(())
    }
}

/// What the journals of all workers say: how often each message's handler was called, and its hook run.
pub(crate) struct Journals {
    pub(crate) calls: std::collections::HashMap<u64, u64>,
    pub(crate) hooks: std::collections::HashMap<u64, u64>,
}

impl Journals {
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut journals = Self { calls: Default::default(), hooks: Default::default() };
        for file in std::fs::read_dir(folder).context("cannot list the journals")? {
            let path = file?.path();
            if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-")) {
                continue;
            }
            for line in std::fs::read_to_string(path).context("cannot read a journal")?.lines() {
                let (what, n) = line.split_once(' ').context("a journal has a broken line")?;
                let counts = if what == "hook" { &mut journals.hooks } else { &mut journals.calls };
                *counts.entry(n.parse()?).or_default() += 1;
            }
        }
        Ok(journals)
    }
}
