//! The same work through Oncebox: messages from the memory source, accounts partitioned over lanes by order.

use oncebox::memory::MemorySource;
use oncebox::postgres::Postgres;
use oncebox::{Consumer, Context, OrderBy, Outcome, Outcomes};
use sqlx::PgConnection;
use tokio::time::Instant;

use super::setting::{BATCH, Credit, Setting};

/// One message per call.
pub(super) async fn each(setting: &Setting) -> anyhow::Result<f64> {
    run(setting, |consumer| consumer.on("credit", credit)).await
}

/// Set-based.
pub(super) async fn batch(setting: &Setting) -> anyhow::Result<f64> {
    run(setting, |consumer| consumer.on_batch("credit", credit_batch)).await
}

async fn credit(mut ctx: Context<Postgres>, credit: Credit) -> oncebox::Result<Outcome> {
    sqlx::query("update accounts set balance = balance + $1 where id = $2")
        .bind(credit.amount)
        .bind(credit.account)
        .execute(ctx.db())
        .await?;
    Ok(Outcome::applied())
}

async fn credit_batch(mut ctx: Context<Postgres>, credits: Vec<Credit>) -> oncebox::Result<Outcomes> {
    let (accounts, amounts): (Vec<i64>, Vec<i64>) =
        credits.iter().map(|credit| (credit.account, credit.amount)).unzip();
    credit_all(ctx.db(), &accounts, &amounts).await?;
    Ok(Outcomes::Applied)
}

/// Credits many accounts in one statement; the one that the hand-written variants run.
pub(super) async fn credit_all(db: &mut PgConnection, accounts: &[i64], amounts: &[i64]) -> sqlx::Result<()> {
    let statement = "update accounts set balance = balance + credit.amount
        from (select id, sum(amount)::bigint as amount from unnest($1::bigint[], $2::bigint[]) as c (id, amount) group by id) credit
        where accounts.id = credit.id";
    sqlx::query(statement).bind(accounts).bind(amounts).execute(db).await?;
    Ok(())
}

type Bench = Consumer<Postgres, MemorySource>;

async fn run(setting: &Setting, handle: impl FnOnce(Bench) -> Bench) -> anyhow::Result<f64> {
    let source = MemorySource::new();
    source.send_all(setting.make_messages()?);
    let consumer = Consumer::new("bench", setting.store.clone(), source)
        .order_by(OrderBy::MessageKey)
        .lanes(usize::from(setting.lanes))
        .bounds(|bounds| {
            bounds.batch_messages_max = BATCH;
            bounds.in_flight_max = 2 * BATCH * usize::from(setting.lanes);
        });
    let consumer = handle(consumer);
    let (stats, messages) = (consumer.stats(), u64::from(setting.messages));
    let mut seconds = 0.0;
    let started = Instant::now();
    let done = async {
        while stats.snapshot().handled < messages && stats.snapshot().failures == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        // Before the drain, which belongs to a shutdown and not to the work.
        seconds = started.elapsed().as_secs_f64();
    };
    consumer.run(done).await?;
    anyhow::ensure!(stats.snapshot().failures == 0, "a handler failed, so there is nothing to measure");
    Ok(seconds)
}
