//! Consumers in one store have nothing to do with each other's records, archives and counts.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, claim, commit, consumer, fingerprint, look, request};
use oncebox_core::archive::Archives;
use oncebox_core::audit::{Action, Audits};
use oncebox_core::depths::Depths;
use oncebox_core::horizon::{Consumers, Expired, Expiry, OldRecords, SweepReceived};
use oncebox_core::journal::{DeliveryEnd, JournalEntry, JournalOf, Journals, Told, id_hash};
use oncebox_core::outbox::{Fetch, KeepSent, Outbox, OutboxStore};
use oncebox_core::parked::{Cause, Park, Parking, Verdict, Waits};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::queue::{Enqueue, Keep, LaneRequest, LeaseRequest, QueueId, QueueSpec, QueueStore, QueueTx};
use oncebox_core::{
    Claim, Class, Clock, ConsumerId, ConsumerName, Inbox, Key, Message, Outcome, OutcomeKind, Outgoing, Store,
    Timestamp, Transaction,
};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};

macro_rules! on_both_stores {
    ($($case:ident,)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::SqliteFixture::default(), super::$case).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::run(stringify!($case), super::PostgresFixture::default(), super::$case).await;
                }
            )+
        }
    };
}

on_both_stores! {
    unclaiming_pairs_takes_back_those_pairs_alone,
    consumers_are_listed_by_name,
    another_consumers_parked_message_holds_no_record,
    a_record_that_says_parked_stays_even_without_its_row,
    a_horizon_is_that_of_its_consumer,
    a_consumer_has_records_of_its_own,
    records_that_are_held_are_counted_for_their_consumer,
    processed_messages_go_from_the_queue_that_was_named,
    a_long_archive_is_read_to_its_end,
    the_oldest_blocks_of_an_archive_go_first,
    the_audit_log_is_read_in_pages,
    the_journal_is_that_of_the_consumer_and_goes_from_its_beginning,
    a_queue_counts_its_own_messages,
    a_lane_of_the_outbox_is_counted_for_itself,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn year_2100() -> Timestamp {
    Timestamp::from_second(4_102_444_800).unwrap()
}

/// Lets everything that was written be old.
async fn let_retention_pass<F: StoreFixture>(setup: &Setup<F>) {
    let late = year_2100().duration_since(setup.clock.now());
    setup.advance(Duration::try_from(late).unwrap() + Duration::from_secs(2 * 60 * 60)).await;
}

async fn apply<S: Store>(store: &S, consumer: ConsumerId, text: &str) {
    let mut tx = begin(store).await;
    claim(&mut tx, &request(consumer, text)).await;
    commit(tx).await;
}

/// Parks a message in conflict: it has no record of its own.
async fn park<S: Store<Tx: Parking>>(store: &S, consumer: ConsumerId, text: &str) {
    let class = Some(Class::Permanent);
    let cause = Cause::new(class, "noted", "bank-closed");
    let park = Park {
        consumer,
        message: Arc::new(Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned())),
        key: key(text),
        fingerprint: fingerprint(8),
        owns_record: false,
        order_key: None,
        verdict: Verdict { waits: Waits::Person, class, cause, reason: "closed".to_owned(), attempts: 1 },
    };
    let mut tx = begin(store).await;
    assert_eq!(tx.park(&[park]).await.unwrap(), [true]);
    commit(tx).await;
}

async fn expire<S: Store<Tx: Consumers>>(store: &S, step: Expiry) -> Expired {
    let mut tx = begin(store).await;
    let expired = tx.expire(step).await.unwrap();
    commit(tx).await;
    expired
}

/// Of keys and consumers, only what was named together.
async fn unclaiming_pairs_takes_back_those_pairs_alone<F: StoreFixture>(setup: Setup<F>) {
    let store = &setup.store;
    let (one, two) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let mut tx = begin(store).await;
    for (consumer, text) in [(one, "a"), (one, "b"), (two, "a"), (two, "b")] {
        claim(&mut tx, &request(consumer, text)).await;
    }
    tx.unclaim(&[(one, key("a")), (two, key("b"))]).await.unwrap();
    commit(tx).await;
    assert_eq!(look(store, &request(one, "a")).await, Claim::Fresh);
    assert_eq!(look(store, &request(two, "b")).await, Claim::Fresh);
    assert!(matches!(look(store, &request(one, "b")).await, Claim::Duplicate(_)));
    assert!(matches!(look(store, &request(two, "a")).await, Claim::Duplicate(_)));
}

