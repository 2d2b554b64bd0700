//! What follows a row that is set aside waits, and goes on when that is gone.

use oncebox_core::outbox::Outbox;
use oncebox_core::queue::QueueStore;
use oncebox_core::{Outgoing, StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use super::steps::{
    backlog, drain, emit, end, fetch, fetch_texts, hold, in_order, outgoing, receipt, receipts, refuse, retry,
    set_aside, skip, texts,
};
use crate::store::steps::{begin, commit};
use crate::store::{Setup, StoreFixture};

const NOTHING: Vec<String> = Vec::new();

/// The same key on another topic is another order, and so is another key.
pub async fn a_row_set_aside_holds_up_its_topic_and_key_and_no_other<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let rows = [
        in_order("orders", "a", "before"),
        in_order("orders", "a", "refused"),
        in_order("orders", "a", "behind"),
        in_order("parcels", "a", "other topic"),
        in_order("orders", "b", "other key"),
        outgoing("orders", "no key"),
        in_order("order", "sa", "run together"),
    ];
    emit(store, &rows).await;
    refuse(store, &lanes, "refused").await;
    let others = ["before", "other topic", "other key", "no key", "run together"];
    assert_eq!(fetch_texts(store, &lanes).await, others);
    assert_eq!(drain(store, &lanes, 10).await, others);
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING, "what was before it and is sent changes nothing");
}

/// Rows without an order key promise no order, even with each other.
pub async fn a_row_without_an_order_key_holds_up_nobody<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[outgoing("orders", "1"), outgoing("orders", "2"), outgoing("orders", "3")]).await;
    refuse(store, &lanes, "2").await;
    assert_eq!(drain(store, &lanes, 10).await, ["1", "3"]);
}

/// It does not matter when.
pub async fn what_is_emitted_later_waits_too<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &[in_order("orders", "a", "1")]).await;
    let row = refuse(store, &lanes, "1").await;
    for text in ["2", "3", "4"] {
        emit(store, &[in_order("orders", "a", text)]).await;
        assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
    }
    skip(store, &[row]).await;
    // Added while others wait, and not looked at yet: it does not overtake them.
    emit(store, &[in_order("orders", "a", "5")]).await;
    assert_eq!(texts(&fetch(store, &lanes, 1).await), ["2"]);
    assert_eq!(drain(store, &lanes, 2).await, ["2", "3", "4", "5"]);
}

/// In the order in which they were emitted.
pub async fn what_waits_goes_on_in_order_after_a_skip<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..6).map(|n| in_order("orders", "a", &format!("{n}"))).collect::<Vec<_>>()).await;
    let row = refuse(store, &lanes, "0").await;
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
    skip(store, &[row]).await;
    assert_eq!(drain(store, &lanes, 2).await, ["1", "2", "3", "4", "5"]);
}

/// The row itself first.
pub async fn what_waits_comes_after_the_row_that_is_tried_again<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..6).map(|n| in_order("orders", "a", &format!("{n}"))).collect::<Vec<_>>()).await;
    let row = refuse(store, &lanes, "0").await;
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
    retry(store, &[row]).await;
    assert_eq!(drain(store, &lanes, 4).await, ["0", "1", "2", "3", "4", "5"]);
}

/// As often as it takes.
pub async fn a_row_that_is_refused_again_holds_up_the_rest_again<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..4).map(|n| in_order("orders", "a", &format!("{n}"))).collect::<Vec<_>>()).await;
    for _ in 0..3 {
        let row = refuse(store, &lanes, "0").await;
        assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
        assert_eq!(retry(store, &[row]).await, [true]);
    }
    let row = refuse(store, &lanes, "0").await;
    skip(store, &[row]).await;
    // Now one of those that waited is refused itself.
    let second = refuse(store, &lanes, "1").await;
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
    skip(store, &[second]).await;
    assert_eq!(drain(store, &lanes, 10).await, ["2", "3"]);
}

