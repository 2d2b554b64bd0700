//! Files that run, on SQLite and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

use std::path::Path;

use oncebox::{Message, MessageId};
use oncebox_pipeline::file::Pipeline;
use oncebox_pipeline::place::Origin;
use oncebox_pipeline::{Parts, RunFileError, run, send};
use oncebox_testkit::{eventually, skipped};
use sqlx::{AssertSqlSafe, Connection};
use tokio::sync::watch;

const SHOP: &str = r#"
[store]
url = "STORE"
SCHEMA

[[consumer]]
name = "invoices"
from = "queue:payments"
order_by = "{invoice.id}"
retry = { attempts = 2, first = "10ms", max = "10ms" }

  [[consumer.on]]
  type = "payment.received"
  sql = [
    "insert into NAMEpayments (id, amount, note, at) values (:payment_id, :amount, :note, :@time)",
    { sql = "update NAMEinvoices set paid = paid + :amount where id = :invoice.id", expect = 1 },
  ]
  emit = [{ type = "invoice.paid", topic = "paid", key = "{invoice.id}", payload = { invoice = "{invoice.id}", says = "paid {amount}" } }]

[[consumer]]
name = "letters"
from = "queue:paid"

  [[consumer.on]]
  type = "invoice.paid"
  sql = "insert into NAMEletters (invoice, says) values (:invoice, :says)"

[relay]
to = "queue:"
"#;

/// A database of a test's own.
struct Shop {
    text: String,
    store: Store,
    name: String,
    _folder: tempfile::TempDir,
}

enum Store {
    Sqlite(String),
    Postgres(String),
}

impl Shop {
    async fn all(test: &str) -> Vec<Self> {
        let mut shops = vec![Self::sqlite().await];
        match std::env::var("ONCEBOX_TEST_POSTGRES_URL") {
            Ok(url) => shops.push(Self::postgres(url).await),
            Err(_) => skipped(&format!("pipeline::{test} (postgres)")),
        }
        shops
    }

