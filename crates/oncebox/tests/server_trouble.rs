//! Trouble of the server, or of a session with it, that is no message's fault: what is changed, cancelled or thrown away
//! beside a running consumer.

#![allow(clippy::unwrap_used, reason = "a test that panics has said what it found")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use oncebox::consumer::Snapshot;
use oncebox::memory::MemorySource;
use oncebox::{Consumer, Context, Message, Outcome, Retry};
use oncebox_core::{Clock, SystemClock};
use oncebox_store_sql::Postgres;
use oncebox_testkit::{eventually, skipped};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A schema of its own on the shared server.
struct Place {
    url: String,
    schema: String,
}

impl Place {
    fn or_skip(test: &str) -> Option<Self> {
        let Ok(url) = std::env::var("ONCEBOX_TEST_POSTGRES_URL") else {
            skipped(&format!("server_trouble::{test}"));
            return None;
        };
        let schema = format!("t_{}", SystemClock.id().simple());
        let mark = if url.contains('?') { '&' } else { '?' };
        // The name of the sessions tells them from those of other tests.
        let url = format!("{url}{mark}options[search_path]={schema}&application_name={schema}");
        Some(Self { url, schema })
    }

    async fn store(&self) -> Postgres {
        let store = Postgres::builder(&self.url).schema(&self.schema).connect().await.unwrap();
        self.run("create table effects (n int8 not null); create table rates (id int8, rate int8)").await;
        self.run("insert into rates values (1, 1)").await;
        store
    }

    async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    async fn run(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection().await).await.unwrap();
    }

    async fn effects(&self) -> (i64, i64) {
        let counted = sqlx::query_as("select count(*), count(distinct n) from effects");
        counted.fetch_one(&mut self.connection().await).await.unwrap()
    }

    async fn parked(&self) -> i64 {
        sqlx::query_scalar("select count(*) from parked").fetch_one(&mut self.connection().await).await.unwrap()
    }
}

fn messages(numbers: std::ops::Range<i64>) -> impl Iterator<Item = Message> {
    numbers.map(|n| Message::new("noted").with_json(&n).unwrap())
}

/// Nothing was blamed on a message, and each has had its effect.
async fn assert_sound(place: &Place, seen: &Snapshot, all: i64) {
    assert_eq!((seen.failures, seen.dead, seen.parked), (0, 0, 0), "{seen:?}");
    assert_eq!((place.effects().await, place.parked().await), ((all, all), 0));
}

/// A handler's `select *` is prepared once for each session; the server refuses it after the table has another shape.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_altered_beside_a_handler_costs_no_message() {
    let Some(place) = Place::or_skip("a_table_that_is_altered_beside_a_handler_costs_no_message") else { return };
    let store = place.store().await;
    let source = MemorySource::new();
    source.send_all(messages(0..20));
    let consumer =
        Consumer::new("c", store, source.clone()).on("noted", |mut ctx: Context<Postgres>, n: i64| async move {
            sqlx::query("select * from rates").fetch_all(ctx.db()).await?;
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        });
    let stats = consumer.stats();
    let story = async {
        eventually("the first are done", async || source.backlog() == 0).await;
        place.run("alter table rates add column since int8").await;
        source.send_all(messages(20..60));
        eventually("all are done", async || source.backlog() == 0).await;
    };
    consumer.run(story).await.unwrap();
    assert_sound(&place, &stats.snapshot(), 60).await;
}

/// A rule of the application speaks at COMMIT: the server and its schema are well, and one message is to blame. Also with a
/// code that elsewhere says that a privilege or a table is missing, or that a connection failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_rule_stops_one_message_whatever_its_code() {
    for code in ["BIZ01", "42501", "42P01", "08001"] {
        let Some(place) = Place::or_skip("a_deferred_rule_stops_one_message_whatever_its_code") else { return };
        let store = place.store().await;
        let rule = format!(
            "create function refuse() returns trigger language plpgsql as $$ begin \
             if new.n = 3 then raise exception 'not three' using errcode = '{code}'; end if; return null; end $$; \
             create constraint trigger refused after insert on effects deferrable initially deferred \
             for each row execute function refuse()"
        );
        place.run(&rule).await;
        let source = MemorySource::new();
        source.send_all(messages(0..20));
        let consumer = Consumer::new("c", store, source.clone())
            .retry(Retry::new().attempts(1))
            .on("noted", |mut ctx: Context<Postgres>, n: i64| async move {
                sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
                Ok(Outcome::applied())
            })
            .lanes(2);
        let settled = eventually("all are settled", async || source.backlog() == 0);
        consumer.run(settled).await.unwrap_or_else(|error| panic!("{code}: {error}"));
        assert_eq!((place.effects().await, place.parked().await), ((19, 19), 1), "{code}");
    }
}

