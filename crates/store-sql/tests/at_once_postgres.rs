//! On PostgreSQL, what one transaction holds another passes over or waits for: sweeps wait for nobody, a takeover waits
//! for a settlement under way.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, begin, claim, commit, consumer, fingerprint, request};
use oncebox_core::archive::Archives;
use oncebox_core::counters::{Counters, Part, Process, Tally, TallyBody};
use oncebox_core::horizon::{Consumers, Expiry, SweepReceived};
use oncebox_core::journal::{DeliveryEnd, JournalEntry, Journals, Told};
use oncebox_core::outbox::{Fetch, KeepSent, Outbox, OutboxStore};
use oncebox_core::parked::{Cause, Park, ParkLease, Parking, Verdict, Waits};
use oncebox_core::quarantine::Quarantine;
use oncebox_core::queue::{
    Enqueue, HeldLane, Keep, LaneRequest, LeaseRequest, QueueId, QueueSpec, QueueStore, QueueTx,
};
use oncebox_core::replay::{ReplaySpec, ReplayState, Replays};
use oncebox_core::{
    Clock, ConsumerId, ConsumerName, Inbox, Key, Message, Outcome, OutcomeKind, Outgoing, Session, Store, Timestamp,
    Transaction,
};
use oncebox_store_sql::Postgres;
use oncebox_testkit::{ManualClock, eventually};
use sqlx::{Connection, Executor};

/// No sweep waits; one that does gives up after this.
const SHORT: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

type Tx = <Postgres as Store>::Tx;

fn year_2100() -> Timestamp {
    Timestamp::from_second(4_102_444_800).unwrap()
}

async fn open(test: &str) -> Option<(Postgres, Arc<ManualClock>)> {
    let place = PostgresPlace::or_skip(test)?;
    let clock = Arc::new(ManualClock::new());
    Some((place.open_with(Arc::clone(&clock)).await, clock))
}

fn let_retention_pass(clock: &ManualClock) {
    let late = year_2100().duration_since(clock.now());
    clock.advance(Duration::try_from(late).unwrap() + Duration::from_secs(2 * 60 * 60));
}

async fn impatient(store: &Postgres) -> Tx {
    store.connect().await.unwrap().begin(SHORT).await.unwrap()
}

/// The first sweep has everything in hand; the second passes it over and is done at once.
macro_rules! swept_by_one {
    ($store:expr, $sweep:expr, $all:expr) => {
        let (mut first, mut second) = (begin(&$store).await, impatient(&$store).await);
        assert_eq!($sweep(&mut first).await, $all);
        assert_eq!($sweep(&mut second).await, 0, "they are in hand");
        second.rollback().await;
        first.rollback().await;
        let mut third = begin(&$store).await;
        assert_eq!($sweep(&mut third).await, $all, "the first gave them back");
        commit(third).await;
    };
}

async fn apply(store: &Postgres, consumer: ConsumerId, text: &str) {
    let mut tx = begin(store).await;
    claim(&mut tx, &request(consumer, text)).await;
    commit(tx).await;
}

#[tokio::test]
async fn two_that_delete_old_records_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_delete_old_records_do_not_wait_for_each_other").await else { return };
    let ours = consumer(&store, "invoices").await;
    apply(&store, ours, "a").await;
    apply(&store, ours, "b").await;
    let_retention_pass(&clock);
    let (mut first, mut second) = (begin(&store).await, impatient(&store).await);
    let step = Expiry::first(ours, year_2100(), 10);
    assert_eq!(first.expire(step).await.unwrap().deleted, 2);
    // It looks at the horizon, which the first has moved, only where it deletes something itself.
    assert_eq!(second.expire(step).await.unwrap().deleted, 0, "they are in hand");
    second.rollback().await;
    commit(first).await;
}

#[tokio::test]
async fn two_that_sweep_the_archive_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_sweep_the_archive_do_not_wait_for_each_other").await else { return };
    let ours = consumer(&store, "invoices").await;
    apply(&store, ours, "a").await;
    let_retention_pass(&clock);
    let mut tx = begin(&store).await;
    tx.expire(Expiry::first(ours, year_2100(), 10).archiving()).await.unwrap();
    commit(tx).await;
    let sweep = async |tx: &mut Tx| tx.sweep_archive(ours, year_2100(), 10).await.unwrap();
    swept_by_one!(store, sweep, 1);
}

