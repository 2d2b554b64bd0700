//! Rows in hand: when they are due, whose they are, and what becomes of them.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_core::parked::{Park, ParkLease, ParkReceipt, ParkStore, Parking, PutBack, Waits};
use oncebox_core::{StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use super::steps::{
    LEASE, LEASE_AND_MORE, NOW, add, end, extend, lease, lease_up_to, parked, put_back, receipts, release, texts,
    verdict,
};
use crate::store::steps::{assert_kind, begin, consumer};
use crate::store::{Setup, StoreFixture};

/// A row that is due after `waits`.
fn waiting(consumer: oncebox_core::ConsumerId, text: &str, waits: Waits) -> Park {
    Park { verdict: verdict(waits, 1), ..parked(consumer, text) }
}

/// A row is leased when its delay is over and not before, whatever it waits for.
pub async fn a_row_is_due_after_its_delay<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let second = Duration::from_secs(1);
    let parks = [
        waiting(billing, "retry", Waits::Retry(LEASE)),
        waiting(billing, "turn", Waits::Turn),
        waiting(billing, "gap", Waits::Gap(LEASE * 2)),
    ];
    add(store, &parks).await;
    assert_eq!(texts(&lease(store, billing).await), ["turn"]);
    setup.advance(LEASE - second).await;
    assert!(lease(store, billing).await.is_empty());
    setup.advance(second).await;
    assert_eq!(texts(&lease_up_to(store, billing, 1).await).len(), 1);
    setup.advance(LEASE_AND_MORE).await;
    let due: BTreeSet<String> = texts(&lease(store, billing).await).into_iter().collect();
    assert!(due.contains("gap"), "{due:?}");
}

/// Who waits longest comes first, whenever it was parked, and the others are left for the next call.
pub async fn the_longest_due_are_leased_first<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let delays = [("third", 3), ("first", 1), ("fourth", 4), ("second", 2)];
    let parks = delays.map(|(text, seconds)| waiting(billing, text, Waits::Retry(Duration::from_secs(seconds))));
    add(store, &parks).await;
    setup.advance(LEASE).await;
    assert!(lease_up_to(store, billing, 0).await.is_empty());
    assert_eq!(texts(&lease_up_to(store, billing, 3).await), ["first", "second", "third"]);
    assert_eq!(texts(&lease_up_to(store, billing, 3).await), ["fourth"]);
}

/// A dead row waits for a person, for ever if need be.
pub async fn a_dead_row_is_never_due<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let billing = consumer(&setup.store, "billing").await;
    add(&setup.store, &[waiting(billing, "dead", Waits::Person)]).await;
    setup.advance(LEASE * 10_000).await;
    assert!(lease(&setup.store, billing).await.is_empty());
}

/// A row in hand is nobody else's.
pub async fn a_parked_row_in_hand_is_hidden<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1"), parked(billing, "2")]).await;
    assert_eq!(texts(&lease_up_to(store, billing, 1).await), ["1"]);
    assert_eq!(texts(&lease(store, billing).await), ["2"]);
    setup.advance(LEASE / 2).await;
    assert!(lease(store, billing).await.is_empty());
}

/// A row whose lease ran out comes again, with a higher fence than before.
pub async fn an_expired_lease_gives_a_parked_row_a_higher_fence<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let first = receipts(&lease(store, billing).await)[0];
    setup.advance(LEASE_AND_MORE).await;
    let second = receipts(&lease(store, billing).await)[0];
    assert_eq!(second.row, first.row);
    assert!(second.fence > first.fence);
}

/// A lease whose transaction rolled back hides nothing.
pub async fn a_lease_of_a_parked_row_that_rolled_back_never_was<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let mut tx = begin(store).await;
    let request = ParkLease { consumer: billing, max: 10, lease: LEASE };
    assert_eq!(tx.lease_parked(&request).await.expect("parked rows can be leased").len(), 1);
    tx.rollback().await;
    assert_eq!(texts(&lease(store, billing).await), ["1"]);
}

/// An ended row is gone for good, and its neighbours stay.
pub async fn an_ended_row_never_comes_again<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1"), parked(billing, "2"), parked(billing, "3")]).await;
    let leased = receipts(&lease(store, billing).await);
    end(store, &[leased[0], leased[2]]).await.expect("leased rows can be ended");
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, billing).await), ["2"]);
    add(store, &[parked(billing, "1")]).await;
    assert_kind(end(store, &leased[..1]).await, StoreErrorKind::Fenced);
    assert_eq!(texts(&lease(store, billing).await), ["1"], "parked anew, it is another row");
}

