//! The statements of a store, made once from the `.sql` files of its dialect.

use std::sync::Arc;

use oncebox_core::mutants;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::counter_queries::{CounterQueries, DepthQueries};
use crate::offset_queries::OffsetQueries;
use crate::operator_queries::OperatorQueries;
use crate::outbox_queries::OutboxQueries;

/// One statement, ready to run. Cheap to clone; a connection prepares it once and finds it again by its text.
#[derive(Clone, Debug)]
pub(crate) struct Query(SqlStr);

impl Query {
    /// Takes the text of a `.sql` file. `schema` is a name in quotes; it replaces the mark `{schema}`.
    pub(crate) fn new(file: &str, schema: &str) -> Self {
        // The comment at the head is for the reader of the file; servers and their logs need not carry it.
        let body = mutants::statement(file).lines().skip_while(|line| line.starts_with("--"));
        let statement = body.collect::<Vec<_>>().join("\n").replace("{schema}", schema);
        mutants::made(file, &statement);
        Self(AssertSqlSafe(Arc::<str>::from(statement)).into_sql_str())
    }

    /// The text.
    pub(crate) fn sql(&self) -> SqlStr {
        mutants::used(self.0.as_str());
        self.0.clone()
    }
}

/// All statements of a store, by role.
#[derive(Debug)]
pub struct Queries {
    pub(crate) inbox: InboxQueries,
    pub(crate) queue: QueueQueries,
    pub(crate) lanes: LaneQueries,
    pub(crate) parked: ParkedQueries,
    pub(crate) operators: OperatorQueries,
    pub(crate) outbox: OutboxQueries,
    pub(crate) versions: VersionQueries,
    pub(crate) offsets: OffsetQueries,
    pub(crate) counters: CounterQueries,
    pub(crate) depths: DepthQueries,
    pub(crate) names: NameQueries,
    pub(crate) schema: SchemaQueries,
}

/// See `inbox.rs`.
#[derive(Clone, Debug)]
pub(crate) struct InboxQueries {
    pub(crate) claim: Query,
    pub(crate) claim_fresh: Query,
    pub(crate) claim_one: Query,
    pub(crate) read: Query,
    pub(crate) record: Query,
    pub(crate) find_parked: Query,
    pub(crate) reclaim: Query,
    pub(crate) unclaim: Query,
    pub(crate) alive: Query,
    /// Writes something, where a commit that writes nothing may count before what it has found does.
    pub(crate) witness: Option<Query>,
}

/// See `queue.rs`.
#[derive(Debug)]
pub(crate) struct QueueQueries {
    pub(crate) enqueue: Query,
    pub(crate) read_keys: Query,
    pub(crate) lease: Query,
    pub(crate) pick_in_lanes: Query,
    pub(crate) take_picked: Query,
    pub(crate) delete: Query,
    pub(crate) keep: Query,
    pub(crate) release: Query,
    pub(crate) extend: Query,
    pub(crate) is_used: Query,
}

/// See `lanes.rs`.
#[derive(Debug)]
pub(crate) struct LaneQueries {
    pub(crate) create: Query,
    pub(crate) clear: Query,
    pub(crate) check: Query,
    pub(crate) join: Query,
    pub(crate) forget: Query,
    pub(crate) count: Query,
    pub(crate) give_back: Query,
    pub(crate) renew: Query,
    pub(crate) take: Query,
    pub(crate) leave: Query,
    pub(crate) resign: Query,
}

/// See `parked.rs`.
#[derive(Debug)]
pub(crate) struct ParkedQueries {
    pub(crate) park: Query,
    pub(crate) own: Query,
    pub(crate) keys: Query,
    pub(crate) is_blocked: Query,
    pub(crate) count_blocking: Query,
    pub(crate) pick: Query,
    pub(crate) take: Query,
    pub(crate) extend: Query,
    pub(crate) release: Query,
    pub(crate) settle: Query,
    pub(crate) end: Query,
    pub(crate) places: Query,
    pub(crate) put_back: Query,
    pub(crate) note_start: Query,
    pub(crate) note_wait: Query,
    pub(crate) forget_starts: Query,
    pub(crate) count_gaps: Query,
    pub(crate) wake_gaps: Query,
    /// `None` where there is one writer at a time.
    pub(crate) keep_turns: Option<Query>,
    pub(crate) wake_next: Query,
    pub(crate) find_behind: Query,
    pub(crate) set_behind: Query,
}

/// See `versions.rs`.
#[derive(Debug)]
pub(crate) struct VersionQueries {
    pub(crate) lock: Query,
    pub(crate) read: Query,
    pub(crate) add: Query,
    pub(crate) advance: Query,
}

/// See `names.rs`.
#[derive(Debug)]
pub(crate) struct NameQueries {
    pub(crate) add_consumer: Query,
    pub(crate) find_consumer: Query,
    pub(crate) add_queue: Query,
    pub(crate) find_queue: Query,
    pub(crate) set_queue_lanes: Query,
    pub(crate) read_identity: Query,
    pub(crate) lock_identity: Query,
    pub(crate) set_identity: Query,
}

/// See `schema.rs`.
#[derive(Debug)]
pub(crate) struct SchemaQueries {
    /// `None` where the transaction itself keeps others out.
    pub(crate) lock: Option<Query>,
    pub(crate) exists: Query,
    pub(crate) tables: Query,
    pub(crate) create: Query,
    pub(crate) applied: Query,
    pub(crate) note: Query,
    pub(crate) identify: Query,
    pub(crate) identity: Query,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_filled_in_and_the_head_comment_left_out() {
        let query = Query::new("-- Why.\n-- More.\nselect 1 -- kept\nfrom {schema}.inbox\n", "\"o\"");
        assert_eq!(query.sql().as_str(), "select 1 -- kept\nfrom \"o\".inbox");
    }
}
