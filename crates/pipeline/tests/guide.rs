//! Follows `docs/guides/from-a-naive-consumer.md`: the claims of step 2, the file of step 3, both at once. Nothing is paid twice.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use oncebox::sqlite::{ConsumerInbox, Sqlite, SqliteDialect};
use oncebox::{Claim, Code, KeyStrategy, Message};
use oncebox_pipeline::file::Pipeline;
use oncebox_pipeline::place::Origin;
use oncebox_pipeline::{Parts, run, send};
use oncebox_testkit::eventually;
use sqlx::{Connection, SqliteConnection};

const GUIDE: &str = include_str!("../../../docs/guides/from-a-naive-consumer.md");

/// The file of step 3, as it is printed there.
fn file() -> &'static str {
    let (_, rest) = GUIDE.split_once("```toml\n").expect("step 3 has a file");
    rest.split_once("```").expect("which ends").0
}

/// What stands between the quotes of a call in step 2.
fn quoted_in(call: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(call).unwrap_or_else(|| panic!("step 2 has no {call}"));
    rest.split_once('"').expect("which ends").0
}

/// A payment, as producers send it that set no order key and a new id with each sending.
fn payment(number: u32) -> Message {
    let text = format!(r#"{{"payment_id":"p{number}","invoice_id":7,"amount":1}}"#);
    Message::new("payment.received").with_payload(text)
}

/// The service of step 2.
async fn handle(inbox: &ConsumerInbox<SqliteDialect>, db: &mut SqliteConnection, message: &Message) -> bool {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let claim = inbox.claim_message(&mut tx, message).await.unwrap();
    if claim == Claim::Fresh {
        sqlx::query("update invoices set paid = paid + 1 where id = 7").execute(&mut *tx).await.unwrap();
    }
    inbox.seal(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    claim == Claim::Fresh
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_from_a_naive_consumer_pays_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db").display().to_string();
    let mut db = SqliteConnection::connect(&format!("sqlite:{path}?mode=rwc")).await.unwrap();
    sqlx::raw_sql("pragma busy_timeout = 10000; create table invoices (id integer primary key, paid integer); insert into invoices values (7, 0)")
        .execute(&mut db)
        .await
        .unwrap();

    let environment = |name: &str| match name {
        "DATABASE_URL" => Some(format!("sqlite://{path}")),
        "BROKER_URL" => Some("queue:payments".to_owned()),
        _ => None,
    };
    let pipeline = Pipeline::parse("oncebox.toml", file(), &environment).unwrap();
    assert_eq!(pipeline.consumers[0].name, quoted_in("inbox_by(\""), "one name in both steps");

    // Step 2, for a while.
    let keys = KeyStrategy::template(quoted_in("KeyStrategy::template(\"")).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    let inbox = store.inbox_by(quoted_in("inbox_by(\""), keys).await.unwrap();
    for number in 0..20 {
        assert!(handle(&inbox, &mut db, &payment(number)).await);
        assert!(!handle(&inbox, &mut db, &payment(number)).await, "sent again");
    }
    // Step 3 beside it: everything once more, and something new, to both.
    let to = Origin::parse("queue:payments").unwrap();
    send(&to, Some(&pipeline), (0..30).map(payment), |_| ()).await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let story = async {
        for number in 10..30 {
            handle(&inbox, &mut db, &payment(number)).await;
        }
        eventually("nothing is left", async || {
            let left: i64 = sqlx::query_scalar("select count(*) from oncebox_queue").fetch_one(&mut db).await.unwrap();
            left == 0
        })
        .await;
        stop.send(()).unwrap();
    };
    let ended = async {
        let _ = stopped.await;
    };
    let (ran, ()) = tokio::join!(run("oncebox.toml", &pipeline, Parts::All, |_| (), ended), story);
    ran.unwrap();
    let paid: i64 = sqlx::query_scalar("select paid from invoices").fetch_one(&mut db).await.unwrap();
    let parked: i64 = sqlx::query_scalar("select count(*) from oncebox_parked").fetch_one(&mut db).await.unwrap();
    assert_eq!((paid, parked), (30, 0), "each once, and none is set aside for want of an order key");

    // Whoever strays from the path is told, before anything happens.
    let strayed = file().replace("payment:{payment_id}", "{payment_id}");
    let strayed = Pipeline::parse("oncebox.toml", &strayed, &environment).unwrap();
    let error = run("oncebox.toml", &strayed, Parts::All, |_| (), std::future::pending()).await.unwrap_err();
    assert_eq!(error.code(), Code::IdentityChanged, "{error}");
    assert_eq!(store.inbox("invoices").await.unwrap_err().code(), Code::IdentityChanged);
}
