//! Counters of several processes are added up, and how much waits is counted up to a bound.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, SqlitePlace, begin, commit};
use oncebox_core::counters::{CounterStore, Counters, Depth, Part, Process, Tally, TallyBody};
use oncebox_core::depths::{DepthStore, Depths};
use oncebox_core::outbox::Outbox;
use oncebox_core::queue::{Enqueue, LaneRequest, QueueSpec, QueueStore, QueueTx};
use oncebox_core::{Clock, ConsumerName, Message, Outgoing, SystemClock, Transaction};
use oncebox_testkit::ManualClock;

const GONE_AFTER: Duration = Duration::from_secs(600);

fn process(label: &str) -> Process {
    Process { id: SystemClock.id(), label: label.to_owned() }
}

fn consumer(name: &str, handled: u64) -> Tally {
    let counts = BTreeMap::from([("handled".to_owned(), handled)]);
    let body = TallyBody { counts, in_hand: Some(1), guarantee: Some("once".to_owned()), ..TallyBody::default() };
    Tally { part: Part::Consumer(ConsumerName::new(name).unwrap()), body }
}

async fn start<S: CounterStore>(store: &S, process: &Process, tallies: &[Tally]) {
    let mut tx = begin(store).await;
    tx.begin_counters(process, tallies).await.unwrap();
    commit(tx).await;
}

async fn write<S: CounterStore>(store: &S, process: &Process, tallies: &[Tally]) -> bool {
    let mut tx = begin(store).await;
    let written = tx.write_counters(process.id, tallies).await.unwrap();
    if written {
        drop(commit(tx).await)
    } else {
        drop(tx.rollback().await)
    }
    written
}

async fn fold<S: CounterStore>(store: &S) -> u64 {
    let mut tx = begin(store).await;
    let folded = tx.fold_counters(GONE_AFTER, 2).await.unwrap();
    commit(tx).await;
    folded
}

/// The sum of a counter over all rows of a consumer, and how many rows there are.
async fn sum<S: CounterStore>(store: &S, name: &str) -> (u64, usize) {
    let mut tx = begin(store).await;
    let counted = tx.read_counters().await.unwrap();
    tx.rollback().await;
    let rows: Vec<_> =
        counted.rows.iter().filter(|row| row.tally.part.to_string() == format!("consumer {name}")).collect();
    (rows.iter().map(|row| row.tally.body.count("handled")).sum(), rows.len())
}

async fn processes_that_are_gone_are_added_up_once<S: CounterStore>(store: S, clock: Arc<ManualClock>) {
    let (old, older, alive) = (process("a/1"), process("b/2"), process("c/3"));
    start(&store, &old, &[consumer("invoices", 5), consumer("letters", 1)]).await;
    start(&store, &older, &[consumer("invoices", 7)]).await;
    start(&store, &alive, &[consumer("invoices", 2)]).await;
    assert!(write(&store, &old, &[consumer("invoices", 50), consumer("letters", 10)]).await);
    // A flush whose answer was lost is repeated, and changes nothing.
    assert!(write(&store, &old, &[consumer("invoices", 50), consumer("letters", 10)]).await);
    assert_eq!(sum(&store, "invoices").await, (59, 3));
    assert_eq!(fold(&store).await, 0, "all were seen lately");

    clock.advance(GONE_AFTER + Duration::from_secs(1));
    assert!(write(&store, &alive, &[consumer("invoices", 3)]).await);
    assert_eq!(fold(&store).await, 3);
    assert_eq!(fold(&store).await, 0);
    assert_eq!(sum(&store, "invoices").await, (60, 2), "the sum, and the one that is alive");
    assert_eq!(sum(&store, "letters").await, (10, 1));

    // One that was only asleep finds its rows gone, and goes on under another id: nothing is counted twice.
    assert!(!write(&store, &old, &[consumer("invoices", 51), consumer("letters", 10)]).await);
    start(&store, &process("a/1"), &[consumer("invoices", 1)]).await;
    assert_eq!(sum(&store, "invoices").await, (61, 3));

    // One that ends says so.
    let ending = process("d/4");
    start(&store, &ending, &[consumer("invoices", 4)]).await;
    for _ in 0..2 {
        let mut tx = begin(&store).await;
        tx.end_counters(ending.id).await.unwrap();
        commit(tx).await;
    }
    assert_eq!(sum(&store, "invoices").await, (65, 3));
    let ended_at = clock.now();

    clock.advance(GONE_AFTER + Duration::from_secs(1));
    for _ in 0..5 {
        fold(&store).await;
    }
    assert_eq!(sum(&store, "invoices").await, (65, 1), "one row is left, however many processes there were");
    let mut tx = begin(&store).await;
    let counted = tx.read_counters().await.unwrap();
    tx.rollback().await;
    assert_eq!(counted.rows[0].tally.body.guarantee.as_deref(), Some("once"));
    assert_eq!(counted.rows[0].tally.body.in_hand, None);
    assert_eq!(counted.rows[0].seen_at.as_second(), ended_at.as_second(), "when the last of them was seen");
    clock.advance(GONE_AFTER + Duration::from_secs(1));
    assert_eq!(fold(&store).await, 0, "the sum is no process that is gone");
}

