//! SQLite: one writer connection for the whole store, handed from transaction to transaction in the order they ask.
//!
//! Hooks on the connection watch what really happens: a COMMIT that we did not seal is turned into a rollback, and
//! a rollback that we did not ask for is counted. sqlx alone would not tell: its COMMIT reports success when
//! a cancelled nested begin has rolled the transaction back just before.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oncebox_core::error::{StoreError, StoreErrorKind};
use oncebox_core::planted;
use oncebox_core::store::{Ended, StoreCapabilities};
use sqlx::sqlite::{SqliteConnectOptions, SqliteTransactionManager};
use sqlx::{ConnectOptions, Connection as _, SqlStr, SqliteConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};

use super::Dialect;
use super::same_file::SameFile;
use crate::connection::Call;
use crate::counter_queries::{CounterQueries, DepthQueries};
use crate::error::{ours, read};
use crate::offset_queries::OffsetQueries;
use crate::operator_queries::OperatorQueries;
use crate::outbox_queries::OutboxQueries;
use crate::queries::{
    InboxQueries, LaneQueries, NameQueries, ParkedQueries, Queries, Query, QueueQueries, SchemaQueries, VersionQueries,
};
use crate::schema::Migration;

/// Older ones can damage a write-ahead log when it is reset.
const VERSION_MIN: [u32; 3] = [3, 51, 3];
/// How often to look whether another process has let go of the file. Nothing queues for it, and SQLite's own wait looks
/// ever more rarely, up to ten times a second: beside a busy process, that is hardly ever.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// An abandoned statement looks up this often, in steps of SQLite's virtual machine: every few milliseconds.
const STEPS_BETWEEN_LOOKS: i32 = 100_000;

/// SQLite, compiled in.
pub struct SqliteDialect {
    options: SqliteConnectOptions,
    place: String,
    busy_timeout: Duration,
    durable: bool,
    /// How a transaction begins.
    begin: &'static str,
    /// Empty while a transaction has the writer, and after one was dropped with it.
    writer: Arc<Mutex<Option<Writer>>>,
    version: Query,
    file: SameFile,
    looks_only: bool,
}

/// A claim to the one writer, when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct SqliteIdle;

/// The writer, in a transaction. Fields are dropped in this order: the connection closes, then the next one may open
/// another.
pub struct SqliteOpen {
    writer: Writer,
    rollbacks_before: u64,
    place: OwnedMutexGuard<Option<Writer>>,
}

/// Some transaction of a connection that was closed in the middle.
#[derive(Clone, Copy, Debug)]
pub struct SqliteDoubt;

struct Writer {
    connection: SqliteConnection,
    watch: Arc<Watch>,
}

/// What the hooks of a connection and its owner tell each other.
#[derive(Debug, Default)]
struct Watch {
    /// Set by us around our own COMMIT. Read by the commit hook, which refuses every other one.
    sealed: AtomicBool,
    /// Counted by the commit hook.
    commits: AtomicU64,
    /// Counted by the rollback hook.
    rollbacks: AtomicU64,
    /// Set when the owner is gone; a statement that still runs ends.
    abandoned: AtomicBool,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The connection's thread ends by itself, once its statement does.
        self.watch.abandoned.store(true, Ordering::Release);
    }
}

impl SqliteDialect {
    pub(crate) fn new(
        options: SqliteConnectOptions,
        place: String,
        busy_timeout: Duration,
        durable: bool,
        looks_only: bool,
    ) -> Self {
        let version = Query::new(include_str!("../queries/sqlite/session/version.sql"), "");
        // IMMEDIATE: a transaction that turns into a writer halfway is refused at once, whatever the timeout.
        let begin = if looks_only { "BEGIN DEFERRED" } else { "BEGIN IMMEDIATE" };
        let (writer, file) = (Arc::default(), SameFile::new(options.get_filename()));
        Self { options, place, busy_timeout, durable, begin, writer, version, file, looks_only }
    }

    fn with_place(&self, (kind, why): (StoreErrorKind, &str)) -> StoreError {
        StoreError::new(kind, format!("write to {}", self.place), why)
    }

    fn attempted_open(&self) -> String {
        format!("open {}", self.place)
    }

