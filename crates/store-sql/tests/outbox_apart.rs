//! What a relay, or the reader of a log, does to its own rows it does to no other: stale owners, other topics, other logs.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::fixtures::{PostgresFixture, SqliteFixture};
use common::{begin, commit, consumer};
use oncebox_core::depths::Depths;
use oncebox_core::offsets::{HeldLog, OffsetStep, OffsetStore, Offsets};
use oncebox_core::outbox::{self, Fetch, KeepSent, Outbox, OutboxStore, SentReceipt, Unsent};
use oncebox_core::queue::{HeldLane, LaneRequest, QueueId, QueueSpec, QueueStore, QueueTx};
use oncebox_core::source::LaneNumber;
use oncebox_core::{Clock, ConsumerName, Message, MessageId, Outgoing, Store, StoreErrorKind, Transaction};
use oncebox_testkit::ManualClock;
use oncebox_testkit::store::{Setup, StoreFixture, run};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);

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
    a_lane_of_a_queue_is_no_lane_of_the_outbox,
    a_stale_relay_that_leaves_out_topics_fetches_nothing,
    rows_are_fetched_after_those_in_hand_whatever_is_left_out,
    rows_are_fetched_in_their_order_and_no_more_than_asked_for,
    what_is_not_to_be_sent_takes_the_place_of_nothing,
    rows_are_noted_as_waiting_in_the_lanes_that_are_held_alone,
    what_waits_in_one_topic_holds_up_no_other,
    what_is_not_aside_can_be_neither_retried_nor_skipped,
    what_was_sent_is_swept_oldest_first_and_nothing_else,
    the_oldest_is_that_of_what_will_be_sent,
    logs_that_stand_at_the_same_place_move_one_by_one,
    a_log_begins_for_its_owner_alone,
}

fn outgoing(topic: &str, order_key: &str, text: &str) -> Outgoing {
    let message = Message::made_by(&ManualClock::new(), "noted")
        .with_id(MessageId::new(text).unwrap())
        .with_payload(text.to_owned())
        .with_order_key(order_key);
    Outgoing { topic: topic.to_owned(), message: message.into() }
}

async fn emit<S: OutboxStore>(store: &S, rows: &[Outgoing]) {
    let mut tx = begin(store).await;
    tx.emit(rows).await.unwrap();
    commit(tx).await;
}

async fn hold<S: QueueStore>(store: &S, queue: QueueId, owner: Uuid) -> Vec<HeldLane> {
    let mut tx = begin(store).await;
    let held = tx.hold_lanes(&LaneRequest { queue, owner, lease: LEASE, give_back: vec![] }).await.unwrap();
    commit(tx).await;
    held.lanes
}

async fn fetch<S: OutboxStore>(store: &S, lanes: &[HeldLane], without: &[&str]) -> Vec<Unsent> {
    fetch_by(store, lanes, without, &BTreeMap::new(), 100).await
}

async fn fetch_by<S: OutboxStore>(
    store: &S,
    lanes: &[HeldLane],
    without: &[&str],
    after: &BTreeMap<LaneNumber, i64>,
    max: usize,
) -> Vec<Unsent> {
    let without: Vec<String> = without.iter().map(|topic| (*topic).to_owned()).collect();
    let mut tx = begin(store).await;
    let rows = tx.fetch_unsent(Fetch { lanes, max, without: &without, after }).await.unwrap().rows;
    commit(tx).await;
    rows
}

fn texts(rows: &[Unsent]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(&row.outgoing.message.payload).into_owned()).collect()
}

fn receipts(rows: &[Unsent]) -> Vec<SentReceipt> {
    rows.iter().map(|row| row.receipt).collect()
}

async fn end<S: OutboxStore>(store: &S, rows: &[SentReceipt], keep: KeepSent) -> Result<(), StoreErrorKind> {
    let mut tx = begin(store).await;
    let done = tx.end_sent(rows, keep).await;
    match &done {
        Ok(()) => drop(commit(tx).await),
        Err(_) => drop(tx.rollback().await),
    }
    done.map_err(|error| error.kind())
}

