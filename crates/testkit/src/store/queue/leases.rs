//! Rows on loan: hidden while they are, and fenced when they come back late.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_core::queue::{Keep, LeaseRequest, QueueStore, QueueTx};
use oncebox_core::{Session, StoreError, StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use super::steps::{
    LEASE, LEASE_AND_MORE, add, extend, lease, message, open, receipts, release, settle, text, texts, unordered,
};
use crate::store::steps::{LOCK_WAIT, assert_kind, begin, commit, connect};
use crate::store::{Setup, StoreFixture};

/// A row that someone has leased is nobody else's.
pub async fn a_leased_row_is_hidden<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1"), message("2")]).await;
    let queue = open(store, &spec).await;
    assert_eq!(texts(&lease(store, queue, 1).await), ["1"]);
    assert_eq!(texts(&lease(store, queue, 10).await), ["2"]);
    setup.advance(LEASE / 2).await;
    assert!(lease(store, queue, 10).await.is_empty());
}

/// A row whose lease ran out comes again, with a higher fence than before.
pub async fn an_expired_lease_makes_a_row_visible_with_a_higher_fence<F: StoreFixture<Store: QueueStore>>(
    setup: Setup<F>,
) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let first = receipts(&lease(store, queue, 10).await)[0];
    assert_eq!(first.fence, 1, "the fence is the delivery count");
    setup.advance(LEASE_AND_MORE).await;
    let second = receipts(&lease(store, queue, 10).await)[0];
    assert_eq!((second.row, second.fence), (first.row, 2));
}

/// A lease whose transaction rolled back hides nothing.
pub async fn a_lease_that_rolled_back_never_was<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let mut tx = begin(store).await;
    let request = LeaseRequest { queue, max: 10, lease: LEASE, lanes: None };
    assert_eq!(tx.lease(&request).await.expect("rows can be leased").len(), 1);
    tx.rollback().await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["1"]);
}

/// A settled row is gone for good, and its neighbours stay.
pub async fn a_settled_row_never_comes_again<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1"), message("2"), message("3")]).await;
    let queue = open(store, &spec).await;
    let leased = receipts(&lease(store, queue, 10).await);
    settle(store, queue, &[leased[0], leased[2]]).await.expect("leased rows can be settled");
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["2"]);
}

/// A settle whose transaction rolled back settles nothing: the row comes again.
pub async fn a_settle_that_rolled_back_leaves_the_row<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1"), message("2")]).await;
    let queue = open(store, &spec).await;
    let leased = receipts(&lease(store, queue, 10).await);
    let mut tx = begin(store).await;
    tx.settle(queue, &leased[..1], Keep::Nothing).await.expect("a leased row can be settled");
    tx.settle(queue, &leased[1..], Keep::Processed).await.expect("a leased row can be settled");
    tx.rollback().await;
    assert!(lease(store, queue, 10).await.is_empty(), "they are still leased");
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["1", "2"]);
}

/// An owner that comes back after its lease ran out and someone else has the row is told so, and what it did in that
/// transaction is not committed.
pub async fn a_stale_settle_is_fenced_and_changes_nothing<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let stale = receipts(&lease(store, queue, 10).await);
    setup.advance(LEASE_AND_MORE).await;
    let current = receipts(&lease(store, queue, 10).await);

    for keep in [Keep::Nothing, Keep::Processed] {
        let mut tx = begin(store).await;
        F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
        assert_kind(tx.settle(queue, &stale, keep).await, StoreErrorKind::Fenced);
        tx.rollback().await;
    }
    assert!(F::effects(store).await.is_empty());
    settle(store, queue, &current).await.expect("the new owner's row is untouched");
}

/// A batch with one stale row in it is fenced as a whole; the sound rows come again.
pub async fn one_stale_row_fences_the_whole_settle<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("stale")]).await;
    let queue = open(store, &spec).await;
    let stale = receipts(&lease(store, queue, 10).await);
    setup.advance(LEASE_AND_MORE).await;
    lease(store, queue, 10).await;
    add(store, &spec, [message("1"), message("2")]).await;
    let sound = receipts(&lease(store, queue, 10).await);

    assert_kind(settle(store, queue, &[sound[0], stale[0], sound[1]]).await, StoreErrorKind::Fenced);
    setup.advance(LEASE_AND_MORE).await;
    let mut again = texts(&lease(store, queue, 10).await);
    again.sort();
    assert_eq!(again, ["1", "2", "stale"]);
}

