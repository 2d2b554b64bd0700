//! Notes on parked messages.

use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use serde_json::json;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, PAGE, note_deed};
use crate::discard::Acted;
use crate::error::Error;
use crate::meant::Meant;

/// The longest note that is kept, in characters.
pub(crate) const NOTE_CHARS_MAX: usize = 1000;

impl<S: QuarantineStore> Admin<S> {
    /// Writes a note on messages, or takes it away.
    pub async fn note(&self, meant: &Meant, note: Option<&str>, actor: &Actor) -> Result<Acted, Error> {
        let length = note.map_or(0, |note| note.chars().count());
        if length > NOTE_CHARS_MAX {
            return Err(Error::NoteTooLong(length));
        }
        let mut acted = Acted::default();
        let mut after = 0;
        loop {
            let mut tx = self.begin().await?;
            let page = tx.page(meant.consumer.id, after, PAGE).await?;
            let Some(last) = page.last().filter(|_| after < meant.until) else { return Ok(acted) };
            after = last.row;
            let chosen: Vec<&ParkedRow> = page.iter().filter(|row| meant.includes(row)).collect();
            let rows: Vec<i64> = chosen.iter().map(|row| row.row).collect();
            if rows.is_empty() {
                continue;
            }
            let done = tx.annotate(&rows, note).await?;
            let step = Acted::count(&done);
            // By their ids they are known when the rows are gone.
            let messages = chosen.iter().map(|row| {
                let id = row.message.id.as_ref().map(|id| id.as_str());
                json!({ "row": row.row, "id": id, "type": row.message.kind })
            });
            let messages: Vec<serde_json::Value> = messages.collect();
            let filter = meant.filter.to_string();
            let detail = json!({ "filter": filter, "rows": rows, "note": note, "messages": messages });
            let (consumer, messages) = (Some(meant.consumer.id), step.done);
            let deed = Deed { verb: "parked.note", consumer, replay: None, messages, detail: &detail };
            note_deed(&mut tx, actor, deed).await?;
            self.commit(tx).await?;
            acted.add(step);
        }
    }
}
