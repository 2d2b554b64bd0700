//! Discarding parked messages for good.

use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use serde::Serialize;
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, PAGE, note_deed};
use crate::error::Error;
use crate::meant::Meant;

/// How many messages an operation acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Acted {
    /// Done.
    pub done: u64,
    /// Passed over: somebody held it at that moment, or it was gone.
    pub passed_over: u64,
}

impl Acted {
    pub(crate) fn count(done: &[bool]) -> Self {
        let yes = done.iter().filter(|done| **done).count() as u64;
        Self { done: yes, passed_over: done.len() as u64 - yes }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.done += other.done;
        self.passed_over += other.passed_over;
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// Removes messages for good. The inbox remembers each as rejected with the reason, so that a redelivery is
    /// answered and not run. One that a handler is just applying is passed over.
    ///
    /// It goes page by page; where it fails half-way, what was discarded until then is in the audit log.
    pub async fn discard(&self, meant: &Meant, actor: &Actor) -> Result<Acted, Error> {
        let reason = format!("discarded by an operator: {}", actor.why());
        let mut acted = Acted::default();
        let mut after = 0;
        loop {
            let mut tx = self.begin().await?;
            let page = tx.page(meant.consumer.id, after, PAGE).await?;
            let Some(last) = page.last().filter(|_| after < meant.until) else { return Ok(acted) };
            after = last.row;
            let chosen: Vec<&ParkedRow> = page.iter().filter(|row| meant.includes(row)).collect();
            if chosen.is_empty() {
                continue;
            }
            let rows: Vec<i64> = chosen.iter().map(|row| row.row).collect();
            let done = tx.discard(&rows, &reason).await?;
            let step = Acted::count(&done);
            // What is gone can only be named here: by its row, its id and its type.
            let gone = chosen.iter().zip(&done).filter(|(_, done)| **done).map(|(row, _)| {
                let id = row.message.id.as_ref().map(|id| id.as_str());
                json!({ "row": row.row, "id": id, "type": row.message.kind })
            });
            let gone: Vec<serde_json::Value> = gone.collect();
            let detail = json!({ "filter": meant.filter.to_string(), "messages": gone });
            let (consumer, messages) = (Some(meant.consumer.id), step.done);
            let deed = Deed { verb: "parked.discard", consumer, replay: None, messages, detail: &detail };
            note_deed(&mut tx, actor, deed).await?;
            self.commit(tx).await?;
            acted.add(step);
        }
    }
}
