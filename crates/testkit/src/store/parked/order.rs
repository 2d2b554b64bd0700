//! Order is kept by waiting: of one order key, the first row is tried and the others wait.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox_core::parked::{Park, ParkLease, ParkStore, Parking, Waits};
use oncebox_core::{Claim, ConsumerId, Inbox, Outcome, OutcomeKind, Session, Transaction};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::steps::{
    LEASE, LEASE_AND_MORE, NOW, add, blocked, end, in_order, lease, parked, put_back, put_back_under, receipts, text,
    texts, verdict,
};
use crate::eventually::stays_pending;
use crate::hostile;
use crate::store::steps::{LOCK_WAIT, begin, claim, commit, connect, consumer, request};
use crate::store::{Setup, StoreFixture};

const GAP: Waits = Waits::Gap(Duration::ZERO);

/// All are due, and one of each order key is leased, in one call or in two. Rows without one are not held up.
pub async fn only_the_first_row_of_an_order_key_is_leased<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let parks = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("a", "a3")];
    add(store, &parks.map(|(order_key, text)| in_order(billing, order_key, text, NOW))).await;
    add(store, &[parked(billing, "x"), parked(billing, "y")]).await;
    assert_eq!(texts(&lease(store, billing).await), ["a1", "b1", "x", "y"]);
    assert!(lease(store, billing).await.is_empty());
    // Those whose leases ran out come again, and still nobody behind them.
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, billing).await), ["a1", "b1", "x", "y"]);
}

/// The next is due when the first has ended, and not while that waits for its retry, however long it has waited itself.
pub async fn a_row_behind_comes_when_the_first_is_gone<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW)]).await;
    add(store, &[in_order(billing, "a", "a2", Waits::Turn), in_order(billing, "a", "a3", Waits::Turn)]).await;
    let first = lease(store, billing).await;
    assert_eq!(texts(&first), ["a1"]);
    put_back(store, first[0].receipt, verdict(Waits::Retry(LEASE), 2)).await.expect("a leased row can be put back");
    assert!(lease(store, billing).await.is_empty());
    setup.advance(LEASE_AND_MORE).await;
    for expected in ["a1", "a2", "a3"] {
        let leased = lease(store, billing).await;
        assert_eq!(texts(&leased), [expected]);
        end(store, &receipts(&leased)).await.expect("a leased row can be ended");
    }
    assert!(lease(store, billing).await.is_empty());
}

/// A dead message holds up those behind it until a person has decided about it.
pub async fn a_dead_row_holds_up_those_behind_it<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", Waits::Person), in_order(billing, "b", "b1", NOW)]).await;
    add(store, &[in_order(billing, "a", "a2", Waits::Turn), in_order(billing, "b", "b2", Waits::Turn)]).await;
    let leased = lease(store, billing).await;
    assert_eq!(texts(&leased), ["b1"]);
    put_back(store, leased[0].receipt, verdict(Waits::Person, 2)).await.expect("a leased row can be put back");
    setup.advance(LEASE_AND_MORE * 100).await;
    assert!(lease(store, billing).await.is_empty());
    assert_eq!(blocked(store, billing, &["a", "b"]).await, [true, true]);
}

/// Who waits for a missing version neither blocks nor is blocked: what it waits for may well be behind it.
pub async fn a_row_that_waits_for_a_gap_holds_nobody_up<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "gap", GAP)]).await;
    assert_eq!(blocked(store, billing, &["a"]).await, [false]);
    add(store, &[in_order(billing, "a", "a1", NOW), in_order(billing, "a", "second gap", GAP)]).await;
    add(store, &[in_order(billing, "a", "a2", Waits::Turn)]).await;
    assert_eq!(texts(&lease(store, billing).await), ["gap", "a1", "second gap"]);
    assert!(lease(store, billing).await.is_empty());
}

/// A row that was tried and found to wait for a gap lets the next of its order key go.
pub async fn a_row_that_turns_to_a_gap_lets_the_next_go<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW), in_order(billing, "a", "a2", Waits::Turn)]).await;
    let first = lease(store, billing).await;
    let waits = Waits::Gap(LEASE * 100);
    put_back_under(store, first[0].receipt, verdict(waits, 1), "a").await.expect("a leased row can be put back");
    assert_eq!(texts(&lease(store, billing).await), ["a2"]);
}

