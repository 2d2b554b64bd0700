//! The rows of the matrix: what runs, on what, and what is done to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One setting of the matrix. A worker process gets it as JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) store: StoreKind,
    pub(crate) source: SourceKind,
    pub(crate) handler: HandlerKind,
    /// Messages are stored first, acknowledged, and handled from the table.
    pub(crate) stored: bool,
    pub(crate) workers: usize,
    pub(crate) lanes: usize,
    pub(crate) faults: Faults,
    pub(crate) feed: FeedKind,
    /// How often something has to happen before the row is done: kills, stops, cuts or server crashes.
    pub(crate) blows: u64,
    /// At least this many messages pass.
    pub(crate) messages_min: u64,
    /// Some messages are of a type whose handler is deployed when half of them are on their way.
    pub(crate) late: bool,
    /// An operator revives what is dead, all the time and at the end.
    pub(crate) operator: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum SourceKind {
    /// The queue in the store, which settles in the message's transaction.
    Queue,
    /// The same with leased lanes.
    OrderedQueue,
    /// A broker outside of the store, which is told after the commit.
    Broker,
    /// One whose partitions have one owner each, and change hands without a word to the old one.
    Partitions,
    /// One which does not count deliveries: it knows at most that a message was delivered before.
    Uncounted,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum HandlerKind {
    /// One message per call.
    Each,
    /// Many per call.
    Batch,
    /// No inbox: the queue's fence alone keeps a message from taking effect twice.
    Fenced,
}

/// What is done to the workers, or to what is between them and their store.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Faults {
    /// Nothing: the messages themselves are the trouble.
    None,
    /// SIGKILL at a crash point, or at any moment.
    Kill,
    /// SIGSTOP past the lease, then SIGCONT.
    Stop,
    /// Connections cut inside COMMIT.
    CommitCuts,
    /// The connection is cut inside COMMIT and the worker is killed at the same moment.
    CommitKill,
    /// PostgreSQL is killed with SIGKILL inside COMMIT and started again.
    ServerCrash,
    /// The disk of the store fills up and has room again.
    DiskFull,
    /// Statements are cancelled by an administrator.
    Cancel,
    /// Columns are added beside handlers that read all of them.
    Ddl,
    /// Partitions change hands, most of all while a message of theirs fails.
    Rebalance,
    /// The standby that commits wait for goes away, waits are ended, the primary dies, and the standby takes over.
    Failover,
    /// A worker that builds keys in another way is started under the consumer's name.
    OtherKey,
}

/// What kind of messages pass.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum FeedKind {
    /// Plain ones, 30 % of them sent again later.
    Plain,
    /// Plain ones, most of them on two business rows that every worker updates.
    HotKeys,
    /// A few of them kill every process that handles them.
    Killers,
    /// A few of them fail at first.
    Failing,
    /// A few of them have handlers that swallow an SQL error.
    Swallowing,
    /// Ids that differ in case only, or only at the end of a long text.
    Twins,
    /// Now and then another content under an id that was used before.
    Conflicts,
    /// Each takes longer than the lease.
    Slow,
    /// Everything is sent again at once, from the last to the first.
    Echo,
    /// Versions of aggregates, in any order.
    Versions,
    /// Plain ones, while every other worker makes other keys than the rest, and bridges the change.
    Rekeyed,
    /// A few of them meet trouble of the server's at first, under every code that is not about the message.
    Foreign,
    /// A few of them lose their session its prepared statements.
    Deallocating,
    /// A few of them make something panic that the user wrote.
    Panicking,
    /// Handlers read whole rows.
    Star,
}

impl Row {
    pub(crate) fn new(store: StoreKind, source: SourceKind, workers: usize, faults: Faults) -> Self {
        let name = String::new();
        let (handler, feed) = (HandlerKind::Each, FeedKind::Plain);
        Self {
            name,
            store,
            source,
            handler,
            stored: false,
            workers,
            lanes: 4,
            faults,
            feed,
            blows: 60,
            messages_min: 300,
            late: false,
            operator: false,
        }
        .named()
    }

    pub(crate) fn handler(self, handler: HandlerKind) -> Self {
        Self { handler, ..self }.named()
    }

    pub(crate) fn feed(self, feed: FeedKind) -> Self {
        Self { feed, ..self }.named()
    }

    pub(crate) fn stored(self) -> Self {
        Self { stored: true, ..self }.named()
    }

