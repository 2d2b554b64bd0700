//! One worker of the demo: an ordinary consumer, in a process that someone will kill.
//!
//! It reports on stdout, a line at a time, unbuffered, so that what it said survives its death:
//! `received N` before it handles anything, `at NAME` when it hangs at a crash point and waits to be killed.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use oncebox::consumer::Stats;
use oncebox::crashpoint::{self, Action};
use oncebox::postgres::Postgres;
use oncebox::queue::QueueStore;
use oncebox::sqlite::Sqlite;
use oncebox::store::Transaction;
use oncebox::{Consumer, Context, Failure, Outcome, Queue};
use sqlx::{AssertSqlSafe, PgConnection, SqliteConnection};
use tokio::io::AsyncReadExt;

use super::feed::Payment;
use super::shop::{self, Place};

/// One worker of the demo.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The SQLite file.
    #[arg(long)]
    sqlite: Option<PathBuf>,
    /// The PostgreSQL schema; the URL comes in the environment, where other users can't read it.
    #[arg(long)]
    schema: Option<String>,
    /// Chooses where to hang.
    #[arg(long)]
    seed: u64,
    /// Whether to hang at all.
    #[arg(long)]
    hang: bool,
}

/// Where a worker finds the PostgreSQL URL.
pub(super) const URL: &str = "ONCEBOX_DEMO_URL";

/// Short, so that a dead worker's messages come again soon.
const LEASE: Duration = Duration::from_millis(800);

/// Hangs at one of the first this many passes of the chosen crash point.
const PASSES: u32 = 8;

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    match (args.sqlite.clone(), args.schema.clone()) {
        (Some(path), None) => consume(shop::sqlite(&path).await?, Place::Sqlite { path }, &args).await,
        (None, Some(schema)) => {
            let url = std::env::var(URL)?;
            consume(shop::postgres(&url, &schema).await?, Place::Postgres { url, schema }, &args).await
        }
        _ => anyhow::bail!("a worker needs either --sqlite or --schema"),
    }
}

/// Reports what is received, and hangs at one pass of one crash point.
fn arm(args: &Args, stats: Arc<Stats>) {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let chosen = crashpoint::ALL[random.usize(..crashpoint::ALL.len())];
    let passes = AtomicU32::new(random.u32(1..=PASSES));
    let (hang, reported) = (args.hang, AtomicU64::new(0));
    crashpoint::install(move |name| {
        if name == "received" {
            let deliveries = stats.snapshot().deliveries;
            say(&format!("received {}", deliveries - reported.swap(deliveries, Relaxed)));
        }
        if hang && name == chosen && passes.fetch_sub(1, Relaxed) == 1 {
            say(&format!("at {name}"));
            return Action::Hang;
        }
        Action::Go
    });
}

/// One line to the parent. If it is gone, so are we.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

async fn consume<S: Effects>(store: S, place: Place, args: &Args) -> anyhow::Result<()> {
    let queue = Queue::new(store.clone(), shop::QUEUE)?.lease(LEASE);
    let table = place.effects();
    let consumer = Consumer::new("demo", store, queue)
        .on("payment.received", move |ctx, payment| apply::<S>(ctx, payment, table.clone()))
        .lanes(4)
        .bounds(|bounds| {
            // Small steps, so that kills find every stage of many messages.
            bounds.batch_messages_max = 8;
            bounds.in_flight_max = 24;
        });
    arm(args, consumer.stats());
    consumer.run(parent_gone()).await?;
    Ok(())
}

/// Resolves when the parent closes our stdin, on purpose or by dying.
async fn parent_gone() {
    let mut byte = [0; 1];
    while let Ok(1..) = tokio::io::stdin().read(&mut byte).await {}
}

async fn apply<S: Effects>(mut ctx: Context<S>, payment: Payment, table: String) -> oncebox::Result<Outcome> {
    let sql = format!("insert into {table} (payment, account, amount) values ($1, $2, $3)");
    S::insert(ctx.db(), sql, payment).await?;
    Ok(Outcome::applied())
}

/// A store whose handlers can write the business table.
trait Effects: QueueStore {
    fn insert(
        db: &mut <Self::Tx as Transaction>::Db,
        sql: String,
        payment: Payment,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl Effects for Sqlite {
    async fn insert(db: &mut SqliteConnection, sql: String, payment: Payment) -> Result<(), Failure> {
        let insert = sqlx::query(AssertSqlSafe(sql)).bind(payment.payment).bind(payment.account).bind(payment.amount);
        insert.execute(db).await?;
        Ok(())
    }
}

impl Effects for Postgres {
    async fn insert(db: &mut PgConnection, sql: String, payment: Payment) -> Result<(), Failure> {
        let insert = sqlx::query(AssertSqlSafe(sql)).bind(payment.payment).bind(payment.account).bind(payment.amount);
        insert.execute(db).await?;
        Ok(())
    }
}