/// Parked, due or not, in hand or dead: a later message must wait. Gone, it need not.
pub async fn an_order_key_is_blocked_while_a_row_of_it_is_there<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    assert_eq!(blocked(store, billing, &["a", "b"]).await, [false, false]);
    add(store, &[in_order(billing, "a", "a1", NOW), in_order(billing, "c", "c1", Waits::Retry(LEASE))]).await;
    assert_eq!(blocked(store, billing, &["b", "a", "c", "a"]).await, [false, true, true, true]);
    let leased = lease(store, billing).await;
    assert_eq!(blocked(store, billing, &["a"]).await, [true]);
    // In the transaction that parks and in the one that ends, as they see it themselves.
    let mut tx = begin(store).await;
    tx.end_parked(&receipts(&leased)).await.expect("a leased row can be ended");
    tx.park(&[in_order(billing, "d", "d1", NOW)]).await.expect("messages can be parked");
    let seen = tx.is_blocked(billing, &["a", "d"]).await.expect("order keys can be looked up");
    assert_eq!(seen, [false, true]);
    commit(tx).await;
    assert_eq!(blocked(store, billing, &["a", "b", "c", "d"]).await, [false, false, true, true]);
}

/// A store may look for parked messages while it claims, and must not miss any for that: whether one key is claimed or
/// many, before or after a row was added, and for another consumer than the one that claims.
pub async fn a_claim_hides_no_blocked_order_key<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let mut tx = begin(store).await;
    claim(&mut tx, &request(billing, "first")).await;
    assert_eq!(tx.is_blocked(billing, &["a"]).await.expect("order keys can be looked up"), [false]);
    tx.park(&[in_order(billing, "a", "a1", NOW)]).await.expect("messages can be parked");
    assert_eq!(tx.is_blocked(billing, &["a"]).await.expect("order keys can be looked up"), [true]);
    commit(tx).await;
    for keys in [1, 2, 100] {
        for (claims, sees) in [(billing, billing), (shipping, billing), (shipping, shipping)] {
            let mut tx = begin(store).await;
            let requests: Vec<_> = (0..keys).map(|n| request(claims, &format!("{keys}-{n}-{sees:?}"))).collect();
            tx.claim(&requests).await.expect("keys can be claimed");
            let seen = tx.is_blocked(sees, &["b", "a"]).await.expect("order keys can be looked up");
            assert_eq!(seen, [false, sees == billing], "{keys} keys");
            commit(tx).await;
        }
    }
}

/// A claim that waited for whoever parks a message sees that it is parked: what it saw before the wait counts for nothing.
/// Else a new owner of an order key would apply the next message while the old one has just parked the first.
pub async fn a_claim_that_waited_sees_what_was_parked_meanwhile<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let [first, second] = ["z1", "a2"].map(|id| request(billing, id));
    for is_alone in [false, true] {
        let order_key = format!("k-{is_alone}");
        let mut old = begin(store).await;
        assert!(!matches!(claim(&mut old, &first).await, Claim::Conflict(_)));
        if is_alone {
            // It parks another message and lets go of the key that is waited for: that claim is fresh after all.
            claim(&mut old, &second).await;
            old.unclaim(&[(billing, second.key.clone())]).await.expect("a claim can be taken back");
        } else {
            let parked = (billing, first.key.clone(), Outcome::of(OutcomeKind::Parked));
            old.record(&[parked]).await.expect("the outcome of a claimed key can be recorded");
        }
        let row = in_order(billing, &order_key, &format!("row {is_alone}"), NOW);
        old.park(&[row]).await.expect("messages can be parked");
        let requests = if is_alone { vec![second.clone()] } else { vec![first.clone(), second.clone()] };
        let (beside, key) = (store.clone(), order_key.clone());
        let mut new = JoinSet::new();
        new.spawn(async move {
            let mut tx = begin(&beside).await;
            let claims = tx.claim(&requests).await.expect("keys can be claimed");
            let blocked = tx.is_blocked(billing, &[&key]).await.expect("order keys can be looked up");
            tx.rollback().await;
            (claims, blocked)
        });
        assert!(stays_pending(new.join_next()).await, "the claim did not wait: the case tests nothing");
        commit(old).await;
        let (claims, blocked) = new.join_next().await.expect("there is a task").expect("it ends without a panic");
        assert_eq!(claims.last(), Some(&Claim::Fresh));
        assert_eq!(blocked, [true], "the look from before the wait was believed");
    }
}

