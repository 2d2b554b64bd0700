//! What goes wrong is one clear line with the code of its page, and a documented exit code: 1 if it was tried, 2 if the
//! command line or the file is wrong. No secret is repeated.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use oncebox::postgres::Postgres;
use oncebox::sqlite::Sqlite;
use oncebox::{Clock, ConsumerName, Store, SystemClock};
use oncebox_testkit::skipped;
use sqlx::{AssertSqlSafe, Connection};

fn oncebox(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncebox"));
    command.current_dir(folder).args(words).stdin(Stdio::null()).env("USER", "ada").env("RUST_BACKTRACE", "1");
    command
}

/// One line, this code, this exit code; answers with the line.
fn refused(output: &Output, exit: i32, code: &str, words: &[&str]) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(exit), "{words:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    assert!(said.starts_with(&format!("oncebox: {code}: ")), "{words:?}: {said}");
    assert!(!said.contains("CANARY"), "{words:?}: {said}");
    // A sentence, not a chain of causes.
    assert!(said.matches(": ").count() <= 5, "{words:?}: {said}");
    said
}

fn wrong(folder: &Path, words: &[&str], exit: i32, code: &str) -> String {
    refused(&oncebox(folder, words).output().unwrap(), exit, code, words)
}

/// A store with one consumer in it.
async fn store(folder: &Path) -> String {
    let path = folder.join("shop.db");
    let store = Sqlite::open(path.to_str().unwrap()).await.unwrap();
    store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap();
    format!("sqlite://{}", path.display())
}

