//! Failures grouped by cause.

use std::collections::HashMap;

use oncebox_core::Timestamp;
use oncebox_core::parked::Cause;
use oncebox_core::quarantine::{CauseCount, Quarantine, QuarantineStore};

use serde::Serialize;

use crate::admin::Admin;
use crate::error::Error;
use crate::meant::Matching;
use crate::view::time;

/// Messages that failed for one cause: a class, a type, and the code or the words of the error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// The cause, the same after a restart; `cause = "…"` in a filter finds its messages.
    pub cause: String,
    /// How many are parked.
    pub messages: u64,
    /// How many of them wait for a person.
    pub dead: u64,
    /// When the first of them was parked.
    #[serde(serialize_with = "time")]
    pub first_at: Timestamp,
    /// When one of them failed last.
    #[serde(serialize_with = "time")]
    pub last_at: Timestamp,
}

impl<S: QuarantineStore> Admin<S> {
    /// Messages grouped by cause, the largest group first. Without a filter the store counts; with one, all messages
    /// are read.
    pub async fn groups(&self, which: impl Into<Matching>) -> Result<Vec<Group>, Error> {
        let matching: Matching = which.into();
        let counts = if matching.filter.is_all() {
            let mut tx = self.begin().await?;
            let counts = tx.causes(matching.consumer.id).await?;
            self.end(tx).await;
            counts
        } else {
            self.count_causes(&matching).await?
        };
        let group = |count: CauseCount| {
            let CauseCount { cause, messages, dead, first_at, last_at } = count;
            Group { cause: cause.as_str().to_owned(), messages, dead, first_at, last_at }
        };
        Ok(counts.into_iter().map(group).collect())
    }

    async fn count_causes(&self, matching: &Matching) -> Result<Vec<CauseCount>, Error> {
        let mut counts: HashMap<Cause, CauseCount> = HashMap::new();
        let mut after = 0;
        loop {
            let page = self.page(matching.consumer.id, after).await?;
            let Some(last) = page.last() else { break };
            after = last.row;
            for row in page.iter().filter(|row| matching.includes(row)) {
                let (first_at, last_at) = (row.first_at, row.last_at);
                let new = || CauseCount { cause: row.cause.clone(), messages: 0, dead: 0, first_at, last_at };
                let count = counts.entry(row.cause.clone()).or_insert_with(new);
                count.messages += 1;
                count.dead += u64::from(row.is_dead());
                count.first_at = count.first_at.min(first_at);
                count.last_at = count.last_at.max(last_at);
            }
        }
        let mut counts: Vec<CauseCount> = counts.into_values().collect();
        counts.sort_by(|a, b| b.messages.cmp(&a.messages).then_with(|| a.cause.cmp(&b.cause)));
        Ok(counts)
    }
}
