//! Which row notices which planted bug.

use crate::row::{self, Faults, FeedKind, HandlerKind, Row, SourceKind, StoreKind};

/// Every planted bug, with a row that has to go red when it is alive.
pub(crate) fn bugs() -> Vec<(&'static str, Row)> {
    use Faults::{CommitCuts, Kill, Stop};
    use SourceKind::{Broker, OrderedQueue, Queue, Uncounted};
    use StoreKind::{Postgres, Sqlite};

    let quiet = |store, feed| Row::new(store, Queue, 2, Faults::None).feed(feed).blows(0);
    vec![
        ("claim-skipped", Row::new(Sqlite, Broker, 2, Faults::None).blows(0)),
        ("claim-outside-transaction", Row::new(Sqlite, Broker, 2, Kill)),
        ("ack-before-commit", Row::new(Sqlite, Queue, 2, Kill)),
        ("stored-acknowledged-first", Row::new(Sqlite, Broker, 2, Kill).stored()),
        ("rolled-back-batch-acknowledged", Row::new(Sqlite, Broker, 8, Kill).feed(FeedKind::Failing)),
        ("unknown-as-done", Row::new(Postgres, Broker, 2, CommitCuts).blows(40)),
        ("unknown-as-failed", Row::new(Postgres, Broker, 2, CommitCuts).blows(40)),
        ("seal-left-out", Row::new(Postgres, Broker, 2, Kill).feed(FeedKind::Swallowing)),
        ("hook-before-commit", Row::new(Sqlite, Queue, 2, Kill)),
        ("lane-order-broken", Row::new(Sqlite, OrderedQueue, 2, Kill)),
        ("no-fence", Row::new(Postgres, Queue, 2, Stop).handler(HandlerKind::Fenced).blows(5)),
        ("no-renewal", quiet(Postgres, FeedKind::Slow).messages(8)),
        ("fingerprint-ignored", quiet(Sqlite, FeedKind::Conflicts)),
        ("key-cut-short", quiet(Sqlite, FeedKind::Twins)),
        ("key-without-case", quiet(Sqlite, FeedKind::Twins)),
        ("park-after-ack", Row::new(Sqlite, Broker, 8, Kill).feed(FeedKind::Failing)),
        ("parked-not-ended", Row::new(Sqlite, Broker, 2, Faults::None).feed(FeedKind::Failing).blows(0)),
        ("parked-duplicate-of-itself", row::late(Sqlite, OrderedQueue, FeedKind::Failing)),
        ("panic-takes-messages", row::panicking(Sqlite)),
        ("server-trouble-blamed", row::foreign()),
        ("resolved-unwritten", row::failover()),
        ("start-in-handler-transaction", Row::new(Sqlite, Broker, 2, Faults::None).feed(FeedKind::Killers).blows(0)),
        ("arrivals-not-counted", Row::new(Sqlite, Uncounted, 2, Faults::None).feed(FeedKind::Killers).blows(0)),
        ("stale-applied", Row::new(Sqlite, Broker, 2, Faults::None).feed(FeedKind::Versions).blows(0)),
        ("scheme-unchecked", row::other_key()),
        ("unsorted-batch", Row::new(Postgres, Broker, 2, Faults::None).feed(FeedKind::Echo).blows(0).messages(1_000)),
    ]
}