/// However short the wait was: a claim that found its message parked looks again, because it may have waited for whoever
/// parked it. Again and again, because some of the tries begin to wait too late.
pub async fn a_claim_that_waited_for_a_moment_sees_it_too<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let (mut old, mut new) = (connect(store).await, connect(store).await);
    for n in 0..40 {
        let [first, second] = ["first", "second"].map(|id| request(billing, &format!("{id}-{n}")));
        let order_key = format!("k-{n}");
        let mut parks = old.begin(LOCK_WAIT).await.expect("a transaction can be begun");
        claim(&mut parks, &first).await;
        let parked = (billing, first.key.clone(), Outcome::of(OutcomeKind::Parked));
        parks.record(&[parked]).await.expect("the outcome of a claimed key can be recorded");
        parks.park(&[in_order(billing, &order_key, &format!("row {n}"), NOW)]).await.expect("messages can be parked");
        let mut claims = JoinSet::new();
        claims.spawn(async move {
            let mut tx = new.begin(LOCK_WAIT).await.expect("a transaction can be begun");
            tx.claim(&[first, second]).await.expect("keys can be claimed");
            let blocked = tx.is_blocked(billing, &[&order_key]).await.expect("order keys can be looked up");
            (blocked, tx.rollback().await)
        });
        let _ = timeout(Duration::from_millis(1 + n % 4), claims.join_next()).await;
        old = commit(parks).await;
        let (blocked, session) = claims.join_next().await.expect("it ends").expect("it ends without a panic");
        new = session.expect("a transaction that is rolled back gives its session back");
        assert_eq!(blocked, [true], "try {n}: the look from before the wait was believed");
    }
}

/// What blocks an order key is counted, up to a bound: not what waits for a gap, and not what is another consumer's.
pub async fn what_blocks_an_order_key_is_counted<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, other) = (consumer(store, "billing").await, consumer(store, "other").await);
    let row = |text: &str, waits| in_order(billing, "a", text, waits);
    add(store, &[row("a1", Waits::Person), row("a2", Waits::Turn), row("a3", Waits::Gap(LEASE)), row("a4", NOW)]).await;
    add(store, &[in_order(billing, "b", "b1", NOW), in_order(other, "a", "a1", NOW)]).await;
    for (max, expected) in [(100, [1, 3, 0, 3]), (2, [1, 2, 0, 2]), (0, [0; 4])] {
        let mut tx = begin(store).await;
        let counted = tx.count_blocking(billing, &["b", "a", "c", "a"], max).await;
        assert_eq!(counted.expect("parked messages can be counted"), expected);
        assert!(tx.count_blocking(billing, &[], max).await.expect("nothing can be counted").is_empty());
        tx.rollback().await;
    }
}

/// Order keys are compared as they are, at any length; an empty one is one, and none is none.
pub async fn long_and_hostile_order_keys_block_only_themselves<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let long = "x".repeat(20_000);
    let mut order_keys: Vec<&str> = hostile::TEXTS.to_vec();
    order_keys.extend(["", "a\0b", "upper LOWER", long.as_str()]);
    add(store, &[parked(billing, "without an order key")]).await;
    assert_eq!(blocked(store, billing, &order_keys).await, vec![false; order_keys.len()]);
    for (n, order_key) in order_keys.iter().enumerate() {
        add(store, &[in_order(billing, order_key, &n.to_string(), NOW)]).await;
        let expected: Vec<bool> = (0..order_keys.len()).map(|at| at <= n).collect();
        assert_eq!(blocked(store, billing, &order_keys).await, expected);
    }
    let longer = format!("{long}x");
    assert_eq!(blocked(store, billing, &["other", &longer, "UPPER LOWER"]).await, [false, false, false]);
    assert_eq!(lease(store, billing).await.len(), order_keys.len() + 1);
}

