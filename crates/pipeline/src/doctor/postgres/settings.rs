//! What the server was told to survive.

use sqlx::PgConnection;

use super::super::finding::{Finding, Severity};

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) fsync: String,
    pub(super) synchronous_commit: String,
    pub(super) full_page_writes: String,
    /// Who looked, as a grant names them.
    pub(super) user: String,
}

pub(super) async fn look(db: &mut PgConnection) -> sqlx::Result<Seen> {
    let query = sqlx::query_as(include_str!("../queries/postgres/settings.sql"));
    let (fsync, synchronous_commit, full_page_writes, user) = query.fetch_one(db).await?;
    Ok(Seen { fsync, synchronous_commit, full_page_writes, user })
}

pub(super) fn checks(seen: &Seen) -> impl Iterator<Item = Finding> {
    [fsync(seen), synchronous_commit(seen), full_page_writes(seen)].into_iter().flatten()
}

fn setting(check: &'static str, name: &str, value: &str, so: &str) -> Finding {
    let evidence = format!("{name} is {value}: {so}");
    Finding::new(check, Severity::Error, "store", evidence, format!("set {name} = on"))
}

fn fsync(seen: &Seen) -> Option<Finding> {
    let so = "what was committed may be lost, and the database damaged, when the power goes";
    (seen.fsync != "on").then(|| setting("store.fsync", "fsync", &seen.fsync, so))
}

fn synchronous_commit(seen: &Seen) -> Option<Finding> {
    let so = "messages are acknowledged before their effects are on disk";
    let is_off = seen.synchronous_commit == "off";
    is_off.then(|| setting("store.synchronous-commit", "synchronous_commit", &seen.synchronous_commit, so))
}

fn full_page_writes(seen: &Seen) -> Option<Finding> {
    let so = "a page that was half written when the power went can't be mended";
    (seen.full_page_writes != "on")
        .then(|| setting("store.full-page-writes", "full_page_writes", &seen.full_page_writes, so))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sound() -> Seen {
        let on = || "on".to_owned();
        let user = "app".to_owned();
        Seen { fsync: on(), synchronous_commit: on(), full_page_writes: on(), user }
    }

    #[test]
    fn a_sound_server_has_no_findings() {
        assert_eq!(checks(&sound()).collect::<Vec<_>>(), []);
    }

    #[test]
    fn each_setting_that_loses_data_is_an_error() {
        let off = || "off".to_owned();
        let found = [
            fsync(&Seen { fsync: off(), ..sound() }),
            synchronous_commit(&Seen { synchronous_commit: off(), ..sound() }),
            full_page_writes(&Seen { full_page_writes: off(), ..sound() }),
        ];
        assert!(
            found.iter().flatten().all(|one| one.severity == Severity::Error && one.evidence.contains(" is off: "))
        );
        assert_eq!(found.iter().flatten().count(), 3);
    }
}
