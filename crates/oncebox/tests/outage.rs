//! A PostgreSQL server that is killed under load, stays away for ten seconds, and returns. It is a server of this
//! test's own: the one that other tests share is left alone.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Message, Outcome};
use oncebox_store_sql::Postgres;
use oncebox_testkit::{eventually, eventually_within, skipped};
use sqlx::{Connection, PgConnection};

/// A server of our own, ended with the test.
struct Server {
    folder: PathBuf,
    _temp: tempfile::TempDir,
}

impl Server {
    fn start() -> (Self, String) {
        let temp = tempfile::tempdir().unwrap();
        open_to_all(temp.path());
        let folder = temp.path().join("postgres");
        let server = Self { folder, _temp: temp };
        let url = server.script("start");
        (server, url)
    }

    fn script(&self, verb: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let output = Command::new(script).arg(verb).arg(&self.folder).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let _ = Command::new(script).arg("stop").arg(&self.folder).output();
    }
}

/// The server runs as another user, who has to get there.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

const MESSAGES: u64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_for_ten_seconds_costs_nothing_but_time() {
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("outage::a_server_that_is_away_for_ten_seconds_costs_nothing_but_time");
    }
    let (server, url) = Server::start();
    let store = Postgres::connect(&url).await.unwrap();
    let mut eye = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("create table effects (id text not null)").execute(&mut eye).await.unwrap();
    drop(eye);

    // Each message comes twice, so that what was committed just before the crash is met again after it.
    let source = MemorySource::new();
    let messages: Vec<Message> = (0..MESSAGES).map(|n| Message::new("noted").with_json(&n).unwrap()).collect();
    source.send_all(messages.iter().cloned());
    source.send_all(messages);

    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let consumer = Consumer::new("c", store, source.clone()).on("noted", move |mut ctx: Context<Postgres>, n: u64| {
        counted.fetch_add(1, SeqCst);
        async move {
            sqlx::query("insert into effects values ($1)").bind(n.to_string()).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        }
    });
    let stats = consumer.stats();
    let story = async {
        eventually("it is under way", async || stats.snapshot().handled > MESSAGES / 20).await;
        server.script("kill");
        let names_the_server = |said: &String| said.contains("postgres at 127.0.0.1");
        eventually("it says what it waits for", async || stats.snapshot().waiting_for.filter(names_the_server)).await;
        let at_rest = calls.load(SeqCst);
        let back_at = tokio::time::Instant::now() + Duration::from_secs(10);
        eventually("ten seconds have passed", async || tokio::time::Instant::now() >= back_at).await;
        assert_eq!(calls.load(SeqCst), at_rest, "no handler runs while there is nothing to run on");
        server.script("restart");
        let deadline = Duration::from_secs(90);
        eventually_within(deadline, "everything is acknowledged", async || source.backlog() == 0).await;
    };
    consumer.run(story).await.unwrap();

    let seen = stats.snapshot();
    assert_eq!((seen.failures, seen.waiting_for), (0, None), "an outage is no message's failure");
    let mut eye = PgConnection::connect(&url).await.unwrap();
    let (all, distinct): (i64, i64) =
        sqlx::query_as("select count(*), count(distinct id) from effects").fetch_one(&mut eye).await.unwrap();
    assert_eq!((all, distinct), (MESSAGES as i64, MESSAGES as i64), "0 lost, 0 doubled");
}