/// Whatever the order in which they came.
async fn consumers_are_listed_by_name<F: StoreFixture<Store: Store<Tx: Consumers>>>(setup: Setup<F>) {
    for name in ["reports", "invoices", "payments"] {
        consumer(&setup.store, name).await;
    }
    let mut tx = begin(&setup.store).await;
    let names: Vec<String> = tx.consumers().await.unwrap().iter().map(|known| known.name.to_string()).collect();
    tx.rollback().await;
    assert!(names.is_sorted(), "{names:?}");
}

/// A message that another consumer has parked under the same key keeps no record of ours.
async fn another_consumers_parked_message_holds_no_record<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: Store<Tx: Consumers + Parking>>,
{
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    apply(store, ours, "a").await;
    apply(store, other, "a").await;
    park(store, other, "a").await;
    let_retention_pass(&setup).await;
    assert_eq!(expire(store, Expiry::first(other, year_2100(), 10)).await.deleted, 0);
    assert_eq!(expire(store, Expiry::first(ours, year_2100(), 10)).await.deleted, 1);
}

/// What says that a message is parked is no record of something handled: it stays, whatever became of the row.
async fn a_record_that_says_parked_stays_even_without_its_row<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: Store<Tx: Consumers>>,
{
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let mut tx = begin(store).await;
    claim(&mut tx, &request(ours, "a")).await;
    tx.record(&[(ours, key("a"), Outcome::of(OutcomeKind::Parked))]).await.unwrap();
    commit(tx).await;
    let_retention_pass(&setup).await;
    assert_eq!(expire(store, Expiry::first(ours, year_2100(), 10)).await.deleted, 0);
    assert!(matches!(look(store, &request(ours, "a")).await, Claim::Duplicate(_)));
}

/// However few they are among those of others.
async fn a_consumer_has_records_of_its_own<F: StoreFixture<Store: Store<Tx: Consumers>>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    apply(store, other, "a").await;
    let mut tx = begin(store).await;
    assert!(!tx.has_records(ours).await.unwrap() && tx.has_records(other).await.unwrap());
    tx.rollback().await;
}

/// Deleting another consumer's records says nothing about ours.
async fn a_horizon_is_that_of_its_consumer<F: StoreFixture<Store: Store<Tx: Consumers>>>(setup: Setup<F>) {
    let store = &setup.store;
    let (first, ours) = (consumer(store, "first").await, consumer(store, "invoices").await);
    apply(store, first, "a").await;
    let_retention_pass(&setup).await;
    let moved = expire(store, Expiry::first(first, year_2100(), 10)).await.horizon;
    assert!(moved.is_some());
    assert_eq!(expire(store, Expiry::first(first, year_2100(), 10)).await.horizon, moved, "nothing was left to delete");
    assert_eq!(expire(store, Expiry::first(ours, year_2100(), 10)).await.horizon, None);
}

/// Old records that stay because a message is parked: those of the consumer, and of the shared ones, those of all.
async fn records_that_are_held_are_counted_for_their_consumer<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: Store<Tx: Consumers + Parking>>,
{
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let shared = store.consumer(&ConsumerName::global()).await.unwrap();
    for (whose, text) in [(ours, "held"), (ours, "theirs"), (ours, "free"), (other, "theirs"), (shared, "held")] {
        apply(store, whose, text).await;
    }
    park(store, ours, "held").await;
    park(store, ours, "never handled").await;
    park(store, other, "theirs").await;
    let old = async |whose, before| {
        let mut tx = begin(store).await;
        let old = tx.old_records(whose, before).await.unwrap();
        tx.rollback().await;
        old
    };
    let counted = |old: OldRecords| (old.records, old.held);
    assert_eq!(counted(old(ours, year_2100()).await), (3, 1));
    assert_eq!(counted(old(other, year_2100()).await), (1, 1));
    assert_eq!(counted(old(shared, year_2100()).await), (1, 1), "what any consumer has parked holds a shared record");
    assert_eq!(counted(old(ours, Timestamp::UNIX_EPOCH).await), (0, 0), "nothing is that old");
}

