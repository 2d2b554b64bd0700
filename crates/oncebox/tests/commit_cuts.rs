//! Connections that are cut inside COMMIT, by hundreds: before the server got it, after it was done, while nobody can
//! tell, and behind the server's back. Every one has to be resolved to what really happened.
//!
//! A proxy between the store and a real server does the cutting. The business table has no constraint that would catch
//! a second effect, and the audit has a connection of its own that no fault touches.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

#[path = "../../store-sql/tests/common/mod.rs"]
mod sql;

use std::collections::{BTreeMap, HashSet};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Message, Outcome};
use oncebox_store_sql::Postgres;
use oncebox_testkit::eventually_within;
use oncebox_testkit::proxy::{CommitCut, Proxy};
use sqlx::postgres::PgConnectOptions;

const MESSAGES: u64 = 4_000;
/// Small, so that there are more commits than cuts.
const BATCH: usize = 5;
const KINDS: [CommitCut; 4] =
    [CommitCut::BeforeForwarding, CommitCut::AfterForwarding, CommitCut::Late, CommitCut::Orphaned];
const DEADLINE: Duration = Duration::from_secs(90);

/// One consumer behind a proxy of its own.
struct Worker {
    number: i32,
    proxy: Proxy,
    store: Postgres,
    source: MemorySource,
    /// The messages that its handler was called with.
    called: Arc<Mutex<HashSet<u64>>>,
}

impl Worker {
    async fn new(place: &sql::PostgresPlace, number: i32, messages: impl IntoIterator<Item = Message>) -> Self {
        let options = PgConnectOptions::from_str(&place.url).unwrap();
        let server = format!("{}:{}", options.get_host(), options.get_port());
        assert!(place.url.contains(&server), "the test's URL has to name host and port");
        let upstream = tokio::net::lookup_host(&server).await.unwrap().next().unwrap();
        let proxy = Proxy::start(upstream).await.unwrap();
        let url = place.url.replacen(&server, &proxy.addr().to_string(), 1);
        let store = Postgres::builder(&url).schema(&place.schema).connect().await.unwrap();
        let source = MemorySource::new();
        source.send_all(messages);
        Self { number, proxy, store, source, called: Arc::default() }
    }

    /// Consumes everything while `cuts` commits are cut, by the dice of `seed`.
    async fn run(&self, seed: u64, cuts: usize) -> Snapshot {
        let (number, called) = (self.number, Arc::clone(&self.called));
        let consumer = Consumer::new("c", self.store.clone(), self.source.clone())
            .on("noted", move |mut ctx: Context<Postgres>, id: u64| {
                called.lock().unwrap().insert(id);
                async move {
                    let insert = sqlx::query("insert into effects (id, worker) values ($1, $2)");
                    insert.bind(i64::try_from(id).unwrap()).bind(number).execute(ctx.db()).await?;
                    Ok(Outcome::applied())
                }
            })
            .lanes(4)
            .bounds(|bounds| bounds.batch_messages_max = BATCH);
        let stats = consumer.stats();
        let story = async {
            // Not before it runs: a start that fails is reported, not repeated.
            eventually_within(DEADLINE, "it is under way", async || stats.snapshot().commits > 0).await;
            plan(&self.proxy, seed, cuts);
            eventually_within(DEADLINE, "everything is acknowledged", async || self.source.backlog() == 0).await;
        };
        consumer.run(story).await.unwrap();

        let seen = stats.snapshot();
        assert_eq!((seen.failures, seen.conflicts), (0, 0), "a cut connection is no message's failure: {seen:?}");
        assert_eq!(self.proxy.cuts(), cuts as u64, "everything that was planned happened");
        assert_eq!(seen.unknown_commits, self.proxy.cuts(), "each cut is an unknown commit, and nothing else is");
        assert_eq!((self.source.backlog(), seen.waiting_for.as_deref()), (0, None));
        seen
    }
}

fn plan(proxy: &Proxy, mut seed: u64, cuts: usize) {
    let mut roll = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    for _ in 0..cuts {
        // Sometimes several in a row, so that what is resolved is cut again.
        proxy.pass_commits(roll(3) as usize);
        proxy.cut_at_commit(KINDS[roll(4) as usize], 1);
    }
}

async fn set_up(test: &str) -> Option<(sql::PostgresPlace, Vec<Message>)> {
    let place = sql::PostgresPlace::or_skip(test)?;
    drop(place.open().await);
    place.run("create table effects (id bigint not null, worker int not null)").await;
    Some((place, (0..MESSAGES).map(|id| Message::new("noted").with_json(&id).unwrap()).collect()))
}

/// Every message has exactly one effect and one record. Answers which worker's effect it is.
async fn audit(place: &sql::PostgresPlace) -> BTreeMap<u64, i32> {
    let mut eye = place.connection().await;
    let rows: Vec<(i64, i32)> = sqlx::query_as("select id, worker from effects").fetch_all(&mut eye).await.unwrap();
    let records: i64 =
        sqlx::query_scalar("select count(*) from inbox where consumer = (select id from consumers where name = 'c')")
            .fetch_one(&mut eye)
            .await
            .unwrap();
    let effects: BTreeMap<u64, i32> = rows.iter().map(|(id, worker)| (u64::try_from(*id).unwrap(), *worker)).collect();
    let lost: Vec<u64> = (0..MESSAGES).filter(|id| !effects.contains_key(id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert_eq!(rows.len(), effects.len(), "doubled");
    assert_eq!(records, effects.len() as i64, "an effect without its record, or a record without its effect");
    effects
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_are_cut_lose_nothing_and_double_nothing() {
    let test = "commit_cuts::commits_that_are_cut_lose_nothing_and_double_nothing";
    let Some((place, messages)) = set_up(test).await else { return };
    let worker = Worker::new(&place, 1, messages.iter().chain(&messages).cloned()).await;
    let seen = worker.run(42, 400).await;
    audit(&place).await;
    assert_eq!(seen.handled, MESSAGES, "what an unknown commit did is counted once: {seen:?}");
    // Nobody else is there: only a session of its own that it left behind could be in its way.
    assert_eq!(seen.contended, 0, "what was in doubt had ended before its keys were claimed again: {seen:?}");
}

/// Both workers get all messages in the same order, so they meet at the same keys: while a commit of the one is in
/// doubt, the other waits for its keys, and takes them over where it was rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn keys_in_doubt_that_another_worker_takes_over_are_applied_once() {
    let test = "commit_cuts::keys_in_doubt_that_another_worker_takes_over_are_applied_once";
    let Some((place, messages)) = set_up(test).await else { return };
    let workers = [Worker::new(&place, 1, messages.clone()).await, Worker::new(&place, 2, messages).await];
    tokio::join!(workers[0].run(7, 200), workers[1].run(8, 200));
    let effects = audit(&place).await;

    // A handler runs only where its worker holds the key, and only a cut rolls back after that.
    let taken_over = workers.iter().map(|worker| {
        let called = worker.called.lock().unwrap();
        called.iter().filter(|id| effects[id] != worker.number).count()
    });
    let taken_over: usize = taken_over.sum();
    assert!(taken_over > 0, "the workers never met: this test tests nothing");
}