    pub(crate) fn late(self) -> Self {
        Self { late: true, ..self }.named()
    }

    pub(crate) fn operator(self) -> Self {
        Self { operator: true, ..self }.named()
    }

    pub(crate) fn lanes(self, lanes: usize) -> Self {
        Self { lanes, ..self }.named()
    }

    pub(crate) fn blows(self, blows: u64) -> Self {
        Self { blows, ..self }
    }

    pub(crate) fn messages(self, messages_min: u64) -> Self {
        Self { messages_min, ..self }
    }

    fn named(self) -> Self {
        let mode = if self.stored { " stored" } else { "" };
        let late = if self.late { " late" } else { "" };
        let operator = if self.operator { " operator" } else { "" };
        let name = format!(
            "{:?} {:?}{mode} {:?} {:?} {:?}{late}{operator} workers={} lanes={}",
            self.store, self.source, self.handler, self.faults, self.feed, self.workers, self.lanes
        );
        Self { name: name.to_lowercase(), ..self }
    }

    /// Messages of one key are applied in the order in which they were sent.
    pub(crate) fn keeps_order(&self) -> bool {
        self.orders_by_key() || self.feed == FeedKind::Versions
    }

    /// Workers may be gone in the middle of anything, so a handler may be called more than once for a message.
    pub(crate) fn calls_once(&self) -> bool {
        self.faults == Faults::None && self.feed == FeedKind::Slow
    }

    /// No two transactions lock business rows in different orders, so the store should see no deadlock.
    pub(crate) fn has_no_deadlock(&self) -> bool {
        self.store == StoreKind::Postgres && self.feed == FeedKind::Echo
    }

    /// Without an inbox nothing can tell that a message was sent twice.
    pub(crate) fn copies_allowed(&self) -> bool {
        self.handler != HandlerKind::Fenced
    }

    /// Order is kept by the consumer, and not by versions alone.
    pub(crate) fn orders_by_key(&self) -> bool {
        matches!(self.source, SourceKind::OrderedQueue | SourceKind::Partitions)
    }

    /// Whether a worker gets to this crash point: nothing is set aside where nothing fails.
    pub(crate) fn passes(&self, point: &str) -> bool {
        let sets_aside = matches!(self.feed, FeedKind::Failing | FeedKind::Killers | FeedKind::Conflicts);
        sets_aside || self.late || !["started", "parking", "parked"].contains(&point)
    }

    pub(crate) fn has_proxy(&self) -> bool {
        matches!(self.faults, Faults::CommitCuts | Faults::CommitKill)
    }

    /// Short, so that what a dead worker held comes again soon.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(600)
    }
}