async fn as_many_as_asked_are_added_up_at_a_time<S: CounterStore>(store: S, clock: Arc<ManualClock>) {
    for label in ["a/1", "b/2", "c/3"] {
        start(&store, &process(label), &[consumer("invoices", 1)]).await;
    }
    clock.advance(GONE_AFTER + Duration::from_secs(1));
    assert_eq!([fold(&store).await, fold(&store).await, fold(&store).await], [2, 1, 0]);
    assert_eq!(sum(&store, "invoices").await, (3, 1));
}

#[tokio::test]
async fn as_many_as_asked_are_added_up_at_a_time_on_sqlite() {
    let (place, clock) = (SqlitePlace::new(), Arc::new(ManualClock::new()));
    as_many_as_asked_are_added_up_at_a_time(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn as_many_as_asked_are_added_up_at_a_time_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("counters::as_many_as_asked_are_added_up_at_a_time_on_postgres") else {
        return;
    };
    let clock = Arc::new(ManualClock::new());
    as_many_as_asked_are_added_up_at_a_time(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn processes_that_are_gone_are_added_up_once_on_sqlite() {
    let (place, clock) = (SqlitePlace::new(), Arc::new(ManualClock::new()));
    processes_that_are_gone_are_added_up_once(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn processes_that_are_gone_are_added_up_once_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("processes_that_are_gone_are_added_up_once_on_postgres") else { return };
    let clock = Arc::new(ManualClock::new());
    processes_that_are_gone_are_added_up_once(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn processes_that_are_gone_are_added_up_once_in_memory() {
    let clock = Arc::new(ManualClock::new());
    let store = oncebox_core::memory::MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    processes_that_are_gone_are_added_up_once(store, clock).await;
}

/// A start whose answer was lost is repeated, by then with more to tell: what it told last counts, and it was seen just now.
async fn a_process_that_begins_again_tells_anew<S: CounterStore>(store: S, clock: Arc<ManualClock>) {
    let one = process("a/1");
    start(&store, &one, &[consumer("invoices", 5)]).await;
    clock.advance(GONE_AFTER + Duration::from_secs(1));
    start(&store, &one, &[consumer("invoices", 7)]).await;
    assert_eq!(sum(&store, "invoices").await, (7, 1));
    assert_eq!(fold(&store).await, 0, "it was seen just now");
}

/// However many processes are alive, the one that is gone is found.
async fn processes_that_are_alive_take_no_place_among_those_that_are_gone<S: CounterStore>(
    store: S,
    clock: Arc<ManualClock>,
) {
    let alive: Vec<Process> = (0..20).map(|_| process("a/1")).collect();
    for one in &alive {
        start(&store, one, &[consumer("invoices", 1)]).await;
    }
    start(&store, &process("z/9"), &[consumer("invoices", 5)]).await;
    clock.advance(GONE_AFTER + Duration::from_secs(1));
    for one in &alive {
        assert!(write(&store, one, &[consumer("invoices", 1)]).await);
    }
    assert_eq!(fold(&store).await, 1);
    assert_eq!(sum(&store, "invoices").await, (25, 21));
}

macro_rules! on_both_stores {
    ($($case:ident, $on_sqlite:ident, $on_postgres:ident;)+) => {
        $(
            #[tokio::test]
            async fn $on_sqlite() {
                let (place, clock) = (SqlitePlace::new(), Arc::new(ManualClock::new()));
                $case(place.open_with(Arc::clone(&clock)).await, clock).await;
            }

            #[tokio::test]
            async fn $on_postgres() {
                let Some(place) = PostgresPlace::or_skip(stringify!($on_postgres)) else { return };
                let clock = Arc::new(ManualClock::new());
                $case(place.open_with(Arc::clone(&clock)).await, clock).await;
            }
        )+
    };
}

on_both_stores! {
    a_process_that_begins_again_tells_anew,
        a_process_that_begins_again_tells_anew_on_sqlite, a_process_that_begins_again_tells_anew_on_postgres;
    processes_that_are_alive_take_no_place_among_those_that_are_gone,
        processes_that_are_alive_take_no_place_among_those_that_are_gone_on_sqlite,
        processes_that_are_alive_take_no_place_among_those_that_are_gone_on_postgres;
}

/// Many processes add up at the same time, and each row is counted once.
#[tokio::test(flavor = "multi_thread")]
async fn two_who_add_up_at_once_count_nothing_twice() {
    let Some(place) = PostgresPlace::or_skip("two_who_add_up_at_once_count_nothing_twice") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    for n in 0..40 {
        start(&store, &process("x/1"), &[consumer("invoices", n), consumer("letters", 1)]).await;
    }
    clock.advance(GONE_AFTER + Duration::from_secs(1));
    let mut folding = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        folding.spawn(async move {
            for _ in 0..20 {
                let mut tx = begin(&store).await;
                // Two may be in each other's way; then one of them does it later.
                match tx.fold_counters(GONE_AFTER, 3).await {
                    Ok(_) => drop(tx.commit().await),
                    Err(_) => drop(tx.rollback().await),
                }
            }
        });
    }
    folding.join_all().await;
    while fold(&store).await > 0 {}
    assert_eq!(sum(&store, "invoices").await, ((0..40).sum(), 1));
    assert_eq!(sum(&store, "letters").await, (40, 1));
}

async fn what_waits_is_counted_up_to_a_bound<S: QueueStore + DepthStore>(store: S, clock: Arc<ManualClock>) {
    let (name, lanes) = (ConsumerName::new("payments").unwrap(), None);
    let queue = store.queue(&QueueSpec { name, lanes }).await.unwrap();
    let message = |n: usize| Enqueue { message: Message::new(format!("t{n}")), lane: None, once: None };
    let some: Vec<Enqueue> = (0..1_000).map(message).collect();
    let mut tx = begin(&store).await;
    tx.enqueue(queue, &some[..7]).await.unwrap();
    let emitted: Vec<Outgoing> = (0..100)
        .map(|n| {
            let message = Message::new("noted").with_order_key(format!("account-{n}"));
            Outgoing { topic: "letters".to_owned(), message: message.into() }
        })
        .collect();
    tx.emit(&emitted).await.unwrap();
    commit(tx).await;
    clock.advance(Duration::from_secs(90));
    let mut tx = begin(&store).await;
    assert_eq!(tx.queue_depth("nowhere").await.unwrap(), None);
    let depth = tx.queue_depth("payments").await.unwrap().unwrap();
    assert_eq!((depth.messages, depth.is_more, depth.oldest_seconds), (Some(7), false, Some(90)));
    assert_eq!(depth.arrived, Some(0), "all of them came long ago");
    let lanes = tx.lane_depths().await.unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.unsent).sum::<u64>(), 100);
    assert!(lanes.iter().all(|lane| lane.lag_seconds == 90 && !lane.is_more && !lane.is_held), "{lanes:?}");
    tx.rollback().await;

    let (outbox, owner) = (store.outbox().await.unwrap(), SystemClock.id());
    let mut tx = begin(&store).await;
    let lease = Duration::from_secs(30);
    tx.hold_lanes(&LaneRequest { queue: outbox, owner, lease, give_back: Vec::new() }).await.unwrap();
    assert!(tx.lane_depths().await.unwrap().iter().all(|lane| lane.is_held));
    for _ in 0..10 {
        tx.enqueue(queue, &some).await.unwrap();
    }
    let depth = tx.queue_depth("payments").await.unwrap().unwrap();
    assert_eq!((depth.messages, depth.is_more), (Some(Depth::COUNTED_MAX), true));
    assert_eq!(depth.arrived, Some(10_000), "the seven are not among them");
    tx.rollback().await;
}

#[tokio::test]
async fn what_waits_is_counted_up_to_a_bound_on_sqlite() {
    let (place, clock) = (SqlitePlace::new(), Arc::new(ManualClock::new()));
    what_waits_is_counted_up_to_a_bound(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn what_waits_is_counted_up_to_a_bound_on_postgres() {
    let Some(place) = PostgresPlace::or_skip("what_waits_is_counted_up_to_a_bound_on_postgres") else { return };
    let clock = Arc::new(ManualClock::new());
    what_waits_is_counted_up_to_a_bound(place.open_with(Arc::clone(&clock)).await, clock).await;
}

#[tokio::test]
async fn what_waits_is_counted_up_to_a_bound_in_memory() {
    let clock = Arc::new(ManualClock::new());
    let store = oncebox_core::memory::MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    what_waits_is_counted_up_to_a_bound(store, clock).await;
}
