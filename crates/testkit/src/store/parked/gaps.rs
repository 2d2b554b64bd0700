//! Rows that wait for a gap to close: counted, and woken when it may have.

use std::time::Duration;

use oncebox_core::parked::{Park, ParkStore, Parking, Verdict, Waits};
use oncebox_core::{Class, ConsumerId, Transaction};

use super::steps::{
    LEASE_AND_MORE, NOW, add, blocked, end, in_order, lease, parked, put_back, put_back_under, receipts, release, text,
    texts, verdict,
};
use crate::hostile;
use crate::store::steps::{begin, commit, consumer};
use crate::store::{Setup, StoreFixture};

const GAP: Waits = Waits::Gap(Duration::from_secs(600));

async fn count<S: ParkStore>(store: &S, consumer: ConsumerId, order_key: &str) -> u64 {
    let mut tx = begin(store).await;
    let gaps = tx.count_gaps(consumer, order_key).await.expect("gaps can be counted");
    tx.rollback().await;
    gaps
}

async fn wake<S: ParkStore>(store: &S, consumer: ConsumerId, order_keys: &[&str]) {
    let mut tx = begin(store).await;
    tx.wake_gaps(consumer, order_keys).await.expect("gaps can be woken");
    commit(tx).await;
}

/// Of this order key and consumer, and only what waits for a gap now.
pub async fn rows_that_wait_for_a_gap_are_counted<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let parks = [("a", "a1", GAP), ("a", "a2", GAP), ("b", "b1", GAP), ("a", "a3", Waits::Person), ("c", "c1", NOW)];
    add(store, &parks.map(|(order_key, text, waits)| in_order(billing, order_key, text, waits))).await;
    add(store, &[in_order(shipping, "a", "a1", GAP)]).await;
    for (order_key, gaps) in [("a", 2), ("b", 1), ("c", 0), ("d", 0)] {
        assert_eq!(count(store, billing, order_key).await, gaps, "{order_key}");
    }
    // One turns into a gap, one that was looked at is none any more.
    let c1 = lease(store, billing).await.remove(0).receipt;
    put_back_under(store, c1, verdict(GAP, 1), "c").await.expect("it is in hand");
    wake(store, billing, &["b"]).await;
    let b1 = lease(store, billing).await.remove(0).receipt;
    assert_eq!(count(store, billing, "b").await, 1, "in hand, it still waits");
    put_back_under(store, b1, verdict(Waits::Person, 1), "b").await.expect("it is in hand");
    assert_eq!((count(store, billing, "b").await, count(store, billing, "c").await), (0, 1));
}

/// At once, without their time having come; others go on waiting.
pub async fn rows_that_wait_for_a_gap_are_woken<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let later = Waits::Retry(Duration::from_secs(600));
    let parks = [("a", "a1", GAP), ("b", "b1", GAP), ("a", "a2", GAP), ("c", "c1", GAP), ("a", "a3", later)];
    add(store, &parks.map(|(order_key, text, waits)| in_order(billing, order_key, text, waits))).await;
    add(store, &[in_order(billing, "b", "b2", Waits::Person), in_order(shipping, "a", "a1", GAP)]).await;
    wake(store, billing, &[]).await;
    assert!(lease(store, billing).await.is_empty());
    wake(store, billing, &["b", "nobody's", "a"]).await;
    let mut woken = texts(&lease(store, billing).await);
    woken.sort();
    assert_eq!(woken, ["a1", "a2", "b1"]);
    assert!(lease(store, shipping).await.is_empty(), "another consumer's");
}

/// A wake that rolled back woke nobody.
pub async fn a_wake_that_rolled_back_wakes_nobody<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", GAP)]).await;
    let mut tx = begin(store).await;
    tx.wake_gaps(billing, &["a"]).await.expect("gaps can be woken");
    tx.rollback().await;
    assert!(lease(store, billing).await.is_empty());
}

