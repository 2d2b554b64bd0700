//! What all variants have in common: the server, the tables, the messages.

use std::sync::Arc;

use anyhow::{Context, ensure};
use oncebox::postgres::Postgres;
use oncebox::{Clock, Message, SystemClock};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tokio::sync::Mutex;

/// Accounts that the messages credit, spread evenly.
const ACCOUNTS: i64 = 10_000;

/// Messages in one transaction of the batched variants.
pub(super) const BATCH: usize = 100;

/// Ways to do the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// The business update alone, in batches, with no dedup at all.
    Bare,
    /// By hand: one transaction per message, insert or skip, update.
    Naive(u16),
    /// By hand: claim and update of a hundred at a time.
    HandBatched,
    /// Ours, one message per call.
    Each,
    /// Ours, set-based.
    Batch,
}

impl Variant {
    pub(super) const ALL: [Self; 7] =
        [Self::Bare, Self::Naive(1), Self::Naive(8), Self::Naive(32), Self::HandBatched, Self::Each, Self::Batch];

    pub(super) fn name(self) -> String {
        match self {
            Self::Bare => "bare update, batched, no dedup".to_owned(),
            Self::Naive(n) => format!("hand-written inbox, {n} connections"),
            Self::HandBatched => "hand-written inbox, batched".to_owned(),
            Self::Each => "oncebox `on`".to_owned(),
            Self::Batch => "oncebox `on_batch`".to_owned(),
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Credit {
    pub(super) account: i64,
    pub(super) amount: i64,
}

/// A message as the hand-written variants take it: key, encoded payload, account.
pub(super) type HandRow = (sqlx::types::Uuid, Vec<u8>, i64);

/// A server with tables of its own.
pub(super) struct Setting {
    pub(super) options: PgConnectOptions,
    pub(super) store: Postgres,
    pub(super) messages: u32,
    pub(super) lanes: u16,
    schema: String,
    eye: Mutex<PgConnection>,
}

/// What the figures were measured on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Server {
    pub(super) version: String,
    pub(super) fsync: String,
    pub(super) synchronous_commit: String,
    pub(super) shared_buffers: String,
}

impl Setting {
    pub(super) async fn open(url: &str, messages: u32, lanes: u16) -> anyhow::Result<Self> {
        let schema = format!("oncebox_bench_{}", std::process::id());
        // Handlers find their tables by their plain names.
        let mark = if url.contains('?') { '&' } else { '?' };
        let store_url = format!("{url}{mark}options[search_path]={schema}");
        let store = Postgres::builder(&store_url).schema(&schema).connect().await?;
        // Checked just now; nothing of the URL is repeated.
        let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
        let options = options.options([("search_path", schema.as_str())]);
        let mut eye = PgConnection::connect_with(&options).await.ok().context("cannot open a second connection")?;
        let tables =
            "create table accounts (id bigint primary key, balance bigint not null default 0) with (fillfactor = 50);
            create table hand_inbox (consumer int2 not null, key uuid not null, primary key (consumer, key));";
        sqlx::raw_sql(tables).execute(&mut eye).await.context("cannot create the tables")?;
        let accounts = format!("insert into accounts select generate_series(0, {ACCOUNTS} - 1)");
        sqlx::raw_sql(AssertSqlSafe(accounts)).execute(&mut eye).await.context("cannot fill the tables")?;
        Ok(Self { options, store, messages, lanes, schema, eye: Mutex::new(eye) })
    }

    /// Fresh messages with time-ordered ids, made before the clock starts.
    pub(super) fn make_messages(&self) -> anyhow::Result<Vec<Message>> {
        let message = |n: u32| {
            let account = i64::from(n).wrapping_mul(7_919) % ACCOUNTS;
            let message = Message::made_by(&SystemClock, "credit").with_json(&Credit { account, amount: 1 })?;
            anyhow::Ok(message.with_order_key(account.to_string()))
        };
        (0..self.messages).map(message).collect()
    }

    /// The same for the hand-written variants, payload still encoded: they decode it as we do.
    pub(super) fn make_rows(&self) -> anyhow::Result<Arc<Vec<HandRow>>> {
        let rows = (0..self.messages).map(|n| {
            let account = i64::from(n).wrapping_mul(7_919) % ACCOUNTS;
            anyhow::Ok((SystemClock.id(), serde_json::to_vec(&Credit { account, amount: 1 })?, account))
        });
        Ok(Arc::new(rows.collect::<Result<_, _>>()?))
    }

    /// Empty records and balances, and no dead rows, before each measurement.
    pub(super) async fn reset(&self) -> anyhow::Result<()> {
        let statements =
            ["truncate inbox, hand_inbox", "update accounts set balance = 0", "vacuum full accounts", "checkpoint"];
        let mut eye = self.eye.lock().await;
        for statement in statements {
            sqlx::raw_sql(statement).execute(&mut *eye).await.with_context(|| format!("cannot {statement}"))?;
        }
        Ok(())
    }

    /// Every message was applied once: a fast variant that is wrong is no variant.
    pub(super) async fn check(&self, variant: Variant) -> anyhow::Result<()> {
        let mut eye = self.eye.lock().await;
        let sum: i64 = sqlx::query_scalar("select sum(balance)::bigint from accounts").fetch_one(&mut *eye).await?;
        ensure!(sum == i64::from(self.messages), "{} applied {sum} of {} messages", variant.name(), self.messages);
        Ok(())
    }

    pub(super) async fn server(&self) -> anyhow::Result<Server> {
        let query = "select current_setting('server_version'), current_setting('fsync'),
            current_setting('synchronous_commit'), current_setting('shared_buffers')";
        let row = sqlx::query(query).fetch_one(&mut *self.eye.lock().await).await?;
        Ok(Server {
            version: row.try_get(0)?,
            fsync: row.try_get(1)?,
            synchronous_commit: row.try_get(2)?,
            shared_buffers: row.try_get(3)?,
        })
    }

    /// Leaves nothing behind.
    pub(super) async fn close(self) {
        let drop = format!("drop schema {} cascade", self.schema);
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut self.eye.into_inner()).await {
            tracing::warn!("the benchmark's schema {} is still there: {error}", self.schema);
        }
    }
}