#[tokio::test]
async fn two_that_sweep_what_was_received_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_sweep_what_was_received_do_not_wait_for_each_other").await else {
        return;
    };
    let ours = consumer(&store, "invoices").await;
    let name = ConsumerName::new("invoices").unwrap();
    let queue = store.queue(&QueueSpec::received(&name, false)).await.unwrap();
    let mut tx = begin(&store).await;
    let message = Message::made_by(&*clock, "noted");
    tx.enqueue(queue, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
    let leased = tx.lease(&LeaseRequest { queue, max: 10, lease: LEASE, lanes: None }).await.unwrap();
    tx.settle(queue, &[leased[0].receipt], Keep::Processed).await.unwrap();
    commit(tx).await;
    let_retention_pass(&clock);
    let sweep = async |tx: &mut Tx| {
        let sweep = SweepReceived { consumer: ours, name: &name, older_than: year_2100(), limit: 10 };
        tx.sweep_received(sweep).await.unwrap()
    };
    swept_by_one!(store, sweep, 1);
}

#[tokio::test]
async fn two_that_sweep_the_journal_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_sweep_the_journal_do_not_wait_for_each_other").await else { return };
    let ours = consumer(&store, "invoices").await;
    let told = Told {
        end: DeliveryEnd::Applied,
        cause: None,
        attempt: None,
        was_parked: false,
        handler_millis: None,
        coordinate: None,
    };
    let entry = JournalEntry { consumer: ours, ago: LEASE, key: Key::id("a").unwrap(), id_hash: None, told };
    let mut tx = begin(&store).await;
    tx.add_to_journal("host/1", &[entry]).await.unwrap();
    commit(tx).await;
    let sweep = async |tx: &mut Tx| tx.sweep_journal(ours, clock.now(), 10).await.unwrap();
    swept_by_one!(store, sweep, 1);
}

#[tokio::test]
async fn two_that_sweep_the_outbox_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_sweep_the_outbox_do_not_wait_for_each_other").await else { return };
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(&store, outbox, &clock).await;
    let mut tx = begin(&store).await;
    let message = Message::made_by(&*clock, "noted").with_order_key("a").into();
    tx.emit(&[Outgoing { topic: "paid".to_owned(), message }]).await.unwrap();
    let after = BTreeMap::new();
    let rows = tx.fetch_unsent(Fetch { lanes: &lanes, max: 10, without: &[], after: &after }).await.unwrap().rows;
    tx.end_sent(&[rows[0].receipt], KeepSent::Sent).await.unwrap();
    commit(tx).await;
    clock.advance(LEASE);
    let sweep = async |tx: &mut Tx| tx.sweep_sent(clock.now(), 10).await.unwrap();
    swept_by_one!(store, sweep, 1);
}

#[tokio::test]
async fn two_that_sweep_replays_do_not_wait_for_each_other() {
    let Some((store, clock)) = open("two_that_sweep_replays_do_not_wait_for_each_other").await else { return };
    let ours = consumer(&store, "invoices").await;
    let spec = ReplaySpec {
        consumer: ours,
        filter: "all".to_owned(),
        as_of: clock.now(),
        until: 0,
        canary: 0,
        rate: None,
        in_flight_max: 10,
        stop_permille: 100,
        force: false,
        who: "ada".to_owned(),
        why: "a test".to_owned(),
    };
    let mut tx = begin(&store).await;
    let id = tx.create_replay(&spec).await.unwrap();
    let mut replay = tx.replay(id).await.unwrap().unwrap();
    replay.state = ReplayState::Done;
    tx.save_replay(&replay).await.unwrap();
    commit(tx).await;
    clock.advance(LEASE);
    let sweep = async |tx: &mut Tx| tx.sweep_replays(clock.now(), 10).await.unwrap();
    swept_by_one!(store, sweep, 1);
}