/// What is in hand stays with whoever has it, and is woken again once it is given back or put back.
pub async fn a_row_in_hand_is_not_woken<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", Waits::Gap(Duration::ZERO))]).await;
    for given_back in [false, true] {
        let row = lease(store, billing).await.remove(0).receipt;
        wake(store, billing, &["a"]).await;
        assert!(lease(store, billing).await.is_empty(), "it has an owner");
        match given_back {
            true => release(store, &[row], Duration::from_secs(600)).await,
            false => put_back_under(store, row, verdict(GAP, 0), "a").await.expect("it is in hand"),
        }
        assert!(lease(store, billing).await.is_empty());
        wake(store, billing, &["a"]).await;
    }
    // An owner that died is replaced when its lease is over.
    assert_eq!(lease(store, billing).await.len(), 1);
    setup.advance(LEASE_AND_MORE).await;
    let leased = lease(store, billing).await;
    assert_eq!(leased[0].receipt.leases(), 2, "and the row tells that it happened");
    end(store, &receipts(&leased)).await.expect("it is in hand");
}

/// It is dead and counted as no gap; what has a row of its order key is not behind it; and it is woken if the gap closes.
pub async fn what_gave_up_a_gap_holds_nobody_up<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a2", Waits::Gap(Duration::ZERO))]).await;
    let receipt = lease(store, billing).await.remove(0).receipt;
    put_back_under(store, receipt, verdict(Waits::Missing, 0), "a").await.expect("it is in hand");
    add(store, &[in_order(billing, "a", "a3", Waits::Missing), in_order(billing, "b", "b2", Waits::Missing)]).await;
    assert!(lease(store, billing).await.is_empty(), "they are dead");
    assert_eq!(count(store, billing, "a").await, 0);
    add(store, &[in_order(billing, "a", "a1", NOW)]).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.is_blocked(billing, &["a"]).await.expect("order keys can be looked at"), [true], "by a1");
    tx.rollback().await;
    let first = lease(store, billing).await;
    assert_eq!(texts(&first), ["a1"]);
    end(store, &receipts(&first)).await.expect("it is in hand");
    let mut tx = begin(store).await;
    assert_eq!(tx.is_blocked(billing, &["a"]).await.expect("order keys can be looked at"), [false]);
    tx.rollback().await;
    wake(store, billing, &["a"]).await;
    assert_eq!(count(store, billing, "a").await, 2, "they wait again");
    let mut woken = texts(&lease(store, billing).await);
    woken.sort();
    assert_eq!(woken, ["a2", "a3"]);
}

/// Parked for another reason, it had the order key of its message, or none: the aggregate wakes it, and what stood behind it
/// goes on. Once it waits for no version, it holds up its order key again, and the aggregate no more.
pub async fn what_begins_to_wait_for_a_version_waits_under_its_aggregate<F: StoreFixture<Store: ParkStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for waits in [GAP, Waits::Missing] {
        add(store, &[parked(billing, "no key"), in_order(billing, "k", "k1", NOW)]).await;
        add(store, &[in_order(billing, "k", "k2", Waits::Turn)]).await;
        let first = lease(store, billing).await;
        assert_eq!(texts(&first), ["no key", "k1"]);
        for row in receipts(&first) {
            put_back_under(store, row, verdict(waits, 0), "aggregate").await.expect("it is in hand");
        }
        let behind = lease(store, billing).await;
        assert_eq!(texts(&behind), ["k2"], "nothing is before it any more");
        end(store, &receipts(&behind)).await.expect("it is in hand");
        wake(store, billing, &["k"]).await;
        assert!(lease(store, billing).await.is_empty());
        wake(store, billing, &["aggregate"]).await;
        let woken = lease(store, billing).await;
        assert_eq!(woken.len(), 2);
        let k1 = woken.iter().find(|row| text(row) == "k1").expect("it is there").receipt;
        put_back_under(store, k1, verdict(NOW, 1), "k").await.expect("it is in hand");
        assert_eq!(blocked(store, billing, &["k", "aggregate"]).await, [true, false]);
        end(store, &receipts(&lease(store, billing).await)).await.expect("it is in hand");
        let others: Vec<_> = woken.iter().map(|row| row.receipt).filter(|row| *row != k1).collect();
        end(store, &others).await.expect("it is in hand");
    }
}