    async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db").display().to_string();
        let text = SHOP.replace("STORE", &format!("sqlite://{path}")).replace("SCHEMA", "").replace("NAME", "");
        let shop = Self { text, store: Store::Sqlite(path), name: String::new(), _folder: folder };
        shop.create().await;
        shop
    }

    async fn postgres(url: String) -> Self {
        let name = format!("p{}", oncebox::Clock::id(&oncebox::SystemClock).simple());
        let text = SHOP.replace("STORE", &url).replace("SCHEMA", &format!("schema = \"{name}\""));
        let text = text.replace("NAME", &format!("{name}_"));
        let folder = tempfile::tempdir().unwrap();
        let shop = Self { text, store: Store::Postgres(url), name: format!("{name}_"), _folder: folder };
        shop.create().await;
        shop
    }

    async fn create(&self) {
        let name = &self.name;
        let number = if name.is_empty() { "real" } else { "numeric" };
        self.execute(&format!(
            "create table {name}payments (id bigint primary key, amount {number}, note text, at text);
             create table {name}invoices (id bigint primary key, paid {number} not null);
             create table {name}letters (invoice bigint, says text);
             insert into {name}invoices values (7, 0)"
        ))
        .await;
    }

    async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.store {
            Store::Sqlite(path) => {
                let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{path}?mode=rwc")).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
            }
            Store::Postgres(url) => {
                let mut db = sqlx::PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
            }
        }
    }

    /// One text for a query about our tables.
    async fn text(&self, sql: &str) -> String {
        let sql = AssertSqlSafe(sql.replace("NAME", &self.name));
        match &self.store {
            Store::Sqlite(path) => {
                let mut db = sqlx::SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap()
            }
            Store::Postgres(url) => {
                let mut db = sqlx::PgConnection::connect(url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap()
            }
        }
    }

    fn oncebox_table(&self, table: &str) -> String {
        match &self.store {
            Store::Sqlite(_) => format!("oncebox_{table}"),
            Store::Postgres(_) => format!("{}.{table}", self.name.trim_end_matches('_')),
        }
    }

    fn pipeline(&self) -> Pipeline {
        Pipeline::parse("shop.toml", &self.text, &|_: &str| None).unwrap()
    }

    async fn send(&self, payloads: &[(&str, &str)]) {
        let message = |(id, payload): &(&str, &str)| {
            let message = Message::new("payment.received").with_id(MessageId::new(*id).unwrap());
            message.with_payload((*payload).to_owned())
        };
        let to = Origin::parse("queue:payments").unwrap();
        let count = payloads.len() as u64;
        let messages: Vec<Message> = payloads.iter().map(message).collect();
        assert_eq!(send(&to, &self.pipeline(), messages.into_iter(), |_| ()).await.unwrap(), count);
    }

    async fn run_until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) {
        let (stop, mut stopped) = watch::channel(false);
        let ended = async {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let pipeline = self.pipeline();
        let story = async {
            eventually(what, async || done().await).await;
            stop.send(true).unwrap();
        };
        let (ran, ()) = tokio::join!(run("shop.toml", &pipeline, Parts::All, |_| (), ended), story);
        ran.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_emitted_messages_go_through_two_consumers() {
    for shop in Shop::all("statements_and_emitted_messages_go_through_two_consumers").await {
        let one = r#"{"payment_id":1,"amount":12.25,"note":"it's \"x\"; drop table t","invoice":{"id":7}}"#;
        let two = r#"{"payment_id":2,"amount":1,"note":null,"invoice":{"id":7}}"#;
        shop.send(&[("a", one), ("b", two), ("a", one)]).await;
        let letters = "select cast(count(*) as text) from NAMEletters";
        shop.run_until("both letters are written", async || shop.text(letters).await == "2").await;
        assert_eq!(shop.text("select cast(paid as text) from NAMEinvoices").await, "13.25");
        assert_eq!(shop.text("select note from NAMEpayments where id = 1").await, "it's \"x\"; drop table t");
        assert_eq!(
            shop.text("select cast(note is null as text) from NAMEpayments where id = 2").await.chars().next(),
            { if shop.name.is_empty() { Some('1') } else { Some('t') } }
        );
        assert_eq!(shop.text("select says from NAMEletters where says like '%12%'").await, "paid 12.25");
        assert_eq!(shop.text("select cast(min(invoice) as text) from NAMEletters").await, "7");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_field_and_a_missing_row_are_set_aside_with_the_reason() {
    for shop in Shop::all("a_missing_field_and_a_missing_row_are_set_aside_with_the_reason").await {
        let without = r#"{"payment_id":1,"note":"CANARY","invoice":{"id":7}}"#;
        let nobody = r#"{"payment_id":2,"amount":1,"note":"CANARY","invoice":{"id":8}}"#;
        shop.send(&[("field", without), ("row", nobody)]).await;
        let table = shop.oncebox_table("parked");
        let dead = format!("select cast(count(*) as text) from {table} where due_at is null");
        shop.run_until("both are set aside", async || shop.text(&dead).await == "2").await;
        let count = |reason: &str| format!("select cast(count(*) as text) from {table} where reason like '%{reason}%'");
        assert_eq!(shop.text(&count("no field `amount`")).await, "1");
        assert_eq!(shop.text(&count("statement 2 touched 0 rows, and 1 were expected")).await, "1");
        assert_eq!(shop.text(&count("CANARY")).await, "0");
        assert_eq!(shop.text("select cast(count(*) as text) from NAMEpayments").await, "0", "all or nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_database_is_found_at_the_start() {
    for shop in Shop::all("what_does_not_fit_the_database_is_found_at_the_start").await {
        let text = shop.text.replace("letters (invoice, says)", "lettres (invoice, says)");
        let text = text.replace(":payment_id, :amount, :note, :@time", ":payment_id, :amount, :note");
        let pipeline = Pipeline::parse("shop.toml", &text, &|_: &str| None).unwrap();
        let never = std::future::pending();
        let error = run("shop.toml", &pipeline, Parts::All, |_| panic!("nothing may run"), never).await.unwrap_err();
        let RunFileError::Mistakes(mistakes) = error else { panic!("{error}") };
        assert_eq!(mistakes.found.len(), 2, "{mistakes}");
        assert!(
            mistakes.to_string().contains("shop.toml:12: statement 1 of type `payment.received` cannot run"),
            "{mistakes}"
        );
        assert!(mistakes.to_string().contains("lettres"), "{mistakes}");
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_had_is_an_error_without_secrets() {
    let text = "[store]\nurl = \"postgres://u:CANARY@127.0.0.1:1/d\"\n[relay]\nto = \"queue:\"\n";
    let pipeline = Pipeline::parse("shop.toml", text, &|_: &str| None).unwrap();
    let error = run("shop.toml", &pipeline, Parts::All, |_| (), std::future::pending()).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot run shop.toml: "), "{error}");
    assert!(!format!("{error} {error:?}").contains("CANARY"), "{error:?}");
    let missing = Pipeline::open(Path::new("/nowhere/oncebox.toml"), &|_: &str| None).unwrap_err();
    assert!(missing.to_string().contains("`oncebox init` writes one"), "{missing}");
}