fn tally(handled: u64) -> Tally {
    let counts = BTreeMap::from([("handled".to_owned(), handled)]);
    let part = Part::Consumer(ConsumerName::new("invoices").unwrap());
    Tally { part, body: TallyBody { counts, ..TallyBody::default() } }
}

async fn handled(store: &Postgres) -> u64 {
    let mut tx = begin(store).await;
    let counted = tx.read_counters().await.unwrap();
    tx.rollback().await;
    counted.rows.iter().map(|row| row.tally.body.count("handled")).sum()
}

/// Waits until a transaction that works on this table waits for another one.
async fn one_waits(place: &PostgresPlace, table: &str) {
    let waiting = format!(
        "pg_locks as waiting where not granted and exists (select from pg_locks as held \
         where held.pid = waiting.pid and held.relation = to_regclass('{table}'))"
    );
    eventually("a transaction that waits for another", async || place.count(&waiting).await > 0).await;
}

/// The second adds what it took to what the first has written, not to what was there before.
#[tokio::test]
async fn two_that_add_up_counters_do_so_one_after_the_other() {
    let Some(place) = PostgresPlace::or_skip("two_that_add_up_counters_do_so_one_after_the_other") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let processes: Vec<Process> = (0..3).map(|_| Process { id: clock.id(), label: "a/1".to_owned() }).collect();
    for process in &processes {
        let mut tx = begin(&store).await;
        tx.begin_counters(process, &[tally(1)]).await.unwrap();
        commit(tx).await;
    }
    let mut tx = begin(&store).await;
    tx.end_counters(processes[0].id).await.unwrap();
    commit(tx).await;
    let mut first = begin(&store).await;
    first.end_counters(processes[1].id).await.unwrap();
    let mut second = begin(&store).await;
    let ended = async {
        second.end_counters(processes[2].id).await.unwrap();
        commit(second).await;
    };
    let committed = async {
        one_waits(&place, "counters").await;
        commit(first).await;
    };
    tokio::join!(ended, committed);
    assert_eq!(handled(&store).await, 3);
}

/// Its heartbeat came while somebody was about to count it among those that are gone.
#[tokio::test]
async fn a_process_that_stirs_at_the_last_moment_is_not_gone() {
    let Some(place) = PostgresPlace::or_skip("a_process_that_stirs_at_the_last_moment_is_not_gone") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let process = Process { id: clock.id(), label: "a/1".to_owned() };
    let mut tx = begin(&store).await;
    tx.begin_counters(&process, &[tally(1)]).await.unwrap();
    commit(tx).await;
    clock.advance(LEASE * 2);
    let mut stirs = begin(&store).await;
    assert!(stirs.write_counters(process.id, &[tally(2)]).await.unwrap());
    let mut folds = begin(&store).await;
    let folded = async {
        let folded = folds.fold_counters(LEASE, 10).await.unwrap();
        commit(folds).await;
        folded
    };
    let committed = async {
        one_waits(&place, "counters").await;
        commit(stirs).await;
    };
    assert_eq!(tokio::join!(folded, committed).0, 0);
    let mut tx = begin(&store).await;
    assert!(tx.write_counters(process.id, &[tally(3)]).await.unwrap(), "its rows are there");
    tx.rollback().await;
}

fn parked(consumer: ConsumerId, text: &str, waits: Waits) -> Park {
    let cause = Cause::new(None, "noted", "bank-closed");
    Park {
        consumer,
        message: Arc::new(Message::new("noted")),
        key: Key::id(text).unwrap(),
        fingerprint: fingerprint(7),
        owns_record: false,
        order_key: None,
        verdict: Verdict { waits, class: None, cause, reason: "closed".to_owned(), attempts: 1 },
    }
}

