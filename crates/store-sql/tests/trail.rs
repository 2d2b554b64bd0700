//! What is still known of one message, and of no other: records, parked rows, copies in queues, rows of the outbox.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, claim, commit, consumer, fingerprint, request};
use oncebox_core::outbox::{Fetch, KeepSent, Outbox, OutboxStore, Unsent};
use oncebox_core::parked::{Cause, Park, Parking, Verdict, Waits};
use oncebox_core::queue::{Enqueue, HeldLane, Keep, LaneRequest, LeaseRequest, QueueSpec, QueueStore, QueueTx};
use oncebox_core::trail::{CAUSE, OutboxState, TrailOutbox, Trails, WhichOutbox};
use oncebox_core::{
    Class, Clock, ConsumerId, ConsumerName, Inbox, Key, Message, MessageId, Outcome, OutcomeKind, Outgoing, Store,
    Transaction,
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
    records_are_those_of_the_key,
    parked_rows_are_found_by_key_and_by_id,
    copies_in_queues_are_found_by_id,
    a_copy_in_a_queue_says_what_became_of_it,
    rows_of_the_outbox_are_found_by_number_id_and_cause,
    a_row_of_the_outbox_says_how_far_it_is,
}

fn key(text: &str) -> Key {
    Key::id(text).unwrap()
}

fn message(text: &str) -> Message {
    Message::made_by(&ManualClock::new(), "noted").with_id(MessageId::new(text).unwrap()).with_payload(text.to_owned())
}

/// Every consumer's record under the key, with the reason of a rejection and no other result.
async fn records_are_those_of_the_key<F: StoreFixture<Store: Store<Tx: Trails>>>(setup: Setup<F>) {
    let store = &setup.store;
    let (first, second) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let mut tx = begin(store).await;
    for (consumer, text) in [(second, "sought"), (first, "sought"), (first, "other")] {
        claim(&mut tx, &request(consumer, text)).await;
    }
    let applied = Outcome::applied().with_json(&"a result").unwrap();
    let outcomes = [(first, key("sought"), Outcome::rejected("too late")), (second, key("sought"), applied)];
    tx.record(&outcomes).await.unwrap();
    commit(tx).await;
    let mut tx = begin(store).await;
    let found = tx.trail_records(&[key("sought")]).await.unwrap();
    tx.rollback().await;
    let told: Vec<_> = found.iter().map(|found| (found.consumer, found.outcome, found.reason.clone())).collect();
    let expected = [(first, OutcomeKind::Rejected, Some("too late".to_owned())), (second, OutcomeKind::Applied, None)];
    assert_eq!(told, expected);
    assert!(found.iter().all(|found| found.key == key("sought")));
}

fn park(consumer: ConsumerId, id: &str, under: &str) -> Park {
    let class = Some(Class::Permanent);
    let cause = Cause::new(class, "noted", "bank-closed");
    Park {
        consumer,
        message: Arc::new(message(id)),
        key: key(under),
        fingerprint: fingerprint(7),
        owns_record: true,
        order_key: None,
        verdict: Verdict { waits: Waits::Person, class, cause, reason: "closed".to_owned(), attempts: 1 },
    }
}

/// Under a key whoever's it is, or with an id whatever its key; each row once, the oldest first, up to a bound.
async fn parked_rows_are_found_by_key_and_by_id<F: StoreFixture<Store: Store<Tx: Trails + Parking>>>(setup: Setup<F>) {
    let store = &setup.store;
    let (first, second) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let mut tx = begin(store).await;
    let parks = [
        park(second, "m", "k"),
        park(first, "m", "k"),
        park(first, "m", "another key"),
        park(first, "another id", "k2"),
    ];
    assert_eq!(tx.park(&parks).await.unwrap(), [true; 4]);
    commit(tx).await;
    let mut tx = begin(store).await;
    let by_key = tx.trail_parked(&[key("k")], None, 10).await.unwrap();
    let by_id = tx.trail_parked(&[], Some("m"), 10).await.unwrap();
    let by_both = tx.trail_parked(&[key("k"), key("k2")], Some("m"), 10).await.unwrap();
    let few = tx.trail_parked(&[key("k")], None, 1).await.unwrap();
    let few_by_id = tx.trail_parked(&[], Some("m"), 2).await.unwrap();
    tx.rollback().await;
    assert_eq!((by_key.len(), by_id.len(), by_both.len()), (2, 3, 4));
    assert!(by_both.is_sorted());
    assert_eq!((&few[..], &few_by_id[..]), (&by_key[..1], &by_id[..2]), "the oldest come first");
    assert_eq!(by_key[..], by_id[..2]);
}

