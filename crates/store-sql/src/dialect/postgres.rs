//! PostgreSQL: a session owns its connection; a transaction carries a mark that the seal looks for.
//!
//! The seal travels with COMMIT in one message: if it fails, the server runs nothing of what follows, so there is no commit
//! without it and no round trip for it either. sqlx counts how deep transactions are nested and would count ours only if
//! each BEGIN and COMMIT went through it. So ours is counted once, at the first BEGIN of a connection, and stays counted:
//! whatever a handler begins is then a savepoint.
//!
//! The mark is a setting local to the transaction, set in the same round trip as `BEGIN`. It is gone as soon as that
//! transaction has ended, whoever ended it, so a handler that ran `COMMIT` itself is found out before we acknowledge
//! anything.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::planted;
use oncebox_core::store::{DriverError, Ended, StoreCapabilities};
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgRow, PgSeverity, PgTransactionManager};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, Row as _, SqlSafeStr, SqlStr, raw_sql};
use sqlx_core::transaction::TransactionManager;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use super::Dialect;
use super::standby::Waits;
use crate::connection::{Call, Connection};
use crate::counter_queries::{CounterQueries, DepthQueries};
use crate::error::{ours, read};
use crate::name::Identifier;
use crate::offset_queries::OffsetQueries;
use crate::operator_queries::OperatorQueries;
use crate::outbox_queries::OutboxQueries;
use crate::queries::{
    InboxQueries, LaneQueries, NameQueries, ParkedQueries, Queries, Query, QueueQueries, SchemaQueries, VersionQueries,
};
use crate::schema::Migration;

/// The oldest server version that is supported, as `server_version_num`.
const VERSION_MIN: i64 = 130_000;
/// How long a new connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long we wait, beyond the server's own limits, for an answer that it should have given.
const GRACE: Duration = Duration::from_secs(10);

/// PostgreSQL 13 or newer.
pub struct PostgresDialect {
    options: PgConnectOptions,
    place: String,
    schema: Identifier,
    timeouts: Timeouts,
    durable: AtomicBool,
    pub(super) probe: Query,
    seal: Query,
    pub(super) terminate: Query,
    pub(super) lives: Query,
    pub(super) standby: Query,
    pub(super) witness: Query,
    pub(super) followed: Query,
    pub(super) waits: Waits,
}

/// Limits that the server enforces on each session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) statement: Duration,
    pub(crate) idle_in_transaction: Duration,
}

/// A connection that is not in a transaction.
pub struct PostgresIdle {
    connection: PgConnection,
    backend: Backend,
    synchronous_commit: String,
    transactions: u64,
}

/// A connection in a transaction.
#[derive(Debug)]
pub struct PostgresOpen {
    idle: PostgresIdle,
    lock_wait: Duration,
}

/// One server process. Its pid alone proves little: after it ended, another may have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    pub(super) pid: i32,
    pub(super) started_micros: i64,
}

impl PostgresDialect {
    pub(crate) fn new(options: PgConnectOptions, place: String, schema: Identifier, timeouts: Timeouts) -> Self {
        let query = |file: &str| Query::new(file, "");
        Self {
            options,
            place,
            schema,
            timeouts,
            durable: AtomicBool::new(false),
            probe: query(include_str!("../queries/postgres/session/probe.sql")),
            seal: query(include_str!("../queries/postgres/session/seal.sql")),
            terminate: query(include_str!("../queries/postgres/session/terminate.sql")),
            lives: query(include_str!("../queries/postgres/session/lives.sql")),
            standby: query(include_str!("../queries/postgres/session/standby.sql")),
            witness: query(include_str!("../queries/postgres/session/witness.sql")),
            followed: query(include_str!("../queries/postgres/session/followed.sql")),
            waits: Waits::default(),
        }
    }

    fn attempted_connect(&self) -> String {
        format!("connect to {}", self.place)
    }