/// A row that is gone has no owner any more: settling it again is fenced, so that its effect can't commit twice.
pub async fn a_row_settled_twice_is_fenced<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let leased = receipts(&lease(store, queue, 10).await);
    settle(store, queue, &leased).await.expect("a leased row can be settled");
    assert_kind(settle(store, queue, &leased).await, StoreErrorKind::Fenced);
}

/// A released row comes again when its delay is over, and not before; without a delay at once.
pub async fn a_released_row_comes_again_after_its_delay<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let first = receipts(&lease(store, queue, 10).await);
    release(store, queue, &first, Duration::ZERO).await;
    let second = receipts(&lease(store, queue, 10).await);
    assert!(second[0].fence > first[0].fence);
    // Longer than its lease would have been: the delay replaces it.
    release(store, queue, &second, LEASE * 2).await;
    setup.advance(LEASE_AND_MORE).await;
    assert!(lease(store, queue, 10).await.is_empty());
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["1"]);
}

/// A late release does not take the row from its new owner.
pub async fn a_stale_release_leaves_the_row_with_its_new_owner<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let stale = receipts(&lease(store, queue, 10).await);
    setup.advance(LEASE_AND_MORE).await;
    let current = receipts(&lease(store, queue, 10).await);
    release(store, queue, &stale, Duration::ZERO).await;
    assert!(lease(store, queue, 10).await.is_empty(), "the new owner's row became visible");
    settle(store, queue, &current).await.expect("the new owner still has its row");
    // Nor does releasing what is gone bring it back.
    release(store, queue, &current, Duration::ZERO).await;
    assert!(lease(store, queue, 10).await.is_empty());
}

/// An extended lease ends later, counted from the extension.
pub async fn an_extended_lease_runs_longer<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let leased = receipts(&lease(store, queue, 10).await);
    for _ in 0..3 {
        setup.advance(LEASE - Duration::from_secs(1)).await;
        extend(store, queue, &leased, LEASE).await;
        assert!(lease(store, queue, 10).await.is_empty());
    }
    settle(store, queue, &leased).await.expect("an extended row keeps its fence");

    add(store, &spec, [message("2")]).await;
    let leased = receipts(&lease(store, queue, 10).await);
    extend(store, queue, &leased, LEASE).await;
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["2"]);
}

/// A late extension does not change the lease of the row's new owner.
pub async fn a_stale_extension_leaves_the_row_with_its_new_owner<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, [message("1")]).await;
    let queue = open(store, &spec).await;
    let stale = receipts(&lease(store, queue, 10).await);
    setup.advance(LEASE_AND_MORE).await;
    lease(store, queue, 10).await;
    extend(store, queue, &stale, LEASE * 100).await;
    extend(store, queue, &stale, Duration::ZERO).await;
    assert!(lease(store, queue, 10).await.is_empty(), "the new owner's lease was cut short");
    setup.advance(LEASE_AND_MORE).await;
    assert_eq!(texts(&lease(store, queue, 10).await), ["1"], "the new owner's lease was made longer");
}

/// However many lease at once, no row goes to two of them and none is left out.
pub async fn rows_leased_by_many_at_once_go_to_one_each<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    const ROWS: usize = 100;
    let (store, spec) = (&setup.store, unordered("payments"));
    add(store, &spec, (0..ROWS).map(|n| message(&n.to_string()))).await;
    let queue = open(store, &spec).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut leased = Vec::new();
            for _ in 0..10 {
                leased.extend(
                    lease_unless_contended(&store, LeaseRequest { queue, max: 3, lease: LEASE, lanes: None }).await,
                );
            }
            leased
        });
    }
    let mut leased = tasks.join_all().await.concat();
    // Those that all passed over because another was just looking at them.
    leased.extend(texts(&lease(store, queue, ROWS).await));
    let distinct: BTreeSet<&String> = leased.iter().collect();
    assert_eq!(distinct.len(), ROWS, "a row was left out");
    assert_eq!(leased.len(), ROWS, "a row went to two");
}

async fn lease_unless_contended<S: QueueStore>(store: &S, request: LeaseRequest) -> Vec<String> {
    let attempt = async {
        let mut tx = connect(store).await.begin(LOCK_WAIT).await?;
        let leased = tx.lease(&request).await?;
        Ok::<_, StoreError>((tx, leased))
    };
    match attempt.await {
        Ok((tx, leased)) => {
            commit(tx).await;
            leased.iter().map(text).collect()
        }
        Err(error) => {
            assert_kind::<()>(Err(error), StoreErrorKind::Contended);
            Vec::new()
        }
    }
}
