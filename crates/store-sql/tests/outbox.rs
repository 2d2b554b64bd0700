//! The outbox under concurrency that only a server has: lanes that change hands under a settlement, and relays that look
//! while people skip.

#![cfg(all(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{PostgresPlace, begin, commit};
use oncebox_core::outbox::{Fetch, KeepSent, Outbox, Unsent};
use oncebox_core::queue::{HeldLane, LaneRequest, QueueStore, QueueTx};
use oncebox_core::{Clock, Message, MessageId, Outgoing, StoreErrorKind, SystemClock};
use oncebox_store_sql::Postgres;
use oncebox_testkit::{ManualClock, stays_pending};
use tokio::task::JoinSet;
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);

fn row(text: &str) -> Outgoing {
    let message = Message::new("noted").with_id(MessageId::new(text).unwrap()).with_order_key("a");
    Outgoing { topic: "orders".to_owned(), message: message.into() }
}

async fn emit(store: &Postgres, texts: &[&str]) {
    let mut tx = begin(store).await;
    tx.emit(&texts.iter().map(|text| row(text)).collect::<Vec<_>>()).await.unwrap();
    commit(tx).await;
}

async fn hold<S: QueueStore>(store: &S, owner: Uuid) -> Vec<HeldLane> {
    let queue = store.outbox().await.unwrap();
    let mut tx = begin(store).await;
    let held = tx.hold_lanes(&LaneRequest { queue, owner, lease: LEASE, give_back: Vec::new() }).await.unwrap();
    commit(tx).await;
    held.lanes
}

async fn fetch(store: &Postgres, lanes: &[HeldLane]) -> Vec<Unsent> {
    let mut tx = begin(store).await;
    let fetched = tx.fetch_unsent(Fetch { lanes, max: 100, without: &[], after: &BTreeMap::new() }).await.unwrap().rows;
    commit(tx).await;
    fetched
}

fn ids(rows: &[Unsent]) -> Vec<String> {
    rows.iter().map(|row| row.outgoing.message.label().to_string()).collect()
}

/// Emits "1", "2" and "3", and sets "1" aside.
async fn with_one_aside(store: &Postgres, lanes: &[HeldLane]) -> i64 {
    emit(store, &["1", "2", "3"]).await;
    let first = fetch(store, lanes).await[0].receipt;
    let mut tx = begin(store).await;
    tx.set_unsent_aside(&[(first, "too large".to_owned())]).await.unwrap();
    commit(tx).await;
    first.row
}

/// A takeover passes over a lane in which rows are just being ended; a renewal does not wait.
#[tokio::test]
async fn a_lane_of_the_outbox_does_not_change_hands_under_an_end() {
    let Some(place) = PostgresPlace::or_skip("a_lane_of_the_outbox_does_not_change_hands_under_an_end") else { return };
    let clock = Arc::new(ManualClock::new());
    let store = place.open_with(Arc::clone(&clock)).await;
    let (owner, other) = (SystemClock.id(), SystemClock.id());
    let lanes = hold(&store, owner).await;
    emit(&store, &["1"]).await;
    let sent = fetch(&store, &lanes).await[0].receipt;

    for keep in [KeepSent::Nothing, KeepSent::Sent] {
        let mut ending = begin(&store).await;
        ending.end_sent(&[sent], keep).await.unwrap();
        assert_eq!(hold(&store, owner).await.len(), 64, "the owner renews beside it");
        drop(ending);
    }
    let mut ending = begin(&store).await;
    ending.end_sent(&[sent], KeepSent::Nothing).await.unwrap();
    clock.advance(LEASE * 2);
    let taken = hold(&store, other).await;
    assert_eq!(taken.len(), 63, "nobody takes the lane before the end is over");
    assert!(taken.iter().all(|held| held.lane != sent.lane.lane));
    commit(ending).await;
    assert_eq!(hold(&store, other).await.len(), 64);

    let mut late = begin(&store).await;
    assert_eq!(late.end_sent(&[sent], KeepSent::Nothing).await.unwrap_err().kind(), StoreErrorKind::Fenced);
}

/// A relay looks while a skip is on its way, and still sees the row that holds up the others. It must not note that they
/// wait: the skip has already woken whoever there was to wake.
#[tokio::test]
async fn a_fetch_notes_nothing_while_a_skip_is_on_its_way() {
    let Some(place) = PostgresPlace::or_skip("a_fetch_notes_nothing_while_a_skip_is_on_its_way") else { return };
    let store = place.open().await;
    let lanes = hold(&store, SystemClock.id()).await;
    for retry in [false, true] {
        let aside = with_one_aside(&store, &lanes).await;
        let mut acting = begin(&store).await;
        let done = if retry { acting.retry_aside(&[aside]).await } else { acting.skip_aside(&[aside]).await };
        assert_eq!(done.unwrap(), [true]);
        assert!(fetch(&store, &lanes).await.is_empty(), "nothing is decided yet");
        commit(acting).await;
        let rows = fetch(&store, &lanes).await;
        assert_eq!(ids(&rows), if retry { vec!["1", "2", "3"] } else { vec!["2", "3"] });
        end_all(&store, &rows).await;
    }
}

