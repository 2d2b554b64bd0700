//! Edit and replay: a new message takes the place of the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oncebox_core::archive::Archives;
use oncebox_core::horizon::is_forgotten;
use oncebox_core::parked::{Cause, Park, Verdict, Waits};
use oncebox_core::quarantine::{ParkedRow, Quarantine, QuarantineStore, Superseded};
use oncebox_core::{Message, MessageId};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::actor::Actor;
use crate::admin::{Admin, Deed, note_deed};
use crate::error::Error;
use crate::view::{compact, json_line};

/// The header that names the message which an edited one supersedes.
const SUPERSEDES: &str = "oncebox-supersedes";

/// What becomes of a message once it is edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEdit {
    /// It stays dead, to be looked at or replayed with others.
    Stay,
    /// It is due at once.
    Replay,
}

/// What an edit made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Edited {
    /// The row, which is the same.
    pub row: i64,
    /// The id of the new message.
    pub id: String,
    /// The id of the one that it supersedes.
    pub supersedes: Option<String>,
    /// The entry in the audit log that keeps the old payload and the difference.
    pub audit: i64,
    /// The paths at which the payloads differ.
    pub changed: Vec<String>,
}

impl<S: QuarantineStore> Admin<S> {
    /// Replaces the payload of a dead message, which makes it a new message with an id of its own. It keeps its place
    /// in the order of its key. A redelivery of the old one is answered as rejected and not run. The old payload and the
    /// difference are kept in the audit log.
    pub async fn edit(&self, row: i64, payload: &[u8], then: AfterEdit, actor: &Actor) -> Result<Edited, Error> {
        let after: &RawValue = serde_json::from_slice(payload).map_err(|error| Error::NotJson {
            row,
            line: error.line(),
            column: error.column(),
        })?;
        let mut tx = self.begin().await?;
        let old = tx.parked(row).await?.ok_or(Error::NoRow(row))?;
        if !old.is_dead() {
            return Err(Error::NotDead { verb: "edit", row });
        }
        let limits = Self::limits(&mut tx, old.consumer).await?;
        if let Some(checkpoint) = limits.checkpoint.filter(|checkpoint| old.message.time < *checkpoint) {
            return Err(Error::BeforeCheckpoint { row, made_at: old.message.time, checkpoint });
        }
        let message = self.edited(&old.message, payload);
        let park = self.identified(&old, message)?;
        if is_forgotten(park.message.time, limits.horizon) {
            // There is no record to find it by, and the archive knows that there was one.
            let archived = tx.archived(old.consumer, std::slice::from_ref(&park.key)).await?;
            let shares = !limits.has_lost_its_own(park.message.time);
            if archived.iter().flatten().any(|at| at.consumer == old.consumer || shares) {
                return Err(Error::KeyTaken { row });
            }
        }
        let difference = difference(&old.message.payload, after);
        let id = park.message.id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default();
        let supersedes = old.message.id.as_ref().map(|id| id.as_str().to_owned());
        let before = json_line(&old.message.payload);
        let detail = Detail {
            row,
            id: &id,
            supersedes: supersedes.as_deref(),
            key: old.key.to_string(),
            new_key: park.key.to_string(),
            before_base64: before.is_none().then(|| STANDARD.encode(&old.message.payload)),
            before,
            difference: &difference,
        };
        let detail = serde_json::to_string(&detail).map_err(|_| Error::NotJson { row, line: 1, column: 1 })?;
        let deed =
            Deed { verb: "parked.edit", consumer: Some(old.consumer), replay: None, messages: 1, detail: &detail };
        let audit = note_deed(&mut tx, actor, deed).await?;
        let reason = format!("superseded by message {}", park.message.label());
        match tx.supersede(row, &park, audit, &reason).await? {
            Superseded::Done => {}
            Superseded::Refused => return Err(Error::NotDead { verb: "edit", row }),
            Superseded::Taken => return Err(Error::KeyTaken { row }),
        }
        if then == AfterEdit::Replay {
            tx.revive(&[row], None).await?;
        }
        self.commit(tx).await?;
        let changed = difference.into_iter().map(|change| change.path).collect();
        Ok(Edited { row, id, supersedes, audit, changed })
    }

    /// The new message: another id and payload, and a header that leads back to the old one.
    fn edited(&self, old: &Message, payload: &[u8]) -> Message {
        let mut message = old.clone();
        message.payload = Bytes::copy_from_slice(payload);
        message.id = Some(MessageId::from(self.clock.id()));
        if let Some(id) = &old.id {
            // An id with control characters can't be a header; the audit log has it all the same.
            let _ = message.headers.add(SUPERSEDES, id.as_str());
        }
        message
    }