/// In any queue, the oldest first, up to a bound.
async fn copies_in_queues_are_found_by_id<F: StoreFixture<Store: QueueStore + Store<Tx: Trails>>>(setup: Setup<F>) {
    let store = &setup.store;
    let mut rows = Vec::new();
    for (queue, id) in [("payments", "m"), ("invoices", "m"), ("payments", "other"), ("payments", "m")] {
        let name = ConsumerName::new(queue).unwrap();
        let opened = store.queue(&QueueSpec { name, lanes: None }).await.unwrap();
        let mut tx = begin(store).await;
        tx.enqueue(opened, &[Enqueue { message: message(id), lane: None, once: None }]).await.unwrap();
        commit(tx).await;
        rows.push((queue, id));
    }
    let mut tx = begin(store).await;
    let all = tx.trail_queued("m", 10).await.unwrap();
    let few = tx.trail_queued("m", 2).await.unwrap();
    tx.rollback().await;
    assert_eq!(all.iter().map(|copy| copy.queue.as_str()).collect::<Vec<_>>(), ["payments", "invoices", "payments"]);
    assert!(all.is_sorted_by_key(|copy| copy.row));
    assert_eq!(few, all[..2]);
}

/// Why it was released, until it is processed.
async fn a_copy_in_a_queue_says_what_became_of_it<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: QueueStore + Store<Tx: Trails>>,
{
    let store = &setup.store;
    let name = ConsumerName::new("payments").unwrap();
    let queue = store.queue(&QueueSpec { name, lanes: None }).await.unwrap();
    let mut tx = begin(store).await;
    tx.enqueue(queue, &[Enqueue { message: message("m"), lane: None, once: None }]).await.unwrap();
    commit(tx).await;
    let lease = Duration::from_secs(30);
    let take = async || {
        let mut tx = begin(store).await;
        let leased = tx.lease(&LeaseRequest { queue, max: 1, lease, lanes: None }).await.unwrap();
        commit(tx).await;
        leased[0].receipt
    };
    let look = async || {
        let mut tx = begin(store).await;
        let copy = tx.trail_queued("m", 10).await.unwrap().remove(0);
        tx.rollback().await;
        (copy.error, copy.deliveries, copy.visible_at)
    };
    let first = take().await;
    let mut tx = begin(store).await;
    tx.release(queue, &[first], lease, Some("the bank is closed")).await.unwrap();
    commit(tx).await;
    assert_eq!(look().await, (Some("the bank is closed".to_owned()), 1, Some(setup.clock.now() + lease)));
    setup.advance(lease).await;
    let second = take().await;
    let mut tx = begin(store).await;
    tx.extend(queue, &[second], lease * 2).await.unwrap();
    commit(tx).await;
    assert_eq!(look().await, (Some("the bank is closed".to_owned()), 2, Some(setup.clock.now() + lease * 2)));
    let mut tx = begin(store).await;
    tx.settle(queue, &[second], Keep::Processed).await.unwrap();
    commit(tx).await;
    assert_eq!(look().await, (None, 2, None));
}

fn outgoing(id: &str, cause: Option<&str>) -> Outgoing {
    let mut message = message(id).with_order_key(format!("key of {id}"));
    if let Some(cause) = cause {
        message.headers.add(CAUSE, cause).unwrap();
    }
    Outgoing { topic: "paid".to_owned(), message: message.into() }
}

async fn emit<S: OutboxStore>(store: &S, rows: &[Outgoing]) {
    let mut tx = begin(store).await;
    tx.emit(rows).await.unwrap();
    commit(tx).await;
}

async fn outbox<S: Store<Tx: Trails>>(store: &S, which: WhichOutbox<'_>, max: usize) -> Vec<TrailOutbox> {
    let mut tx = begin(store).await;
    let found = tx.trail_outbox(which, max).await.unwrap();
    tx.rollback().await;
    found
}

/// All lanes of the outbox, for a new relay.
async fn hold<S: OutboxStore + QueueStore>(store: &S, clock: &ManualClock) -> Vec<HeldLane> {
    let queue = store.outbox().await.unwrap();
    let mut tx = begin(store).await;
    let lease = Duration::from_secs(30);
    let held = tx.hold_lanes(&LaneRequest { queue, owner: clock.id(), lease, give_back: vec![] }).await.unwrap();
    commit(tx).await;
    held.lanes
}

async fn fetch<S: OutboxStore>(store: &S, lanes: &[HeldLane]) -> Vec<Unsent> {
    let mut tx = begin(store).await;
    let after = std::collections::BTreeMap::new();
    let rows = tx.fetch_unsent(Fetch { lanes, max: 100, without: &[], after: &after }).await.unwrap().rows;
    commit(tx).await;
    rows
}

