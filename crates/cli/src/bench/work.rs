//! What messages ask for, and the messages themselves.

use std::future::Future;

use oncebox::{Clock, Message, MessageId, SystemClock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::types::Uuid;

use super::database::{Keys, Statements};

/// A kind of message that every variant can handle.
pub(super) trait Work: Serialize + DeserializeOwned + Send + 'static {
    /// How many accounts there are.
    const ACCOUNTS: i64;

    /// What the message of this number says.
    fn number(n: u32) -> Self;

    /// What one message adds to the sum of all accounts.
    const ADDS: i64;

    /// Messages that share it are handled by one connection where work is partitioned.
    fn order_key(&self) -> Option<String>;

    fn apply(&self, db: &mut impl Statements) -> impl Future<Output = sqlx::Result<()>> + Send;
}

/// Credits one account of ten thousand. Partitioned by account, so lanes never meet.
#[derive(Clone, Debug, serde::Deserialize, Serialize)]
pub(super) struct Credit {
    pub(super) account: i64,
    pub(super) amount: i64,
}

impl Work for Credit {
    const ACCOUNTS: i64 = 10_000;
    const ADDS: i64 = 1;

    fn number(n: u32) -> Self {
        Self { account: i64::from(n).wrapping_mul(7_919) % Self::ACCOUNTS, amount: 1 }
    }

    fn order_key(&self) -> Option<String> {
        Some(self.account.to_string())
    }

    async fn apply(&self, db: &mut impl Statements) -> sqlx::Result<()> {
        db.credit(self.account, self.amount).await
    }
}

/// Credits two random accounts of a hundred, partitioned by nothing: transactions meet on the same rows.
///
/// Each message names its accounts in ascending order, as careful people write it. So one message per transaction never
/// deadlocks, and whoever puts several into one transaction has only himself to blame.
#[derive(Clone, Debug, serde::Deserialize, Serialize)]
pub(super) struct HotPair {
    first: i64,
    second: i64,
}

impl Work for HotPair {
    const ACCOUNTS: i64 = 100;
    const ADDS: i64 = 2;

    fn number(n: u32) -> Self {
        let mut dice = fastrand::Rng::with_seed(n.into());
        let (a, b) = (dice.i64(0..Self::ACCOUNTS), dice.i64(0..Self::ACCOUNTS));
        Self { first: a.min(b), second: a.max(b) }
    }

    fn order_key(&self) -> Option<String> {
        None
    }

    async fn apply(&self, db: &mut impl Statements) -> sqlx::Result<()> {
        db.credit(self.first, 1).await?;
        db.credit(self.second, 1).await
    }
}

/// A message as it is handed to hand-written variants: like ours, its payload is still encoded.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Uuid,
    pub(super) payload: Vec<u8>,
    /// What decides the connection, where work is partitioned.
    pub(super) place: usize,
}

/// Fresh messages for hand-written variants.
pub(super) fn rows<W: Work>(numbers: std::ops::Range<u32>) -> anyhow::Result<Vec<Row>> {
    let row = |n| {
        let work = W::number(n);
        let place = work.order_key().map_or(0, |key| key.parse().unwrap_or(0));
        anyhow::Ok(Row { key: SystemClock.id(), payload: serde_json::to_vec(&work)?, place })
    };
    numbers.map(row).collect()
}

/// The same for ours.
pub(super) fn messages<W: Work>(numbers: std::ops::Range<u32>, keys: Keys) -> anyhow::Result<Vec<Message>> {
    let message = |n| {
        let work = W::number(n);
        let mut message = Message::made_by(&SystemClock, "work").with_json(&work)?;
        message.order_key = work.order_key();
        if keys == Keys::Random {
            let (high, low) = (SystemClock.random(), SystemClock.random());
            message.id = Some(MessageId::from(Uuid::from_u64_pair(high, low)));
        }
        anyhow::Ok(message)
    };
    numbers.map(message).collect()
}
