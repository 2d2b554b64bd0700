//! The statements behind the outbox; see `outbox.rs`.

use crate::queries::Query;

/// All of them.
#[derive(Debug)]
pub(crate) struct OutboxQueries {
    pub(crate) emit: Query,
    pub(crate) pick: Query,
    pub(crate) pick_without: Query,
    /// Both look at each lane by itself, so they should not ask each for all that is wanted.
    pub(crate) picks_by_lane: bool,
    pub(crate) read: Query,
    /// `None` where there is one writer at a time.
    pub(crate) keep_out: Option<Query>,
    pub(crate) set_behind: Query,
    /// `None` where there is one writer at a time.
    pub(crate) keep_lanes: Option<Query>,
    pub(crate) wake_behind: Query,
    pub(crate) fence: Query,
    pub(crate) delete: Query,
    pub(crate) keep: Query,
    pub(crate) set_aside: Query,
    pub(crate) page: Query,
    pub(crate) retry: Query,
    pub(crate) skip: Query,
    pub(crate) sweep: Query,
    pub(crate) backlog: Query,
}

impl OutboxQueries {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(query: impl Fn(&str) -> Query) -> Self {
        Self {
            emit: query(include_str!("queries/postgres/outbox/emit.sql")),
            pick: query(include_str!("queries/postgres/outbox/pick.sql")),
            pick_without: query(include_str!("queries/postgres/outbox/pick_without.sql")),
            picks_by_lane: true,
            read: query(include_str!("queries/postgres/outbox/read.sql")),
            keep_out: Some(query(include_str!("queries/postgres/outbox/keep_out.sql"))),
            set_behind: query(include_str!("queries/postgres/outbox/set_behind.sql")),
            keep_lanes: Some(query(include_str!("queries/postgres/outbox/keep_lanes.sql"))),
            wake_behind: query(include_str!("queries/postgres/outbox/wake_behind.sql")),
            fence: query(include_str!("queries/postgres/outbox/fence.sql")),
            delete: query(include_str!("queries/postgres/outbox/delete.sql")),
            keep: query(include_str!("queries/postgres/outbox/keep.sql")),
            set_aside: query(include_str!("queries/postgres/outbox/set_aside.sql")),
            page: query(include_str!("queries/postgres/outbox/page.sql")),
            retry: query(include_str!("queries/postgres/outbox/retry.sql")),
            skip: query(include_str!("queries/postgres/outbox/skip.sql")),
            sweep: query(include_str!("queries/postgres/outbox/sweep.sql")),
            backlog: query(include_str!("queries/postgres/outbox/backlog.sql")),
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(query: impl Fn(&str) -> Query) -> Self {
        Self {
            emit: query(include_str!("queries/sqlite/outbox/emit.sql")),
            pick: query(include_str!("queries/sqlite/outbox/pick.sql")),
            pick_without: query(include_str!("queries/sqlite/outbox/pick_without.sql")),
            picks_by_lane: false,
            read: query(include_str!("queries/sqlite/outbox/read.sql")),
            keep_out: None,
            set_behind: query(include_str!("queries/sqlite/outbox/set_behind.sql")),
            keep_lanes: None,
            wake_behind: query(include_str!("queries/sqlite/outbox/wake_behind.sql")),
            fence: query(include_str!("queries/sqlite/outbox/fence.sql")),
            delete: query(include_str!("queries/sqlite/outbox/delete.sql")),
            keep: query(include_str!("queries/sqlite/outbox/keep.sql")),
            set_aside: query(include_str!("queries/sqlite/outbox/set_aside.sql")),
            page: query(include_str!("queries/sqlite/outbox/page.sql")),
            retry: query(include_str!("queries/sqlite/outbox/retry.sql")),
            skip: query(include_str!("queries/sqlite/outbox/skip.sql")),
            sweep: query(include_str!("queries/sqlite/outbox/sweep.sql")),
            backlog: query(include_str!("queries/sqlite/outbox/backlog.sql")),
        }
    }
}