/// A relay whose lanes were taken over holds lanes of the same numbers and epochs in a queue: they are worth nothing here.
async fn a_lane_of_a_queue_is_no_lane_of_the_outbox<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    // Opened first: it has the lower id.
    let spec = QueueSpec { name: ConsumerName::new("payments").unwrap(), lanes: Some(QueueSpec::LANES) };
    let payments = store.queue(&spec).await.unwrap();
    let outbox = store.outbox().await.unwrap();
    let (one, two) = (setup.clock.id(), setup.clock.id());
    emit(store, &[outgoing("paid", "a", "1")]).await;
    let old = hold(store, outbox, one).await;
    let fetched = receipts(&fetch(store, &old, &[]).await);
    assert_eq!(fetched.len(), 1);
    setup.advance(LEASE + LEASE / 10).await;
    assert_eq!(hold(store, payments, one).await, old, "the case needs equal epochs");
    let new = hold(store, outbox, two).await;

    assert_eq!(end(store, &fetched, KeepSent::Nothing).await, Err(StoreErrorKind::Fenced));
    assert_eq!(end(store, &fetched, KeepSent::Sent).await, Err(StoreErrorKind::Fenced));
    let mut tx = begin(store).await;
    let aside = tx.set_unsent_aside(&[(fetched[0], "late".to_owned())]).await;
    assert_eq!(aside.unwrap_err().kind(), StoreErrorKind::Fenced);
    tx.rollback().await;
    assert!(fetch(store, &old, &[]).await.is_empty());
    assert!(fetch(store, &old, &["other"]).await.is_empty());
    assert_eq!(texts(&fetch(store, &new, &[]).await), ["1"]);
    assert_eq!(texts(&fetch(store, &new, &["other"]).await), ["1"]);
}

/// Whether its lease is over, or another has its lanes.
async fn a_stale_relay_that_leaves_out_topics_fetches_nothing<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    emit(store, &[outgoing("paid", "a", "1"), outgoing("sent", "a", "2")]).await;
    let old = hold(store, outbox, setup.clock.id()).await;
    assert_eq!(texts(&fetch(store, &old, &["sent"]).await), ["1"]);
    setup.advance(LEASE + LEASE / 10).await;
    assert!(fetch(store, &old, &["sent"]).await.is_empty(), "its lease is over");
    hold(store, outbox, setup.clock.id()).await;
    assert!(fetch(store, &old, &["sent"]).await.is_empty(), "another has its lanes");
}

/// Of a lane whose rows are in hand, later ones; of another lane, all.
async fn rows_are_fetched_after_those_in_hand_whatever_is_left_out<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let rows = [outgoing("paid", "a", "1"), outgoing("paid", "b", "2"), outgoing("paid", "a", "3")];
    emit(store, &rows).await;
    let lanes = hold(store, outbox, setup.clock.id()).await;
    for without in [&[][..], &["other"]] {
        let all = fetch(store, &lanes, without).await;
        assert_eq!(texts(&all), ["1", "2", "3"]);
        let first = all[0].receipt;
        let after = BTreeMap::from([(first.lane.lane, first.row)]);
        assert_eq!(texts(&fetch_by(store, &lanes, without, &after, 100).await), ["2", "3"]);
        let last = all[2].receipt;
        let after = BTreeMap::from([(first.lane.lane, last.row), (all[1].receipt.lane.lane, all[1].receipt.row)]);
        assert!(fetch_by(store, &lanes, without, &after, 100).await.is_empty());
    }
}

/// Whatever lanes and topics they are in.
async fn rows_are_fetched_in_their_order_and_no_more_than_asked_for<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let numbers: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
    for number in &numbers {
        emit(store, &[outgoing(["x", "y", "z"][number.len() % 3], number, number)]).await;
    }
    let lanes = hold(store, outbox, setup.clock.id()).await;
    for without in [&[][..], &["other"]] {
        assert_eq!(texts(&fetch_by(store, &lanes, without, &BTreeMap::new(), 100).await), numbers);
        assert_eq!(texts(&fetch_by(store, &lanes, without, &BTreeMap::new(), 5).await), numbers[..5]);
    }
}

/// Neither what was sent and is kept nor what is set aside counts among the rows that are asked for.
async fn what_is_not_to_be_sent_takes_the_place_of_nothing<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    emit(store, &[outgoing("paid", "a", "sent"), outgoing("paid", "a", "refused")]).await;
    let rows = receipts(&fetch(store, &lanes, &[]).await);
    end(store, &rows[..1], KeepSent::Sent).await.unwrap();
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(rows[1], "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    // In the same lane, so that the look into that lane comes by all of them.
    let lane = |key: &str| outbox::lane(&outgoing("paid", key, "any"));
    let other = (0..).map(|n| format!("b{n}")).find(|key| lane(key) == lane("a")).unwrap();
    emit(store, &[outgoing("paid", &other, "next")]).await;
    for without in [&[][..], &["other"]] {
        assert_eq!(texts(&fetch_by(store, &lanes, without, &BTreeMap::new(), 1).await), ["next"]);
    }
}

