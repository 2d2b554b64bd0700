//! A PostgreSQL server whose commits wait for a standby, and a standby that takes over while one waits. Both are servers of
//! this test's own.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use oncebox::memory::{MemorySink, MemorySource};
use oncebox::outbox::Outbox;
use oncebox::{Consumer, Context, Message, Outcome, Outgoing, Relay, Session, Store, Transaction, mutants};
use oncebox_store_sql::Postgres;
use oncebox_testkit::{eventually, skipped};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, raw_sql};

/// A primary and its standby, ended with the test.
struct Pair(tempfile::TempDir);

impl Pair {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        // The servers run as another user, who has to get there.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn script(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn run(&self, words: &[&str]) -> std::process::Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let folders = words[1..].iter().map(|name| self.0.path().join(name));
        Command::new(script).arg(words[0]).args(folders).output().unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.run(&["stop", "standby"]);
        self.run(&["stop", "primary"]);
    }
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// Waits until a commit that began after `since` waits for the standby, and returns the server's time.
async fn a_commit_waits(url: &str, since: f64) -> f64 {
    const WAITING: &str = "select extract(epoch from clock_timestamp())::float8 from pg_stat_activity \
        where wait_event = 'SyncRep' and extract(epoch from query_start) > $1";
    let mut eye = connect(url).await;
    eventually("a commit waits for the standby", async || {
        sqlx::query_scalar::<_, f64>(WAITING).bind(since).fetch_optional(&mut eye).await.unwrap()
    })
    .await
}

fn noting(store: Postgres, source: MemorySource) -> Consumer<Postgres, MemorySource> {
    Consumer::new("c", store, source)
        .on("noted", |mut ctx: Context<Postgres>, n: i64| async move {
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        })
        .lanes(1)
        .bounds(|bounds| bounds.drain_deadline = Duration::from_millis(200))
}

async fn effects(url: &str) -> (i64, i64) {
    let counted = sqlx::query_as("select count(*), count(distinct n) from effects");
    counted.fetch_one(&mut connect(url).await).await.unwrap()
}

/// The rows of one of the statements that look at server processes, the first column of each as text.
async fn ask(db: &mut PgConnection, file: &'static str, arguments: &[i64]) -> Vec<String> {
    let statement = mutants::statement(file);
    mutants::made(file, statement);
    mutants::used(statement);
    let arguments: Vec<String> = arguments.iter().map(i64::to_string).collect();
    let lines = statement.lines().filter(|line| !line.starts_with("--"));
    let mut text = lines.collect::<Vec<_>>().join(" ");
    for (at, argument) in arguments.iter().enumerate() {
        text = text.replace(&format!("${}", at + 1), argument);
    }
    // The simple protocol answers everything as text.
    let rows = db.fetch_all(raw_sql(AssertSqlSafe(text))).await.unwrap();
    rows.iter().map(|row| row.try_get_raw(0).unwrap().as_str().unwrap().to_owned()).collect()
}

/// A connection, with the pid of its server process and when that started.
async fn process(url: &str) -> (PgConnection, [i64; 2]) {
    const WHO: &str = "select pid::int8, (extract(epoch from backend_start) * 1000000)::int8 \
        from pg_stat_activity where pid = pg_backend_pid()";
    let mut db = connect(url).await;
    let (pid, started) = sqlx::query_as(WHO).fetch_one(&mut db).await.unwrap();
    (db, [pid, started])
}

/// Pids are used again, so it is known by its start as well; and while its commit waits for a standby it is not ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_process_is_ended_if_it_is_the_one_and_waits_for_no_standby() {
    const LIVES: &str = include_str!("../../store-sql/src/queries/postgres/session/lives.sql");
    const TERMINATE: &str = include_str!("../../store-sql/src/queries/postgres/session/terminate.sql");
    const STANDBY: &str = include_str!("../../store-sql/src/queries/postgres/session/standby.sql");
    const FOLLOWED: &str = include_str!("../../store-sql/src/queries/postgres/session/followed.sql");
    const WITNESS: &str = include_str!("../../store-sql/src/queries/postgres/session/witness.sql");
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("standby::a_server_process_is_ended_if_it_is_the_one_and_waits_for_no_standby");
    }
    let pair = Pair::new();
    let primary = pair.script(&["start", "primary"]);
    pair.script(&["follow", "standby", "primary"]);
    let mut eye = connect(&primary).await;
    assert!(ask(&mut eye, WITNESS, &[]).await.is_empty(), "no commit waits here");
    pair.script(&["synchronous", "primary"]);
    let (mut writer, one) = process(&primary).await;
    assert_eq!(ask(&mut writer, WITNESS, &[]).await, ["1"]);
    writer.execute("set synchronous_commit = local").await.unwrap();
    assert!(ask(&mut writer, WITNESS, &[]).await.is_empty(), "this one's commits wait for nothing");
    writer.execute("reset synchronous_commit; create role poor login; create table t ()").await.unwrap();
    let mut poor = connect(&primary.replace("//postgres@", "//poor@")).await;
    for db in [&mut eye, &mut poor] {
        assert_eq!(ask(db, FOLLOWED, &[]).await, ["t"], "seen, and hidden");
    }

    let (_idle, other) = process(&primary).await;
    let strangers = [[one[0], other[1]], [other[0], one[1]]];
    for stranger in strangers {
        assert!(ask(&mut eye, LIVES, &stranger).await.is_empty());
        assert!(ask(&mut eye, TERMINATE, &stranger).await.is_empty());
    }
    pair.script(&["stop", "standby"]);
    let seen = async {
        a_commit_waits(&primary, 0.0).await;
        assert_eq!(ask(&mut eye, FOLLOWED, &[]).await, ["f"]);
        assert_eq!(ask(&mut eye, STANDBY, &one).await.len(), 1);
        for not_waiting in [other, strangers[0], strangers[1]] {
            assert!(ask(&mut eye, STANDBY, &not_waiting).await.is_empty());
        }
        assert!(ask(&mut eye, TERMINATE, &one).await.is_empty(), "it would count on this server alone");
        assert_eq!(ask(&mut eye, LIVES, &one).await, [one[0].to_string()]);
        assert_eq!(ask(&mut eye, TERMINATE, &other).await, ["t"]);
        pair.script(&["restart", "standby"]);
    };
    let (written, ()) = tokio::join!(writer.execute("insert into t default values"), seen);
    written.unwrap();
}