    /// Asks a new connection who it is, and refuses servers that can't keep the promise.
    async fn greet(&self, mut connection: PgConnection) -> Result<PostgresIdle, StoreError> {
        let millis = |duration: Duration| duration.as_millis().clamp(1, i32::MAX as u128);
        let limits = format!(
            "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; {}",
            millis(self.timeouts.statement),
            millis(self.timeouts.idle_in_transaction),
            prepare_seal(),
        );
        let failed = |error| ours(self.attempted_connect(), error);
        connection.script(AssertSqlSafe(limits).into_sql_str()).await.map_err(failed)?;
        let rows = connection.fetch(Call::new("greet the server", &self.probe)).await.map_err(failed)?;
        let Some(mut row) = rows.into_iter().next() else { return Err(self.refused("it does not say who it is")) };
        let (pid, started_micros) = (row.int()?, row.int_or_null()?);
        let started_micros = match started_micros {
            Some(started_micros) => started_micros,
            None => self.started(&mut connection).await?,
        };
        let backend = Backend { pid, started_micros };
        let (synchronous_commit, fsync, standby) = (row.text()?, row.text()?, row.int::<i64>()?);
        let version: i64 = row.int()?;
        if version < VERSION_MIN {
            let (found, least) = (version / 10_000, VERSION_MIN / 10_000);
            return Err(self.refused(format!("it is PostgreSQL {found}; {least} or newer is needed")));
        }
        if standby != 0 {
            let why = "it is a standby, which takes no writes; records are never compared with a replica";
            return Err(StoreError::new(StoreErrorKind::Unavailable, self.attempted_connect(), why));
        }
        self.durable.store(synchronous_commit != "off" && fsync == "on", Ordering::Relaxed);
        Ok(PostgresIdle { connection, backend, synchronous_commit, transactions: 0 })
    }

    fn refused(&self, why: impl Into<String>) -> StoreError {
        StoreError::new(StoreErrorKind::Configuration, self.attempted_connect(), why)
    }

    /// Asks the server for what the seal checks.
    async fn look(&self, open: &mut PostgresOpen) -> Result<(), StoreError> {
        let mut rows =
            Call::new("look at the transaction", &self.seal).fetch(&mut open.idle.connection).await?.into_iter();
        let Some(mut row) = rows.next() else { return Err(lost("the seal got no answer")) };
        open.idle.judge(&row.text()?, &row.text()?)
    }
}

/// COMMIT is where deferred constraints and triggers of the application speak. Whatever code they use, this connection has
/// answered and our own statements have run: neither the server nor its schema is at fault, and one message may be.
fn refused_commit(error: sqlx::Error) -> StoreError {
    let DriverError { kind, reason, .. } = read(&error);
    let is_of_a_connection =
        error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code.starts_with("08"));
    let kind = match kind {
        StoreErrorKind::Configuration => StoreErrorKind::Troubled,
        StoreErrorKind::Unavailable if is_of_a_connection => StoreErrorKind::Troubled,
        kind => kind,
    };
    StoreError::new(kind, "commit", reason).with_source(error)
}

/// What the seal answers where the commit waits for a standby.
const WAITS: i32 = 2;

/// What a failed seal quotes, in front of what it found.
const SEAL: &str = "oncebox seal ";

/// The seal itself, prepared once for each connection because planning it takes longer than running it. The cast fails if
/// the mark or the durability is another one, and quotes both; in an aborted transaction any statement fails, where COMMIT
/// alone would report success.
///
/// Where commits wait for a standby it writes to the log, if only a word: a commit that wrote nothing waits for nothing, and
/// what its transaction has found may be the commit of another one whose wait was cut short.
fn prepare_seal() -> String {
    let unwritten = if planted::is("resolved-unwritten") { "true" } else { "false" };
    format!(
        "PREPARE oncebox_seal (text, text) AS SELECT CASE \
         WHEN current_setting('oncebox.transaction', true) IS DISTINCT FROM $1 \
            OR current_setting('synchronous_commit') <> $2 \
         THEN CAST('oncebox seal ' || coalesce(current_setting('oncebox.transaction', true), '') || ' ' \
            || current_setting('synchronous_commit') AS int2) \
         WHEN {unwritten} OR current_setting('synchronous_standby_names') = '' \
            OR current_setting('synchronous_commit') IN ('local', 'off') THEN 0 \
         WHEN pg_logical_emit_message(true, 'oncebox', '') IS NULL THEN 0 ELSE {WAITS} END; \
         PREPARE oncebox_prepared AS SELECT 1"
    )
}

impl PostgresIdle {
    /// The connection, for other uses.
    pub(super) fn into_connection(self) -> PgConnection {
        self.connection
    }