    /// What the new message is found under, made as its consumer makes it.
    fn identified(&self, old: &ParkedRow, message: Message) -> Result<Park, Error> {
        let row = old.row;
        if old.owns_record && (self.identify)(&old.message).map_or(true, |(key, _)| key != old.key) {
            return Err(Error::OtherIdentity { row });
        }
        let (key, fingerprint) = (self.identify)(&message).map_err(|source| Error::NoKey { row, source })?;
        Ok(Park {
            consumer: old.consumer,
            message: Arc::new(message),
            key,
            fingerprint,
            owns_record: true,
            order_key: old.order_key.clone(),
            verdict: Verdict {
                waits: Waits::Person,
                class: old.class,
                cause: Cause::from_stored(old.cause.as_str()),
                reason: old.reason.clone(),
                attempts: old.attempts,
            },
        })
    }
}

/// What the audit log keeps of an edit. Payloads stand in it as they were written: a number that went through a float
/// would no longer be the one that was replaced.
#[derive(Serialize)]
struct Detail<'d> {
    row: i64,
    id: &'d str,
    supersedes: Option<&'d str>,
    key: String,
    new_key: String,
    before: Option<Box<RawValue>>,
    before_base64: Option<String>,
    difference: &'d [Change],
}

/// A leaf at which two payloads differ.
#[derive(Debug, Serialize)]
struct Change {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Box<RawValue>>,
}

/// Objects that are nested deeper are compared as a whole.
const DEPTH_MAX: usize = 64;

/// Where two payloads differ, leaf by leaf, with what stood there and what stands there.
fn difference(before: &[u8], after: &RawValue) -> Vec<Change> {
    let mut changes = Vec::new();
    match serde_json::from_slice::<&RawValue>(before) {
        Ok(before) => compare("", before, after, DEPTH_MAX, &mut changes),
        Err(_) => changes.push(Change { path: String::new(), before: None, after: Some(after.to_owned()) }),
    }
    changes
}

fn compare(path: &str, before: &RawValue, after: &RawValue, depth: usize, changes: &mut Vec<Change>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let fields = |value: &RawValue| -> Option<BTreeMap<String, Box<RawValue>>> {
        (depth > 0).then(|| serde_json::from_str(value.get()).ok()).flatten()
    };
    let (Some(old), Some(mut new)) = (fields(before), fields(after)) else {
        if compact(before) != compact(after) {
            let (before, after) = (Some(before.to_owned()), Some(after.to_owned()));
            changes.push(Change { path: path.to_owned(), before, after });
        }
        return;
    };
    for (name, value) in old {
        match new.remove(&name) {
            Some(other) => compare(&below(&name), &value, &other, depth - 1, changes),
            None => changes.push(Change { path: below(&name), before: Some(value), after: None }),
        }
    }
    changes.extend(new.into_iter().map(|(name, value)| Change {
        path: below(&name),
        before: None,
        after: Some(value),
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(before: &str, after: &str) -> String {
        let after: &RawValue = serde_json::from_str(after).unwrap();
        serde_json::to_string(&difference(before.as_bytes(), after)).unwrap()
    }

    #[test]
    fn a_difference_names_each_leaf_that_changed() {
        let before = r#"{"amount":1,"card":{"no":"4","pin":1},"same":[1,2]}"#;
        let after = r#"{"amount":2,"card":{"no":"4","cvc":3},"same":[1, 2]}"#;
        assert_eq!(
            differ(before, after),
            r#"[{"path":"amount","before":1,"after":2},{"path":"card.pin","before":1},{"path":"card.cvc","after":3}]"#
        );
        assert_eq!(differ("not json", "1"), r#"[{"path":"","after":1}]"#);
        assert_eq!(differ(before, before), "[]");
    }

    #[test]
    fn a_difference_keeps_every_digit() {
        assert_eq!(
            differ(r#"{"amount":123456789012345678.91}"#, r#"{"amount":123456789012345678.92}"#),
            r#"[{"path":"amount","before":123456789012345678.91,"after":123456789012345678.92}]"#
        );
    }

    #[test]
    fn a_payload_that_is_nested_deeply_has_a_difference_too() {
        let deep = |leaf: &str| format!(r#"{}{leaf}{}"#, r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
        let found = differ(&deep("1"), &deep("2"));
        assert!(found.contains(&"a.".repeat(DEPTH_MAX - 1)) && found.contains("\"after\""));
        assert_eq!(differ(&deep("1"), &deep("1")), "[]");
    }
}
