//! The same work as people write it by hand, with the same driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use oncebox::{Clock, SystemClock, Timestamp};
use sqlx::types::Uuid;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::BATCH;
use super::database::{Database, Statements};
use super::load::{Latencies, Latency, Pace};
use super::work::{Credit, Row, Work, rows};

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub(super) messages: u64,
    pub(super) commits: u64,
    pub(super) seconds: f64,
}

impl Took {
    pub(super) fn per_second(self) -> f64 {
        self.messages as f64 / self.seconds
    }
}

/// How a hundred messages, or one, are handled in a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
    /// One transaction per message: insert the key or skip, update, commit.
    Single,
    /// The claim and the update of a batch, each one statement.
    Batched,
    /// The same without the claim.
    Bare,
}

/// One transaction per message, whoever is free takes the next.
pub(super) async fn naive<D: Database, W: Work>(db: &D, count: u32, connections: u16) -> anyhow::Result<Took> {
    let (rows, next) = (Arc::new(rows::<W>(0..count)?), Arc::new(AtomicUsize::new(0)));
    let connections = connect(db, connections).await?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (rows, next) = (Arc::clone(&rows), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(row) = rows.get(next.fetch_add(1, Relaxed)) {
                single::<W>(&mut connection, row).await?;
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(Took { messages: count.into(), commits: count.into(), seconds: started.elapsed().as_secs_f64() })
}

/// A hundred messages at a time, each connection with accounts of its own.
pub(super) async fn batched<D: Database>(db: &D, count: u32, lanes: u16, style: Style) -> anyhow::Result<Took> {
    let lanes = D::writers(lanes);
    let mut shares: Vec<Vec<Row>> = vec![Vec::new(); lanes.into()];
    for row in rows::<Credit>(0..count)? {
        shares[row.place % usize::from(lanes)].push(row);
    }
    let connections = connect(db, lanes).await?;
    let commits = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut connection, share) in connections.into_iter().zip(shares) {
        let commits = Arc::clone(&commits);
        tasks.spawn(async move {
            for batch in share.chunks(BATCH) {
                apply(&mut connection, batch, style).await?;
                commits.fetch_add(1, Relaxed);
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(Took { messages: count.into(), commits: commits.load(Relaxed), seconds: started.elapsed().as_secs_f64() })
}

/// The same while messages arrive evenly: each connection takes what waits, at most one or a batch.
pub(super) async fn paced<D: Database, W: Work>(
    db: &D,
    pace: Pace,
    connections: u16,
    style: Style,
) -> anyhow::Result<Option<Latency>> {
    let (connections, feeds, max) = match style {
        Style::Single => (connections, 1, 1),
        Style::Batched | Style::Bare => (D::writers(connections), D::writers(connections), BATCH),
    };
    let rows = rows::<W>(0..pace.messages)?;
    let latencies = Latencies::default();
    let (outlets, feeds): (Vec<_>, Vec<_>) = (0..feeds).map(|_| mpsc::unbounded_channel::<(Timestamp, Row)>()).unzip();
    let feeds: Vec<_> = feeds.into_iter().map(|feed| Arc::new(Mutex::new(feed))).collect();
    let mut tasks = JoinSet::new();
    for (number, mut connection) in connect(db, connections).await?.into_iter().enumerate() {
        let (feed, latencies) = (Arc::clone(&feeds[number % feeds.len()]), latencies.clone());
        tasks.spawn(async move {
            let mut waiting = Vec::with_capacity(max);
            while feed.lock().await.recv_many(&mut waiting, max).await > 0 {
                let (queued_at, batch): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
                match (style, &batch[..]) {
                    (Style::Single, [row]) => single::<W>(&mut connection, row).await?,
                    (_, batch) => apply(&mut connection, batch, style).await?,
                }
                latencies.add(queued_at);
            }
            anyhow::Ok(())
        });
    }
    let mut rows = rows.into_iter();
    pace.run(|numbers| {
        let now = SystemClock.now();
        for row in rows.by_ref().take(numbers.len()) {
            // Nobody hangs up before the last one, unless it failed: then joining says why.
            let _ = outlets[row.place % outlets.len()].send((now, row));
        }
    })
    .await;
    drop(outlets);
    join(tasks).await?;
    Ok(latencies.summary(pace.per_second))
}

async fn single<W: Work>(connection: &mut impl Statements, row: &Row) -> anyhow::Result<()> {
    let work: W = serde_json::from_slice(&row.payload)?;
    connection.begin().await?;
    if connection.claim(row.key).await? {
        work.apply(connection).await?;
    }
    connection.commit().await?;
    Ok(())
}

async fn apply(connection: &mut impl Statements, batch: &[Row], style: Style) -> anyhow::Result<()> {
    let credits = batch.iter().map(|row| Ok((row.key, serde_json::from_slice::<Credit>(&row.payload)?)));
    let mut credits = credits.collect::<anyhow::Result<Vec<_>>>()?;
    credits.sort_unstable_by_key(|(key, _)| *key);
    connection.begin().await?;
    if matches!(style, Style::Batched) {
        let keys: Vec<Uuid> = credits.iter().map(|(key, _)| *key).collect();
        let fresh = connection.claim_all(&keys).await?;
        if fresh.len() < keys.len() {
            credits.retain(|(key, _)| fresh.contains(key));
        }
    }
    let (accounts, amounts): (Vec<i64>, Vec<i64>) =
        credits.iter().map(|(_, credit)| (credit.account, credit.amount)).unzip();
    connection.credit_all(&accounts, &amounts).await?;
    connection.commit().await?;
    Ok(())
}

/// Connections that have run every statement once, as ours have after their first message.
async fn connect<D: Database>(db: &D, connections: u16) -> anyhow::Result<Vec<D::Connection>> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        let mut connection = db.connect().await?;
        connection.begin().await?;
        connection.claim(Uuid::nil()).await?;
        connection.claim_all(&[Uuid::nil()]).await?;
        connection.credit(0, 0).await?;
        connection.credit_all(&[0], &[0]).await?;
        connection.rollback().await?;
        opened.push(connection);
    }
    Ok(opened)
}

async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