    /// BEGIN, and the settings that end with the transaction, the next mark among them.
    fn next_begin(&mut self, before: &str, lock_wait: Duration) -> SqlStr {
        self.transactions += 1;
        // Zero would mean no limit at all.
        let lock_wait = lock_wait.as_millis().clamp(1, i32::MAX as u128);
        let statement = format!(
            "{before}BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = {lock_wait}; \
             SET LOCAL oncebox.transaction = '{0}'; SET oncebox.begun = '{0}'",
            self.transactions
        );
        AssertSqlSafe(statement).into_sql_str()
    }

    /// The seal and COMMIT. If the seal fails, COMMIT is not run.
    fn sealed_commit(&self) -> SqlStr {
        if planted::is("seal-left-out") {
            return SqlStr::from_static("COMMIT");
        }
        let Self { transactions, synchronous_commit, .. } = self;
        let statement = format!("EXECUTE oncebox_seal ('{transactions}', '{synchronous_commit}'); COMMIT");
        AssertSqlSafe(statement).into_sql_str()
    }

    /// Rolls back what is open, and fails if the transaction that was begun has been committed: a setting that is not local
    /// is undone with it, and stays otherwise. A connection that is gone can't tell.
    async fn rolls_back(&mut self) -> Result<(), StoreError> {
        let look = raw_sql("ROLLBACK; SELECT current_setting('oncebox.begun', true)");
        let Ok(rows) = look.fetch_all(&mut self.connection).await else { return Ok(()) };
        let begun = rows.first().and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
        if begun == Some(self.transactions.to_string()) {
            return Err(breached());
        }
        Ok(())
    }

    /// What the seal found, if it is the seal that failed.
    fn broken_seal(&self, error: &sqlx::Error) -> Option<StoreError> {
        let message = error.as_database_error()?.message();
        let (_, found) = message.split_once(SEAL)?;
        let (mark, durability) = found.split_once(' ')?;
        self.judge(mark, durability.trim_end_matches(|c: char| !c.is_ascii_alphabetic())).err()
    }

    /// Whether the transaction is the one that was begun, and as durable.
    fn judge(&self, mark: &str, durability: &str) -> Result<(), StoreError> {
        let Self { transactions, synchronous_commit, .. } = self;
        if mark != transactions.to_string() {
            return Err(breached());
        }
        if durability != *synchronous_commit {
            let why = format!("the handler changed synchronous_commit from {synchronous_commit} to {durability}");
            return Err(lost(why));
        }
        Ok(())
    }
}

fn breached() -> StoreError {
    let why = "the transaction that claimed has ended; the handler ran COMMIT or ROLLBACK itself";
    StoreError::new(StoreErrorKind::Breached, "commit", why)
}

fn lost(why: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::TransactionLost, "commit", why)
}

fn depth(connection: &PgConnection) -> usize {
    PgTransactionManager::get_transaction_depth(connection)
}

/// An ERROR that the server answered leaves nothing behind. FATAL and PANIC may have come after the commit record.
fn is_plain_error(error: &sqlx::Error) -> bool {
    let database = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    database.is_some_and(|error| error.severity() == PgSeverity::Error)
}

/// Whether the seal has found that the commit waits for a standby.
fn is_synchronous(sealed: &[PgRow]) -> bool {
    sealed.first().and_then(|row| row.try_get::<i32, _>(0).ok()) == Some(WAITS)
}

fn no_answer(attempted: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, attempted, "the server did not answer in time")
}

/// What became of a statement that was waited for only so long.
fn answer(attempted: fmt::Arguments<'_>, answer: Result<Result<(), sqlx::Error>, Elapsed>) -> Result<(), StoreError> {
    match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ours(attempted.to_string(), error)),
        Err(_) => Err(no_answer(attempted.to_string())),
    }
}

impl Dialect for PostgresDialect {
    type Db = PgConnection;
    type Idle = PostgresIdle;
    type Open = PostgresOpen;
    type Doubt = Backend;