/// Whichever goes first.
pub async fn two_rows_set_aside_hold_up_until_both_are_gone<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    for first_goes_first in [true, false] {
        emit(store, &(0..5).map(|n| in_order("orders", "a", &format!("{n}"))).collect::<Vec<_>>()).await;
        // A sink that does not fail by prefix may refuse two at once.
        let rows = fetch(store, &lanes, 10).await;
        let (one, two) = (receipt(&rows, "0"), receipt(&rows, "2"));
        for row in [one, two] {
            set_aside(store, row, "no").await.expect("a row of ours can be set aside");
        }
        assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
        if first_goes_first {
            skip(store, &[one.row]).await;
            assert_eq!(drain(store, &lanes, 10).await, ["1"]);
            skip(store, &[two.row]).await;
            assert_eq!(drain(store, &lanes, 10).await, ["3", "4"]);
        } else {
            skip(store, &[two.row]).await;
            assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
            skip(store, &[one.row]).await;
            assert_eq!(drain(store, &lanes, 10).await, ["1", "3", "4"]);
        }
        assert_eq!(backlog(store).await.unsent, 0);
    }
}

/// It was published before the one in front of it was refused, and its relay settles late.
pub async fn a_row_that_waits_can_still_be_ended<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    emit(store, &(0..3).map(|n| in_order("orders", "a", &format!("{n}"))).collect::<Vec<_>>()).await;
    let rows = fetch(store, &lanes, 10).await;
    let refused = refuse(store, &lanes, "0").await;
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING);
    end(store, &[receipt(&rows, "1")]).await.expect("a row of ours can be ended");
    assert_eq!(fetch_texts(store, &lanes).await, NOTHING, "the last one still waits");
    skip(store, &[refused]).await;
    assert_eq!(drain(store, &lanes, 10).await, ["2"]);
}

/// More than a store would change in one statement; each comes once and in order.
pub async fn many_rows_wait_and_all_go_on<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    let rows: Vec<Outgoing> = (0..1200).map(|n| in_order("orders", &format!("k{}", n % 2), &format!("{n}"))).collect();
    for some in rows.chunks(400) {
        emit(store, some).await;
    }
    let refused = [refuse(store, &lanes, "0").await, refuse(store, &lanes, "1").await];
    for _ in 0..10 {
        assert_eq!(fetch(store, &lanes, 100).await.len(), 0);
    }
    assert_eq!(backlog(store).await.unsent, 1198);
    skip(store, &refused).await;
    let mut came: Vec<usize> =
        drain(store, &lanes, 100).await.iter().map(|text| text.parse().expect("a number")).collect();
    for key in 0..2 {
        let of_key: Vec<usize> = came.iter().copied().filter(|n| n % 2 == key).collect();
        assert!(of_key.is_sorted(), "out of order: {of_key:?}");
    }
    came.sort_unstable();
    assert_eq!(came, (2..1200).collect::<Vec<_>>());
}

/// Relays look while people skip: whatever the interleaving, nothing is left waiting.
pub async fn nothing_waits_for_a_row_that_is_gone<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, lanes) = (&setup.store, hold(&setup.store, &setup.clock).await);
    for round in 0..10 {
        let row = |n: usize| in_order("orders", "a", &format!("{round}-{n}"));
        emit(store, &(0..8).map(row).collect::<Vec<_>>()).await;
        let rows = fetch(store, &lanes, 10).await;
        for row in &rows[..2] {
            set_aside(store, row.receipt, "no").await.expect("a row of ours can be set aside");
        }
        let mut tasks = JoinSet::new();
        for row in receipts(&rows[..2]) {
            let store = store.clone();
            tasks.spawn(async move { skip_until_it_passes(&store, row.row).await });
        }
        for _ in 0..2 {
            let (store, lanes) = (store.clone(), lanes.clone());
            tasks.spawn(async move { drop(fetch(&store, &lanes, 10).await) });
        }
        tasks.join_all().await;
        let expected: Vec<String> = (2..8).map(|n| format!("{round}-{n}")).collect();
        assert_eq!(drain(store, &lanes, 3).await, expected);
    }
}

async fn skip_until_it_passes<S: QueueStore>(store: &S, row: i64) {
    loop {
        let mut tx = begin(store).await;
        match tx.skip_aside(&[row]).await {
            Ok(_) => return drop(commit(tx).await),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}"),
        }
        tx.rollback().await;
    }
}