    /// Opens the writer. Turning on the write-ahead log needs the file for itself and does not wait for it, so
    /// processes that start together try again.
    async fn open(&self) -> Result<Writer, StoreError> {
        let deadline = Instant::now() + self.busy_timeout;
        loop {
            match self.open_once().await {
                Err(error) if error.kind() == StoreErrorKind::Contended && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn open_once(&self) -> Result<Writer, StoreError> {
        let failed = |error| ours(self.attempted_open(), error);
        let mut connection = self.options.connect().await.map_err(failed)?;
        let rows = Call::new("ask SQLite for its version", &self.version).fetch(&mut connection).await?;
        let version = rows.into_iter().next().map_or(Ok(String::new()), |mut row| row.text())?;
        if !is_new_enough(&version) {
            let least = VERSION_MIN.map(|part| part.to_string()).join(".");
            let why = format!("its library is SQLite {version}; {least} or newer is needed");
            return Err(StoreError::new(StoreErrorKind::Configuration, self.attempted_open(), why));
        }
        self.file.opened().map_err(|error| self.with_place(error))?;
        if !self.looks_only {
            // SQLite opens what it may not write for reading, says nothing, and lets a write transaction begin.
            let trial = SqlStr::from_static("BEGIN IMMEDIATE; CREATE TABLE oncebox_trial (x); ROLLBACK");
            match crate::connection::Connection::script(&mut connection, trial).await.map_err(failed) {
                // Another process writes it right now, so it can be written.
                Err(error) if error.kind() == StoreErrorKind::Contended => {}
                answer => answer?,
            }
        }
        let watch = Arc::new(Watch::default());
        let mut handle = connection.lock_handle().await.map_err(failed)?;
        let hook = Arc::clone(&watch);
        handle.set_commit_hook(move || {
            hook.commits.fetch_add(1, Ordering::AcqRel);
            hook.sealed.load(Ordering::Acquire) || planted::is("seal-left-out")
        });
        let hook = Arc::clone(&watch);
        handle.set_rollback_hook(move || {
            hook.rollbacks.fetch_add(1, Ordering::AcqRel);
        });
        let hook = Arc::clone(&watch);
        handle.set_progress_handler(STEPS_BETWEEN_LOOKS, move || !hook.abandoned.load(Ordering::Acquire));
        drop(handle);
        Ok(Writer { connection, watch })
    }
}

fn is_new_enough(version: &str) -> bool {
    let parts: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    parts.as_slice() >= VERSION_MIN.as_slice()
}

fn lost(why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::TransactionLost, "commit", why)
}

/// Whether the database refused this COMMIT and kept the transaction open. After other errors (the disk, the file)
/// nobody knows what a reader will find.
fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(read(error).kind, StoreErrorKind::Contended | StoreErrorKind::Refused)
        && error.as_database_error().is_some()
}

impl SqliteOpen {
    /// Hands the writer to the next transaction.
    fn give_back(self) -> SqliteIdle {
        let Self { writer, mut place, .. } = self;
        *place = Some(writer);
        SqliteIdle
    }

    fn is_alive(&self) -> bool {
        let depth = SqliteTransactionManager::get_transaction_depth(&self.writer.connection);
        depth == 1 && self.writer.watch.rollbacks.load(Ordering::Acquire) == self.rollbacks_before
    }
}

impl Dialect for SqliteDialect {
    type Db = SqliteConnection;
    type Idle = SqliteIdle;
    type Open = SqliteOpen;
    type Doubt = SqliteDoubt;

    const MIGRATIONS: &'static [Migration] = &[
        Migration { version: 1, name: "inbox", sql: include_str!("../migrations/sqlite/0001_inbox.sql") },
        Migration { version: 2, name: "queue", sql: include_str!("../migrations/sqlite/0002_queue.sql") },
        Migration { version: 3, name: "parked", sql: include_str!("../migrations/sqlite/0003_parked.sql") },
        Migration { version: 4, name: "versions", sql: include_str!("../migrations/sqlite/0004_versions.sql") },
        Migration { version: 5, name: "operators", sql: include_str!("../migrations/sqlite/0005_operators.sql") },
        Migration { version: 6, name: "outbox", sql: include_str!("../migrations/sqlite/0006_outbox.sql") },
        Migration { version: 7, name: "waits", sql: include_str!("../migrations/sqlite/0007_waits.sql") },
        Migration { version: 8, name: "offsets", sql: include_str!("../migrations/sqlite/0008_offsets.sql") },
        Migration { version: 9, name: "counters", sql: include_str!("../migrations/sqlite/0009_counters.sql") },
        Migration { version: 10, name: "archive", sql: include_str!("../migrations/sqlite/0010_archive.sql") },
        Migration { version: 11, name: "journal", sql: include_str!("../migrations/sqlite/0011_journal.sql") },
        Migration { version: 12, name: "depths", sql: include_str!("../migrations/sqlite/0012_depths.sql") },
        Migration { version: 13, name: "identity", sql: include_str!("../migrations/sqlite/0013_identity.sql") },
        Migration { version: 14, name: "given up", sql: include_str!("../migrations/sqlite/0014_given_up.sql") },
        Migration { version: 15, name: "apart", sql: include_str!("../migrations/sqlite/0015_apart.sql") },
    ];

