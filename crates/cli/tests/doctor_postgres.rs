//! What `oncebox doctor` makes of PostgreSQL beyond its settings: a user who does not see everything, dead rows, a standby.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;
use std::process::{Command, Output};

use oncebox::{Clock, SystemClock};
use oncebox_testkit::{eventually, skipped};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

fn oncebox(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oncebox")).current_dir(folder).args(words).output().unwrap()
}

/// A folder with a file that names a store.
struct Place(tempfile::TempDir);

impl Place {
    /// On a store that gets its tables.
    fn new(store: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write(store);
        let up = oncebox(place.0.path(), &["schema", "up"]);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        place
    }

    /// From now on with another store.
    fn write(&self, store: &str) {
        let text = format!(
            "[store]\nurl = \"{store}\"\n\n[[consumer]]\nname = \"invoices\"\nfrom = \"queue:payments\"\n\n  \
             [[consumer.on]]\n  type = \"t\"\n  sql = \"select 1\"\n"
        );
        std::fs::write(self.0.path().join("oncebox.toml"), text).unwrap();
    }

    /// What is found, and the exit code.
    fn findings(&self) -> (Vec<Value>, Option<i32>) {
        let output = oncebox(self.0.path(), &["doctor", "--json"]);
        let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let Value::Array(found) = report["findings"].take() else { panic!("{report}") };
        (found, output.status.code())
    }

    fn checks(&self) -> (Vec<String>, Option<i32>) {
        let (found, code) = self.findings();
        (found.iter().map(|one| one["check"].as_str().unwrap().to_owned()).collect(), code)
    }
}

async fn run(db: &mut PgConnection, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(db).await.unwrap();
}

fn name() -> String {
    format!("d{}", SystemClock.id().simple())
}

/// An ordinary user sees nothing of what other users do, and the doctor does not take that for nothing being done.
#[tokio::test]
async fn what_an_ordinary_user_does_not_see_is_told() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("doctor_postgres::what_an_ordinary_user_does_not_see_is_told");
    };
    let (mut admin, name) = (PgConnection::connect(&server).await.unwrap(), name());
    run(&mut admin, format!("create database {name}")).await;
    run(&mut admin, format!("create role {name} login")).await;
    let (host, _) = server.rsplit_once('/').unwrap();
    let place = Place::new(&format!("{host}/{name}"));
    let mut other = PgConnection::connect(&format!("{host}/{name}")).await.unwrap();
    run(&mut other, format!("grant usage on schema oncebox to {name}")).await;
    run(&mut other, format!("grant all on all tables in schema oncebox to {name}")).await;
    assert_eq!(place.checks(), (vec![], Some(0)), "one who sees everything");
    let (_, address) = host.rsplit_once('@').unwrap();
    place.write(&format!("postgres://{name}@{address}/{name}"));
    let (found, code) = place.findings();
    assert_eq!((found.len(), code), (1, Some(0)), "{found:?}");
    assert_eq!((&found[0]["check"], &found[0]["severity"]), (&"store.unseen".into(), &"note".into()));
    assert!(found[0]["evidence"].as_str().unwrap().contains("a session of another user"), "{found:?}");
    assert_eq!(found[0]["fix"], format!("grant pg_read_all_stats to {name}"));
    run(&mut admin, format!("grant pg_read_all_stats to {name}")).await;
    assert_eq!(place.checks(), (vec![], Some(0)), "the fix");
    other.close().await.unwrap();
    run(&mut admin, format!("drop database {name} with (force)")).await;
    run(&mut admin, format!("drop role {name}")).await;
}

/// Everything that Oncebox does is a write: a user that may not insert is told before the first message.
#[tokio::test]
async fn a_user_that_cannot_write_is_told() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("doctor_postgres::a_user_that_cannot_write_is_told");
    };
    let (mut admin, name) = (PgConnection::connect(&server).await.unwrap(), name());
    run(&mut admin, format!("create database {name}")).await;
    run(&mut admin, format!("create role {name} login in role pg_read_all_stats")).await;
    let (host, _) = server.rsplit_once('/').unwrap();
    let place = Place::new(&format!("{host}/{name}"));
    let mut other = PgConnection::connect(&format!("{host}/{name}")).await.unwrap();
    run(&mut other, format!("grant usage on schema oncebox to {name}")).await;
    run(&mut other, format!("grant all on all tables in schema oncebox to {name}")).await;
    let (_, address) = host.rsplit_once('@').unwrap();
    place.write(&format!("postgres://{name}@{address}/{name}"));
    assert_eq!(place.checks(), (vec![], Some(0)), "one who may write");
    run(&mut admin, format!("alter role {name} set default_transaction_read_only = on")).await;
    assert_eq!(place.checks(), (vec![], Some(0)), "our transactions say that they write");
    run(&mut other, format!("revoke insert on all tables in schema oncebox from {name}")).await;
    let (found, code) = place.findings();
    assert_eq!((found.len(), code), (1, Some(1)), "{found:?}");
    assert_eq!((&found[0]["check"], &found[0]["severity"]), (&"store.unwritable".into(), &"error".into()));
    assert!(found[0]["evidence"].as_str().unwrap().contains("lacks a privilege"), "{found:?}");
    run(&mut other, format!("grant insert on all tables in schema oncebox to {name}")).await;
    assert_eq!(place.checks(), (vec![], Some(0)), "the fix");
    other.close().await.unwrap();
    run(&mut admin, format!("drop database {name} with (force)")).await;
    run(&mut admin, format!("drop role {name}")).await;
}

