//! Two deliveries at the same instant. These cases hold on stores that run one transaction at a time too: there the
//! second waits for its turn instead of for a row.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{Claim, ClaimRequest, Inbox, Session, Store, StoreError, StoreErrorKind, Transaction};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::eventually::stays_pending;
use crate::store::steps::{
    LOCK_WAIT, assert_duplicate, assert_kind, begin, claim, claim_and_commit, commit, connect, consumer, look, request,
};
use crate::store::{Setup, StoreFixture};

/// Claims in a task of its own, in a transaction that is committed.
fn claim_beside<S: Store>(store: &S, request: &ClaimRequest) -> JoinSet<Claim> {
    let (store, request) = (store.clone(), request.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { claim_and_commit(&store, &request).await });
    tasks
}

async fn answer<T: 'static>(tasks: &mut JoinSet<T>) -> T {
    let answer = tasks.join_next().await.expect("there is a task to wait for");
    answer.expect("a task of the case ends without a panic")
}

/// Of two claims at once, the second is not answered before the first's fate is known, and is a duplicate if that
/// committed.
pub async fn a_second_claim_waits_and_learns_that_the_first_committed<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut first = begin(&setup.store).await;
    assert_eq!(claim(&mut first, &request).await, Claim::Fresh);
    let mut second = claim_beside(&setup.store, &request);
    assert!(stays_pending(second.join_next()).await, "the second claim was answered while the first was open");
    commit(first).await;
    assert_duplicate(&answer(&mut second).await);
}

/// Of two claims at once, the second is fresh if the first rolled back.
pub async fn a_second_claim_waits_and_is_fresh_if_the_first_rolled_back<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut first = begin(&setup.store).await;
    assert_eq!(claim(&mut first, &request).await, Claim::Fresh);
    let mut second = claim_beside(&setup.store, &request);
    assert!(stays_pending(second.join_next()).await, "the second claim was answered while the first was open");
    first.rollback().await;
    assert_eq!(answer(&mut second).await, Claim::Fresh);
    assert_duplicate(&look(&setup.store, &request).await);
}

/// The same if the first was dropped by a task that panicked.
pub async fn a_second_claim_is_fresh_if_the_first_was_dropped<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut first = begin(&setup.store).await;
    assert_eq!(claim(&mut first, &request).await, Claim::Fresh);
    let mut second = claim_beside(&setup.store, &request);
    assert!(stays_pending(second.join_next()).await, "the second claim was answered while the first was open");
    drop(first);
    assert_eq!(answer(&mut second).await, Claim::Fresh);
}

/// Nobody waits for ever: beyond the lock wait it is contended, which means "run again" and counts as no attempt.
pub async fn a_wait_beyond_the_lock_wait_is_contended<F: StoreFixture>(setup: Setup<F>) {
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut first = begin(&setup.store).await;
    assert_eq!(claim(&mut first, &request).await, Claim::Fresh);
    let impatient = async {
        let mut tx = connect(&setup.store).await.begin(Duration::from_millis(50)).await?;
        let claims = tx.claim(std::slice::from_ref(&request)).await;
        tx.rollback().await;
        claims
    };
    assert_kind(impatient.await, StoreErrorKind::Contended);
    commit(first).await;
    assert_duplicate(&look(&setup.store, &request).await);
}

/// However many deliveries of one message come at once, and although some of them fail, one takes effect.
pub async fn one_of_many_claims_at_once_takes_effect<F: StoreFixture>(setup: Setup<F>) {
    const DELIVERIES: usize = 32;
    let request = request(consumer(&setup.store, "billing").await, "a");
    let mut tasks = JoinSet::new();
    for delivery in 0..DELIVERIES {
        let (store, request) = (setup.store.clone(), request.clone());
        tasks.spawn(async move {
            // Every fourth handler fails the first time and is run again, as the engine would.
            let mut fails = delivery % 4 == 0;
            loop {
                match deliver::<F>(&store, &request, fails).await {
                    Ok(fate) if fate != Fate::Failed => break fate,
                    Ok(_) => fails = false,
                    Err(error) => assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}"),
                }
            }
        });
    }
    let fates = tasks.join_all().await;
    assert_eq!(fates.len(), DELIVERIES);
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Applied).count(), 1, "{fates:?}");
    assert_eq!(F::effects(&setup.store).await, ["paid"]);
}

