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

    /// The same database, and a file with another line in the place of one.
    fn with(&mut self, line: &str, other: &str) {
        assert!(self.text.contains(line), "no line {line}");
        self.text = self.text.replace(line, other);
    }

    /// Why it does not start, which it must not.
    async fn refused(&self, parts: Parts) -> RunFileError {
        let never = std::future::pending();
        run("shop.toml", &self.pipeline(), parts, |_| panic!("it was started"), never).await.unwrap_err()
    }

    async fn send(&self, payloads: &[(&str, &str)]) {
        let message = |(id, payload): &(&str, &str)| {
            let message = Message::new("payment.received").with_id(MessageId::new(*id).unwrap());
            message.with_payload((*payload).to_owned())
        };
        let to = Origin::parse("queue:payments").unwrap();
        let count = payloads.len() as u64;
        let messages: Vec<Message> = payloads.iter().map(message).collect();
        assert_eq!(send(&to, Some(&self.pipeline()), messages.into_iter(), |_| ()).await.unwrap(), count);
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

/// What a consumer would say when it starts is found before anything does.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_can_not_be_is_found_at_the_start() {
    let shop = Shop::sqlite().await;
    let order = "order_by = \"{invoice.id}\"";
    for (instead, says) in [
        ("lanes = 0", "shop.toml:6: cannot start consumer invoices: "),
        ("lanes = 100000", "shop.toml:6: cannot start consumer invoices: "),
        (
            "key = \"broker-coordinate\"\nrequire = \"effectively-once\"",
            "shop.toml:6: cannot start consumer invoices: it must handle each message effectively once, and can promise only",
        ),
    ] {
        let text = shop.text.replace(order, instead);
        let pipeline = Pipeline::parse("shop.toml", &text, &|_: &str| None).unwrap();
        let checked = run("shop.toml", &pipeline, Parts::Nothing, |_| (), std::future::pending()).await;
        let RunFileError::Mistakes(mistakes) = checked.unwrap_err() else { panic!("{instead}") };
        assert!(mistakes.to_string().contains(says), "{instead}: {mistakes}");
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

/// What a statement answers is what it touches: the same on both stores, whatever ran before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_select_that_finds_nothing_is_not_what_was_expected() {
    for mut shop in Shop::all("a_select_that_finds_nothing_is_not_what_was_expected").await {
        let update = "update NAMEinvoices set paid = paid + :amount where id = :invoice.id".replace("NAME", &shop.name);
        let select = "select id from NAMEinvoices where id = :invoice.id".replace("NAME", &shop.name);
        assert!(shop.text.contains(&update));
        shop.text = shop.text.replace(&update, &select);
        let found = r#"{"payment_id":1,"amount":1,"note":"","invoice":{"id":7}}"#;
        let nobody = r#"{"payment_id":2,"amount":1,"note":"","invoice":{"id":8}}"#;
        shop.send(&[("found", found), ("nobody", nobody)]).await;
        let table = shop.oncebox_table("parked");
        let dead = format!("select cast(count(*) as text) from {table} where due_at is null");
        let letters = "select cast(count(*) as text) from NAMEletters";
        shop.run_until("one is done and one set aside", async || {
            shop.text(&dead).await == "1" && shop.text(letters).await == "1"
        })
        .await;
        let reason = format!("select reason from {table}");
        assert!(shop.text(&reason).await.contains("statement 2 touched 0 rows, and 1 were expected"));
        assert_eq!(shop.text("select cast(max(id) as text) from NAMEpayments").await, "1", "all or nothing");
    }
}

/// SQLite has integers and floats. A number that is neither keeps its digits; a text that is none fails its message.
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_gets_every_digit_of_a_number() {
    let mut shop = Shop::sqlite().await;
    shop.execute("create table digits (kind text, digits text)").await;
    let Store::Sqlite(path) = &shop.store else { unreachable!() };
    shop.text = format!(
        "[store]\nurl = \"sqlite://{path}\"\n[[consumer]]\nname = \"digits\"\nfrom = \"queue:payments\"\n\
         [[consumer.on]]\ntype = \"payment.received\"\nsql = \"insert into digits values (typeof(:n), :n)\"\n"
    );
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let sent = [
        ("7", "integer"),
        ("12.5", "real"),
        ("123456789012345678.91", "text"),
        ("123456789012345678901234567890", "text"),
        ("1e999999999", "text"),
        (deep.as_str(), "text"),
    ];
    let payloads: Vec<String> = sent.iter().map(|(n, _)| format!(r#"{{"n":0,"n":{n}}}"#)).collect();
    let messages: Vec<(&str, &str)> =
        sent.iter().map(|(n, _)| &n[..n.len().min(40)]).zip(payloads.iter().map(String::as_str)).collect();
    shop.send(&messages).await;
    shop.send(&[("half", r#"{"n":"\ud800"}"#)]).await;
    let parked = format!("select cast(count(*) as text) from {}", shop.oncebox_table("parked"));
    shop.run_until("all were tried", async || {
        shop.text("select cast(count(*) as text) from digits").await == sent.len().to_string()
            && shop.text(&parked).await == "1"
    })
    .await;
    for (digits, kind) in sent {
        let found = shop.text(&format!("select kind from digits where digits = '{digits}'")).await;
        assert_eq!(found, kind, "{}", &digits[..digits.len().min(40)]);
    }
    let reason = shop.text(&format!("select reason from {}", shop.oncebox_table("parked"))).await;
    assert!(reason.contains("`n`") && reason.contains("half of a pair"), "{reason}");
}

/// Values arrive as they were sent, in columns of every kind. A cast that knows no length would cut them.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_every_kind_keep_their_values() {
    let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
        return skipped("pipeline::columns_of_every_kind_keep_their_values");
    };
    let mut shop = Shop::postgres(url).await;
    let name = shop.name.clone();
    // Type, what is sent, and what is there then.
    let kinds = [
        ("char(3)", r#""EUR""#, "EUR"),
        ("char(3)[]", r#""{EUR,USD}""#, "{EUR,USD}"),
        ("\"char\"", r#""x""#, "x"),
        ("bpchar", r#""long enough""#, "long enough"),
        ("varchar(5)", r#""abcde""#, "abcde"),
        ("bit(4)", r#""1011""#, "1011"),
        ("bit varying(8)", r#""10110""#, "10110"),
        ("numeric(12,3)", "1234567.125", "1234567.125"),
        ("numeric", "123456789012345678.910", "123456789012345678.910"),
        ("text", "-1.10E+5", "-1.10E+5"),
        ("jsonb", r#"{"n":123456789012345678.910}"#, r#"{"n": 123456789012345678.910}"#),
        ("bigint", "9007199254740993", "9007199254740993"),
        ("boolean", "true", "true"),
        ("uuid", r#""018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e""#, "018f9c2e-7d5a-7b3c-9d1e-2f3a4b5c6d7e"),
        ("date", r#""2026-11-16""#, "2026-11-16"),
        ("timestamptz", r#""2026-11-16T01:02:03Z""#, "2026-11-16 01:02:03+00"),
        ("interval", r#""36 hours""#, "36:00:00"),
        ("inet", r#""10.0.0.1""#, "10.0.0.1/32"),
        ("bytea", r#""\\x0aff""#, "\\x0aff"),
        ("int[]", r#""{1,2,3}""#, "{1,2,3}"),
        ("jsonb", r#"{"a":[1,"b"]}"#, r#"{"a": [1, "b"]}"#),
        ("NAMEcolour", r#""dark red""#, "dark red"),
        ("NAMEcode", r#""AB12""#, "AB12"),
    ]
    .map(|(kind, sent, there)| (kind.replace("NAME", &name), sent, there));
    let each = |one: &dyn Fn(usize, &str) -> String| {
        kinds.iter().enumerate().map(|(n, (kind, ..))| one(n, kind)).collect::<Vec<_>>().join(", ")
    };
    let columns = each(&|n, kind| format!("c{n} {kind}"));
    shop.execute(&format!(
        "create type {name}colour as enum ('red', 'dark red'); create domain {name}code as char(4);
         create table {name}kinds ({columns})"
    ))
    .await;
    let (into, values) = (each(&|n, _| format!("c{n}")), each(&|n, _| format!(":c{n}")));
    shop.text = format!(
        "[store]\nurl = \"{}\"\nschema = \"{}\"\n[[consumer]]\nname = \"kinds\"\nfrom = \"queue:payments\"\n\
         [[consumer.on]]\ntype = \"payment.received\"\nsql = \"insert into {name}kinds ({into}) values ({values})\"\n",
        match &shop.store {
            Store::Postgres(url) => url,
            Store::Sqlite(_) => unreachable!(),
        },
        name.trim_end_matches('_'),
    );
    let fields: Vec<String> = kinds.iter().enumerate().map(|(n, (_, sent, _))| format!("\"c{n}\":{sent}")).collect();
    shop.send(&[("all", &format!("{{{}}}", fields.join(",")))]).await;
    let count = "select cast(count(*) as text) from NAMEkinds";
    shop.run_until("it is there", async || shop.text(count).await == "1").await;
    for (n, (kind, _, there)) in kinds.iter().enumerate() {
        assert_eq!(shop.text(&format!("select c{n}::text from NAMEkinds")).await.trim_end(), *there, "{kind}");
    }
}

/// Somebody renames a table, or takes a privilege away, and gives it back: nothing that a message could help.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_gone_for_a_while_costs_no_message() {
    for mut shop in Shop::all("a_table_that_is_gone_for_a_while_costs_no_message").await {
        shop.text = shop.text.replace(
            "attempts = 2, first = \"10ms\", max = \"10ms\"",
            "attempts = 1000, first = \"10ms\", max = \"50ms\"",
        );
        let name = shop.name.clone();
        let payment = |n: u32| format!(r#"{{"payment_id":{n},"amount":1,"note":"","invoice":{{"id":7}}}}"#);
        shop.send(&[("first", &payment(1))]).await;
        let parked = shop.oncebox_table("parked");
        let tried = format!("select cast(count(*) as text) from {parked} where reason like '%there is no such table%'");
        let letters = "select cast(count(*) as text) from NAMEletters";
        let mut is_gone = false;
        shop.run_until("all are done", async || {
            if !is_gone && shop.text(letters).await == "1" {
                shop.execute(&format!("alter table {name}payments rename to {name}elsewhere")).await;
                shop.send(&[("second", &payment(2)), ("third", &payment(3))]).await;
                is_gone = true;
            } else if is_gone && shop.text(&tried).await != "0" {
                shop.execute(&format!("alter table {name}elsewhere rename to {name}payments")).await;
                is_gone = false;
                eventually("they are done", async || shop.text(letters).await == "3").await;
                return true;
            }
            false
        })
        .await;
        let dead = format!("select cast(count(*) as text) from {parked}");
        assert_eq!(shop.text(&dead).await, "0");
    }
}

/// What a database refuses is a cause of its own, told in full: neither its code nor its names vary from message to message.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_refuses_is_one_cause_for_each_reason() {
    for shop in Shop::all("what_the_database_refuses_is_one_cause_for_each_reason").await {
        let payment = |n: u32| format!(r#"{{"payment_id":{n},"amount":1,"note":"","invoice":{{"id":7}}}}"#);
        shop.send(&[("a", &payment(1)), ("b", &payment(1)), ("c", &payment(1))]).await;
        let parked = shop.oncebox_table("parked");
        let dead = format!("select cast(count(*) as text) from {parked} where due_at is null");
        shop.run_until("the others are set aside", async || shop.text(&dead).await != "0").await;
        let cause = shop.text(&format!("select min(cause) from {parked} where due_at is null")).await;
        let code = if shop.name.is_empty() { "(SQLite 1555, on payments.id)" } else { "(SQLSTATE 23505, constraint " };
        assert!(
            cause.contains(&format!("permanent/payment.received/a unique constraint was violated {code}")),
            "{cause}"
        );
        assert!(cause.ends_with(')'), "{cause}");
    }
}

/// One reading of a window is enough: the others are duplicates, though they say something else.
#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_key_need_agree_only_where_the_file_says() {
    for mut shop in Shop::all("messages_of_one_key_need_agree_only_where_the_file_says").await {
        let order = "order_by = \"{invoice.id}\"";
        let key = "key = \"of:{invoice.id}\"\nfingerprint = [\"invoice\"]";
        shop.text = shop.text.replace(order, key);
        let payment = |n: u32| format!(r#"{{"payment_id":{n},"amount":{n},"note":"","invoice":{{"id":7}}}}"#);
        shop.send(&[("a", &payment(1)), ("b", &payment(2))]).await;
        let waiting = format!("select cast(count(*) as text) from {}", shop.oncebox_table("queue"));
        let letters = "select cast(count(*) as text) from NAMEletters";
        shop.run_until("both are done", async || shop.text(&waiting).await == "0" && shop.text(letters).await == "1")
            .await;
        let parked = format!("select cast(count(*) as text) from {}", shop.oncebox_table("parked"));
        assert_eq!(shop.text(&parked).await, "0", "a duplicate, not a conflict");
    }
}

/// The whole story of a key that is edited: it doubles nothing, and everything that could tell tells.
#[tokio::test(flavor = "multi_thread")]
async fn an_edited_key_is_refused_everywhere_and_bridged_on_request() {
    for mut shop in Shop::all("an_edited_key_is_refused_everywhere_and_bridged_on_request").await {
        let from = "from = \"queue:payments\"";
        let body = |n: i32| format!(r#"{{"payment_id":{n},"amount":1,"note":"x","invoice":{{"id":7}}}}"#);
        // Each comes under an id of its own once it is sent again: only its payload tells.
        shop.with(from, "from = \"queue:payments\"\nkey = \"content-hash\"");
        let all: Vec<(String, String)> = (0..20).map(|n| (format!("a{n}"), body(n))).collect();
        shop.send(&all.iter().map(|(id, body)| (id.as_str(), body.as_str())).collect::<Vec<_>>()).await;
        let paid = "select cast(sum(paid) as text) from NAMEinvoices";
        let is_paid = async |shop: &Shop, sum: f64| shop.text(paid).await.parse::<f64>().unwrap() == sum;
        shop.run_until("all are paid", async || is_paid(&shop, 20.0).await).await;

        shop.with("key = \"content-hash\"", "key = \"message-id\"");
        for parts in [Parts::All, Parts::Nothing] {
            let error = shop.refused(parts).await;
            assert_eq!(error.code(), oncebox::Code::IdentityChanged, "{error}");
            let says = error.to_string();
            assert!(says.contains("`content-hash/2`") && says.contains("`message-id`"), "{says}");
        }
        let report = oncebox_pipeline::doctor::examine(&shop.pipeline(), &shop.text).await;
        assert!(report.has_errors() && report.findings.iter().any(|finding| finding.check == "identity.changed"));
        assert_eq!(report.weaker_than(oncebox::Guarantee::EffectivelyOnce).count(), 1);
        if let Store::Sqlite(path) = &shop.store {
            // What `oncebox status` tells.
            let store = oncebox::sqlite::Sqlite::open(path).await.unwrap();
            let refused = oncebox_pipeline::refused(&shop.pipeline(), &store).await.unwrap();
            assert_eq!(refused.iter().map(|one| one.consumer.as_str()).collect::<Vec<_>>(), ["invoices"]);
        }

        shop.with("key = \"message-id\"", "key = \"message-id\"\nkey_was = \"content-hash\"");
        assert!(run("shop.toml", &shop.pipeline(), Parts::Nothing, |_| (), std::future::pending()).await.is_ok());
        let all: Vec<(String, String)> = (0..21).map(|n| (format!("b{n}"), body(n))).collect();
        shop.send(&all.iter().map(|(id, body)| (id.as_str(), body.as_str())).collect::<Vec<_>>()).await;
        shop.run_until("the new one is paid", async || is_paid(&shop, 21.0).await).await;
        let left = shop.oncebox_table("queue");
        let left = format!("select cast(count(*) as text) from {left}");
        shop.run_until("nothing is left", async || shop.text(&left).await == "0").await;
        assert!(is_paid(&shop, 21.0).await);
    }
}
