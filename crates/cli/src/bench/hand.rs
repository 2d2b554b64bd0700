//! The same work as people write it by hand, with the same driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::Context;
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::setting::{BATCH, Credit, Setting};

/// One transaction per message: insert the key or skip, update, commit.
pub(super) async fn naive(setting: &Setting, connections: u16) -> anyhow::Result<f64> {
    let rows = setting.make_rows()?;
    let next = Arc::new(AtomicUsize::new(0));
    let connections = connect(setting, connections).await?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (rows, next) = (Arc::clone(&rows), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some((key, payload, _)) = rows.get(next.fetch_add(1, Relaxed)) {
                let credit: Credit = serde_json::from_slice(payload)?;
                let mut tx = connection.begin().await?;
                let fresh = sqlx::query("insert into hand_inbox values (1, $1) on conflict do nothing")
                    .bind(key)
                    .execute(&mut *tx)
                    .await?
                    .rows_affected();
                if fresh == 1 {
                    sqlx::query("update accounts set balance = balance + $1 where id = $2")
                        .bind(credit.amount)
                        .bind(credit.account)
                        .execute(&mut *tx)
                        .await?;
                }
                tx.commit().await?;
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(started.elapsed().as_secs_f64())
}

/// A hundred messages at a time, each connection with accounts of its own; with the claim, or without any dedup.
pub(super) async fn batched(setting: &Setting, claims: bool) -> anyhow::Result<f64> {
    let rows = setting.make_rows()?;
    let lanes = usize::from(setting.lanes);
    let mut shares: Vec<Vec<(Uuid, Vec<u8>)>> = vec![Vec::new(); lanes];
    for (key, payload, account) in rows.iter() {
        shares[usize::try_from(*account).unwrap_or(0) % lanes].push((*key, payload.clone()));
    }
    let connections = connect(setting, setting.lanes).await?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut connection, share) in connections.into_iter().zip(shares) {
        tasks.spawn(async move {
            for batch in share.chunks(BATCH) {
                apply(&mut connection, batch, claims).await?;
            }
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(started.elapsed().as_secs_f64())
}

async fn apply(connection: &mut PgConnection, batch: &[(Uuid, Vec<u8>)], claims: bool) -> anyhow::Result<()> {
    let credits = batch.iter().map(|(key, payload)| Ok((*key, serde_json::from_slice::<Credit>(payload)?)));
    let mut credits = credits.collect::<anyhow::Result<Vec<_>>>()?;
    credits.sort_unstable_by_key(|(key, _)| *key);
    let keys: Vec<Uuid> = credits.iter().map(|(key, _)| *key).collect();
    let mut tx = connection.begin().await?;
    if claims {
        let fresh: Vec<Uuid> = sqlx::query_scalar(
            "insert into hand_inbox select 1, * from unnest($1::uuid[]) on conflict do nothing returning key",
        )
        .bind(&keys)
        .fetch_all(&mut *tx)
        .await?;
        if fresh.len() < keys.len() {
            credits.retain(|(key, _)| fresh.contains(key));
        }
    }
    let (accounts, amounts): (Vec<i64>, Vec<i64>) =
        credits.iter().map(|(_, credit)| (credit.account, credit.amount)).unzip();
    super::ours::credit_all(&mut tx, &accounts, &amounts).await?;
    tx.commit().await?;
    Ok(())
}

async fn connect(setting: &Setting, connections: u16) -> anyhow::Result<Vec<PgConnection>> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(PgConnection::connect_with(&setting.options).await.context("cannot open a connection")?);
    }
    Ok(opened)
}

async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
