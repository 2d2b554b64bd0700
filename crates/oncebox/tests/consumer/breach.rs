//! A handler that ends its transaction itself, and then fails: its claims are committed and nothing else is.

use std::time::Duration;

use oncebox::consumer::RunError;
use oncebox::memory::MemorySource;
use oncebox::postgres::Postgres;
use oncebox::{Context, Outcome};
use oncebox_testkit::eventually;
use oncebox_testkit::store::Setup;

use super::rig::*;
use super::sql::fixtures::PostgresFixture;

/// What the handler does after its COMMIT.
#[derive(Clone, Copy)]
enum Then {
    Fails,
    Panics,
    TakesLong,
    ChainsAndFails,
}

/// Rolled back as if nothing had happened, each message would be found to be a duplicate of itself and acknowledged.
async fn commits_and(then: Then, name: &str) {
    let name = format!("consumer::breach::{name}");
    oncebox_testkit::store::run(&name, PostgresFixture::default(), |setup| breach(setup, then)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_commits_and_then_fails_stops_the_consumer() {
    commits_and(Then::Fails, "a_handler_that_commits_and_then_fails_stops_the_consumer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_commits_and_then_panics_stops_the_consumer() {
    commits_and(Then::Panics, "a_handler_that_commits_and_then_panics_stops_the_consumer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_commits_and_then_takes_too_long_stops_the_consumer() {
    commits_and(Then::TakesLong, "a_handler_that_commits_and_then_takes_too_long_stops_the_consumer").await;
}

/// The transaction that is aborted is not the one that claimed.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_commits_and_fails_in_the_next_transaction_stops_the_consumer() {
    let name = "a_handler_that_commits_and_fails_in_the_next_transaction_stops_the_consumer";
    commits_and(Then::ChainsAndFails, name).await;
}

async fn breach(setup: Setup<PostgresFixture>, then: Then) {
    let source = MemorySource::new();
    source.send_all((0..5).map(|n| note(&n.to_string(), "a")));
    let commits = consumer("c", &setup.store, source.clone()).lanes(1).on(
        "noted",
        move |mut ctx: Context<Postgres>, _: Note| async move {
            let chain = if matches!(then, Then::ChainsAndFails) { "COMMIT AND CHAIN" } else { "COMMIT" };
            sqlx::query(chain).execute(&mut *ctx.db()).await?;
            match then {
                Then::Fails => {}
                Then::Panics => std::panic::panic_any("the case said so"),
                Then::TakesLong => std::future::pending().await,
                Then::ChainsAndFails => {
                    sqlx::query("select 1 / 0").execute(&mut *ctx.db()).await?;
                }
            }
            Err::<Outcome, _>(refuse())
        },
    );
    let commits = commits.bounds(|bounds| bounds.handler_deadline = Duration::from_millis(200));
    let acknowledged = eventually("the consumer stops, or all are acknowledged", async || source.backlog() == 0);
    let ended = commits.run(acknowledged).await;
    assert!(matches!(&ended, Err(RunError::Stopped { .. })), "{ended:?}, and {} left", source.backlog());
    assert_eq!((source.backlog(), effects(&setup).await.len()), (5, 0));
}