/// An end whose transaction rolled back ends nothing: the row comes again.
pub async fn an_end_that_rolled_back_leaves_the_row<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1"), parked(billing, "2")]).await;
    let leased = receipts(&lease(store, billing).await);
    let mut tx = begin(store).await;
    tx.end_parked(&leased[..1]).await.expect("a leased row can be ended");
    tx.put_back(&[PutBack::new(leased[1], verdict(Waits::Person, 9))]).await.expect("a leased row can be put back");
    tx.rollback().await;
    assert!(lease(store, billing).await.is_empty(), "they are still in hand");
    setup.advance(LEASE_AND_MORE).await;
    let again = lease(store, billing).await;
    assert_eq!(texts(&again), ["1", "2"]);
    assert_eq!(again[1].attempts, 1);
}

/// A runner that comes back after its lease ran out and someone else has the row is told so, and what it did in that
/// transaction is not committed.
pub async fn a_stale_end_is_fenced_and_changes_nothing<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let stale = receipts(&lease(store, billing).await);
    setup.advance(LEASE_AND_MORE).await;
    let current = receipts(&lease(store, billing).await);
    let mut tx = begin(store).await;
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    assert_kind(tx.end_parked(&stale).await, StoreErrorKind::Fenced);
    tx.rollback().await;
    assert!(F::effects(store).await.is_empty());
    end(store, &current).await.expect("the new owner's row is untouched");
    assert_kind(end(store, &current).await, StoreErrorKind::Fenced);
}

/// Nor can it put the row back.
pub async fn a_stale_verdict_is_fenced_and_changes_nothing<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let stale = receipts(&lease(store, billing).await)[0];
    setup.advance(LEASE_AND_MORE).await;
    let current = receipts(&lease(store, billing).await)[0];
    for waits in [NOW, Waits::Person] {
        assert_kind(put_back(store, stale, verdict(waits, 9)).await, StoreErrorKind::Fenced);
    }
    assert!(lease(store, billing).await.is_empty(), "the new owner's row became due");
    setup.advance(LEASE_AND_MORE).await;
    let again = lease(store, billing).await;
    assert_eq!(again[0].attempts, 1);
    assert_kind(end(store, &[current]).await, StoreErrorKind::Fenced);
}

/// A batch with one stale row in it is fenced as a whole; the sound rows come again.
pub async fn one_stale_parked_row_fences_the_whole_call<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "stale")]).await;
    let stale = receipts(&lease(store, billing).await)[0];
    setup.advance(LEASE_AND_MORE).await;
    lease(store, billing).await;
    add(store, &[parked(billing, "1"), parked(billing, "2")]).await;
    let sound = receipts(&lease(store, billing).await);
    assert_kind(end(store, &[sound[0], stale, sound[1]]).await, StoreErrorKind::Fenced);
    let mut tx = begin(store).await;
    let verdicts = [sound[0], stale, sound[1]].map(|receipt| PutBack::new(receipt, verdict(Waits::Person, 9)));
    assert_kind(tx.put_back(&verdicts).await, StoreErrorKind::Fenced);
    tx.rollback().await;
    setup.advance(LEASE_AND_MORE).await;
    let again: BTreeSet<String> = texts(&lease(store, billing).await).into_iter().collect();
    assert_eq!(again, ["1", "2", "stale"].map(String::from).into());
}

/// What is known of each row after it was tried comes with it the next time, when its new delay is over.
pub async fn a_row_that_was_put_back_comes_with_its_new_attempts<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1"), parked(billing, "2")]).await;
    let first = lease(store, billing).await;
    let mut tx = begin(store).await;
    let verdicts = [(LEASE * 2, 5), (LEASE, 7)].map(|(delay, attempts)| verdict(Waits::Retry(delay), attempts));
    let verdicts: Vec<_> = first.iter().zip(verdicts).map(|(row, said)| PutBack::new(row.receipt, said)).collect();
    tx.put_back(&verdicts).await.expect("leased rows can be put back");
    crate::store::steps::commit(tx).await;
    assert!(lease(store, billing).await.is_empty());
    setup.advance(LEASE * 2).await;
    let second = lease(store, billing).await;
    assert_eq!(texts(&second), ["2", "1"], "the longest due first");
    assert_eq!(second.iter().map(|leased| leased.attempts).collect::<Vec<_>>(), [7, 5]);
    assert_eq!(second[1].parked_at, first[0].parked_at);
    assert!(second[1].receipt.fence > first[0].receipt.fence);
}

/// Who put a row back has it no more, even before someone else leases it: a second verdict after a lost answer is
/// fenced, and a late extension does not hide the row.
pub async fn a_row_that_was_put_back_is_not_in_hand_any_more<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let receipt = receipts(&lease(store, billing).await)[0];
    put_back(store, receipt, verdict(NOW, 2)).await.expect("a leased row can be put back");
    assert_kind(put_back(store, receipt, verdict(Waits::Person, 3)).await, StoreErrorKind::Fenced);
    assert_kind(end(store, &[receipt]).await, StoreErrorKind::Fenced);
    extend(store, &[receipt], LEASE).await;
    let again = lease(store, billing).await;
    assert_eq!(texts(&again), ["1"]);
    assert_eq!(again[0].attempts, 2);
    release(store, &receipts(&again), Duration::ZERO).await;
    extend(store, &receipts(&again), LEASE).await;
    assert_kind(end(store, &receipts(&again)).await, StoreErrorKind::Fenced);
    assert_eq!(texts(&lease(store, billing).await), ["1"]);
}