#[derive(Debug, PartialEq)]
enum Fate {
    Applied,
    Duplicate,
    Failed,
}

async fn deliver<F: StoreFixture>(store: &F::Store, request: &ClaimRequest, fails: bool) -> Result<Fate, StoreError> {
    let mut tx = connect(store).await.begin(LOCK_WAIT).await?;
    let claims = tx.claim(std::slice::from_ref(request)).await?;
    if claims != [Claim::Fresh] {
        assert_duplicate(&claims[0]);
        tx.rollback().await;
        return Ok(Fate::Duplicate);
    }
    F::write_effect(tx.db(), "paid").await.expect("an effect can be written");
    if fails {
        tx.rollback().await;
        return Ok(Fate::Failed);
    }
    commit(tx).await;
    Ok(Fate::Applied)
}

/// Two batches that hold the same keys in opposite order neither lose a claim nor give one away twice.
pub async fn batches_in_opposite_order_lose_no_claim<F: StoreFixture>(setup: Setup<F>) {
    let consumer = consumer(&setup.store, "billing").await;
    for round in 0..10 {
        let forwards: Vec<ClaimRequest> = (0..20).map(|n| request(consumer, &format!("{round}/{n}"))).collect();
        let backwards: Vec<ClaimRequest> = forwards.iter().rev().cloned().collect();
        let mut tasks = JoinSet::new();
        for batch in [forwards, backwards] {
            let store = setup.store.clone();
            tasks.spawn(async move { claim_batch_until_it_passes(&store, &batch).await });
        }
        let fresh: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(fresh, 20, "each key is fresh for one of the two, in round {round}");
    }
}

/// Claims and commits a batch, again while it is contended; how many were fresh.
async fn claim_batch_until_it_passes<S: Store>(store: &S, batch: &[ClaimRequest]) -> usize {
    loop {
        let mut tx = begin(store).await;
        match tx.claim(batch).await {
            Ok(claims) => {
                commit(tx).await;
                assert!(!claims.contains(&Claim::Undecided), "a claim beside nothing but claims is decided");
                return claims.iter().filter(|claim| **claim == Claim::Fresh).count();
            }
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}");
                tx.rollback().await;
            }
        }
    }
}

/// Two transactions that wait for each other do not wait for ever: at least one is contended, and passes when it is
/// run again. Only where transactions run side by side.
pub async fn a_deadlock_is_contended_and_passes_when_run_again<F: StoreFixture>(setup: Setup<F>) {
    if !setup.store.capabilities().concurrent {
        return;
    }
    let consumer = consumer(&setup.store, "billing").await;
    let both_hold_one = Arc::new(Barrier::new(2));
    let mut tasks = JoinSet::new();
    for ids in [["a", "b"], ["b", "a"]] {
        let (store, both_hold_one) = (setup.store.clone(), Arc::clone(&both_hold_one));
        let [first, second] = ids.map(|id| request(consumer, id));
        tasks.spawn(async move {
            let mut tx = begin(&store).await;
            assert_eq!(claim(&mut tx, &first).await, Claim::Fresh);
            both_hold_one.wait().await;
            match tx.claim(std::slice::from_ref(&second)).await {
                Ok(claims) => {
                    assert_eq!(claims, [Claim::Fresh], "the other rolled back");
                    commit(tx).await;
                    (2, 0)
                }
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Contended, "{error}");
                    tx.rollback().await;
                    (claim_batch_until_it_passes(&store, &[first, second]).await, 1)
                }
            }
        });
    }
    let (fresh, contended) = tasks.join_all().await.into_iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!(fresh, 2, "each key is fresh for one of the two");
    assert!(contended >= 1, "one of them was told to run again");
}