async fn process<S: QueueStore>(store: &S, queue: QueueId, text: &str) {
    let message = Message::made_by(&ManualClock::new(), "noted").with_payload(text.to_owned());
    let mut tx = begin(store).await;
    tx.enqueue(queue, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
    let request = LeaseRequest { queue, max: 10, lease: Duration::from_secs(30), lanes: None };
    let rows: Vec<_> = tx.lease(&request).await.unwrap().iter().map(|leased| leased.receipt).collect();
    tx.settle(queue, &rows, Keep::Processed).await.unwrap();
    commit(tx).await;
}

/// Whichever of them was opened first.
async fn processed_messages_go_from_the_queue_that_was_named<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QueueStore + Store<Tx: Consumers>>,
{
    let store = &setup.store;
    let names = ["invoices", "reports"].map(|name| ConsumerName::new(name).unwrap());
    for name in &names {
        let queue = store.queue(&QueueSpec::received(name, false)).await.unwrap();
        process(store, queue, "1").await;
    }
    let_retention_pass(&setup).await;
    for name in names.iter().rev() {
        let ours = store.consumer(name).await.unwrap();
        let mut tx = begin(store).await;
        let sweep = SweepReceived { consumer: ours, name, older_than: year_2100(), limit: 10 };
        assert_eq!(tx.sweep_received(sweep).await.unwrap(), 1, "{name}");
        assert_eq!(tx.sweep_received(sweep).await.unwrap(), 0, "{name}");
        commit(tx).await;
    }
}

/// More blocks than are read at a time: each key is found, and a key that is not there ends the search.
async fn a_long_archive_is_read_to_its_end<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let all = oncebox_core::archive::BLOCKS_READ * 2 + 3;
    for number in 0..all {
        apply(store, ours, &number.to_string()).await;
    }
    let_retention_pass(&setup).await;
    let mut step = Expiry::first(ours, year_2100(), 1).archiving();
    while let Some(next) = expire(store, step).await.next {
        step.from = next;
    }
    let keys: Vec<Key> = (0..=all).map(|number| key(&number.to_string())).collect();
    let mut tx = begin(store).await;
    let found = tx.archived(ours, &keys).await.unwrap();
    tx.rollback().await;
    assert!(found[..all].iter().all(Option::is_some), "one of {all} is missing");
    assert_eq!(found[all], None);
}

/// A sweep that may take one block takes the oldest, and no other consumer's.
async fn the_oldest_blocks_of_an_archive_go_first<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for (whose, text) in [(other, "x"), (ours, "a"), (ours, "b"), (ours, "c")] {
        apply(store, whose, text).await;
    }
    let_retention_pass(&setup).await;
    for whose in [other, ours] {
        let mut step = Expiry::first(whose, year_2100(), 1).archiving();
        while let Some(next) = expire(store, step).await.next {
            step.from = next;
        }
    }
    let size = async |whose| {
        let mut tx = begin(store).await;
        let size = tx.archive_size(whose).await.unwrap();
        tx.rollback().await;
        size
    };
    let before = size(ours).await;
    assert_eq!(before.keys, 3);
    let mut tx = begin(store).await;
    assert_eq!(tx.sweep_archive(ours, year_2100(), 1).await.unwrap(), 1);
    commit(tx).await;
    let after = size(ours).await;
    assert!(after.keys == 2 && after.oldest >= before.oldest, "{before:?} {after:?}");
    assert_eq!(size(other).await.keys, 1);
}

/// As many entries as were asked for, the newest first.
async fn the_audit_log_is_read_in_pages<F: StoreFixture<Store: Store<Tx: Audits>>>(setup: Setup<F>) {
    let mut tx = begin(&setup.store).await;
    for number in 0..3 {
        let action = Action {
            who: "ada".to_owned(),
            why: "a test".to_owned(),
            verb: format!("verb {number}"),
            consumer: None,
            replay: None,
            messages: 0,
            detail: "{}".to_owned(),
        };
        tx.audit(&action).await.unwrap();
    }
    let page = tx.audit_log(None, 2).await.unwrap();
    assert_eq!(page.iter().map(|entry| entry.action.verb.as_str()).collect::<Vec<_>>(), ["verb 2", "verb 1"]);
    let page = tx.audit_log(Some(page[1].id), 2).await.unwrap();
    assert_eq!(page.iter().map(|entry| entry.action.verb.as_str()).collect::<Vec<_>>(), ["verb 0"]);
    tx.rollback().await;
}