/// Every crash point on both stores, by every kind of consumer, with one, two and eight workers.
pub(crate) fn matrix() -> Vec<Row> {
    use Faults::{CommitCuts, CommitKill, DiskFull, Kill, ServerCrash, Stop};
    use FeedKind::{Conflicts, Echo, Failing, HotKeys, Killers, Rekeyed, Slow, Swallowing, Twins, Versions};
    use HandlerKind::{Batch, Fenced};
    use SourceKind::{Broker, OrderedQueue, Queue, Uncounted};
    use StoreKind::{Postgres, Sqlite};

    let mut rows = Vec::new();
    for store in [Sqlite, Postgres] {
        let row = |source, workers, faults| Row::new(store, source, workers, faults);
        for workers in [1, 2, 8] {
            rows.push(row(Queue, workers, Kill));
            rows.push(row(OrderedQueue, workers, Kill));
            rows.push(row(Broker, workers, Kill));
        }
        rows.push(row(Broker, 2, Kill).stored());
        rows.push(row(Broker, 8, Kill).stored().feed(Failing));
        rows.push(row(Broker, 2, Kill).handler(Batch));
        rows.push(row(Queue, 2, Kill).handler(Batch).feed(Failing));
        rows.push(row(Queue, 8, Kill).feed(HotKeys));
        rows.push(row(Broker, 8, Kill).feed(Failing));
        rows.push(row(OrderedQueue, 2, Kill).feed(Failing));
        rows.push(row(Queue, 2, Kill).lanes(1));
        rows.push(row(Queue, 2, Stop).blows(5));
        rows.push(row(Queue, 2, Stop).handler(Fenced).blows(5));
        rows.push(row(OrderedQueue, 2, Stop).blows(5));
        rows.push(row(Broker, 2, Faults::None).feed(Killers).blows(0).messages(400));
        rows.push(row(Uncounted, 2, Faults::None).feed(Killers).blows(0).messages(200));
        rows.push(row(Queue, 2, Faults::None).feed(Killers).blows(0).messages(200));
        rows.push(row(Broker, 2, Kill).feed(Versions));
        rows.push(row(Broker, 2, Kill).feed(Rekeyed));
        rows.push(row(Queue, 2, Faults::None).feed(Twins).blows(0));
        rows.push(row(Queue, 2, Faults::None).feed(Conflicts).blows(0));
    }
    // On SQLite a handler that takes long keeps everybody from writing, renewals included: nothing to be tested there.
    rows.push(Row::new(Postgres, Queue, 2, Faults::None).feed(Slow).blows(0).messages(8));
    rows.push(Row::new(Postgres, Broker, 2, Kill).feed(Swallowing));
    rows.push(Row::new(Postgres, Broker, 2, Faults::None).feed(Echo).blows(0).messages(1_000));
    rows.push(Row::new(Postgres, Broker, 2, CommitCuts).blows(200));
    rows.push(Row::new(Postgres, Queue, 2, CommitCuts).blows(200));
    rows.push(Row::new(Postgres, Broker, 1, CommitKill).blows(60));
    rows.push(Row::new(Postgres, Queue, 2, ServerCrash).blows(5));
    rows.push(Row::new(Postgres, Broker, 2, ServerCrash).blows(5));
    rows.push(Row::new(Sqlite, Queue, 2, DiskFull).blows(3));
    rows.push(Row::new(Postgres, Broker, 2, DiskFull).blows(3));
    rows.extend(troubles());
    rows
}

/// What goes on around a consumer, and what it calls: deployments, operators, administrators, other owners, panics.
fn troubles() -> Vec<Row> {
    use FeedKind::{Failing, Versions};
    use SourceKind::{Broker, OrderedQueue};
    use StoreKind::{Postgres, Sqlite};

    let mut rows = Vec::new();
    for store in [Sqlite, Postgres] {
        rows.push(late(store, Broker, Failing));
        rows.push(late(store, OrderedQueue, Failing));
        rows.push(late(store, Broker, Versions));
        rows.push(panicking(store));
    }
    rows.push(Row::new(Postgres, OrderedQueue, 2, Faults::Kill).feed(Failing).late().operator().blows(30));
    rows.extend([foreign(), deallocating(), cancels(), ddl(), zombies(), failover(), other_key()]);
    rows
}

/// A handler is deployed late, and an operator revives what was parked for want of it while copies come and both fail.
pub(crate) fn late(store: StoreKind, source: SourceKind, feed: FeedKind) -> Row {
    Row::new(store, source, 2, Faults::None).feed(feed).late().operator().blows(0)
}

/// Panics in everything that the user wrote, on a broker without leases.
pub(crate) fn panicking(store: StoreKind) -> Row {
    Row::new(store, SourceKind::Broker, 2, Faults::None).feed(FeedKind::Panicking).operator().blows(0).messages(200)
}

/// Codes that are not about the message.
pub(crate) fn foreign() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Broker, 2, Faults::None).feed(FeedKind::Foreign).blows(0)
}

/// Sessions without their prepared statements.
fn deallocating() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Broker, 2, Faults::None)
        .feed(FeedKind::Deallocating)
        .blows(0)
        .messages(200)
}

/// Statements that an administrator cancels.
fn cancels() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Broker, 2, Faults::Cancel).blows(80)
}

/// Columns that are added beside handlers that read them all.
fn ddl() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Queue, 2, Faults::Ddl).feed(FeedKind::Star).blows(6)
}

/// Owners that park what is no longer theirs.
pub(crate) fn zombies() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Partitions, 2, Faults::Rebalance).feed(FeedKind::Failing).blows(40)
}

/// A standby that takes over from a primary whose commits waited for it.
pub(crate) fn failover() -> Row {
    Row::new(StoreKind::Postgres, SourceKind::Broker, 2, Faults::Failover).blows(1)
}

/// Another way to build keys under the same name.
pub(crate) fn other_key() -> Row {
    Row::new(StoreKind::Sqlite, SourceKind::Broker, 2, Faults::OtherKey).blows(3)
}