/// Parks a dead message with its record, and answers with its row.
async fn dead(store: &Postgres, consumer: ConsumerId, text: &str) -> i64 {
    let park = Park { owns_record: true, ..parked(consumer, text, Waits::Person) };
    let mut tx = begin(store).await;
    claim(&mut tx, &request(consumer, text)).await;
    tx.record(&[(consumer, park.key.clone(), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    tx.park(&[park]).await.unwrap();
    let row = tx.page(consumer, 0, 100).await.unwrap().last().unwrap().row;
    commit(tx).await;
    row
}

/// A discard locks the row and the record of what it discards and no more, and passes over what another one has locked.
#[tokio::test]
async fn discards_at_once_wait_for_each_other_in_nothing() {
    let Some((store, _)) = open("discards_at_once_wait_for_each_other_in_nothing").await else { return };
    let (ours, other) = (consumer(&store, "invoices").await, consumer(&store, "reports").await);
    let (a, b) = (dead(&store, ours, "a").await, dead(&store, ours, "b").await);
    let of_other = dead(&store, other, "a").await;
    let (mut first, mut second) = (begin(&store).await, impatient(&store).await);
    assert_eq!(first.discard(&[a], "a test").await.unwrap(), [true]);
    assert_eq!(second.discard(&[a, b], "a test").await.unwrap(), [false, true], "another key of the consumer");
    assert_eq!(second.discard(&[of_other], "a test").await.unwrap(), [true], "the same key of another consumer");
    commit(second).await;
    commit(first).await;
}

/// A row that is just being ended is locked; a heartbeat that waited for it could deadlock with a batch.
#[tokio::test]
async fn a_heartbeat_does_not_wait_for_a_parked_row_that_is_being_ended() {
    let Some((store, _)) = open("a_heartbeat_does_not_wait_for_a_parked_row_that_is_being_ended").await else { return };
    let ours = consumer(&store, "invoices").await;
    let parks = ["1", "2"].map(|text| parked(ours, text, Waits::Retry(Duration::ZERO)));
    let mut tx = begin(&store).await;
    tx.park(&parks).await.unwrap();
    let leased = tx.lease_parked(&ParkLease { consumer: ours, max: 10, lease: LEASE }).await.unwrap();
    commit(tx).await;
    let rows: Vec<_> = leased.iter().map(|leased| leased.receipt).collect();
    let (mut ends, mut beats) = (begin(&store).await, impatient(&store).await);
    ends.end_parked(&rows[..1]).await.unwrap();
    beats.extend_parked(&rows, LEASE).await.unwrap();
    commit(beats).await;
    commit(ends).await;
}

async fn hold(store: &Postgres, queue: QueueId, clock: &ManualClock) -> Vec<HeldLane> {
    let mut tx = begin(store).await;
    let request = LaneRequest { queue, owner: clock.id(), lease: LEASE, give_back: vec![] };
    let held = tx.hold_lanes(&request).await.unwrap();
    commit(tx).await;
    held.lanes
}

/// Whoever leases or settles rows is not waited for.
#[tokio::test]
async fn what_somebody_leases_or_settles_is_passed_over() {
    let Some((store, clock)) = open("what_somebody_leases_or_settles_is_passed_over").await else { return };
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: None };
    let queue = store.queue(&spec).await.unwrap();
    let mut tx = begin(&store).await;
    for _ in 0..2 {
        let message = Message::made_by(&*clock, "noted");
        tx.enqueue(queue, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
    }
    commit(tx).await;
    let request = LeaseRequest { queue, max: 1, lease: LEASE, lanes: None };
    let (mut first, mut second) = (begin(&store).await, impatient(&store).await);
    let one = first.lease(&request).await.unwrap()[0].receipt;
    let two = second.lease(&request).await.unwrap()[0].receipt;
    assert_ne!(one.row, two.row);
    commit(first).await;
    commit(second).await;
    let (mut settles, mut beats) = (begin(&store).await, impatient(&store).await);
    settles.settle(queue, &[one], Keep::Nothing).await.unwrap();
    beats.extend(queue, &[one, two], LEASE).await.unwrap();
    commit(beats).await;
    commit(settles).await;
}

/// A release that waited for whoever has leased the row anew finds that it is no longer its own.
#[tokio::test]
async fn a_release_that_waited_leaves_the_row_to_its_new_owner() {
    let Some(place) = PostgresPlace::or_skip("a_release_that_waited_leaves_the_row_to_its_new_owner") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: None };
    let queue = store.queue(&spec).await.unwrap();
    let request = LeaseRequest { queue, max: 1, lease: LEASE, lanes: None };
    let mut tx = begin(&store).await;
    let message = Message::made_by(&*clock, "noted");
    tx.enqueue(queue, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
    let old = tx.lease(&request).await.unwrap()[0].receipt;
    commit(tx).await;
    clock.advance(LEASE * 2);
    let (mut leases, mut releases) = (begin(&store).await, begin(&store).await);
    assert_eq!(leases.lease(&request).await.unwrap().len(), 1);
    let released = async {
        releases.release(queue, &[old], Duration::ZERO, None).await.unwrap();
        commit(releases).await;
    };
    let committed = async {
        one_waits(&place, "queue").await;
        commit(leases).await;
    };
    tokio::join!(released, committed);
    let mut tx = begin(&store).await;
    assert!(tx.lease(&request).await.unwrap().is_empty(), "its new owner has it in hand");
    tx.rollback().await;
}

/// Whoever leases rows of a lane has the lane until that is committed.
#[tokio::test]
async fn a_lane_in_which_something_is_leased_is_not_taken_over() {
    let Some((store, clock)) = open("a_lane_in_which_something_is_leased_is_not_taken_over").await else { return };
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: Some(8) };
    let queue = store.queue(&spec).await.unwrap();
    let lanes = hold(&store, queue, &clock).await;
    let mut leasing = begin(&store).await;
    let (message, lane) = (Message::made_by(&*clock, "noted").with_order_key("a"), spec.lane(Some("a")));
    leasing.enqueue(queue, &[Enqueue { message, lane, once: None }]).await.unwrap();
    leasing.lease(&LeaseRequest { queue, max: 10, lease: LEASE, lanes: Some(lanes) }).await.unwrap();
    clock.advance(LEASE * 2);
    let taken = hold(&store, queue, &clock).await;
    assert!(!taken.iter().any(|held| Some(held.lane) == lane), "{taken:?}");
    commit(leasing).await;
}

/// A settlement has its lane until it is committed: whoever takes over lanes that ran out leaves that one for later.
#[tokio::test]
async fn a_lane_in_which_something_is_settled_is_not_taken_over() {
    let Some((store, clock)) = open("a_lane_in_which_something_is_settled_is_not_taken_over").await else { return };
    let name = ConsumerName::new("payments").unwrap();
    let spec = QueueSpec { name, lanes: Some(8) };
    let queue = store.queue(&spec).await.unwrap();
    let lanes = hold(&store, queue, &clock).await;
    clock.advance(LEASE - LEASE / 10);
    let mut tx = begin(&store).await;
    let message = Message::made_by(&*clock, "noted").with_order_key("a");
    let lane = spec.lane(Some("a"));
    tx.enqueue(queue, &[Enqueue { message, lane, once: None }]).await.unwrap();
    let leased = tx.lease(&LeaseRequest { queue, max: 10, lease: LEASE, lanes: Some(lanes) }).await.unwrap();
    commit(tx).await;
    let mut settling = begin(&store).await;
    settling.settle(queue, &[leased[0].receipt], Keep::Nothing).await.unwrap();
    clock.advance(LEASE / 5);
    let taken = hold(&store, queue, &clock).await;
    assert!(taken.len() == 7 && !taken.iter().any(|held| Some(held.lane) == lane), "{taken:?}");
    commit(settling).await;
}

/// Else it would go by a number of lanes that is no more.
#[tokio::test]
async fn whoever_opens_a_queue_waits_for_a_change_of_its_lanes() {
    let Some(place) = PostgresPlace::or_skip("whoever_opens_a_queue_waits_for_a_change_of_its_lanes") else { return };
    let store = place.open().await;
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: Some(4) };
    store.queue(&spec).await.unwrap();
    let mut changes = place.connection().await;
    changes.execute("begin; update queues set lanes = 8").await.unwrap();
    let change = async {
        let waiting = "pg_locks where not granted and pid <> pg_backend_pid()";
        eventually("a process that waits for the change", async || place.count(waiting).await > 0).await;
        changes.execute("commit").await.unwrap();
    };
    let (opened, ()) = tokio::join!(store.queue(&spec), change);
    opened.unwrap();
    assert_eq!(place.count("queues where lanes = 4").await, 1, "it has the lanes that it was opened with");
    changes.close().await.unwrap();
}