/// A relay that holds one lane notes nothing in another, whose owner might just be taking away what is waited for; and what
/// stands behind a row that is unsent or was sent waits for nobody.
async fn rows_are_noted_as_waiting_in_the_lanes_that_are_held_alone<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore + Store<Tx: Depths>>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    // The lane of a third key is that of the first.
    let lane = |key: &str| outbox::lane(&outgoing("paid", key, "any"));
    let c = (0..).map(|n| format!("c{n}")).find(|key| lane(key) == lane("a")).unwrap();
    assert_ne!(lane("a"), lane("b"), "the case needs two lanes");
    emit(store, &[outgoing("paid", "a", "1"), outgoing("paid", "b", "2"), outgoing("paid", &c, "3")]).await;
    let rows = receipts(&fetch(store, &lanes, &[]).await);
    let mut tx = begin(store).await;
    let aside: Vec<_> = rows[..2].iter().map(|row| (*row, "too large".to_owned())).collect();
    tx.set_unsent_aside(&aside).await.unwrap();
    commit(tx).await;
    end(store, &rows[2..], KeepSent::Sent).await.unwrap();
    emit(store, &[("a", "4"), ("b", "5"), (&c, "6"), (&c, "7")].map(|(key, text)| outgoing("paid", key, text))).await;
    assert_eq!(texts(&fetch(store, &[rows[0].lane], &[]).await), ["6", "7"]);
    let mut tx = begin(store).await;
    let mut left = tx.lane_depths().await.unwrap();
    tx.rollback().await;
    left.sort_by_key(|depth| depth.unsent);
    let left: Vec<_> = left.iter().map(|depth| (depth.lane, depth.unsent)).collect();
    assert_eq!(left, [(rows[1].lane.lane, 1), (rows[0].lane.lane, 2)], "only what waits behind 1 was noted");
}

/// An order key stands for something else in each topic, and a key that is free is not held up by another.
async fn what_waits_in_one_topic_holds_up_no_other<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    emit(store, &[outgoing("paid", "a", "1")]).await;
    let refused = receipts(&fetch(store, &lanes, &[]).await)[0];
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(refused, "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    let later =
        [outgoing("paid", "a", "waits"), outgoing("sent", "a", "other topic"), outgoing("paid", "b", "other key")];
    emit(store, &later).await;
    for _ in 0..2 {
        assert_eq!(texts(&fetch(store, &lanes, &[]).await), ["other topic", "other key"]);
    }
    let mut tx = begin(store).await;
    assert_eq!(tx.skip_aside(&[refused.row]).await.unwrap(), [true]);
    commit(tx).await;
    assert_eq!(texts(&fetch(store, &lanes, &[]).await), ["waits", "other topic", "other key"]);
}

/// An operator's word is about the rows that were named, and only while they are set aside.
async fn what_is_not_aside_can_be_neither_retried_nor_skipped<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    emit(store, &["1", "2", "3", "4"].map(|text| outgoing("paid", text, text))).await;
    let rows = receipts(&fetch(store, &lanes, &[]).await);
    let mut tx = begin(store).await;
    let aside: Vec<_> = rows[..3].iter().map(|row| (*row, "too large".to_owned())).collect();
    tx.set_unsent_aside(&aside).await.unwrap();
    commit(tx).await;
    let numbers = [rows[0].row, rows[3].row];
    let mut tx = begin(store).await;
    assert_eq!(tx.retry_aside(&numbers).await.unwrap(), [true, false]);
    assert_eq!(tx.skip_aside(&[rows[1].row, rows[3].row]).await.unwrap(), [true, false]);
    commit(tx).await;
    let mut tx = begin(store).await;
    let left = tx.page_aside(0, 10).await.unwrap();
    assert_eq!(left.iter().map(|row| row.row).collect::<Vec<_>>(), [rows[2].row]);
    tx.rollback().await;
    assert_eq!(texts(&fetch(store, &lanes, &[]).await), ["1", "4"]);
}