/// What a session had prepared can be thrown away by whoever shares it: a handler, or a pooler.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_lost_its_statements_is_replaced() {
    let Some(place) = Place::or_skip("a_session_that_lost_its_statements_is_replaced") else { return };
    let store = place.store().await;
    let source = MemorySource::new();
    source.send_all(messages(0..40));
    let thrown = Arc::new(AtomicU64::new(0));
    let consumer = Consumer::new("c", store, source.clone()).on("noted", move |mut ctx: Context<Postgres>, n: i64| {
        let first = n % 20 == 7 && thrown.fetch_or(1 << (n / 20), SeqCst) & (1 << (n / 20)) == 0;
        async move {
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            if first {
                sqlx::raw_sql("deallocate all").execute(ctx.db()).await?;
            }
            Ok(Outcome::applied())
        }
    });
    let stats = consumer.stats();
    consumer.run(async { eventually("all are done", async || source.backlog() == 0).await }).await.unwrap();
    assert_sound(&place, &stats.snapshot(), 40).await;
}

/// A handler that spoils its session each time is found out: its message is judged, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn what_spoils_its_session_each_time_is_judged() {
    let Some(place) = Place::or_skip("what_spoils_its_session_each_time_is_judged") else { return };
    let store = place.store().await;
    let source = MemorySource::new();
    source.send_all(messages(0..10));
    let consumer = Consumer::new("c", store, source.clone()).lanes(2).on(
        "noted",
        |mut ctx: Context<Postgres>, n: i64| async move {
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            if n == 7 {
                sqlx::raw_sql("deallocate all").execute(ctx.db()).await?;
            }
            Ok(Outcome::applied())
        },
    );
    let stats = consumer.stats();
    consumer.run(async { eventually("all are settled", async || source.backlog() == 0).await }).await.unwrap();
    let seen = stats.snapshot();
    assert!(seen.failures >= 1 && seen.dead == 0, "{seen:?}");
    assert_eq!((place.effects().await, place.parked().await), ((9, 9), 1));
}

/// An administrator cancels a statement, and later ends a session: the message runs again.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_an_administrator_cancels_costs_no_message() {
    let Some(place) = Place::or_skip("a_statement_that_an_administrator_cancels_costs_no_message") else { return };
    let store = place.store().await;
    let source = MemorySource::new();
    source.send_all(messages(0..1));
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let consumer = Consumer::new("c", store, source.clone()).on("noted", move |mut ctx: Context<Postgres>, n: i64| {
        let slow = counted.fetch_add(1, SeqCst) < 2;
        async move {
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            if slow {
                sqlx::raw_sql("select pg_sleep(60)").execute(ctx.db()).await?;
            }
            Ok(Outcome::applied())
        }
    });
    let stats = consumer.stats();
    let story = async {
        let mut eye = place.connection().await;
        for end in ["pg_cancel_backend", "pg_terminate_backend"] {
            let end = format!(
                "select count({end}(pid)) from pg_stat_activity \
                 where application_name = '{}' and query like '%pg_sleep(60)' and state = 'active'",
                place.schema
            );
            eventually("it is cancelled", async || {
                sqlx::query_scalar::<_, i64>(AssertSqlSafe(&*end)).fetch_one(&mut eye).await.unwrap() > 0
            })
            .await;
        }
        eventually("it is applied", async || stats.snapshot().handled == 1).await;
    };
    consumer.run(story).await.unwrap();
    assert_eq!((stats.snapshot().dead, calls.load(SeqCst)), (0, 3));
    assert_eq!((place.effects().await, place.parked().await), ((1, 1), 0));
}

/// A constraint that is checked at COMMIT means the same as one that is checked at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_that_is_named_means_already_applied() {
    let Some(place) = Place::or_skip("a_deferred_constraint_that_is_named_means_already_applied") else { return };
    let store = place.store().await;
    place.run("alter table effects add constraint effects_once unique (n) deferrable initially deferred").await;
    place.run("insert into effects values (3)").await;
    let source = MemorySource::new();
    source.send_all(messages(0..8));
    let consumer = Consumer::new("c", store, source.clone()).already_applied_on("effects_once").on(
        "noted",
        |mut ctx: Context<Postgres>, n: i64| async move {
            sqlx::query("insert into effects values ($1)").bind(n).execute(ctx.db()).await?;
            Ok(Outcome::applied())
        },
    );
    let stats = consumer.stats();
    consumer.run(async { eventually("all are settled", async || source.backlog() == 0).await }).await.unwrap();
    assert_sound(&place, &stats.snapshot(), 8).await;
    assert_eq!(stats.snapshot().already_applied, 1);
}