/// A producer's host need not have the file, nor reach the store.
#[cfg(feature = "brokers")]
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_to_a_broker_needs_neither_file_nor_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let to = "amqp://u:CANARY@127.0.0.1:1/q";
    let words = ["send", "--to", to, "--type", "t", "--payload", "{}"];
    assert!(wrong(folder, &words, 1, "OB0303").contains("127.0.0.1:1"), "the broker was asked");
    wrong(folder, &["send", "--to", to, "--payload", "{}"], 2, "OB0101");
    wrong(folder, &["send", "--to", "queue:q", "--type", "t", "--payload", "{}"], 2, "OB0103");
    wrong(folder, &[&["send", "--file", "none.toml"], &words[1..]].concat(), 2, "OB0103");
    std::fs::write(folder.join("oncebox.toml"), "[store]\nurl = \"postgres://u:CANARY@127.0.0.1:1/d\"\n").unwrap();
    assert!(wrong(folder, &words, 1, "OB0303").contains("amqp://127.0.0.1:1"), "the store was not asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_command_line_is_one_line_and_two() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = store(folder).await;
    let at = at.as_str();
    let cases: &[&[&str]] = &[
        &["parkd"],
        &["parked", "lst", "invoices"],
        &["parked", "list"],
        &["parked", "list", "invoices", "--limt", "3"],
        &["parked", "list", "invoices", "--limit", "many"],
        &["parked", "show", "x"],
        &["parked", "discard", "invoices", "all"],
        &["parked", "replay", "invoices", "all", "--why", "x", "--stop-ratio", "7"],
        &["parked", "note", "invoices", "all", "--why", " ", "--note", "x", "--store", at],
        &["replay", "pause", "1"],
        &["replay", "show", "one"],
        &["outbox", "skip", "--why", "x"],
        &["outbox", "list", "postgres://u:CANARY@h/d"],
        &["message", "show"],
        &["message", "show", "a", "--key", "b"],
        &["schema", "sideways"],
        &["explain", "OB9999"],
        &["completions", "tcsh"],
        &["send", "--duplicate-ratio", "2"],
        &["run", "--log", "loud"],
        &["schema", "check", "--schema", "x"],
    ];
    for words in cases {
        let said = wrong(folder, words, 2, "OB0101");
        assert!(said.contains("--help`") || said.contains("`oncebox explain`") || said.contains("audit"), "{said}");
    }
    for verb in ["effect", "saga", "projection", "key", "console"] {
        let said = wrong(folder, &[verb, "list"], 2, "OB0101");
        assert!(said.contains(&format!("not built yet, so there is no `oncebox {verb}`")), "{said}");
    }
    let said = wrong(folder, &["parked", "list", "invoices", "--limt", "3"], 2, "OB0101");
    assert!(said.contains("'--limit'") && said.contains("`oncebox parked list --help`"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_filter_or_file_is_one_line_and_two() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = store(folder).await;
    let at = at.as_str();
    for store in ["CANARY", "mysql://u:CANARY@h/d", "memory:", "sqlite://"] {
        wrong(folder, &["parked", "list", "invoices", "--store", store], 2, "OB0104");
    }
    wrong(folder, &["parked", "list", "invoices", "clas = permanent", "--store", at], 2, "OB0105");
    wrong(folder, &["parked", "list", "invoices", "", "--store", at], 2, "OB0105");
    for words in
        [&["parked", "list", "invoices"][..], &["run"], &["send"], &["schema", "check"], &["message", "show", "x"]]
    {
        let said = wrong(folder, words, 2, "OB0103");
        assert!(said.contains("oncebox.toml") && said.contains("oncebox init"), "{said}");
    }
    std::fs::write(folder.join("oncebox.toml"), "[store]\nurl = \"postgres://u:${NO_SUCH_VARIABLE}@h/d\"\n").unwrap();
    wrong(folder, &["schema", "check"], 2, "OB0102");
    std::fs::write(folder.join("oncebox.toml"), "[store]\nurl = \"sqlite://x.db\"\nsecret = \"CANARY\"\n").unwrap();
    let said = wrong(folder, &["schema", "check"], 2, "OB0102");
    assert!(said.contains("oncebox.toml:3:"), "{said}");
    std::fs::write(folder.join("oncebox.toml"), format!("[store]\nurl = \"{at}\"\n")).unwrap();
    wrong(folder, &["run"], 2, "OB0102");
    wrong(folder, &["relay"], 2, "OB0102");
    wrong(folder, &["send", "--to", "sqs://CANARY"], 2, "OB0104");
    wrong(folder, &["parked", "edit", "1", "nowhere.json", "--why", "x", "--yes"], 2, "OB0103");
    wrong(folder, &["send", "--to", "queue:q", "--type", "t", "--lines", "nowhere"], 2, "OB0103");
    std::fs::write(folder.join("lines"), "{\"payload\": {\"card\": \"CANARY\"}, CANARY}\n").unwrap();
    wrong(folder, &["send", "--to", "queue:q", "--type", "t", "--lines", "lines"], 2, "OB0103");
    wrong(folder, &["send", "--to", "queue:q", "--type", "t", "--payload", "CANARY"], 2, "OB0101");
    wrong(folder, &["init"], 2, "OB0103");
    wrong(folder, &["man", "oncebox.toml/below"], 2, "OB0103");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_tried_and_fails_is_one_line_and_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = store(folder).await;
    let at = at.as_str();
    let why = ["--why", "x", "--yes", "--store", at];
    let with = |words: &[&'static str]| [words, &why[..]].concat();
    wrong(folder, &["parked", "list", "nobody", "--store", at], 1, "OB0501");
    wrong(folder, &["parked", "show", "99", "--store", at], 1, "OB0502");
    wrong(folder, &["replay", "show", "99", "--store", at], 1, "OB0503");
    wrong(folder, &["replay", "cancel", "99", "--why", "x", "--store", at], 1, "OB0503");
    wrong(folder, &with(&["parked", "replay", "invoices", "all"]), 1, "OB0505");
    wrong(folder, &["outbox", "show", "99", "--store", at], 1, "OB0606");
    wrong(folder, &["message", "show", "nobody", "--store", at], 1, "OB0508");
    wrong(folder, &["parked", "list", "a", "--store", "postgres://u:CANARY@127.0.0.1:1/d"], 1, "OB0201");
    // Nobody can be asked: there is no terminal.
    let said = wrong(folder, &["parked", "discard", "invoices", "all", "--why", "x", "--store", at], 2, "OB0106");
    assert!(said.contains("give up 0 messages of invoices") && said.contains("--yes"), "{said}");
    wrong(folder, &["outbox", "skip", "1", "--why", "x", "--store", at], 2, "OB0106");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_sqlite_that_will_not_do_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("text.db"), "CANARY, and no database").unwrap();
    std::fs::create_dir(folder.join("folder.db")).unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.join("other.db").display());
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("create table payments (id integer)").execute(&mut db).await.unwrap();
    for verb in
        [&["parked", "list", "invoices"][..], &["replay", "list"], &["outbox", "list"], &["message", "show", "x"]]
    {
        let on = |store| [verb, &["--store", store]].concat();
        let said = wrong(folder, &on("sqlite://nowhere.db"), 1, "OB0201");
        assert!(said.contains("nowhere.db") && said.contains("schema up"), "{said}");
        wrong(folder, &on("sqlite://text.db"), 1, "OB0207");
        wrong(folder, &on("sqlite://folder.db"), 1, "OB0210");
        let said = wrong(folder, &on("sqlite://other.db"), 1, "OB0208");
        assert!(said.contains("schema up"), "{said}");
    }
    assert!(!folder.join("nowhere.db").exists(), "a look made a file");
}

/// Whoever may not write gets told so. Run as root, the command is started as somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_sqlite_without_rights_is_one_line() {
    let test = "cli::mistakes::a_file_of_sqlite_without_rights_is_one_line";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = store(folder).await;
    let file = folder.join("shop.db");
    let rights = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let words = ["parked", "list", "invoices", "--store", at.as_str()];
    let as_somebody = || {
        let mut command = oncebox(folder, &words);
        if rustix::process::getuid().is_root() {
            command.uid(65534);
        }
        command.output()
    };
    rights(&file, 0o000);
    rights(folder, 0o555);
    let (unreadable, _) = (as_somebody(), rights(&file, 0o444));
    let read_only = as_somebody();
    rights(folder, 0o755);
    let (Ok(unreadable), Ok(read_only)) = (unreadable, read_only) else {
        // Somebody else may not run the command from where it lies.
        return skipped(test);
    };
    refused(&unreadable, 1, "OB0210", &words);
    refused(&read_only, 1, "OB0210", &words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_postgres_without_rights_is_one_line() {
    let Ok(server) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("cli::mistakes::a_role_of_postgres_without_rights_is_one_line");
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let name = format!("w{}", SystemClock.id().simple());
    let mut db = sqlx::PgConnection::connect(&server).await.unwrap();
    let mut sql = async |text: String| sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut db).await.map(drop).unwrap();
    sql(format!("create database {name}")).await;
    sql(format!("create role {name} login")).await;
    let (host, _) = server.rsplit_once('/').unwrap();
    let (scheme, rest) = host.split_once("://").unwrap();
    let bare = rest.rsplit_once('@').map_or(rest, |(_, bare)| bare);
    let (owner, role) = (format!("{host}/{name}"), format!("{scheme}://{name}@{bare}/{name}"));
    let missing = wrong(folder, &["parked", "list", "invoices", "--store", &owner], 1, "OB0208");
    assert!(missing.contains("schema up"), "{missing}");
    // A role that may not create a schema in this database.
    wrong(folder, &["schema", "up", "--store", &role], 1, "OB0210");
    let store = Postgres::connect(&owner).await.unwrap();
    store.consumer(&ConsumerName::new("invoices").unwrap()).await.unwrap();
    for verb in
        [&["parked", "list", "invoices"][..], &["replay", "list"], &["outbox", "list"], &["message", "show", "x"]]
    {
        let said = wrong(folder, &[verb, &["--store", &role]].concat(), 1, "OB0210");
        assert!(said.contains("privilege"), "{said}");
    }
    wrong(folder, &["schema", "check", "--store", &format!("{host}/{name}nix")], 1, "OB0207");
    drop(store);
    sql(format!("drop database {name} with (force)")).await;
    sql(format!("drop role {name}")).await;
}