/// The other way round: a relay is just noting what waits, and the skip has to see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_skip_waits_for_a_fetch_that_notes() {
    let Some(place) = PostgresPlace::or_skip("a_skip_waits_for_a_fetch_that_notes") else { return };
    let store = place.open().await;
    let lanes = hold(&store, SystemClock.id()).await;
    let aside = with_one_aside(&store, &lanes).await;
    let mut noting = begin(&store).await;
    let looked =
        noting.fetch_unsent(Fetch { lanes: &lanes, max: 100, without: &[], after: &BTreeMap::new() }).await.unwrap();
    assert!(looked.rows.is_empty() && looked.noted);
    let mut skipping = JoinSet::new();
    {
        let store = store.clone();
        skipping.spawn(async move {
            let mut tx = begin(&store).await;
            assert_eq!(tx.skip_aside(&[aside]).await.unwrap(), [true]);
            commit(tx).await;
        });
    }
    assert!(stays_pending(skipping.join_next()).await, "it waits for the fetch");
    commit(noting).await;
    skipping.join_all().await;
    assert_eq!(ids(&fetch(&store, &lanes).await), ["2", "3"]);
}

/// The same with a row that is sent late while a relay is noting that others wait behind it.
#[tokio::test]
async fn a_fetch_notes_nothing_while_an_end_is_on_its_way() {
    let Some(place) = PostgresPlace::or_skip("a_fetch_notes_nothing_while_an_end_is_on_its_way") else { return };
    let store = place.open().await;
    let lanes = hold(&store, SystemClock.id()).await;
    let aside = with_one_aside(&store, &lanes).await;
    assert!(fetch(&store, &lanes).await.is_empty(), "two rows wait, noted");
    emit(&store, &["4"]).await;
    let mut tx = begin(&store).await;
    assert_eq!(tx.skip_aside(&[aside]).await.unwrap(), [true]);
    commit(tx).await;
    let rows = fetch(&store, &lanes).await;
    assert_eq!(ids(&rows), ["2", "3", "4"]);
    let mut ending = begin(&store).await;
    ending.end_sent(&[rows[0].receipt], KeepSent::Nothing).await.unwrap();
    assert_eq!(ids(&fetch(&store, &lanes).await), ["2", "3", "4"]);
    commit(ending).await;
    assert_eq!(ids(&fetch(&store, &lanes).await), ["3", "4"]);
}

/// Two people skip two rows of one order key at the same moment; each still sees the other's.
#[tokio::test]
async fn two_skips_at_once_leave_nobody_waiting() {
    let Some(place) = PostgresPlace::or_skip("two_skips_at_once_leave_nobody_waiting") else { return };
    let store = place.open().await;
    let lanes = hold(&store, SystemClock.id()).await;
    emit(&store, &["1", "2", "3"]).await;
    let rows = fetch(&store, &lanes).await;
    let mut tx = begin(&store).await;
    let refused = [&rows[0], &rows[1]].map(|row| (row.receipt, "too large".to_owned()));
    tx.set_unsent_aside(&refused).await.unwrap();
    commit(tx).await;
    assert!(fetch(&store, &lanes).await.is_empty(), "the third waits, noted");

    let (mut one, mut two) = (begin(&store).await, begin(&store).await);
    assert_eq!(one.skip_aside(&[rows[0].receipt.row]).await.unwrap(), [true]);
    let mut second = JoinSet::new();
    let row = rows[1].receipt.row;
    second.spawn(async move {
        assert_eq!(two.skip_aside(&[row]).await.unwrap(), [true]);
        commit(two).await;
    });
    // It may wait for the first, or not.
    let _ = stays_pending(second.join_next()).await;
    commit(one).await;
    second.join_all().await;
    assert_eq!(ids(&fetch(&store, &lanes).await), ["3"]);
}

async fn end_all(store: &Postgres, rows: &[Unsent]) {
    let mut tx = begin(store).await;
    tx.end_sent(&rows.iter().map(|row| row.receipt).collect::<Vec<_>>(), KeepSent::Nothing).await.unwrap();
    commit(tx).await;
}
