//! The statements behind the counters and depths; see `counters.rs` and `depths.rs`.

use crate::queries::Query;

/// See `counters.rs`.
#[derive(Debug)]
pub(crate) struct CounterQueries {
    pub(crate) begin: Query,
    pub(crate) write: Query,
    pub(crate) take_gone: Query,
    pub(crate) take_one: Query,
    pub(crate) make_sum: Query,
    pub(crate) lock_sum: Query,
    pub(crate) read: Query,
}

/// See `depths.rs`.
#[derive(Debug)]
pub(crate) struct DepthQueries {
    pub(crate) queue: Query,
    pub(crate) parked: Query,
    pub(crate) lanes: Query,
}

impl CounterQueries {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(query: impl Fn(&str) -> Query) -> Self {
        Self {
            begin: query(include_str!("queries/postgres/counters/begin.sql")),
            write: query(include_str!("queries/postgres/counters/write.sql")),
            take_gone: query(include_str!("queries/postgres/counters/take_gone.sql")),
            take_one: query(include_str!("queries/postgres/counters/take_one.sql")),
            make_sum: query(include_str!("queries/postgres/counters/make_sum.sql")),
            lock_sum: query(include_str!("queries/postgres/counters/lock_sum.sql")),
            read: query(include_str!("queries/postgres/counters/read.sql")),
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(query: impl Fn(&str) -> Query) -> Self {
        Self {
            begin: query(include_str!("queries/sqlite/counters/begin.sql")),
            write: query(include_str!("queries/sqlite/counters/write.sql")),
            take_gone: query(include_str!("queries/sqlite/counters/take_gone.sql")),
            take_one: query(include_str!("queries/sqlite/counters/take_one.sql")),
            make_sum: query(include_str!("queries/sqlite/counters/make_sum.sql")),
            lock_sum: query(include_str!("queries/sqlite/counters/lock_sum.sql")),
            read: query(include_str!("queries/sqlite/counters/read.sql")),
        }
    }
}

impl DepthQueries {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(query: impl Fn(&str) -> Query) -> Self {
        Self {
            queue: query(include_str!("queries/postgres/depths/queue.sql")),
            parked: query(include_str!("queries/postgres/depths/parked.sql")),
            lanes: query(include_str!("queries/postgres/depths/lanes.sql")),
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(query: impl Fn(&str) -> Query) -> Self {
        Self {
            queue: query(include_str!("queries/sqlite/depths/queue.sql")),
            parked: query(include_str!("queries/sqlite/depths/parked.sql")),
            lanes: query(include_str!("queries/sqlite/depths/lanes.sql")),
        }
    }
}
