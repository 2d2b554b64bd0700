//! A parked message as it is shown and exported.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncebox_core::Timestamp;
use oncebox_core::failure::Class;
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::admin::{Admin, PAGE};
use crate::error::Error;
use crate::meant::Matching;

/// A parked message with everything that is known of it. Written as JSON, it is one line of an export.
///
/// `Debug` leaves out payload and header values: a message may hold anything.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct ParkedView {
    /// Its number.
    pub row: i64,
    /// Whose it is.
    pub consumer: String,
    /// What its producer called it.
    pub id: Option<String>,
    /// Who produced it.
    pub source: Option<String>,
    /// What it says it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is found under.
    pub key: String,
    /// Later messages of this order key wait for it.
    pub order_key: Option<String>,
    /// The version of what it describes.
    pub version: Option<u64>,
    /// When it was made.
    #[serde(serialize_with = "time")]
    pub made_at: Timestamp,
    /// What it waits for.
    pub state: &'static str,
    /// When it is due.
    #[serde(serialize_with = "maybe_time")]
    pub due_at: Option<Timestamp>,
    /// The class of its failure.
    pub class: Option<&'static str>,
    /// What failures of one cause have in common.
    pub cause: String,
    /// Why it failed.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was parked first.
    #[serde(serialize_with = "time")]
    pub first_at: Timestamp,
    /// When it failed last.
    #[serde(serialize_with = "time")]
    pub last_at: Timestamp,
    /// What an operator wrote.
    pub note: Option<String>,
    /// The replay that revived it last.
    pub replay: Option<i64>,
    /// It was edited; the entry in the audit log that tells the difference.
    pub edited_by: Option<i64>,
    /// An earlier message of its order key is dead, and it waits for that one.
    pub is_held_up: bool,
    /// What travelled with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<(String, String)>>,
    /// How large its payload is.
    pub payload_bytes: usize,
    /// The payload, if it is JSON, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// The payload, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

impl ParkedView {
    pub(crate) fn new(row: &ParkedRow, consumer: &str) -> Self {
        let message = &row.message;
        let payload = json_line(&message.payload);
        let payload_base64 = payload.is_none().then(|| STANDARD.encode(&message.payload));
        Self {
            row: row.row,
            consumer: consumer.to_owned(),
            id: message.id.as_ref().map(|id| id.as_str().to_owned()),
            source: message.source.clone(),
            kind: message.kind.clone(),
            key: row.key.to_string(),
            order_key: row.order_key.clone(),
            version: message.version,
            made_at: message.time,
            state: row.state.name(),
            due_at: row.due_at,
            class: row.class.map(Class::name),
            cause: row.cause.as_str().to_owned(),
            reason: row.reason.clone(),
            attempts: row.attempts,
            first_at: row.first_at,
            last_at: row.last_at,
            note: row.note.clone(),
            replay: row.replay.map(|replay| replay.0),
            edited_by: row.supersedes,
            is_held_up: row.is_held_up,
            headers: Some(message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()),
            payload_bytes: message.payload.len(),
            payload,
            payload_base64,
        }
    }
}

impl ParkedView {
    /// Without what the message says: neither its headers nor its payload, only how large that is.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        self.headers = None;
        self.payload = None;
        self.payload_base64 = None;
        self
    }
}

impl std::fmt::Debug for ParkedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParkedView")
            .field("row", &self.row)
            .field("type", &self.kind)
            .field("state", &self.state)
            .field("cause", &self.cause)
            .field("payload_bytes", &self.payload_bytes)
            .finish_non_exhaustive()
    }
}

impl<S: QuarantineStore> Admin<S> {
    /// Messages in the order in which they were parked: up to `limit` of those that match, after the row `after` (0 to begin
    /// with). Reads no further than that.
    pub async fn list(&self, which: impl Into<Matching>, after: i64, limit: usize) -> Result<Vec<ParkedView>, Error> {
        let matching: Matching = which.into();
        let (mut after, mut listed) = (after, Vec::new());
        while listed.len() < limit {
            let page = self.page(matching.consumer.id, after).await?;
            let Some(last) = page.last() else { break };
            after = last.row;
            let found = page.iter().filter(|row| matching.includes(row)).take(limit - listed.len());
            listed.extend(found.map(|row| ParkedView::new(row, matching.consumer.name.as_str())));
            if page.len() < PAGE {
                break;
            }
        }
        Ok(listed)
    }

    /// One message.
    pub async fn show(&self, row: i64) -> Result<ParkedView, Error> {
        let mut tx = self.begin().await?;
        let found = tx.parked(row).await?;
        self.end(tx).await;
        let found = found.ok_or(Error::NoRow(row))?;
        let consumers = self.consumers().await?;
        let name = consumers.iter().find(|known| known.id == found.consumer).map_or("?", |known| known.name.as_str());
        Ok(ParkedView::new(&found, name))
    }
}

/// A payload that is JSON, without the line breaks that a producer put between its parts. Numbers and texts stay as
/// they were written.
pub(crate) fn json_line(payload: &[u8]) -> Option<Box<RawValue>> {
    let raw: &RawValue = serde_json::from_slice(payload).ok()?;
    if !raw.get().contains(['\n', '\r']) {
        return Some(raw.to_owned());
    }
    RawValue::from_string(compact(raw)).ok()
}

/// JSON without the blanks between its parts.
pub(crate) fn compact(raw: &RawValue) -> String {
    let mut line = String::with_capacity(raw.get().len());
    let (mut in_text, mut escaped) = (false, false);
    for c in raw.get().chars() {
        // Within a text JSON has no raw line breaks.
        if in_text || !matches!(c, ' ' | '\t' | '\n' | '\r') {
            line.push(c);
        }
        in_text = in_text != (c == '"' && !escaped);
        escaped = in_text && c == '\\' && !escaped;
    }
    line
}

pub(crate) fn time<Z: Serializer>(at: &Timestamp, serializer: Z) -> Result<Z::Ok, Z::Error> {
    serializer.collect_str(at)
}

pub(crate) fn maybe_time<Z: Serializer>(at: &Option<Timestamp>, serializer: Z) -> Result<Z::Ok, Z::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::json_line;

    #[test]
    fn json_becomes_one_line_and_nothing_else_changes() {
        let line = |payload: &str| json_line(payload.as_bytes()).map(|raw| raw.get().to_owned());
        let pretty = "{\n  \"a b\" : 12345678901234567890123.10,\r\n\t\"c\": \"x \\\" y \\\\\", \"d\": [ ]\n}";
        assert_eq!(line(pretty).as_deref(), Some(r#"{"a b":12345678901234567890123.10,"c":"x \" y \\","d":[]}"#));
        assert_eq!(line("{ \"a\": 1 }").as_deref(), Some("{ \"a\": 1 }"));
        assert_eq!(line("not json"), None);
    }
}
