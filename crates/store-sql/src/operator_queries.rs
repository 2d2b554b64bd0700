//! The statements behind what operators do, by role. Beside `queries.rs`, because a store that only handles messages
//! runs none of them.

use crate::queries::Query;

/// All of them.
#[derive(Debug)]
pub(crate) struct OperatorQueries {
    pub(crate) quarantine: QuarantineQueries,
    pub(crate) replays: ReplayQueries,
    pub(crate) audit: AuditQueries,
    pub(crate) horizon: HorizonQueries,
    pub(crate) archive: ArchiveQueries,
    pub(crate) journal: JournalQueries,
    pub(crate) trail: TrailQueries,
}

/// See `quarantine.rs`.
#[derive(Debug)]
pub(crate) struct QuarantineQueries {
    pub(crate) page: Query,
    pub(crate) read: Query,
    pub(crate) causes: Query,
    pub(crate) find_records: Query,
    pub(crate) lock_rows: Query,
    pub(crate) lock_records: Query,
    pub(crate) reject: Query,
    pub(crate) refingerprint: Query,
    pub(crate) withdraw: Query,
    pub(crate) delete: Query,
    pub(crate) revive: Query,
    pub(crate) annotate: Query,
    pub(crate) is_parked: Query,
    pub(crate) elsewhere: Query,
    pub(crate) supersede: Query,
}

/// See `replays.rs`.
#[derive(Debug)]
pub(crate) struct ReplayQueries {
    pub(crate) create: Query,
    pub(crate) read: Query,
    pub(crate) list: Query,
    pub(crate) open: Query,
    pub(crate) hold: Query,
    pub(crate) let_go: Query,
    pub(crate) save: Query,
    pub(crate) on_their_way: Query,
    pub(crate) sweep: Query,
}

/// See `audit.rs`.
#[derive(Debug)]
pub(crate) struct AuditQueries {
    pub(crate) add: Query,
    pub(crate) list: Query,
}

/// See `horizon.rs`.
#[derive(Debug)]
pub(crate) struct HorizonQueries {
    pub(crate) consumers: Query,
    pub(crate) read: Query,
    pub(crate) newest_deleted: Query,
    pub(crate) now: Query,
    pub(crate) advance: Query,
    pub(crate) expire: Query,
    pub(crate) next: Query,
    pub(crate) old: Query,
    pub(crate) any: Query,
    pub(crate) sweep_received: Query,
    pub(crate) checkpoint: Query,
}

/// See `archive.rs`.
#[derive(Debug)]
pub(crate) struct ArchiveQueries {
    pub(crate) add: Query,
    pub(crate) read: Query,
    pub(crate) size: Query,
    pub(crate) sweep: Query,
}

/// See `journal.rs`. A consumer that keeps a journal runs one of them.
#[derive(Debug)]
pub(crate) struct JournalQueries {
    pub(crate) add: Query,
    pub(crate) read: Query,
    pub(crate) sweep: Query,
}

/// See `trail.rs`.
#[derive(Debug)]
pub(crate) struct TrailQueries {
    pub(crate) records: Query,
    pub(crate) parked_by_key: Query,
    pub(crate) parked_by_id: Query,
    pub(crate) queued: Query,
    pub(crate) outbox_row: Query,
    pub(crate) outbox_after: Query,
    pub(crate) outbox_by_id: Query,
    pub(crate) outbox_by_cause: Query,
    pub(crate) beyond: Query,
}

