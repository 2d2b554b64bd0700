//! An operator: revives what is dead, while consumers run and copies come, and all of it at the end.

use std::time::Duration;

use anyhow::Context as _;
use oncebox::postgres::Postgres;
use oncebox::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use oncebox::sqlite::Sqlite;
use oncebox::store::{Ended, Session, Transaction};
use oncebox::{ConsumerName, StoreError};

use crate::place::{self, NAME, Place};

/// The store, from the side of a person.
pub(crate) enum Operator {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// How long their statements wait for a lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// More than are ever dead at a time.
const ALL: usize = 10_000;

impl Operator {
    pub(crate) async fn new(place: &Place) -> anyhow::Result<Self> {
        Ok(match place {
            Place::Sqlite { path } => Self::Sqlite(place::sqlite(path).await?),
            Place::Postgres { url, schema } => Self::Postgres(place::postgres(url, schema).await?),
        })
    }

    /// Revives what is dead, each row if `chosen` says so. A store that is away is looked at again later.
    pub(crate) async fn revive(&self, chosen: impl FnMut() -> bool + Send) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(store) => revive(store, chosen).await,
            Self::Postgres(store) => revive(store, chosen).await,
        }
        .context("an operator cannot revive what is dead")
    }
}

async fn revive<S: QuarantineStore>(store: &S, mut chosen: impl FnMut() -> bool + Send) -> Result<(), StoreError>
where
    S::Tx: Quarantine,
{
    let Ok(name) = ConsumerName::new(NAME) else { return Ok(()) };
    let consumer = store.consumer(&name).await?;
    let mut tx = store.connect().await?.begin(LOCK_WAIT).await?;
    let dead = tx.page(consumer, 0, ALL).await?;
    let rows: Vec<i64> = dead.iter().filter(|row| row.is_dead() && chosen()).map(|row: &ParkedRow| row.row).collect();
    if rows.is_empty() {
        tx.rollback().await;
        return Ok(());
    }
    tx.revive(&rows, None).await?;
    match tx.commit().await {
        Ended::Committed(_) => Ok(()),
        Ended::RolledBack { error, .. } | Ended::Unknown { error, .. } => Err(error),
    }
}
