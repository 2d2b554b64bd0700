//! Who takes over when the server is gone, and with how much of what it acknowledged.

use std::time::Duration;

use oncebox::postgres::Postgres;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use super::super::finding::{Finding, Severity};
use super::settings;

/// How long a server has to say whether it is a replica.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What was seen of those that follow the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// `synchronous_standby_names`: empty if commits wait for nobody.
    pub(super) waited_for: String,
    /// How many follow without being waited for.
    pub(super) asynchronous: i64,
    /// How many do not show which they are.
    pub(super) hidden: i64,
}

pub(super) async fn look(db: &mut PgConnection) -> sqlx::Result<Seen> {
    let query = sqlx::query_as(include_str!("../queries/postgres/standbys.sql"));
    let (waited_for, asynchronous, hidden) = query.fetch_one(db).await?;
    Ok(Seen { waited_for, asynchronous, hidden })
}

/// Whether the server follows another. The store takes that for an outage that may pass, so the server is asked past it;
/// whoever does not answer is no replica.
pub(super) async fn is_replica(url: &str) -> bool {
    // A URL that the store can't read is not for the driver, which logs what it does not understand.
    if Postgres::builder(url).host_without_tls().is_err() {
        return false;
    }
    let asked = async {
        let mut db = PgConnection::connect(url).await?;
        let is_replica =
            sqlx::query_scalar(include_str!("../queries/postgres/recovery.sql")).fetch_one(&mut db).await?;
        db.close().await?;
        Ok::<bool, sqlx::Error>(is_replica)
    };
    matches!(timeout(ANSWER_MAX, asked).await, Ok(Ok(true)))
}

/// What is not here yet may be there already, so a duplicate would look like a new message.
pub(super) fn replica() -> Finding {
    let evidence = "it is a replica: it takes no writes, and does not know yet what the primary knows";
    let fix = "write the address of the primary; records of messages are never looked up on a replica";
    Finding::new("store.replica", Severity::Error, "store", evidence, fix)
}

/// A standby that takes over without the last commits has lost records and effects together. The broker does not know.
pub(super) fn behind(settings: &settings::Seen, seen: &Seen) -> Option<Finding> {
    let why = if seen.waited_for.trim().is_empty() {
        "synchronous_standby_names is empty".to_owned()
    } else if ["off", "local"].contains(&settings.synchronous_commit.as_str()) {
        format!("synchronous_commit is {}", settings.synchronous_commit)
    } else {
        return None;
    };
    if seen.asynchronous == 0 {
        return None;
    }
    let follow = match seen.asynchronous {
        1 => "a standby follows it, and no commit waits for that".to_owned(),
        many => format!("{many} standbys follow it, and no commit waits for them"),
    };
    let evidence = format!(
        "{follow} ({why}): if one takes over, the last effects are gone together with their records, but the broker was told \
         that they are done, and what they emitted is out"
    );
    let fix = "name a standby in synchronous_standby_names and leave synchronous_commit on; without, have the broker deliver \
               the last minutes again after each failover";
    Some(Finding::new("store.failover", Severity::Warning, "store", evidence, fix))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn none() -> Seen {
        Seen { waited_for: String::new(), asynchronous: 0, hidden: 0 }
    }

    fn judged(waited_for: &str, asynchronous: i64, synchronous_commit: &str) -> Option<Finding> {
        let settings = settings::Seen { synchronous_commit: synchronous_commit.to_owned(), ..settings::tests::sound() };
        behind(&settings, &Seen { waited_for: waited_for.to_owned(), asynchronous, ..none() })
    }

    #[test]
    fn standbys_that_nobody_waits_for_are_told() {
        let found = judged("", 2, "on").unwrap();
        assert_eq!((found.check, found.severity), ("store.failover", Severity::Warning));
        assert!(found.evidence.starts_with("2 standbys follow it, and no commit waits for them"), "{found:?}");
        let local = judged("*", 1, "local").unwrap();
        assert!(local.evidence.contains("(synchronous_commit is local)"), "{local:?}");
        // One that is waited for takes over; others may follow as they like.
        assert_eq!((judged("", 0, "on"), judged("ANY 1 (a, b)", 1, "on")), (None, None));
        assert_eq!(judged("a", 1, "remote_apply"), None);
    }
}
