//! The outbox as operators see it: what is to be published, and what a broker refuses.

use oncebox_core::outbox::Outbox;
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::trail::{TrailOutbox, Trails, WhichOutbox};
use oncebox_core::{Store, Timestamp};
use serde::Serialize;
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, note_deed};
use crate::discard::Acted;
use crate::error::Error;
use crate::view::{maybe_time, time};

/// A row of the outbox, without what it says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutboxView {
    /// Its number.
    pub row: i64,
    /// How far it is: `unsent`, `behind`, `aside` or `sent`.
    pub state: &'static str,
    /// Where it goes.
    pub topic: String,
    /// The message's id.
    pub id: String,
    /// What it says it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its order key.
    pub order_key: Option<String>,
    /// When it was emitted.
    #[serde(serialize_with = "time")]
    pub emitted_at: Timestamp,
    /// When it was set aside or sent.
    #[serde(serialize_with = "maybe_time")]
    pub settled_at: Option<Timestamp>,
    /// Why the broker refused it.
    pub reason: Option<String>,
    /// How large its payload is.
    pub payload_bytes: u64,
}

impl OutboxView {
    pub(crate) fn new(row: TrailOutbox) -> Self {
        let state = row.state.name();
        let TrailOutbox { row, topic, id, kind, order_key, emitted_at, settled_at, reason, payload_bytes, .. } = row;
        Self { row, state, topic, id, kind, order_key, emitted_at, settled_at, reason, payload_bytes }
    }
}

/// How much there is to publish, and some of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutboxListing {
    /// Rows to publish, those that wait behind others included; counting stops at 100,000.
    pub unsent: u64,
    /// Rows that brokers refused.
    pub aside: u64,
    /// When the oldest unsent row was emitted.
    #[serde(serialize_with = "maybe_time")]
    pub oldest: Option<Timestamp>,
    /// The rows that were asked for.
    pub rows: Vec<OutboxView>,
}

/// Which rows to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichRows {
    /// Those that brokers refused.
    Aside,
    /// All that are not sent.
    NotSent,
}

/// What is done with rows that are set aside.
#[derive(Clone, Copy)]
enum Then {
    Retry,
    Skip,
}

impl<S: QuarantineStore + Store<Tx: Trails>> Admin<S> {
    /// How much there is to publish, and up to `limit` rows after the row `after` (0 to begin with), oldest first.
    pub async fn outbox(&self, which: WhichRows, after: i64, limit: usize) -> Result<OutboxListing, Error> {
        let mut tx = self.begin().await?;
        let backlog = tx.outbox_backlog().await?;
        let mut rows = Vec::new();
        match which {
            WhichRows::NotSent => rows = tx.trail_outbox(WhichOutbox::NotSentAfter(after), limit).await?,
            WhichRows::Aside => {
                for aside in tx.page_aside(after, limit).await? {
                    rows.extend(tx.trail_outbox(WhichOutbox::Row(aside.row), 1).await?);
                }
            }
        }
        self.end(tx).await;
        let rows = rows.into_iter().map(OutboxView::new).collect();
        Ok(OutboxListing { unsent: backlog.unsent, aside: backlog.aside, oldest: backlog.oldest, rows })
    }

    /// One row.
    pub async fn outbox_row(&self, row: i64) -> Result<OutboxView, Error> {
        let mut tx = self.begin().await?;
        let found = tx.trail_outbox(WhichOutbox::Row(row), 1).await?;
        self.end(tx).await;
        found.into_iter().next().map(OutboxView::new).ok_or(Error::NoOutboxRow(row))
    }

    /// Has rows that are set aside published again. Those that are not set aside are passed over.
    pub async fn retry_outbox(&self, rows: &[i64], actor: &Actor) -> Result<Acted, Error> {
        self.settle_aside(rows, Then::Retry, actor).await
    }

    /// Gives up rows that are set aside, for good: they are never published, and what waits behind them goes on. Those
    /// that are not set aside are passed over.
    pub async fn skip_outbox(&self, rows: &[i64], actor: &Actor) -> Result<Acted, Error> {
        self.settle_aside(rows, Then::Skip, actor).await
    }

    async fn settle_aside(&self, rows: &[i64], then: Then, actor: &Actor) -> Result<Acted, Error> {
        let mut tx = self.begin().await?;
        // What is gone can only be named in the audit log.
        let mut found = Vec::new();
        for row in rows {
            found.extend(tx.trail_outbox(WhichOutbox::Row(*row), 1).await?);
        }
        let (verb, done) = match then {
            Then::Retry => ("outbox.retry", tx.retry_aside(rows).await?),
            Then::Skip => ("outbox.skip", tx.skip_aside(rows).await?),
        };
        let acted = Acted::count(&done);
        if acted.done == 0 {
            self.end(tx).await;
            return Ok(acted);
        }
        let is_done = |row: i64| rows.iter().zip(&done).any(|(asked, done)| *asked == row && *done);
        let messages = found.iter().filter(|found| is_done(found.row));
        let messages =
            messages.map(|one| json!({ "row": one.row, "id": one.id, "type": one.kind, "topic": one.topic }));
        let detail = json!({ "messages": messages.collect::<Vec<_>>() });
        let deed = Deed { verb, consumer: None, replay: None, messages: acted.done, detail: &detail };
        note_deed(&mut tx, actor, deed).await?;
        self.commit(tx).await?;
        Ok(acted)
    }
}
