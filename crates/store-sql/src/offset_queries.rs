//! The statements behind the offsets; see `offsets.rs`.

use crate::queries::Query;

/// All of them.
#[derive(Debug)]
pub(crate) struct OffsetQueries {
    pub(crate) take: Query,
    pub(crate) begin: Query,
    pub(crate) lock: Query,
    pub(crate) advance: Query,
}

impl OffsetQueries {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(query: impl Fn(&str) -> Query) -> Self {
        Self {
            take: query(include_str!("queries/postgres/offsets/take.sql")),
            begin: query(include_str!("queries/postgres/offsets/begin.sql")),
            lock: query(include_str!("queries/postgres/offsets/lock.sql")),
            advance: query(include_str!("queries/postgres/offsets/advance.sql")),
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(query: impl Fn(&str) -> Query) -> Self {
        Self {
            take: query(include_str!("queries/sqlite/offsets/take.sql")),
            begin: query(include_str!("queries/sqlite/offsets/begin.sql")),
            lock: query(include_str!("queries/sqlite/offsets/lock.sql")),
            advance: query(include_str!("queries/sqlite/offsets/advance.sql")),
        }
    }
}