/// Rows that were never there for anyone: each is dead at once.
#[tokio::test]
async fn dead_rows_of_tables_whose_rows_come_and_go_are_told() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("doctor_postgres::dead_rows_of_tables_whose_rows_come_and_go_are_told");
    };
    let (mut admin, name) = (PgConnection::connect(&server).await.unwrap(), name());
    run(&mut admin, format!("create database {name}")).await;
    let store = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
    let place = Place::new(&store);
    assert_eq!(place.checks(), (vec![], Some(0)));
    let mut db = PgConnection::connect(&store).await.unwrap();
    for table in ["outbox", "queue", "parked"] {
        run(&mut db, format!("alter table oncebox.{table} set (autovacuum_enabled = false)")).await;
        let query = "select string_agg(quote_ident(column_name), ', '), string_agg(case data_type when 'bytea' then \
                     'int8send(n)' when 'text' then 'n::text' else 'n % 100' end, ', ') from information_schema.columns \
                     where table_schema = 'oncebox' and table_name = $1 and is_nullable = 'NO' and is_identity = 'NO'";
        let (names, values): (String, String) = sqlx::query_as(query).bind(table).fetch_one(&mut db).await.unwrap();
        let rows = "generate_series(1::int8, 25000) n";
        run(&mut db, format!("begin; insert into oncebox.{table} ({names}) select {values} from {rows}; rollback;"))
            .await;
    }
    // A session tells what it did when it ends.
    db.close().await.unwrap();
    let said = |table: &str| format!("the table {table} has 25000 dead rows and 0 live ones");
    let expected = ["outbox", "parked", "queue"].map(said);
    eventually("the server has counted them", async || {
        let (found, code) = place.findings();
        let bloated = found.iter().filter(|one| one["check"] == "store.bloat" && one["severity"] == "note");
        let said: Vec<&str> = bloated.map(|one| one["evidence"].as_str().unwrap()).collect();
        code == Some(0) && said == expected
    })
    .await;
    run(&mut admin, format!("drop database {name} with (force)")).await;
}

/// A server and one that follows it, which are stopped whatever happens.
struct Pair(tempfile::TempDir);

impl Pair {
    fn start() -> (Self, String, String) {
        use std::os::unix::fs::PermissionsExt as _;
        let pair = Self(tempfile::tempdir().unwrap());
        // They run as another user, who has to get there.
        std::fs::set_permissions(pair.0.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (first, second) = (pair.folder("primary"), pair.folder("standby"));
        let url = |words: &[&str]| {
            let output = script(words);
            assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let (primary, standby) = (url(&["start", &first]), url(&["follow", &second, &first]));
        (pair, primary, standby)
    }

    fn folder(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        script(&["stop", &self.folder("standby")]);
        script(&["stop", &self.folder("primary")]);
    }
}

fn script(words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
    Command::new(script).args(words).output().unwrap()
}

/// A standby that nobody waits for, one that holds vacuum back, and one that is taken for the store.
#[tokio::test]
async fn a_standby_that_lags_or_is_taken_for_the_store_is_told() {
    if std::env::var("ONCEBOX_TEST_POSTGRES_URL").is_err() {
        return skipped("doctor_postgres::a_standby_that_lags_or_is_taken_for_the_store_is_told");
    }
    let (_pair, primary, standby) = Pair::start();
    let place = Place::new(&primary);
    let is = async |expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|check| (*check).to_owned()).collect();
        eventually(&format!("{expected:?} is found"), async || place.checks() == (expected.clone(), Some(0))).await;
    };
    is(&["store.failover"]).await;
    // Someone reads on the standby, and the primary hears of it.
    let mut reader = PgConnection::connect(&standby).await.unwrap();
    run(&mut reader, "begin isolation level repeatable read").await;
    run(&mut reader, "select count(*) from pg_class").await;
    let mut db = PgConnection::connect(&primary).await.unwrap();
    eventually("the slot keeps rows", async || {
        let kept = sqlx::query_scalar::<_, bool>("select xmin is not null from pg_replication_slots");
        kept.fetch_one(&mut db).await.unwrap()
    })
    .await;
    run(&mut db, "set synchronous_commit = off").await;
    let busy = "do $$ begin for i in 1..100100 loop perform txid_current(); commit; end loop; end $$";
    run(&mut db, busy).await;
    is(&["store.failover", "store.slot"]).await;
    run(&mut reader, "commit").await;
    is(&["store.failover"]).await;
    run(&mut db, "alter system set synchronous_standby_names = '*'").await;
    run(&mut db, "select pg_reload_conf()").await;
    is(&[]).await;
    place.write(&standby);
    let (found, code) = place.findings();
    assert_eq!((found.len(), code), (1, Some(1)), "{found:?}");
    assert_eq!((&found[0]["check"], &found[0]["severity"]), (&"store.replica".into(), &"error".into()));
}
