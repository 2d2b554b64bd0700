//! What is the same on every store.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox::horizon::CLOCKS_DIFFER;
use oncebox::sqlite::SchemaState;
use oncebox::{
    ClaimRequest, ConsumerId, Fingerprint, Inbox as _, Key, Session as _, Store, StoreError, StoreErrorKind, Timestamp,
    Transaction as _,
};

use super::finding::{Finding, Severity};

/// How long a look may wait for someone's lock.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// An id that no consumer has.
const NOBODY: ConsumerId = ConsumerId(i16::MIN);

/// Half of what the horizon bears.
const SKEW_MAX: Duration = Duration::from_secs(CLOCKS_DIFFER.as_secs() / 2);

/// A store that can't be worked on.
pub(super) fn unreachable(error: &StoreError) -> Finding {
    let fix = "check the address, the user, and that the store runs";
    Finding::new("store.unreachable", Severity::Error, "store", error.to_string(), fix)
}

/// Tries to write a record, and rolls back.
pub(super) async fn unwritable<S: Store>(store: &S) -> Option<Finding> {
    let tried = async {
        let mut tx = store.connect().await?.begin(LOCK_WAIT).await?;
        let id = store.capabilities().name;
        let key = Key::parts([&b"doctor"[..], id.as_bytes()]);
        let key = key.map_err(|error| StoreError::new(StoreErrorKind::Refused, "try to write", error.to_string()))?;
        // No consumer has this id.
        let request =
            ClaimRequest { consumer: NOBODY, key, fingerprint: Fingerprint::from_stored(0, 0), id_hash: None };
        let claimed = tx.claim(&[request]).await;
        tx.rollback().await;
        claimed
    };
    told(tried.await.err()?)
}

/// Why nothing can be written. Who only had to wait for others can write.
pub(super) fn told(error: StoreError) -> Option<Finding> {
    let fix = "let the user that runs Oncebox write there: everything that it does is a write";
    (error.kind() != StoreErrorKind::Contended)
        .then(|| Finding::new("store.unwritable", Severity::Error, "store", error.to_string(), fix))
}

/// Whether its tables, of which a look told what was applied and what is known, can be worked on; if not, says why.
pub(super) fn has_tables(looked: Result<SchemaState, StoreError>, found: &mut Vec<Finding>) -> bool {
    let wrong = match looked {
        Ok(state) => schema(state.applied, state.known).or_else(|| gone(&state.missing)),
        Err(error) => Some(unreachable(&error)),
    };
    let has_tables = wrong.is_none();
    found.extend(wrong);
    has_tables
}

/// The tables are older than this program.
fn schema(applied: i32, known: i32) -> Option<Finding> {
    if applied >= known {
        return None;
    }
    let evidence = format!("the tables are at version {applied}, and this program needs {known}");
    Some(Finding::new("store.schema", Severity::Error, "store", evidence, "run `oncebox schema up`"))
}

/// Tables that were made are not there.
fn gone(missing: &[String]) -> Option<Finding> {
    let evidence = format!("tables that are gone, though they were made: {}", missing.join(", "));
    let fix = "restore them from a backup, or make them anew, empty, with the statements of `oncebox schema print`";
    (!missing.is_empty()).then(|| Finding::new("store.tables", Severity::Error, "store", evidence, fix))
}

/// The clocks of this machine and of the store differ.
pub(super) fn skew(ours: Timestamp, theirs: Timestamp) -> Option<Finding> {
    let differ = ours.duration_since(theirs).unsigned_abs();
    if differ <= SKEW_MAX {
        return None;
    }
    let evidence = format!("the clock of the store is {} s away from this machine's", differ.as_secs());
    let fix = "let both follow a time server: ages of messages are judged by both";
    Some(Finding::new("store.clock", Severity::Warning, "store", evidence, fix))
}

/// Indexes that the migrations made and that are gone, or not valid.
pub(super) fn indexes(schema: &str, there: &[String]) -> Option<Finding> {
    let missing: Vec<&str> = made(schema).into_iter().filter(|name| !there.iter().any(|one| one == name)).collect();
    if missing.is_empty() {
        return None;
    }
    let evidence = format!("indexes that are missing or not valid: {}", missing.join(", "));
    let fix = "make them again as `oncebox schema print` shows them";
    Some(Finding::new("store.indexes", Severity::Error, "store", evidence, fix))
}

/// The indexes of a script that are not dropped again.
fn made(schema: &str) -> BTreeSet<&str> {
    let mut made = BTreeSet::new();
    for line in schema.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["create", "index", name, "on", ..] | ["create", "unique", "index", name, "on", ..] => {
                made.insert(*name);
            }
            ["drop", "index", name, ..] => {
                let name = name.trim_end_matches(';');
                made.remove(name.rsplit('.').next().unwrap_or(name));
            }
            _ => {}
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_are_older_than_the_program_are_told() {
        assert!(schema(3, 8).is_some_and(|found| found.evidence.contains("version 3, and this program needs 8")));
        assert_eq!((schema(8, 8), schema(9, 8)), (None, None));
        assert_eq!(gone(&[]), None);
        assert!(gone(&["parked".to_owned()]).is_some_and(|found| found.evidence.ends_with("made: parked")));
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(skew(at(1_000), at(0)).is_some() && skew(at(0), at(1_000)).is_some());
        assert_eq!(skew(at(100), at(0)), None);
    }

    #[test]
    fn an_index_that_is_gone_is_named() {
        let script =
            "create unique index a on t (x);\n  create index b on t (y);\ncreate index c on t (z);\ndrop index s.c;\n";
        let found = indexes(script, &["a".to_owned()]).unwrap();
        assert!(found.evidence.ends_with(": b"), "{found:?}");
        assert_eq!(indexes(script, &["a".to_owned(), "b".to_owned()]), None);
    }
}
