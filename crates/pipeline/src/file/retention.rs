//! How long a consumer keeps its records, and what it has to outlast.

use std::time::Duration;

use oncebox::horizon::RETENTION_MIN;
use oncebox::retention::{ArchiveKept, JOURNAL_KEPT, RETENTION_MONEY};

use super::duration;
use super::table::Table;

/// How long records are kept, as the file says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionSpec {
    /// How long; absent: as long as it takes, a week at least.
    pub kept: Option<Duration>,
    /// How long the broker keeps messages, where it can't be asked or should not be.
    pub broker: Option<Duration>,
    /// How far back anyone rewinds or replays.
    pub replay_within: Option<Duration>,
    /// How long the business may come back to a message.
    pub lifetime: Option<Duration>,
    /// How long records must be there for an audit.
    pub audit_minimum: Option<Duration>,
    /// For how long the keys of records that are gone stay in the archive; absent: they are not archived.
    pub archive: Option<ArchiveKept>,
    /// A retention that is too short is meant.
    pub is_unsafe: bool,
    /// Where it stands in the file.
    pub line: usize,
}

pub(super) fn read(table: &Table<'_>) -> RetentionSpec {
    let duration = |name| table.field(name).and_then(|field| field.duration());
    let mut spec = RetentionSpec {
        broker: duration("broker_retention"),
        replay_within: duration("replay_within"),
        lifetime: duration("lifetime"),
        audit_minimum: duration("audit_minimum"),
        archive: archive(table),
        is_unsafe: table.field("retention_unsafe").and_then(|field| field.boolean()).unwrap_or(false),
        kept: None,
        line: table.line,
    };
    if let Some(field) = table.field("retention") {
        spec.line = field.line;
        spec.kept = field.read(|text| match text {
            "money" => Ok(RETENTION_MONEY),
            text => match duration::parse(text)? {
                short if short < RETENTION_MIN => {
                    Err(format!("`{text}` is too short: records are kept for an hour at least"))
                }
                kept => Ok(kept),
            },
        });
    }
    spec
}

/// `journal = true` for a week, or for as long as `journal_for` says.
pub(super) fn journal(table: &Table<'_>) -> Option<Duration> {
    let is_kept = table.field("journal").and_then(|field| field.boolean()).unwrap_or(false);
    let field = table.field("journal_for");
    let kept = field.as_ref().and_then(|field| {
        field.read(|text| match duration::parse(text)? {
            short if short < RETENTION_MIN => {
                Err(format!("`{text}` is too short: a journal is kept for an hour at least"))
            }
            kept => Ok(kept),
        })
    });
    if let Some(field) = field.filter(|_| !is_kept) {
        table.mistake_at(field.line, "`journal_for` in [[consumer]] needs `journal = true`".to_owned());
    }
    is_kept.then(|| kept.unwrap_or(JOURNAL_KEPT))
}

/// `archive_keys = true` for ever, or for as long as `archive_for` says.
fn archive(table: &Table<'_>) -> Option<ArchiveKept> {
    let keys = table.field("archive_keys").and_then(|field| field.boolean()).unwrap_or(false);
    let field = table.field("archive_for");
    let kept = field.as_ref().and_then(|field| field.duration());
    if let Some(field) = field.filter(|_| !keys) {
        table.mistake_at(field.line, "`archive_for` in [[consumer]] needs `archive_keys = true`".to_owned());
    }
    keys.then(|| kept.map_or(ArchiveKept::ForEver, ArchiveKept::For))
}