/// A row of the outbox that no standby has is not published: after a failover its message is handled again, and what it
/// emits then has another id.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_standby_has_is_not_published() {
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("standby::what_no_standby_has_is_not_published");
    }
    let pair = Pair::new();
    let primary = pair.script(&["start", "primary"]);
    pair.script(&["follow", "standby", "primary"]);
    pair.script(&["synchronous", "primary"]);
    let store = Postgres::connect(&primary).await.unwrap();
    let emit = async |n: i64| {
        let message = Message::new("paid").with_json(&n).unwrap();
        let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
        tx.emit(&[Outgoing { topic: "paid".to_owned(), message: message.into() }]).await.unwrap();
        tx.commit().await
    };
    let sink = MemorySink::new();
    let relay = Relay::new(store.clone(), sink.clone());
    let relay = relay.bounds(|bounds| bounds.drain_deadline = Duration::from_millis(200));
    let story = async {
        emit(1).await;
        eventually("the first is published", async || sink.len() == 1).await;
        pair.script(&["stop", "standby"]);
        let cancelled = async {
            a_commit_waits(&primary, 0.0).await;
            let cancel = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'";
            sqlx::raw_sql(cancel).execute(&mut connect(&primary).await).await.unwrap();
            // The row can be seen now. Its writer waits on, and so does the relay that has found it.
            let waiting = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
            let mut eye = connect(&primary).await;
            eventually("the relay waits too", async || {
                sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut eye).await.unwrap() >= 2
            })
            .await;
            assert_eq!(sink.len(), 1, "no standby has the second");
            pair.script(&["restart", "standby"]);
        };
        tokio::join!(emit(2), cancelled);
        eventually("the second is published once a standby has it", async || sink.len() == 2).await;
    };
    relay.run(story).await.unwrap();
}

/// However the wait of a commit for its standby ends, but by the standby's word, nothing is acknowledged: the standby may
/// take over without it.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_standby_has_is_not_acknowledged() {
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("standby::what_no_standby_has_is_not_acknowledged");
    }
    let pair = Pair::new();
    let primary = pair.script(&["start", "primary"]);
    pair.script(&["follow", "standby", "primary"]);
    pair.script(&["synchronous", "primary"]);
    let store = Postgres::connect(&primary).await.unwrap();
    sqlx::raw_sql("create table effects (n int8 not null)").execute(&mut connect(&primary).await).await.unwrap();

    let source = MemorySource::new();
    source.send(Message::new("noted").with_json(&1).unwrap());
    let consumer = noting(store, source.clone());
    let stats = consumer.stats();
    let story = async {
        eventually("the first is acknowledged", async || source.acknowledged() == 1).await;
        pair.script(&["stop", "standby"]);
        source.send(Message::new("noted").with_json(&2).unwrap());
        let mut since = a_commit_waits(&primary, 0.0).await;
        let says_so = |said: &String| said.contains("standby");
        eventually("it says what it waits for", async || stats.snapshot().waiting_for.filter(says_so)).await;

        for end in ["pg_terminate_backend", "pg_cancel_backend"] {
            let end = format!("select {end}(pid) from pg_stat_activity where wait_event = 'SyncRep'");
            let ended = sqlx::AssertSqlSafe(end);
            sqlx::raw_sql(ended).execute(&mut connect(&primary).await).await.unwrap();
            since = a_commit_waits(&primary, since).await;
            assert_eq!(source.acknowledged(), 1, "the standby does not have it");
        }
        pair.script(&["kill", "primary"]);
        pair.script(&["restart", "primary"]);
        a_commit_waits(&primary, since).await;
        assert_eq!((source.acknowledged(), effects(&primary).await), (1, (2, 2)), "there, and not on the standby");
        pair.script(&["kill", "primary"]);
    };
    consumer.run(story).await.unwrap();
    assert_eq!(source.acknowledged(), 1);

    // The standby takes over, and whatever was acknowledged is there.
    let standby = pair.script(&["restart", "standby"]);
    pair.script(&["promote", "standby"]);
    assert_eq!(effects(&standby).await, (1, 1), "what waited is gone with the primary");
    let consumer = noting(Postgres::connect(&standby).await.unwrap(), source.clone());
    consumer.run(async { eventually("all is acknowledged", async || source.backlog() == 0).await }).await.unwrap();
    assert_eq!(effects(&standby).await, (2, 2), "0 lost, 0 doubled");
}
