//! PostgreSQL: what it was told to survive, who takes over, and what keeps it from cleaning up.

mod failover;
mod settings;
mod vacuum;

use oncebox::horizon::Consumers as _;
use oncebox::postgres::{Migrate, Postgres};
use oncebox::{Clock as _, Session as _, Store as _, StoreError, SystemClock, Timestamp, Transaction as _};
use sqlx::PgConnection;

use super::finding::{Finding, Severity};
use super::store;
use crate::file::StoreSpec;

/// Looks at the store, and gives it back if it can be worked on.
pub(super) async fn examine(url: &str, spec: &StoreSpec, found: &mut Vec<Finding>) -> Option<Postgres> {
    let schema = spec.schema.as_deref().unwrap_or("oncebox");
    let builder = Postgres::builder(url).schema(schema).migrate(Migrate::Check);
    let looked = builder.schema_check().await;
    if looked.is_err() && failover::is_replica(url).await {
        found.push(failover::replica());
        return None;
    }
    if !store::has_tables(looked, found) {
        return None;
    }
    let script = builder.schema_print().unwrap_or_default();
    let (opened, theirs, seen) = match open(builder, schema).await {
        Ok(opened) => opened,
        Err(error) => {
            found.push(store::unreachable(&error));
            return None;
        }
    };
    found.extend(store::skew(SystemClock.now(), theirs));
    found.extend(store::unwritable(&opened).await);
    let Ok(seen) = seen else {
        found.push(Finding::new(
            "store.unseen",
            Severity::Note,
            "store",
            "this user may not see the settings or statistics of the server",
            "grant it pg_monitor to have them checked",
        ));
        return Some(opened);
    };
    found.extend(store::indexes(&script, &seen.indexes));
    found.extend(settings::checks(&seen.settings));
    found.extend(failover::behind(&seen.settings, &seen.standbys));
    found.extend(vacuum::checks(&seen.vacuum));
    found.extend(unseen(&seen));
    Some(opened)
}

type Opened = (Postgres, Timestamp, sqlx::Result<Seen>);

async fn open(builder: oncebox::postgres::PostgresBuilder, schema: &str) -> Result<Opened, StoreError> {
    let opened = builder.connect().await?;
    let mut tx = opened.connect().await?.begin(store::LOCK_WAIT).await?;
    let theirs = tx.store_time().await?;
    let seen = look(tx.db(), schema).await;
    tx.rollback().await;
    Ok((opened, theirs, seen))
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    settings: settings::Seen,
    standbys: failover::Seen,
    vacuum: vacuum::Seen,
    indexes: Vec<String>,
}

async fn look(db: &mut PgConnection, schema: &str) -> sqlx::Result<Seen> {
    let settings = settings::look(db).await?;
    let standbys = failover::look(db).await?;
    let vacuum = vacuum::look(db, schema).await?;
    let indexes = sqlx::query_scalar(include_str!("../queries/postgres/indexes.sql")).bind(schema);
    Ok(Seen { settings, standbys, vacuum, indexes: indexes.fetch_all(db).await? })
}

/// What this user is not shown can't be judged, and silence about it would look like health.
fn unseen(seen: &Seen) -> Option<Finding> {
    let (sessions, standbys, user) = (seen.vacuum.hidden, seen.standbys.hidden, &seen.settings.user);
    let of_sessions = match sessions {
        1 => "how long a session of another user has a transaction open".to_owned(),
        _ => format!("how long {sessions} sessions of other users have a transaction open"),
    };
    let of_standbys = match standbys {
        1 => "whether commits wait for its standby".to_owned(),
        _ => format!("whether commits wait for its {standbys} standbys"),
    };
    let what = match (sessions, standbys) {
        (0, 0) => return None,
        (_, 0) => of_sessions,
        (0, _) => of_standbys,
        _ => format!("{of_sessions}, nor {of_standbys}"),
    };
    let evidence = format!("this user ({user}) can't see {what}");
    Some(Finding::new("store.unseen", Severity::Note, "store", evidence, format!("grant pg_read_all_stats to {user}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Seen {
        Seen {
            settings: settings::tests::sound(),
            standbys: failover::tests::none(),
            vacuum: vacuum::tests::sound(),
            indexes: Vec::new(),
        }
    }

    #[test]
    fn what_can_t_be_seen_is_told_with_the_grant_that_shows_it() {
        assert_eq!(unseen(&sound()), None);
        let mut seen = sound();
        seen.vacuum.hidden = 3;
        let told = unseen(&seen).unwrap();
        assert_eq!(told.severity, Severity::Note);
        assert_eq!(
            told.evidence,
            "this user (app) can't see how long 3 sessions of other users have a transaction open"
        );
        assert_eq!(told.fix, "grant pg_read_all_stats to app");
        seen.standbys.hidden = 1;
        assert!(unseen(&seen).unwrap().evidence.ends_with("open, nor whether commits wait for its standby"));
        seen.vacuum.hidden = 0;
        assert_eq!(unseen(&seen).unwrap().evidence, "this user (app) can't see whether commits wait for its standby");
    }
}