    fn place(&self) -> &str {
        &self.place
    }

    fn schema(&self) -> &str {
        "oncebox"
    }

    fn in_schema(&self, text: &str) -> String {
        text.to_owned()
    }

    fn capabilities(&self) -> StoreCapabilities {
        let mut capabilities = StoreCapabilities::none("sqlite");
        capabilities.durable = self.durable;
        capabilities.shared = true;
        capabilities
    }

    fn patience(&self) -> Duration {
        // A statement that holds the writer has no one to wait for; the bound is only for a file system that hangs.
        self.busy_timeout + Duration::from_secs(60)
    }

    async fn connect(&self) -> Result<SqliteIdle, StoreError> {
        Ok(SqliteIdle)
    }

    async fn begin(&self, SqliteIdle: SqliteIdle, lock_wait: Duration) -> Result<SqliteOpen, StoreError> {
        let attempted = "begin a transaction";
        // Row locks, which `lock_wait` is about, do not exist here. The whole file is the lock, so the wait gets room.
        let wait = lock_wait.max(self.busy_timeout);
        let Ok(mut place) = timeout(wait, Arc::clone(&self.writer).lock_owned()).await else {
            let why = "other transactions of this process hold the database";
            return Err(StoreError::new(StoreErrorKind::Contended, attempted, why));
        };
        self.file.check().map_err(|error| self.with_place(error))?;
        let mut writer = match place.take() {
            Some(writer) => writer,
            None => self.open().await?,
        };
        writer.watch.sealed.store(false, Ordering::Release);
        let rollbacks_before = writer.watch.rollbacks.load(Ordering::Acquire);
        let deadline = Instant::now() + self.busy_timeout;
        loop {
            let statement = SqlStr::from_static(self.begin);
            let Err(error) = SqliteTransactionManager::begin(&mut writer.connection, Some(statement)).await else {
                return Ok(SqliteOpen { writer, rollbacks_before, place });
            };
            let error = ours(attempted, error);
            if error.kind() != StoreErrorKind::Contended {
                return Err(error);
            }
            if Instant::now() >= deadline {
                *place = Some(writer);
                return Err(error);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// A statement that failed has changed nothing, and the transaction goes on.
    async fn restart(&self, open: &mut SqliteOpen) -> Result<(), StoreError> {
        self.alive(open)
    }

    fn db(open: &mut SqliteOpen) -> &mut SqliteConnection {
        &mut open.writer.connection
    }

    fn alive(&self, open: &SqliteOpen) -> Result<(), StoreError> {
        if open.is_alive() { Ok(()) } else { Err(lost("the transaction has ended, or a nested one was left open")) }
    }

    async fn verify(&self, _open: &mut SqliteOpen) -> Result<(), StoreError> {
        // The commit hook lets nobody else commit.
        Ok(())
    }

    async fn commit(&self, mut open: SqliteOpen) -> Ended<SqliteIdle, SqliteDoubt> {
        let rolled_back = |error| Ended::RolledBack { session: Some(SqliteIdle), error };
        // What a cancelled handler left in the queue of the connection's thread runs first: only then can we look.
        if let Err(error) = open.writer.connection.ping().await {
            return rolled_back(ours("commit", error));
        }
        let unsealed = planted::is("seal-left-out");
        if let Err(error) = self.alive(&open)
            && !unsealed
        {
            return rolled_back(error);
        }
        let watch = Arc::clone(&open.writer.watch);
        let commits_before = watch.commits.load(Ordering::Acquire);
        watch.sealed.store(true, Ordering::Release);
        let answer = SqliteTransactionManager::commit(&mut open.writer.connection).await;
        watch.sealed.store(false, Ordering::Release);
        let error = match answer {
            // The hook has seen this very COMMIT, so there was one.
            Ok(()) if unsealed || watch.commits.load(Ordering::Acquire) == commits_before + 1 => {
                // What was written into a file that is no longer the one of that name is gone with the next start.
                if let Err(other) = self.file.check() {
                    return Ended::Unknown { doubt: SqliteDoubt, error: self.with_place(other) };
                }
                return Ended::Committed(open.give_back());
            }
            Ok(()) => return rolled_back(lost("the transaction was gone before its COMMIT")),
            Err(error) => error,
        };
        if is_refusal(&error) {
            let rolled = SqliteTransactionManager::rollback(&mut open.writer.connection).await;
            if rolled.is_ok() && watch.rollbacks.load(Ordering::Acquire) == open.rollbacks_before + 1 {
                open.give_back();
                return rolled_back(ours("commit", error));
            }
        }
        let reason = format!("nobody knows whether it is on disk; {}", read(&error).reason);
        let error = StoreError::new(StoreErrorKind::Unavailable, "commit", reason).with_source(error);
        Ended::Unknown { doubt: SqliteDoubt, error }
    }

    async fn rollback(&self, mut open: SqliteOpen) -> Option<SqliteIdle> {
        let drained = open.writer.connection.ping().await.is_ok();
        if drained && open.is_alive() && SqliteTransactionManager::rollback(&mut open.writer.connection).await.is_ok() {
            return Some(open.give_back());
        }
        // The connection closes here; the handle that waits for the next one is as good as before.
        drop(open);
        Some(SqliteIdle)
    }

    fn abandon(&self, open: SqliteOpen) -> SqliteDoubt {
        drop(open);
        SqliteDoubt
    }

    /// A write transaction that begins proves that no other is left: the file has one writer at a time.
    async fn resolve(&self, _doubt: &SqliteDoubt) -> Result<(), StoreError> {
        let open = self.begin(SqliteIdle, self.busy_timeout).await.map_err(|error| {
            let attempted = "wait for the end of an unknown transaction";
            StoreError::new(StoreErrorKind::Unavailable, attempted, error.reason().to_owned())
        })?;
        self.rollback(open).await;
        Ok(())
    }

    fn queries(&self) -> Queries {
        let query = |file: &str| Query::new(file, "");
        Queries {
            inbox: InboxQueries {
                claim: query(include_str!("../queries/sqlite/inbox/claim.sql")),
                claim_fresh: query(include_str!("../queries/sqlite/inbox/claim_fresh.sql")),
                claim_one: query(include_str!("../queries/sqlite/inbox/claim_one.sql")),
                read: query(include_str!("../queries/sqlite/inbox/read.sql")),
                record: query(include_str!("../queries/sqlite/inbox/record.sql")),
                find_parked: query(include_str!("../queries/sqlite/inbox/find_parked.sql")),
                reclaim: query(include_str!("../queries/sqlite/inbox/reclaim.sql")),
                unclaim: query(include_str!("../queries/sqlite/inbox/unclaim.sql")),
                alive: query(include_str!("../queries/sqlite/inbox/alive.sql")),
                witness: None,
            },
            queue: QueueQueries {
                enqueue: query(include_str!("../queries/sqlite/queue/enqueue.sql")),
                read_keys: query(include_str!("../queries/sqlite/queue/read_keys.sql")),
                lease: query(include_str!("../queries/sqlite/queue/lease.sql")),
                pick_in_lanes: query(include_str!("../queries/sqlite/queue/pick_in_lanes.sql")),
                take_picked: query(include_str!("../queries/sqlite/queue/take_picked.sql")),
                delete: query(include_str!("../queries/sqlite/queue/delete.sql")),
                keep: query(include_str!("../queries/sqlite/queue/keep.sql")),
                release: query(include_str!("../queries/sqlite/queue/release.sql")),
                extend: query(include_str!("../queries/sqlite/queue/extend.sql")),
                is_used: query(include_str!("../queries/sqlite/queue/is_used.sql")),
            },
            lanes: LaneQueries {
                create: query(include_str!("../queries/sqlite/lanes/create.sql")),
                clear: query(include_str!("../queries/sqlite/lanes/clear.sql")),
                check: query(include_str!("../queries/sqlite/lanes/check.sql")),
                join: query(include_str!("../queries/sqlite/lanes/join.sql")),
                forget: query(include_str!("../queries/sqlite/lanes/forget.sql")),
                count: query(include_str!("../queries/sqlite/lanes/count.sql")),
                give_back: query(include_str!("../queries/sqlite/lanes/give_back.sql")),
                renew: query(include_str!("../queries/sqlite/lanes/renew.sql")),
                take: query(include_str!("../queries/sqlite/lanes/take.sql")),
                leave: query(include_str!("../queries/sqlite/lanes/leave.sql")),
                resign: query(include_str!("../queries/sqlite/lanes/resign.sql")),
            },
            parked: ParkedQueries {
                park: query(include_str!("../queries/sqlite/parked/park.sql")),
                own: query(include_str!("../queries/sqlite/parked/own.sql")),
                keys: query(include_str!("../queries/sqlite/parked/keys.sql")),
                is_blocked: query(include_str!("../queries/sqlite/parked/is_blocked.sql")),
                count_blocking: query(include_str!("../queries/sqlite/parked/count_blocking.sql")),
                pick: query(include_str!("../queries/sqlite/parked/pick.sql")),
                take: query(include_str!("../queries/sqlite/parked/take.sql")),
                extend: query(include_str!("../queries/sqlite/parked/extend.sql")),
                release: query(include_str!("../queries/sqlite/parked/release.sql")),
                settle: query(include_str!("../queries/sqlite/parked/settle.sql")),
                end: query(include_str!("../queries/sqlite/parked/end.sql")),
                places: query(include_str!("../queries/sqlite/parked/places.sql")),
                put_back: query(include_str!("../queries/sqlite/parked/put_back.sql")),
                note_start: query(include_str!("../queries/sqlite/parked/note_start.sql")),
                note_wait: query(include_str!("../queries/sqlite/parked/note_wait.sql")),
                forget_starts: query(include_str!("../queries/sqlite/parked/forget_starts.sql")),
                count_gaps: query(include_str!("../queries/sqlite/parked/count_gaps.sql")),
                wake_gaps: query(include_str!("../queries/sqlite/parked/wake_gaps.sql")),
                keep_turns: None,
                wake_next: query(include_str!("../queries/sqlite/parked/wake_next.sql")),
                find_behind: query(include_str!("../queries/sqlite/parked/find_behind.sql")),
                set_behind: query(include_str!("../queries/sqlite/parked/set_behind.sql")),
            },
            versions: VersionQueries {
                lock: query(include_str!("../queries/sqlite/versions/lock.sql")),
                // A reader sees what the writer has committed: here, too, nothing needs a lock.
                read: query(include_str!("../queries/sqlite/versions/lock.sql")),
                add: query(include_str!("../queries/sqlite/versions/add.sql")),
                advance: query(include_str!("../queries/sqlite/versions/advance.sql")),
            },
            operators: OperatorQueries::sqlite(query),
            outbox: OutboxQueries::sqlite(query),
            offsets: OffsetQueries::sqlite(query),
            counters: CounterQueries::sqlite(query),
            depths: DepthQueries::sqlite(query),
            names: NameQueries {
                add_consumer: query(include_str!("../queries/sqlite/names/add_consumer.sql")),
                find_consumer: query(include_str!("../queries/sqlite/names/find_consumer.sql")),
                add_queue: query(include_str!("../queries/sqlite/names/add_queue.sql")),
                find_queue: query(include_str!("../queries/sqlite/names/find_queue.sql")),
                set_queue_lanes: query(include_str!("../queries/sqlite/names/set_queue_lanes.sql")),
                read_identity: query(include_str!("../queries/sqlite/names/read_identity.sql")),
                lock_identity: query(include_str!("../queries/sqlite/names/lock_identity.sql")),
                set_identity: query(include_str!("../queries/sqlite/names/set_identity.sql")),
            },
            schema: SchemaQueries {
                lock: None,
                exists: query(include_str!("../queries/sqlite/schema/exists.sql")),
                tables: query(include_str!("../queries/sqlite/schema/tables.sql")),
                create: query(include_str!("../queries/sqlite/schema/create.sql")),
                applied: query(include_str!("../queries/sqlite/schema/applied.sql")),
                note: query(include_str!("../queries/sqlite/schema/note.sql")),
                identify: query(include_str!("../queries/sqlite/schema/identify.sql")),
                identity: query(include_str!("../queries/sqlite/schema/identity.sql")),
            },
        }
    }
}

impl fmt::Debug for SqliteDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDialect").field("place", &self.place).field("durable", &self.durable).finish()
    }
}

impl fmt::Debug for SqliteOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOpen").field("watch", &self.writer.watch).finish_non_exhaustive()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("watch", &self.watch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn versions_compare_by_number() {
        assert!(is_new_enough("3.51.3") && is_new_enough("3.100.0") && is_new_enough("4.0.0"));
        assert!(!is_new_enough("3.51.2") && !is_new_enough("3.9.99") && !is_new_enough("") && !is_new_enough("x"));
    }
}