/// By number, by id also where it was sent, by what caused it; and all that is not sent, page by page.
async fn rows_of_the_outbox_are_found_by_number_id_and_cause<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore + Store<Tx: Trails>>,
{
    let store = &setup.store;
    emit(store, &[outgoing("a", Some("cause")), outgoing("b", None), outgoing("c", Some("another"))]).await;
    let all = outbox(store, WhichOutbox::NotSentAfter(0), 10).await;
    let ids = |rows: &[TrailOutbox]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&all), ["a", "b", "c"]);
    assert_eq!(outbox(store, WhichOutbox::NotSentAfter(0), 2).await, all[..2]);
    assert_eq!(outbox(store, WhichOutbox::NotSentAfter(all[0].row), 10).await, all[1..]);
    assert_eq!(outbox(store, WhichOutbox::Row(all[1].row), 10).await, all[1..2]);
    assert_eq!(outbox(store, WhichOutbox::Id("b"), 10).await, all[1..2]);
    assert_eq!(outbox(store, WhichOutbox::CausedBy("cause"), 10).await, all[..1]);

    // What was sent is kept, and its id comes again.
    let lanes = hold(store, &setup.clock).await;
    let sent: Vec<_> = fetch(store, &lanes).await.iter().map(|row| row.receipt).collect();
    let mut tx = begin(store).await;
    tx.end_sent(&sent, KeepSent::Sent).await.unwrap();
    commit(tx).await;
    emit(store, &[outgoing("d", Some("cause")), outgoing("a", Some("cause"))]).await;
    assert_eq!(ids(&outbox(store, WhichOutbox::NotSentAfter(0), 10).await), ["d", "a"]);
    let again = outbox(store, WhichOutbox::Id("a"), 10).await;
    assert_eq!(again.iter().map(|row| row.state).collect::<Vec<_>>(), [OutboxState::Sent, OutboxState::Unsent]);
    assert_eq!(outbox(store, WhichOutbox::Id("a"), 1).await, again[..1]);
    assert_eq!(ids(&outbox(store, WhichOutbox::CausedBy("cause"), 10).await), ["a", "d", "a"]);
    let few = outbox(store, WhichOutbox::CausedBy("cause"), 1).await;
    assert_eq!(few.iter().map(|found| found.row).collect::<Vec<_>>(), [all[0].row]);
}

/// What became of a row is told until something else does: a row that is tried again has no reason any more.
async fn a_row_of_the_outbox_says_how_far_it_is<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore + Store<Tx: Trails>>,
{
    let store = &setup.store;
    emit(store, &[outgoing("a", None)]).await;
    let lanes = hold(store, &setup.clock).await;
    let fetched = fetch(store, &lanes).await;
    let row = fetched[0].receipt.row;
    let look = async || outbox(store, WhichOutbox::Row(row), 10).await.remove(0);
    assert_eq!((look().await.state, look().await.settled_at, look().await.reason), (OutboxState::Unsent, None, None));

    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(fetched[0].receipt, "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    let aside = look().await;
    assert_eq!((aside.state, aside.reason.as_deref()), (OutboxState::Aside, Some("too large")));
    assert_eq!(aside.settled_at, Some(setup.clock.now()));

    // A receipt from before does nothing to a row that is set aside.
    setup.advance(Duration::from_secs(1)).await;
    for keep in [KeepSent::Nothing, KeepSent::Sent] {
        let mut tx = begin(store).await;
        tx.end_sent(&[fetched[0].receipt], keep).await.unwrap();
        commit(tx).await;
        assert_eq!(look().await, aside);
    }
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(fetched[0].receipt, "again".to_owned())]).await.unwrap();
    commit(tx).await;
    assert_eq!(look().await, aside);

    let mut tx = begin(store).await;
    assert_eq!(tx.retry_aside(&[row]).await.unwrap(), [true]);
    commit(tx).await;
    assert_eq!((look().await.state, look().await.settled_at, look().await.reason), (OutboxState::Unsent, None, None));
    let mut tx = begin(store).await;
    tx.end_sent(&[fetched[0].receipt], KeepSent::Sent).await.unwrap();
    commit(tx).await;
    let sent = look().await;
    assert_eq!((sent.state, sent.settled_at), (OutboxState::Sent, Some(setup.clock.now())));
    setup.advance(Duration::from_secs(1)).await;
    let mut tx = begin(store).await;
    tx.end_sent(&[fetched[0].receipt], KeepSent::Sent).await.unwrap();
    tx.set_unsent_aside(&[(fetched[0].receipt, "late".to_owned())]).await.unwrap();
    commit(tx).await;
    assert_eq!(look().await, sent, "what was sent stays so");
}