/// What is set aside, waits or is unsent stays, however old; of what was sent the oldest goes first.
async fn what_was_sent_is_swept_oldest_first_and_nothing_else<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    emit(store, &["first", "aside", "second"].map(|text| outgoing("paid", text, text))).await;
    let rows = receipts(&fetch(store, &lanes, &[]).await);
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(rows[1], "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    // The one with the higher number was sent earlier.
    for row in [rows[2], rows[0]] {
        setup.advance(Duration::from_secs(1)).await;
        end(store, &[row], KeepSent::Sent).await.unwrap();
    }
    let between = setup.clock.now();
    setup.advance(Duration::from_secs(1)).await;
    let sweep = async |before, max| {
        let mut tx = begin(store).await;
        let swept = tx.sweep_sent(before, max).await.unwrap();
        commit(tx).await;
        swept
    };
    assert_eq!(sweep(between, 1).await, 1, "what was sent at that time stays, and what is aside takes no place");
    assert_eq!(sweep(setup.clock.now(), 10).await, 1);
    assert_eq!(sweep(setup.clock.now(), 10).await, 0);
    let mut tx = begin(store).await;
    assert_eq!(tx.page_aside(0, 10).await.unwrap().len(), 1);
    tx.rollback().await;
}

/// What is set aside waits for a person, not for the relay.
async fn the_oldest_is_that_of_what_will_be_sent<F>(setup: Setup<F>)
where
    F: StoreFixture<Store: OutboxStore + QueueStore>,
{
    let store = &setup.store;
    let outbox = store.outbox().await.unwrap();
    let lanes = hold(store, outbox, setup.clock.id()).await;
    emit(store, &[outgoing("paid", "a", "1")]).await;
    let row = receipts(&fetch(store, &lanes, &[]).await)[0];
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(row, "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    setup.advance(Duration::from_secs(1)).await;
    let backlog = async || {
        let mut tx = begin(store).await;
        let backlog = tx.outbox_backlog().await.unwrap();
        tx.rollback().await;
        (backlog.unsent, backlog.aside, backlog.oldest)
    };
    assert_eq!(backlog().await, (0, 1, None));
    let emitted_at = setup.clock.now();
    emit(store, &[outgoing("paid", "a", "2")]).await;
    setup.advance(Duration::from_secs(1)).await;
    emit(store, &[outgoing("paid", "b", "3")]).await;
    assert_eq!(texts(&fetch(store, &lanes, &[]).await), ["3"]);
    assert_eq!(backlog().await, (2, 1, Some(emitted_at)), "one waits behind what is aside");
}

fn held(log: &str, epoch: i64) -> HeldLog {
    HeldLog { log: log.to_owned(), epoch }
}

/// Two logs of one consumer, and one of another, at the same place under the same epoch.
async fn logs_that_stand_at_the_same_place_move_one_by_one<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    let logs = ["orders/0".to_owned(), "orders/1".to_owned()];
    let mut tx = begin(store).await;
    for whose in [ours, other] {
        let taken = tx.take_offsets(whose, &logs).await.unwrap();
        assert!(taken.iter().all(|taken| taken.epoch == 1), "the case needs equal epochs: {taken:?}");
    }
    tx.begin_offsets(other, &[(held("orders/0", 1), 5)]).await.unwrap();
    tx.begin_offsets(ours, &[(held("orders/0", 1), 5), (held("orders/1", 1), 5)]).await.unwrap();
    let step = OffsetStep { held: held("orders/0", 1), from: 5, to: 8, witness: 1 };
    tx.advance_offsets(ours, &[step]).await.unwrap();
    let next = tx.take_offsets(ours, &logs).await.unwrap();
    assert_eq!(next.iter().map(|taken| taken.next).collect::<Vec<_>>(), [Some(8), Some(5)]);
    let next = tx.take_offsets(other, &logs).await.unwrap();
    assert_eq!(next.iter().map(|taken| taken.next).collect::<Vec<_>>(), [Some(5), None]);
    tx.rollback().await;
}

/// Who had a log before cannot say where it begins.
async fn a_log_begins_for_its_owner_alone<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let logs = ["orders/0".to_owned()];
    let mut tx = begin(store).await;
    let old = tx.take_offsets(ours, &logs).await.unwrap()[0].epoch;
    let new = tx.take_offsets(ours, &logs).await.unwrap()[0].epoch;
    commit(tx).await;
    let mut tx = begin(store).await;
    let refused = tx.begin_offsets(ours, &[(held("orders/0", old), 5)]).await;
    assert!(refused.is_err());
    tx.rollback().await;
    let mut tx = begin(store).await;
    tx.begin_offsets(ours, &[(held("orders/0", new), 7)]).await.unwrap();
    assert_eq!(tx.take_offsets(ours, &logs).await.unwrap()[0].next, Some(7));
    tx.rollback().await;
}
