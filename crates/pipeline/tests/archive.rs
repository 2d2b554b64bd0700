//! A consumer of a file asks the archive of keys, if the file says so.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::time::Duration;

use oncebox::horizon::{Consumers, Expiry, RETENTION_MIN};
use oncebox::sqlite::Sqlite;
use oncebox::{Clock, ConsumerName, Ended, Message, MessageId, Session, Store, SystemClock, Transaction};
use oncebox_pipeline::file::Pipeline;
use oncebox_pipeline::place::Origin;
use oncebox_pipeline::{Parts, run, send};
use oncebox_testkit::eventually;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use tokio::sync::watch;

fn pipeline(path: &str, setting: &str) -> Result<Pipeline, String> {
    let text = format!(
        "[store]\nurl = \"sqlite://{path}\"\n\n[[consumer]]\nname = \"notes\"\nfrom = \"queue:notes\"\n{setting}\n\n  \
         [[consumer.on]]\n  type = \"noted\"\n  sql = \"insert into notes (id) values (:id)\"\n"
    );
    Pipeline::parse("notes.toml", &text, &|_: &str| None).map_err(|mistakes| mistakes.to_string())
}

/// A message from long ago, of which only its record tells that it was handled.
fn long_ago(id: &str) -> Message {
    let mut message = Message::new("noted").with_id(MessageId::new(id).unwrap());
    message.time = "2020-07-01T00:00:00Z".parse().unwrap();
    message.with_payload(format!(r#"{{"id":"{id}"}}"#))
}

/// Sends a message, and runs the file until the queue is empty.
async fn handle(path: &str, pipeline: &Pipeline, id: &str) {
    let to = Origin::parse("queue:notes").unwrap();
    send(&to, Some(pipeline), std::iter::once(long_ago(id)), |_| ()).await.unwrap();
    let (stop, mut stopped) = watch::channel(false);
    let ended = async {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let story = async {
        eventually("nothing waits", async || count(path, "select count(*) from oncebox_queue").await == 0).await;
        stop.send(true).unwrap();
    };
    let (ran, ()) = tokio::join!(run("notes.toml", pipeline, Parts::All, |_| (), ended), story);
    ran.unwrap();
}

async fn count(path: &str, query: &str) -> i64 {
    let mut db = SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut db).await.unwrap()
}

/// Removes all records, as if they were two days old, and archives their keys.
async fn expire(path: &str) {
    let mut db = SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
    let age = "update oncebox_inbox set processed_at = processed_at - 2 * 86400 * 1000000";
    sqlx::raw_sql(age).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    let store = Sqlite::open(path).await.unwrap();
    let consumer = store.consumer(&ConsumerName::new("notes").unwrap()).await.unwrap();
    let mut tx = store.connect().await.unwrap().begin(Duration::from_secs(5)).await.unwrap();
    let before = SystemClock.now() - 2 * RETENTION_MIN;
    let expired = tx.expire(Expiry::first(consumer, before, 10).archiving()).await.unwrap();
    assert_eq!(expired.deleted, 2);
    assert!(matches!(tx.commit().await, Ended::Committed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_asks_the_archive_settles_what_it_knows_as_a_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.db").display().to_string();
    let mut db = SqliteConnection::connect(&format!("sqlite:{path}?mode=rwc")).await.unwrap();
    sqlx::raw_sql("create table notes (id text)").execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    let (silent, asks) = (pipeline(&path, "").unwrap(), pipeline(&path, "ask_archive = true").unwrap());
    for id in ["1", "2"] {
        handle(&path, &silent, id).await;
    }
    expire(&path).await;

    let parked = "select count(*) from oncebox_parked";
    assert!(run("notes.toml", &asks, Parts::Nothing, |_| (), std::future::pending()).await.is_ok(), "the check");
    handle(&path, &asks, "1").await;
    assert_eq!(count(&path, parked).await, 0, "it is known");
    handle(&path, &silent, "2").await;
    assert_eq!(count(&path, parked).await, 1, "who does not ask leaves it to a person");
    assert_eq!(count(&path, "select count(*) from notes").await, 2, "each was handled once");
}

#[test]
fn whether_to_ask_the_archive_is_yes_or_no() {
    assert!(pipeline("x.db", "ask_archive = false").is_ok());
    for (setting, says) in
        [("ask_archive = \"yes\"", "notes.toml:7: `ask_archive`"), ("ask_archiv = true", "did you mean `ask_archive`?")]
    {
        let mistakes = pipeline("x.db", setting).unwrap_err();
        assert!(mistakes.contains(says), "{mistakes}");
    }
}