fn entry(consumer: ConsumerId, under: &str, id: &str, ago: u64) -> JournalEntry {
    let told = Told {
        end: DeliveryEnd::Applied,
        cause: None,
        attempt: None,
        was_parked: false,
        handler_millis: None,
        coordinate: Some(format!("{ago} s ago")),
    };
    let id_hash = Some(id_hash(id));
    JournalEntry { consumer, ago: Duration::from_secs(ago), key: key(under), id_hash, told }
}

/// By key or by id, at one consumer or at all; and what goes first is what is oldest.
async fn the_journal_is_that_of_the_consumer_and_goes_from_its_beginning<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: Store<Tx: Journals>>,
{
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let mut tx = begin(store).await;
    let entries = [
        entry(ours, "k", "m", 10),
        entry(ours, "k", "m", 30),
        entry(other, "k", "m", 20),
        entry(ours, "k2", "m2", 40),
        entry(other, "k2", "m2", 50),
    ];
    tx.add_to_journal("host/1", &entries).await.unwrap();
    let keys = [key("k")];
    let ago = |found: Vec<oncebox_core::journal::Journaled>| -> Vec<String> {
        found.into_iter().filter_map(|found| found.told.coordinate).collect()
    };
    let by_key = JournalOf { consumer: None, keys: &keys, id: None };
    assert_eq!(ago(tx.read_journal(by_key, 10).await.unwrap()), ["10 s ago", "20 s ago", "30 s ago"]);
    assert_eq!(ago(tx.read_journal(by_key, 2).await.unwrap()), ["10 s ago", "20 s ago"]);
    let of_ours = JournalOf { consumer: Some(ours), ..by_key };
    assert_eq!(ago(tx.read_journal(of_ours, 10).await.unwrap()), ["10 s ago", "30 s ago"]);
    let by_id = JournalOf { consumer: None, keys: &[], id: Some("m2") };
    assert_eq!(ago(tx.read_journal(by_id, 10).await.unwrap()), ["40 s ago", "50 s ago"]);
    assert_eq!(ago(tx.read_journal(by_id, 1).await.unwrap()), ["40 s ago"]);
    let of_ours = JournalOf { consumer: Some(ours), ..by_id };
    assert_eq!(ago(tx.read_journal(of_ours, 10).await.unwrap()), ["40 s ago"]);

    let before = setup.clock.now() - Duration::from_secs(15);
    assert_eq!(tx.sweep_journal(ours, before, 1).await.unwrap(), 1);
    assert!(ago(tx.read_journal(of_ours, 10).await.unwrap()).is_empty(), "the oldest of ours went");
    assert_eq!(tx.sweep_journal(ours, before, 10).await.unwrap(), 1);
    assert_eq!(ago(tx.read_journal(by_key, 10).await.unwrap()), ["10 s ago", "20 s ago"]);
    tx.rollback().await;
}

/// However many wait elsewhere; what is in hand or delayed isn't what waits longest.
async fn a_queue_counts_its_own_messages<F: StoreFixture<Store: QueueStore + Store<Tx: Depths>>>(setup: Setup<F>) {
    let store = &setup.store;
    let open = async |name: &str| {
        store.queue(&QueueSpec { name: ConsumerName::new(name).unwrap(), lanes: None }).await.unwrap()
    };
    let (payments, invoices) = (open("payments").await, open("invoices").await);
    let add = async |queue| {
        let message = Message::made_by(&ManualClock::new(), "noted");
        let mut tx = begin(store).await;
        tx.enqueue(queue, &[Enqueue { message, lane: None, once: None }]).await.unwrap();
        commit(tx).await;
    };
    add(payments).await;
    setup.advance(Duration::from_secs(100)).await;
    add(invoices).await;
    add(invoices).await;
    let depth = async |name: &str| {
        let mut tx = begin(store).await;
        let depth = tx.queue_depth(name).await.unwrap().unwrap();
        tx.rollback().await;
        (depth.messages, depth.oldest_seconds, depth.arrived)
    };
    setup.advance(Duration::from_secs(5)).await;
    assert_eq!(depth("payments").await.0, Some(1));
    assert_eq!(depth("payments").await.1, Some(105));
    assert_eq!(depth("invoices").await, (Some(2), Some(5), Some(2)));
    // One of invoices is taken, and given back for later: it waits, and is not due.
    let mut tx = begin(store).await;
    let request = LeaseRequest { queue: invoices, max: 1, lease: Duration::from_secs(3600), lanes: None };
    assert_eq!(tx.lease(&request).await.unwrap().len(), 1);
    commit(tx).await;
    add(payments).await;
    assert_eq!(depth("invoices").await, (Some(2), Some(5), Some(1)));
    // What is processed and kept waits for nobody. The one that is left is not due: nothing is late.
    let mut tx = begin(store).await;
    let due = tx.lease(&request).await.unwrap();
    tx.settle(invoices, &[due[0].receipt], Keep::Processed).await.unwrap();
    commit(tx).await;
    assert_eq!(depth("invoices").await, (Some(1), None, Some(0)));
    let mut tx = begin(store).await;
    assert!(tx.queue_depth("no such queue").await.unwrap().is_none());
    tx.rollback().await;
}