/// It was parked where nothing waits behind it, and stands there again, however often it waited for a version.
pub async fn what_had_no_order_key_has_none_after_it_waited_for_a_version<F: StoreFixture<Store: ParkStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "no key")]).await;
    for waits in [NOW, Waits::Person] {
        for gap in [GAP, Waits::Missing, GAP] {
            let row = lease(store, billing).await.remove(0).receipt;
            put_back_under(store, row, verdict(gap, 0), "aggregate").await.expect("it is in hand");
            wake(store, billing, &["aggregate"]).await;
        }
        let row = lease(store, billing).await.remove(0).receipt;
        put_back_under(store, row, verdict(waits, 1), "k").await.expect("it is in hand");
        assert_eq!(blocked(store, billing, &["k", "aggregate"]).await, [false, false]);
    }
    // What has an order key keeps one.
    add(store, &[in_order(billing, "k", "k1", NOW)]).await;
    for gap in [GAP, GAP] {
        let row = lease(store, billing).await.remove(0).receipt;
        put_back_under(store, row, verdict(gap, 0), "aggregate").await.expect("it is in hand");
        wake(store, billing, &["aggregate"]).await;
    }
    let row = lease(store, billing).await.remove(0).receipt;
    put_back_under(store, row, verdict(NOW, 1), "k").await.expect("it is in hand");
    assert_eq!(blocked(store, billing, &["k", "aggregate"]).await, [true, false]);
}

/// Looked at and put back with the same words, it has waited since it began to. Other words, or that it gave up, are new.
/// Nothing is told of rows that wait for something else.
pub async fn a_row_tells_since_when_it_waits_for_a_version<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let says = |waits, class, reason: &str| Verdict { class, reason: reason.to_owned(), ..verdict(waits, 0) };
    let waits = |reason| says(GAP, None, reason);
    let gave_up = |reason| says(Waits::Missing, Some(Class::Permanent), reason);
    let (two, asked) = ("2 is missing", "2 is missing, and was asked for");
    let look = async || {
        setup.advance(Duration::from_secs(60)).await;
        wake(store, billing, &["a"]).await;
        lease(store, billing).await.remove(0)
    };
    add(store, &[Park { verdict: waits(two), ..in_order(billing, "a", "a3", GAP) }]).await;
    let mut row = look().await;
    let again =
        [waits(two), waits(two), waits(asked), waits(asked), gave_up(asked), gave_up(two), gave_up(two), waits(two)];
    for (step, next) in again.into_iter().enumerate() {
        let before = row.gap.expect("it waits for a version");
        put_back_under(store, row.receipt, next.clone(), "a").await.expect("it is in hand");
        row = look().await;
        let after = row.gap.clone().expect("it waits for a version");
        assert_eq!((after.class, after.reason.as_str()), (next.class, next.reason.as_str()), "{step}");
        let is_same = (before.class, before.reason) == (next.class, next.reason);
        assert_eq!(after.since == before.since, is_same, "{step}");
        assert!(after.since >= before.since, "{step}");
    }
    put_back_under(store, row.receipt, verdict(NOW, 1), "a").await.expect("it is in hand");
    let row = lease(store, billing).await.remove(0);
    assert_eq!(row.gap, None, "it waits for no version");
    // What begins to wait with the words that it had before has not waited until now.
    put_back_under(store, row.receipt, waits(two), "a").await.expect("it is in hand");
    let began = look().await.gap.expect("it waits for a version").since;
    assert!(began > row.parked_at, "it was parked before");
}

/// Keys of any length and content are told apart.
pub async fn long_and_hostile_order_keys_wake_only_themselves<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let keys: Vec<String> = hostile::TEXTS
        .iter()
        .map(|text| format!("{text}{}", "x".repeat(2_000)))
        .chain(hostile::TEXTS.iter().map(ToString::to_string))
        .collect();
    let parks: Vec<_> =
        keys.iter().enumerate().map(|(n, order_key)| in_order(billing, order_key, &n.to_string(), GAP)).collect();
    add(store, &parks).await;
    for (n, order_key) in keys.iter().enumerate() {
        assert_eq!(count(store, billing, order_key).await, 1);
        wake(store, billing, &[order_key.as_str()]).await;
        assert_eq!(texts(&lease(store, billing).await), [n.to_string()]);
    }
}

/// Each lease counts until the row is given back; a verdict and a release start anew.
pub async fn leases_that_nobody_gave_back_are_counted<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW)]).await;
    for round in 0..3 {
        for leases in 1..=3 {
            let row = lease(store, billing).await.remove(0).receipt;
            assert_eq!(row.leases(), leases);
            match (leases, round) {
                (3, 0) => release(store, &[row], Duration::ZERO).await,
                (3, _) => put_back(store, row, verdict(NOW, round)).await.expect("it is in hand"),
                _ => setup.advance(LEASE_AND_MORE).await,
            }
        }
    }
}