impl OperatorQueries {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(query: impl Fn(&str) -> Query) -> Self {
        Self {
            quarantine: QuarantineQueries {
                page: query(include_str!("queries/postgres/quarantine/page.sql")),
                read: query(include_str!("queries/postgres/quarantine/read.sql")),
                causes: query(include_str!("queries/postgres/quarantine/causes.sql")),
                find_records: query(include_str!("queries/postgres/quarantine/find_records.sql")),
                lock_rows: query(include_str!("queries/postgres/quarantine/lock_rows.sql")),
                lock_records: query(include_str!("queries/postgres/quarantine/lock_records.sql")),
                reject: query(include_str!("queries/postgres/quarantine/reject.sql")),
                refingerprint: query(include_str!("queries/postgres/quarantine/refingerprint.sql")),
                withdraw: query(include_str!("queries/postgres/quarantine/withdraw.sql")),
                delete: query(include_str!("queries/postgres/quarantine/delete.sql")),
                revive: query(include_str!("queries/postgres/quarantine/revive.sql")),
                annotate: query(include_str!("queries/postgres/quarantine/annotate.sql")),
                is_parked: query(include_str!("queries/postgres/quarantine/is_parked.sql")),
                elsewhere: query(include_str!("queries/postgres/quarantine/elsewhere.sql")),
                supersede: query(include_str!("queries/postgres/quarantine/supersede.sql")),
            },
            replays: ReplayQueries {
                create: query(include_str!("queries/postgres/replays/create.sql")),
                read: query(include_str!("queries/postgres/replays/read.sql")),
                list: query(include_str!("queries/postgres/replays/list.sql")),
                open: query(include_str!("queries/postgres/replays/open.sql")),
                hold: query(include_str!("queries/postgres/replays/hold.sql")),
                let_go: query(include_str!("queries/postgres/replays/let_go.sql")),
                save: query(include_str!("queries/postgres/replays/save.sql")),
                on_their_way: query(include_str!("queries/postgres/replays/on_their_way.sql")),
                sweep: query(include_str!("queries/postgres/replays/sweep.sql")),
            },
            audit: AuditQueries {
                add: query(include_str!("queries/postgres/audit/add.sql")),
                list: query(include_str!("queries/postgres/audit/list.sql")),
            },
            horizon: HorizonQueries {
                consumers: query(include_str!("queries/postgres/horizon/consumers.sql")),
                read: query(include_str!("queries/postgres/horizon/read.sql")),
                newest_deleted: query(include_str!("queries/postgres/horizon/newest_deleted.sql")),
                now: query(include_str!("queries/postgres/horizon/now.sql")),
                advance: query(include_str!("queries/postgres/horizon/advance.sql")),
                expire: query(include_str!("queries/postgres/horizon/expire.sql")),
                next: query(include_str!("queries/postgres/horizon/next.sql")),
                old: query(include_str!("queries/postgres/horizon/old.sql")),
                any: query(include_str!("queries/postgres/horizon/any.sql")),
                sweep_received: query(include_str!("queries/postgres/horizon/sweep_received.sql")),
                checkpoint: query(include_str!("queries/postgres/horizon/checkpoint.sql")),
            },
            archive: ArchiveQueries {
                add: query(include_str!("queries/postgres/archive/add.sql")),
                read: query(include_str!("queries/postgres/archive/read.sql")),
                size: query(include_str!("queries/postgres/archive/size.sql")),
                sweep: query(include_str!("queries/postgres/archive/sweep.sql")),
            },
            journal: JournalQueries {
                add: query(include_str!("queries/postgres/journal/add.sql")),
                read: query(include_str!("queries/postgres/journal/read.sql")),
                sweep: query(include_str!("queries/postgres/journal/sweep.sql")),
            },
            trail: TrailQueries {
                records: query(include_str!("queries/postgres/trail/records.sql")),
                parked_by_key: query(include_str!("queries/postgres/trail/parked_by_key.sql")),
                parked_by_id: query(include_str!("queries/postgres/trail/parked_by_id.sql")),
                queued: query(include_str!("queries/postgres/trail/queued.sql")),
                outbox_row: query(include_str!("queries/postgres/trail/outbox_row.sql")),
                outbox_after: query(include_str!("queries/postgres/trail/outbox_after.sql")),
                outbox_by_id: query(include_str!("queries/postgres/trail/outbox_by_id.sql")),
                outbox_by_cause: query(include_str!("queries/postgres/trail/outbox_by_cause.sql")),
                beyond: query(include_str!("queries/postgres/trail/beyond.sql")),
            },
        }
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(query: impl Fn(&str) -> Query) -> Self {
        Self {
            quarantine: QuarantineQueries {
                page: query(include_str!("queries/sqlite/quarantine/page.sql")),
                read: query(include_str!("queries/sqlite/quarantine/read.sql")),
                causes: query(include_str!("queries/sqlite/quarantine/causes.sql")),
                find_records: query(include_str!("queries/sqlite/quarantine/find_records.sql")),
                lock_rows: query(include_str!("queries/sqlite/quarantine/lock_rows.sql")),
                lock_records: query(include_str!("queries/sqlite/quarantine/lock_records.sql")),
                reject: query(include_str!("queries/sqlite/quarantine/reject.sql")),
                refingerprint: query(include_str!("queries/sqlite/quarantine/refingerprint.sql")),
                withdraw: query(include_str!("queries/sqlite/quarantine/withdraw.sql")),
                delete: query(include_str!("queries/sqlite/quarantine/delete.sql")),
                revive: query(include_str!("queries/sqlite/quarantine/revive.sql")),
                annotate: query(include_str!("queries/sqlite/quarantine/annotate.sql")),
                is_parked: query(include_str!("queries/sqlite/quarantine/is_parked.sql")),
                elsewhere: query(include_str!("queries/sqlite/quarantine/elsewhere.sql")),
                supersede: query(include_str!("queries/sqlite/quarantine/supersede.sql")),
            },
            replays: ReplayQueries {
                create: query(include_str!("queries/sqlite/replays/create.sql")),
                read: query(include_str!("queries/sqlite/replays/read.sql")),
                list: query(include_str!("queries/sqlite/replays/list.sql")),
                open: query(include_str!("queries/sqlite/replays/open.sql")),
                hold: query(include_str!("queries/sqlite/replays/hold.sql")),
                let_go: query(include_str!("queries/sqlite/replays/let_go.sql")),
                save: query(include_str!("queries/sqlite/replays/save.sql")),
                on_their_way: query(include_str!("queries/sqlite/replays/on_their_way.sql")),
                sweep: query(include_str!("queries/sqlite/replays/sweep.sql")),
            },
            audit: AuditQueries {
                add: query(include_str!("queries/sqlite/audit/add.sql")),
                list: query(include_str!("queries/sqlite/audit/list.sql")),
            },
            horizon: HorizonQueries {
                consumers: query(include_str!("queries/sqlite/horizon/consumers.sql")),
                read: query(include_str!("queries/sqlite/horizon/read.sql")),
                newest_deleted: query(include_str!("queries/sqlite/horizon/newest_deleted.sql")),
                now: query(include_str!("queries/sqlite/horizon/now.sql")),
                advance: query(include_str!("queries/sqlite/horizon/advance.sql")),
                expire: query(include_str!("queries/sqlite/horizon/expire.sql")),
                next: query(include_str!("queries/sqlite/horizon/next.sql")),
                old: query(include_str!("queries/sqlite/horizon/old.sql")),
                any: query(include_str!("queries/sqlite/horizon/any.sql")),
                sweep_received: query(include_str!("queries/sqlite/horizon/sweep_received.sql")),
                checkpoint: query(include_str!("queries/sqlite/horizon/checkpoint.sql")),
            },
            archive: ArchiveQueries {
                add: query(include_str!("queries/sqlite/archive/add.sql")),
                read: query(include_str!("queries/sqlite/archive/read.sql")),
                size: query(include_str!("queries/sqlite/archive/size.sql")),
                sweep: query(include_str!("queries/sqlite/archive/sweep.sql")),
            },
            journal: JournalQueries {
                add: query(include_str!("queries/sqlite/journal/add.sql")),
                read: query(include_str!("queries/sqlite/journal/read.sql")),
                sweep: query(include_str!("queries/sqlite/journal/sweep.sql")),
            },
            trail: TrailQueries {
                records: query(include_str!("queries/sqlite/trail/records.sql")),
                parked_by_key: query(include_str!("queries/sqlite/trail/parked_by_key.sql")),
                parked_by_id: query(include_str!("queries/sqlite/trail/parked_by_id.sql")),
                queued: query(include_str!("queries/sqlite/trail/queued.sql")),
                outbox_row: query(include_str!("queries/sqlite/trail/outbox_row.sql")),
                outbox_after: query(include_str!("queries/sqlite/trail/outbox_after.sql")),
                outbox_by_id: query(include_str!("queries/sqlite/trail/outbox_by_id.sql")),
                outbox_by_cause: query(include_str!("queries/sqlite/trail/outbox_by_cause.sql")),
                beyond: query(include_str!("queries/sqlite/trail/beyond.sql")),
            },
        }
    }
}