/// A row that was found hopeless is not leased any more, and whoever found so has it no more.
pub async fn a_row_that_was_put_back_dead_never_comes<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let leased = receipts(&lease(store, billing).await);
    put_back(store, leased[0], verdict(Waits::Person, 2)).await.expect("a leased row can be put back");
    // No receipt fits a dead row, not even one with the fence that it has now.
    for receipt in [leased[0], ParkReceipt { fence: leased[0].fence + 1, ..leased[0] }] {
        assert_kind(end(store, &[receipt]).await, StoreErrorKind::Fenced);
        assert_kind(put_back(store, receipt, verdict(NOW, 2)).await, StoreErrorKind::Fenced);
        release(store, &[receipt], Duration::ZERO).await;
        extend(store, &[receipt], Duration::ZERO).await;
    }
    setup.advance(LEASE * 10_000).await;
    assert!(lease(store, billing).await.is_empty());
}

/// A row that was given back untried comes again when its delay is over, with the attempts it had.
pub async fn a_released_parked_row_comes_again_after_its_delay<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let first = receipts(&lease(store, billing).await);
    release(store, &first, Duration::ZERO).await;
    let second = lease(store, billing).await;
    assert!(second[0].receipt.fence > first[0].fence);
    assert_eq!(second[0].attempts, 1);
    // Longer than its lease would have been: the delay replaces it.
    release(store, &receipts(&second), LEASE * 2).await;
    setup.advance(LEASE_AND_MORE).await;
    assert!(lease(store, billing).await.is_empty());
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, billing).await), ["1"]);
}

/// A late release does not take the row from its new owner.
pub async fn a_stale_release_leaves_a_parked_row_alone<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let stale = receipts(&lease(store, billing).await);
    setup.advance(LEASE_AND_MORE).await;
    let current = receipts(&lease(store, billing).await);
    release(store, &stale, Duration::ZERO).await;
    assert!(lease(store, billing).await.is_empty(), "the new owner's row became due");
    end(store, &current).await.expect("the new owner still has its row");
    release(store, &current, Duration::ZERO).await;
    assert!(lease(store, billing).await.is_empty(), "releasing what is gone does not bring it back");
}

/// An extended lease ends later, counted from the extension.
pub async fn an_extended_lease_of_a_parked_row_runs_longer<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let leased = receipts(&lease(store, billing).await);
    for _ in 0..3 {
        setup.advance(LEASE - Duration::from_secs(1)).await;
        extend(store, &leased, LEASE).await;
        assert!(lease(store, billing).await.is_empty());
    }
    end(store, &leased).await.expect("an extended row keeps its fence");
    add(store, &[parked(billing, "2")]).await;
    let leased = receipts(&lease(store, billing).await);
    extend(store, &leased, LEASE).await;
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, billing).await), ["2"]);
}

/// A late extension does not change the lease of the row's new owner.
pub async fn a_stale_extension_leaves_a_parked_row_alone<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    add(store, &[parked(billing, "1")]).await;
    let stale = receipts(&lease(store, billing).await);
    setup.advance(LEASE_AND_MORE).await;
    lease(store, billing).await;
    extend(store, &stale, LEASE * 100).await;
    extend(store, &stale, Duration::ZERO).await;
    assert!(lease(store, billing).await.is_empty(), "the new owner's lease was cut short");
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, billing).await), ["1"], "the new owner's lease was made longer");
}

/// However many lease at once, no row goes to two of them and none is left out.
pub async fn many_parked_rows_go_to_one_each<F: StoreFixture<Store: ParkStore>>(setup: Setup<F>) {
    const ROWS: usize = 500;
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let parks: Vec<Park> = (0..ROWS).map(|n| parked(billing, &n.to_string())).collect();
    add(store, &parks).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut leased = Vec::new();
            for _ in 0..10 {
                let rows = lease_up_to(&store, billing, 7).await;
                end(&store, &receipts(&rows)).await.expect("leased rows can be ended");
                leased.extend(texts(&rows));
            }
            leased
        });
    }
    let mut leased = tasks.join_all().await.concat();
    // Those that are left, among them what all passed over because another was just looking at it.
    leased.extend(texts(&lease_up_to(store, billing, ROWS).await));
    let distinct: BTreeSet<&String> = leased.iter().collect();
    assert_eq!(distinct.len(), ROWS, "a row was left out");
    assert_eq!(leased.len(), ROWS, "a row went to two");
}