/// Whose lane it is, how many wait in it and for how long: lane by lane, and whatever queues with lanes there are.
async fn a_lane_of_the_outbox_is_counted_for_itself<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QueueStore + OutboxStore + Store<Tx: Depths>>,
{
    let store = &setup.store;
    let elsewhere = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: Some(QueueSpec::LANES) };
    let elsewhere = store.queue(&elsewhere).await.unwrap();
    let outbox = store.outbox().await.unwrap();
    let lease = Duration::from_secs(30);
    let owner = setup.clock.id();
    let hold = async |queue, give_back| {
        let mut tx = begin(store).await;
        tx.hold_lanes(&LaneRequest { queue, owner, lease, give_back }).await.unwrap();
        commit(tx).await;
    };
    let emit = async |order_key: &str| {
        let message = Message::made_by(&*setup.clock, "noted").with_order_key(order_key);
        let mut tx = begin(store).await;
        tx.emit(&[Outgoing { topic: "paid".to_owned(), message: message.into() }]).await.unwrap();
        commit(tx).await;
    };
    let depths = async || {
        let mut tx = begin(store).await;
        let depths = tx.lane_depths().await.unwrap();
        tx.rollback().await;
        depths
    };
    // What the broker refused waits for a person, and what was sent and kept for nobody: neither is told of here.
    let lanes = {
        let mut tx = begin(store).await;
        let held = tx.hold_lanes(&LaneRequest { queue: outbox, owner, lease, give_back: vec![] }).await.unwrap();
        commit(tx).await;
        held.lanes
    };
    for order_key in ["a", "b"] {
        emit(order_key).await;
        let mut tx = begin(store).await;
        let fetch = Fetch { lanes: &lanes, max: 10, without: &[], after: &BTreeMap::new() };
        let row = tx.fetch_unsent(fetch).await.unwrap().rows[0].receipt;
        if order_key == "a" {
            tx.end_sent(&[row], KeepSent::Sent).await.unwrap();
        } else {
            tx.set_unsent_aside(&[(row, "too large".to_owned())]).await.unwrap();
            tx.skip_aside(&[row.row]).await.unwrap();
        }
        commit(tx).await;
    }
    setup.advance(Duration::from_secs(40)).await;
    emit("a").await;
    setup.advance(Duration::from_secs(60)).await;
    emit("a").await;
    emit("b").await;
    hold(elsewhere, vec![]).await;
    let mut told = depths().await;
    assert!(told.is_sorted_by_key(|depth| depth.lane));
    told.sort_by_key(|depth| depth.unsent);
    assert_eq!(told.iter().map(|depth| (depth.unsent, depth.lag_seconds)).collect::<Vec<_>>(), [(1, 0), (2, 60)]);
    assert!(told.iter().all(|depth| !depth.is_held && !depth.is_more), "lanes of a queue are not the outbox's");
    hold(outbox, vec![]).await;
    assert!(depths().await.iter().all(|depth| depth.is_held));
    hold(outbox, vec![told[0].lane]).await;
    assert!(depths().await.iter().all(|depth| depth.is_held == (depth.lane != told[0].lane)), "one was given back");
    setup.advance(lease + Duration::from_secs(1)).await;
    assert!(depths().await.iter().all(|depth| !depth.is_held), "its lease is over");
}
