//! Which rows are fetched, and in which order.

use std::collections::{BTreeMap, HashMap};

use oncebox_core::Outgoing;
use oncebox_core::outbox::{Fetch, Outbox, Unsent, lane};
use oncebox_core::queue::QueueStore;
use oncebox_core::source::LaneNumber;
use oncebox_core::store::Store;

use super::steps::{
    drain, emit, end, fetch, fetch_by, fetch_texts, fetch_without, hold, in_order, outgoing, receipts, texts,
};
use crate::store::steps::{begin, commit};
use crate::store::{Setup, StoreFixture};

/// Oldest first, whatever lane they are in.
pub async fn rows_are_fetched_in_the_order_they_were_emitted<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[in_order("orders", "b", "1"), in_order("orders", "a", "2"), outgoing("orders", "3")]).await;
    emit(store, &[in_order("parcels", "c", "4"), in_order("orders", "b", "5")]).await;
    assert_eq!(fetch_texts(store, &lanes).await, ["1", "2", "3", "4", "5"]);
}

/// A fetch only looks: what was not ended comes again.
pub async fn a_fetch_takes_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), in_order("orders", "a", "2")]).await;
    let first = fetch(store, &lanes, 10).await;
    assert_eq!(fetch(store, &lanes, 10).await, first);
}

/// The oldest of what is there, and no more than that.
pub async fn a_fetch_returns_at_most_what_was_asked_for<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..50).map(|n| outgoing("orders", &format!("{n}"))).collect::<Vec<_>>()).await;
    assert_eq!(texts(&fetch(store, &lanes, 3).await), ["0", "1", "2"]);
    assert!(fetch(store, &lanes, 0).await.is_empty());
    assert_eq!(fetch(store, &lanes, usize::MAX / 8).await.len(), 50);
}

/// Whoever publishes a batch can have the next one fetched meanwhile.
pub async fn a_fetch_leaves_out_rows_that_are_in_hand<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..20).map(|n| in_order("orders", ["a", "b"][n % 2], &format!("{n}"))).collect::<Vec<_>>()).await;
    let mut after = BTreeMap::new();
    for expected in [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9", "10", "11"]] {
        let fetched = fetch_by(store, Fetch { lanes: &lanes, max: 4, without: &[], after: &after }).await;
        assert_eq!(texts(&fetched), expected);
        after.extend(fetched.iter().map(|row| (row.receipt.lane.lane, row.receipt.row)));
    }
    let rest = fetch_by(store, Fetch { lanes: &lanes, max: 100, without: &[], after: &after }).await;
    assert_eq!(rest.len(), 8);
    after.extend(rest.iter().map(|row| (row.receipt.lane.lane, row.receipt.row)));
    assert!(fetch_by(store, Fetch { lanes: &lanes, max: 100, without: &[], after: &after }).await.is_empty());
}

/// A topic that is down does not hold up the others.
pub async fn a_fetch_leaves_out_topics<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let row = |n: usize| in_order(["a", "b", "B", "c"][n % 4], "key", &format!("{n}"));
    emit(store, &(0..200).map(row).collect::<Vec<_>>()).await;
    let without = |topics: &[&str]| topics.iter().map(|topic| (*topic).to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(&fetch_without(store, &lanes, 4, &without(&["a"])).await), ["1", "2", "3", "5"]);
    assert_eq!(texts(&fetch_without(store, &lanes, 3, &without(&["b", "a", "x"])).await), ["2", "3", "6"]);
    assert!(fetch_without(store, &lanes, 9, &without(&["a", "b", "B", "c"])).await.is_empty());
    // More topics than lanes.
    let many: Vec<String> = (0..100).map(|n| format!("topic-{n}")).chain(without(&["a"])).collect();
    assert_eq!(texts(&fetch_without(store, &lanes[..1], 9, &many).await).len(), expected(&lanes[..1], 9));

    /// All are of one order key, so they are in one lane.
    fn expected(lanes: &[oncebox_core::queue::HeldLane], max: usize) -> usize {
        let lane = oncebox_core::outbox::lane(&in_order("b", "key", "x"));
        if lanes.iter().any(|held| held.lane == lane) { max } else { 0 }
    }
}

/// A transaction that was open while later ones committed has older rows. They are found, by being unsent.
pub async fn a_row_that_commits_late_is_found<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    if !store.capabilities().concurrent {
        return;
    }
    let mut late = begin(store).await;
    late.emit(&[outgoing("orders", "late")]).await.expect("rows can be emitted");
    emit(store, &[outgoing("orders", "early")]).await;
    let early = fetch(store, &lanes, 10).await;
    assert_eq!(texts(&early), ["early"]);
    end(store, &receipts(&early)).await.expect("a row of ours can be ended");
    commit(late).await;
    let late = fetch(store, &lanes, 10).await;
    assert_eq!(texts(&late), ["late"]);
    assert!(late[0].receipt.row < early[0].receipt.row, "it was numbered first");
}

/// Of each lane the oldest, batch by batch, each once; and a lane with more than its share takes nobody else's.
pub async fn many_rows_are_fetched_from_all_lanes_the_oldest_of_each_first<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let rows: Vec<Outgoing> = (0..1500)
        .map(|n| match n % 3 {
            // Every third in one lane: it has more than its share.
            0 => in_order("orders", "hot", &format!("{n}")),
            _ => in_order("orders", &format!("account-{n}"), &format!("{n}")),
        })
        .collect();
    for some in rows.chunks(300) {
        emit(store, some).await;
    }
    let lane_of: HashMap<String, LaneNumber> = rows.iter().map(|row| (text(row), lane(row))).collect();
    let hot = lane(&rows[0]);
    let mut came: Vec<usize> = Vec::new();
    loop {
        let fetched = fetch(store, &lanes, 170).await;
        if fetched.is_empty() {
            break;
        }
        let is_hot = |row: &&Unsent| row.receipt.lane.lane == hot;
        if came.len() < 600 {
            let hot = fetched.iter().filter(is_hot).count();
            assert!(hot > 0 && hot <= 85, "{hot} of {} rows are of one lane", fetched.len());
        }
        came.extend(texts(&fetched).iter().map(|text| text.parse::<usize>().expect("it is a number")));
        end(store, &receipts(&fetched)).await.expect("rows of ours can be ended");
    }
    for held in &lanes {
        let of_lane: Vec<usize> = came.iter().copied().filter(|n| lane_of[&n.to_string()] == held.lane).collect();
        assert!(of_lane.is_sorted(), "lane {} came out of order", held.lane.0);
    }
    came.sort_unstable();
    assert_eq!(came, (0..1500).collect::<Vec<_>>());

    fn text(row: &Outgoing) -> String {
        String::from_utf8_lossy(&row.message.payload).into_owned()
    }
}

/// Where everything lies in one lane, a fetch still fills a batch.
pub async fn many_rows_of_one_lane_are_fetched_together<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..400).map(|n| in_order("orders", "hot", &format!("{n}"))).collect::<Vec<_>>()).await;
    assert_eq!(fetch(store, &lanes, 300).await.len(), 300);
    let expected: Vec<String> = (0..400).map(|n| format!("{n}")).collect();
    assert_eq!(drain(store, &lanes, 300).await, expected);
}
