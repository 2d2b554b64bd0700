//! Transactions that write and emit, several at a time: some are rolled back after they have emitted, some stay open while
//! later ones commit, so that their row has an old number when it appears.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Context;
use oncebox::postgres::{Emitter, PostgresDialect};
use oncebox::{Message, MessageId, Outgoing};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinSet;

use super::tables::{self, Forwarded, KEYS};
use crate::feed::{Order, Role};
use crate::generator::Demand;
use crate::place::{self, Place};

/// Transactions at a time.
const WRITERS: u64 = 6;

/// Writes more when fewer than this many rows wait.
const LOW_WATER: u64 = 250;

const PAUSE: Duration = Duration::from_millis(10);

/// How long a late one stays open, in milliseconds.
const LATE: std::ops::Range<u64> = 150..600;

pub(super) async fn write(place: Place, topic: String, demand: Arc<Demand>, seed: u64) -> anyhow::Result<()> {
    let Place::Postgres { url, schema } = &place else { anyhow::bail!("the writer needs PostgreSQL") };
    let emitter = place::postgres(url, schema).await?.emitter();
    let numbers: Arc<AtomicU64> = Arc::default();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let options: PgConnectOptions = url.parse().ok().context("cannot read the PostgreSQL URL")?;
        let one = One {
            db: PgConnection::connect_with(&options).await.context("cannot reach PostgreSQL")?,
            emitter: emitter.clone(),
            place: place.clone(),
            topic: topic.clone(),
            random: fastrand::Rng::with_seed(seed.wrapping_mul(WRITERS).wrapping_add(writer)),
        };
        writers.spawn(one.run(Arc::clone(&demand), Arc::clone(&numbers)));
    }
    while let Some(ended) = writers.join_next().await {
        ended.context("a writer broke down")??;
    }
    Ok(())
}

struct One {
    db: PgConnection,
    emitter: Emitter<PostgresDialect>,
    place: Place,
    topic: String,
    random: fastrand::Rng,
}

impl One {
    async fn run(mut self, demand: Arc<Demand>, numbers: Arc<AtomicU64>) -> anyhow::Result<()> {
        while !demand.enough.load(SeqCst) {
            if demand.backlog.load(SeqCst) >= LOW_WATER {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            self.transaction(numbers.fetch_add(1, SeqCst)).await?;
            demand.made.fetch_add(1, SeqCst);
            tokio::time::sleep(PAUSE).await;
        }
        self.db.close().await.context("cannot close a connection")
    }

    async fn transaction(&mut self, n: u64) -> anyhow::Result<()> {
        let key = self.random.u64(0..KEYS);
        let (token, fate) = (self.random.i64(0..i64::MAX), self.random.u8(..20));
        let late = Duration::from_millis(self.random.u64(LATE));
        let mut tx = self.db.begin().await?;
        // Locks the key, so that whoever emits under it next has a later number.
        let count =
            format!("update {} set total = total + 1 where key = {key} returning total", tables::totals(&self.place));
        let seq: i64 = sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut *tx).await?;
        let order = Order { n, key, seq: seq as u64, id: format!("order-{n}"), role: Role::Plain, late: false };
        let insert = tables::insert(&tables::first(&self.place), &order, token);
        sqlx::query(AssertSqlSafe(insert)).execute(&mut *tx).await?;
        let message = Message::new("forwarded")
            .with_id(MessageId::new(format!("written-{token}"))?)
            .with_order_key(key.to_string())
            .with_json(&Forwarded { order, token })?;
        let outgoing = Outgoing { topic: self.topic.clone(), message: message.into() };
        self.emitter.emit(&mut tx, &[outgoing]).await?;
        match fate {
            0 | 1 => return tx.rollback().await.context("cannot roll back"),
            2 => tokio::time::sleep(late).await,
            _ => {}
        }
        tx.commit().await.context("cannot commit")
    }
}