    const MIGRATIONS: &'static [Migration] = &[
        Migration { version: 1, name: "inbox", sql: include_str!("../migrations/postgres/0001_inbox.sql") },
        Migration { version: 2, name: "queue", sql: include_str!("../migrations/postgres/0002_queue.sql") },
        Migration { version: 3, name: "parked", sql: include_str!("../migrations/postgres/0003_parked.sql") },
        Migration { version: 4, name: "versions", sql: include_str!("../migrations/postgres/0004_versions.sql") },
        Migration { version: 5, name: "operators", sql: include_str!("../migrations/postgres/0005_operators.sql") },
        Migration { version: 6, name: "outbox", sql: include_str!("../migrations/postgres/0006_outbox.sql") },
        Migration { version: 7, name: "waits", sql: include_str!("../migrations/postgres/0007_waits.sql") },
        Migration { version: 8, name: "offsets", sql: include_str!("../migrations/postgres/0008_offsets.sql") },
        Migration { version: 9, name: "counters", sql: include_str!("../migrations/postgres/0009_counters.sql") },
        Migration { version: 10, name: "archive", sql: include_str!("../migrations/postgres/0010_archive.sql") },
        Migration { version: 11, name: "journal", sql: include_str!("../migrations/postgres/0011_journal.sql") },
        Migration { version: 12, name: "depths", sql: include_str!("../migrations/postgres/0012_depths.sql") },
        Migration { version: 13, name: "identity", sql: include_str!("../migrations/postgres/0013_identity.sql") },
        Migration { version: 14, name: "given up", sql: include_str!("../migrations/postgres/0014_given_up.sql") },
        Migration { version: 15, name: "apart", sql: include_str!("../migrations/postgres/0015_apart.sql") },
    ];

    fn place(&self) -> &str {
        &self.place
    }

    fn schema(&self) -> &str {
        self.schema.as_str()
    }

    fn in_schema(&self, text: &str) -> String {
        text.replace("{schema}", &self.schema.to_string())
    }

    fn capabilities(&self) -> StoreCapabilities {
        let mut capabilities = StoreCapabilities::none("postgres");
        capabilities.durable = self.durable.load(Ordering::Relaxed);
        capabilities.shared = true;
        capabilities.concurrent = true;
        capabilities.error_aborts = true;
        capabilities
    }

    fn patience(&self) -> Duration {
        self.timeouts.statement + GRACE
    }

    async fn connect(&self) -> Result<PostgresIdle, StoreError> {
        let work = async {
            let connection = self.options.connect().await.map_err(|error| ours(self.attempted_connect(), error))?;
            self.greet(connection).await
        };
        timeout(CONNECT_MAX, work).await.unwrap_or_else(|_| Err(no_answer(self.attempted_connect())))
    }

    async fn begin(&self, mut idle: PostgresIdle, lock_wait: Duration) -> Result<PostgresOpen, StoreError> {
        let first = depth(&idle.connection) == 0;
        let statement = idle.next_begin("", lock_wait);
        let begin = async {
            match first {
                true => PgTransactionManager::begin(&mut idle.connection, Some(statement)).await,
                false => idle.connection.script(statement).await,
            }
        };
        let begun = timeout(self.patience(), begin).await;
        answer(format_args!("begin a transaction on {}", self.place), begun)?;
        Ok(PostgresOpen { idle, lock_wait })
    }

    async fn restart(&self, open: &mut PostgresOpen) -> Result<(), StoreError> {
        let statement = open.idle.next_begin("ROLLBACK; ", open.lock_wait);
        let begin = open.idle.connection.script(statement);
        let begun = timeout(self.patience(), begin).await;
        answer(format_args!("begin a transaction again on {}", self.place), begun)
    }

    fn db(open: &mut PostgresOpen) -> &mut PgConnection {
        &mut open.idle.connection
    }

    fn alive(&self, open: &PostgresOpen) -> Result<(), StoreError> {
        // A nested begin that was cancelled queues a ROLLBACK of the outer transaction: depth 0. One that was neither
        // committed nor rolled back would turn COMMIT into RELEASE: depth 2.
        match depth(&open.idle.connection) {
            1 => Ok(()),
            0 => Err(lost("the transaction was rolled back, probably by a nested begin that was cancelled")),
            _ => Err(lost("a nested transaction was left open")),
        }
    }

    async fn verify(&self, open: &mut PostgresOpen) -> Result<(), StoreError> {
        // A cancelled nested begin has queued a ROLLBACK of everything: ended, and nothing committed.
        if depth(&open.idle.connection) == 0 {
            return Ok(());
        }
        match timeout(GRACE, self.look(open)).await {
            Ok(Err(error)) if error.kind() == StoreErrorKind::Breached => Err(error),
            // What is aborted may be another one, that began where the handler ended ours.
            Ok(Err(_)) => timeout(GRACE, open.idle.rolls_back()).await.unwrap_or(Ok(())),
            _ => Ok(()),
        }
    }

    async fn commit(&self, mut open: PostgresOpen) -> Ended<PostgresIdle, Backend> {
        if let Err(error) = self.alive(&open) {
            return Ended::RolledBack { session: None, error };
        }
        let statement = open.idle.sealed_commit();
        let (backend, begun) = (open.idle.backend, Instant::now());
        match self.answer_of(backend, raw_sql(statement).fetch_all(&mut open.idle.connection)).await {
            Some(Ok(rows)) if !is_synchronous(&rows) => Ended::Committed(open.idle),
            Some(Ok(_)) => match self.confirm(backend, begun.elapsed(), &mut open.idle.connection).await {
                Ok(()) => Ended::Committed(open.idle),
                Err(error) => Ended::Unknown { doubt: backend, error },
            },
            Some(Err(error)) if is_plain_error(&error) => {
                let error = open.idle.broken_seal(&error).unwrap_or_else(|| refused_commit(error));
                Ended::RolledBack { session: self.rollback(open).await, error }
            }
            Some(Err(error)) => {
                let reason = format!("the answer was lost; {}", read(&error).reason);
                let error = StoreError::new(StoreErrorKind::Unavailable, "commit", reason).with_source(error);
                Ended::Unknown { doubt: backend, error }
            }
            None => Ended::Unknown { doubt: backend, error: no_answer("commit") },
        }
    }

    async fn rollback(&self, mut open: PostgresOpen) -> Option<PostgresIdle> {
        if depth(&open.idle.connection) != 1 {
            return None;
        }
        // A session that has lost its prepared statements fails from now on, whatever it runs.
        let rollback = open.idle.connection.script(SqlStr::from_static("ROLLBACK; EXECUTE oncebox_prepared"));
        let done = timeout(GRACE, rollback).await;
        matches!(done, Ok(Ok(()))).then_some(open.idle)
    }

    fn abandon(&self, open: PostgresOpen) -> Backend {
        open.idle.backend
    }

    async fn resolve(&self, backend: &Backend) -> Result<(), StoreError> {
        self.end(*backend).await
    }

    fn commits_wait_for(&self) -> Option<String> {
        self.waits.what()
    }

    fn queries(&self) -> Queries {
        let schema = self.schema.to_string();
        let query = |file: &str| Query::new(file, &schema);
        Queries {
            inbox: InboxQueries {
                claim: query(include_str!("../queries/postgres/inbox/claim.sql")),
                claim_fresh: query(include_str!("../queries/postgres/inbox/claim_fresh.sql")),
                claim_one: query(include_str!("../queries/postgres/inbox/claim_one.sql")),
                read: query(include_str!("../queries/postgres/inbox/read.sql")),
                record: query(include_str!("../queries/postgres/inbox/record.sql")),
                find_parked: query(include_str!("../queries/postgres/inbox/find_parked.sql")),
                reclaim: query(include_str!("../queries/postgres/inbox/reclaim.sql")),
                unclaim: query(include_str!("../queries/postgres/inbox/unclaim.sql")),
                alive: query(include_str!("../queries/postgres/inbox/alive.sql")),
                witness: Some(self.witness.clone()),
            },
            queue: QueueQueries {
                enqueue: query(include_str!("../queries/postgres/queue/enqueue.sql")),
                read_keys: query(include_str!("../queries/postgres/queue/read_keys.sql")),
                lease: query(include_str!("../queries/postgres/queue/lease.sql")),
                pick_in_lanes: query(include_str!("../queries/postgres/queue/pick_in_lanes.sql")),
                take_picked: query(include_str!("../queries/postgres/queue/take_picked.sql")),
                delete: query(include_str!("../queries/postgres/queue/delete.sql")),
                keep: query(include_str!("../queries/postgres/queue/keep.sql")),
                release: query(include_str!("../queries/postgres/queue/release.sql")),
                extend: query(include_str!("../queries/postgres/queue/extend.sql")),
                is_used: query(include_str!("../queries/postgres/queue/is_used.sql")),
            },
            lanes: LaneQueries {
                create: query(include_str!("../queries/postgres/lanes/create.sql")),
                clear: query(include_str!("../queries/postgres/lanes/clear.sql")),
                check: query(include_str!("../queries/postgres/lanes/check.sql")),
                join: query(include_str!("../queries/postgres/lanes/join.sql")),
                forget: query(include_str!("../queries/postgres/lanes/forget.sql")),
                count: query(include_str!("../queries/postgres/lanes/count.sql")),
                give_back: query(include_str!("../queries/postgres/lanes/give_back.sql")),
                renew: query(include_str!("../queries/postgres/lanes/renew.sql")),
                take: query(include_str!("../queries/postgres/lanes/take.sql")),
                leave: query(include_str!("../queries/postgres/lanes/leave.sql")),
                resign: query(include_str!("../queries/postgres/lanes/resign.sql")),
            },
            parked: ParkedQueries {
                park: query(include_str!("../queries/postgres/parked/park.sql")),
                own: query(include_str!("../queries/postgres/parked/own.sql")),
                keys: query(include_str!("../queries/postgres/parked/keys.sql")),
                is_blocked: query(include_str!("../queries/postgres/parked/is_blocked.sql")),
                count_blocking: query(include_str!("../queries/postgres/parked/count_blocking.sql")),
                pick: query(include_str!("../queries/postgres/parked/pick.sql")),
                take: query(include_str!("../queries/postgres/parked/take.sql")),
                extend: query(include_str!("../queries/postgres/parked/extend.sql")),
                release: query(include_str!("../queries/postgres/parked/release.sql")),
                settle: query(include_str!("../queries/postgres/parked/settle.sql")),
                end: query(include_str!("../queries/postgres/parked/end.sql")),
                places: query(include_str!("../queries/postgres/parked/places.sql")),
                put_back: query(include_str!("../queries/postgres/parked/put_back.sql")),
                note_start: query(include_str!("../queries/postgres/parked/note_start.sql")),
                note_wait: query(include_str!("../queries/postgres/parked/note_wait.sql")),
                forget_starts: query(include_str!("../queries/postgres/parked/forget_starts.sql")),
                count_gaps: query(include_str!("../queries/postgres/parked/count_gaps.sql")),
                wake_gaps: query(include_str!("../queries/postgres/parked/wake_gaps.sql")),
                keep_turns: Some(query(include_str!("../queries/postgres/parked/keep_turns.sql"))),
                wake_next: query(include_str!("../queries/postgres/parked/wake_next.sql")),
                find_behind: query(include_str!("../queries/postgres/parked/find_behind.sql")),
                set_behind: query(include_str!("../queries/postgres/parked/set_behind.sql")),
            },
            versions: VersionQueries {
                lock: query(include_str!("../queries/postgres/versions/lock.sql")),
                read: query(include_str!("../queries/postgres/versions/read.sql")),
                add: query(include_str!("../queries/postgres/versions/add.sql")),
                advance: query(include_str!("../queries/postgres/versions/advance.sql")),
            },
            operators: OperatorQueries::postgres(query),
            outbox: OutboxQueries::postgres(query),
            offsets: OffsetQueries::postgres(query),
            counters: CounterQueries::postgres(query),
            depths: DepthQueries::postgres(query),
            names: NameQueries {
                add_consumer: query(include_str!("../queries/postgres/names/add_consumer.sql")),
                find_consumer: query(include_str!("../queries/postgres/names/find_consumer.sql")),
                add_queue: query(include_str!("../queries/postgres/names/add_queue.sql")),
                find_queue: query(include_str!("../queries/postgres/names/find_queue.sql")),
                set_queue_lanes: query(include_str!("../queries/postgres/names/set_queue_lanes.sql")),
                read_identity: query(include_str!("../queries/postgres/names/read_identity.sql")),
                lock_identity: query(include_str!("../queries/postgres/names/lock_identity.sql")),
                set_identity: query(include_str!("../queries/postgres/names/set_identity.sql")),
            },
            schema: SchemaQueries {
                lock: Some(query(include_str!("../queries/postgres/schema/lock.sql"))),
                exists: query(include_str!("../queries/postgres/schema/exists.sql")),
                tables: query(include_str!("../queries/postgres/schema/tables.sql")),
                create: query(include_str!("../queries/postgres/schema/create.sql")),
                applied: query(include_str!("../queries/postgres/schema/applied.sql")),
                note: query(include_str!("../queries/postgres/schema/note.sql")),
                identify: query(include_str!("../queries/postgres/schema/identify.sql")),
                identity: query(include_str!("../queries/postgres/schema/identity.sql")),
            },
        }
    }
}

impl fmt::Debug for PostgresDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the options: they hold the password.
        f.debug_struct("PostgresDialect").field("place", &self.place).field("schema", &self.schema).finish()
    }
}

impl fmt::Debug for PostgresIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresIdle").field("backend", &self.backend).finish_non_exhaustive()
    }
}