/// Another consumer's parked messages hold up nobody of ours.
pub async fn an_order_key_blocks_in_its_consumer_only<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    add(store, &[in_order(billing, "a", "dead", Waits::Person)]).await;
    assert_eq!(blocked(store, shipping, &["a"]).await, [false]);
    add(store, &[in_order(shipping, "a", "a1", NOW)]).await;
    assert_eq!(texts(&lease(store, shipping).await), ["a1"]);
}

/// The first row of an order key is ended in a transaction that is still open: its effect may yet be rolled back, so
/// the next one waits. A store that runs one transaction at a time need not be asked.
pub async fn an_end_that_is_not_committed_lets_nobody_pass<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    use oncebox_core::Store;
    let store = &setup.store;
    if !store.capabilities().concurrent {
        return;
    }
    let billing = consumer(store, "billing").await;
    add(store, &[in_order(billing, "a", "a1", NOW), in_order(billing, "a", "a2", NOW)]).await;
    let first = lease(store, billing).await;
    setup.advance(LEASE_AND_MORE).await;
    let mut ending = begin(store).await;
    ending.end_parked(&receipts(&first)).await.expect("a leased row can be ended");
    assert!(lease(store, billing).await.is_empty());
    assert_eq!(blocked(store, billing, &["a"]).await, [true]);
    ending.rollback().await;
    let again = lease(store, billing).await;
    assert_eq!(texts(&again), ["a1"]);
    // And in hand by a lease that is not committed.
    end(store, &receipts(&again)).await.expect("a leased row can be ended");
    let mut leasing = begin(store).await;
    let request = ParkLease { consumer: billing, max: 10, lease: LEASE };
    assert_eq!(leasing.lease_parked(&request).await.expect("parked rows can be leased").len(), 1);
    assert!(lease(store, billing).await.is_empty());
    leasing.rollback().await;
}

/// Many runners at once: of one order key nobody ever gets a row while another of it is in hand, and all come in order.
pub async fn no_two_rows_of_an_order_key_are_in_hand_at_once<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    const ROWS: usize = 12;
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let parks: Vec<Park> = (0..ROWS)
        .flat_map(|n| ["a", "b", "c"].map(|key| in_order(billing, key, &format!("{key}{n:02}"), NOW)))
        .collect();
    add(store, &parks).await;
    let in_hand: Arc<Mutex<HashSet<char>>> = Arc::default();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        tasks.spawn(run_all(store.clone(), billing, Arc::clone(&in_hand), Arc::clone(&seen), parks.len()));
    }
    tasks.join_all().await;
    let mut by_key: BTreeMap<char, Vec<String>> = BTreeMap::new();
    for text in seen.lock().expect("no task panicked").drain(..) {
        by_key.entry(order_key(&text)).or_default().push(text);
    }
    for (key, texts) in by_key {
        assert_eq!(texts, (0..ROWS).map(|n| format!("{key}{n:02}")).collect::<Vec<_>>());
    }
}

fn order_key(text: &str) -> char {
    text.chars().next().expect("rows of the case say something")
}

/// Leases and ends until all rows were seen.
async fn run_all<S: ParkStore>(
    store: S,
    consumer: ConsumerId,
    in_hand: Arc<Mutex<HashSet<char>>>,
    seen: Arc<Mutex<Vec<String>>>,
    rows: usize,
) {
    while seen.lock().expect("no task panicked").len() < rows {
        for leased in lease(&store, consumer).await {
            let text = text(&leased);
            let alone = in_hand.lock().expect("no task panicked").insert(order_key(&text));
            assert!(alone, "{text} was leased while another of its order key is in hand");
            tokio::task::yield_now().await;
            seen.lock().expect("no task panicked").push(text.clone());
            let mut tx = begin(&store).await;
            tx.end_parked(&[leased.receipt]).await.expect("a leased row can be ended");
            // Until the commit nobody can see that it is gone.
            in_hand.lock().expect("no task panicked").remove(&order_key(&text));
            commit(tx).await;
        }
    }
}
