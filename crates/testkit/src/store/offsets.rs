//! What every store must do with offsets: one owner of a log at a time, steps without a gap, and both with their
//! transaction.

use oncebox_core::offsets::{HeldLog, OffsetStep, OffsetStore, Offsets, TakenOffset};
use oncebox_core::{ConsumerId, StoreError, StoreErrorKind, Transaction};
use tokio::task::JoinSet;

use crate::stays_pending;
use crate::store::steps::{begin, commit, consumer};
use crate::store::{Setup, StoreFixture};

/// Runs every case of the offsets suite over a [`StoreFixture`](crate::store::StoreFixture) whose store keeps offsets,
/// in a module `offsets`.
///
/// The calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
#[macro_export]
macro_rules! offsets_suite {
    ($fixture:expr) => {
        $crate::store_cases! { offsets, $fixture, [
            a_log_has_come_nowhere_until_it_begins,
            a_log_begins_once,
            whoever_takes_a_log_goes_on_where_it_is,
            a_step_that_rolled_back_never_was,
            the_owner_before_can_neither_look_nor_go_on,
            a_step_that_leaves_a_gap_or_goes_back_is_refused,
            one_refused_step_refuses_them_all,
            logs_belong_to_one_consumer_each,
            whoever_takes_a_log_waits_for_a_step_under_way,
            a_step_waits_for_whoever_takes_its_log_and_is_refused,
            logs_taken_in_opposite_order_by_two_are_all_taken,
            many_logs_are_answered_in_the_order_asked_for,
        ] }
    };
}

fn logs(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn held(log: &str, epoch: i64) -> HeldLog {
    HeldLog { log: log.to_owned(), epoch }
}

fn step(log: &str, epoch: i64, from: i64, to: i64) -> OffsetStep {
    OffsetStep { held: held(log, epoch), from, to, witness: to * 7 }
}

async fn take<S: OffsetStore>(store: &S, consumer: ConsumerId, log: &str) -> TakenOffset {
    let mut tx = begin(store).await;
    let taken = tx.take_offsets(consumer, &logs(&[log])).await.expect("a log can be taken");
    commit(tx).await;
    taken[0]
}

/// Takes a log that has come nowhere and begins with it.
async fn start<S: OffsetStore>(store: &S, consumer: ConsumerId, log: &str, next: i64) -> i64 {
    let epoch = take(store, consumer, log).await.epoch;
    let mut tx = begin(store).await;
    tx.begin_offsets(consumer, &[(held(log, epoch), next)]).await.expect("a log can begin");
    commit(tx).await;
    epoch
}

async fn advance<S: OffsetStore>(store: &S, consumer: ConsumerId, steps: &[OffsetStep]) -> Result<(), StoreErrorKind> {
    let mut tx = begin(store).await;
    match tx.advance_offsets(consumer, steps).await {
        Ok(()) => {
            commit(tx).await;
            Ok(())
        }
        Err(error) => {
            tx.rollback().await;
            Err(error.kind())
        }
    }
}

async fn look<S: OffsetStore>(store: &S, consumer: ConsumerId, log: HeldLog) -> Result<i64, StoreErrorKind> {
    let mut tx = begin(store).await;
    let found = tx.lock_offsets(consumer, &[log]).await;
    tx.rollback().await;
    found.map(|found| found[0]).map_err(|error: StoreError| error.kind())
}

/// And is nobody's before; nothing of it can be done then.
pub async fn a_log_has_come_nowhere_until_it_begins<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    assert_eq!(take(store, billing, "t/0").await, TakenOffset { epoch: 1, next: None, witness: None });
    assert_eq!(look(store, billing, held("t/0", 1)).await, Err(StoreErrorKind::Fenced));
    assert_eq!(look(store, billing, held("t/1", 1)).await, Err(StoreErrorKind::Fenced), "nobody has taken it");
    assert!(advance(store, billing, &[step("t/0", 1, 0, 1)]).await.is_err());
    assert_eq!(take(store, billing, "t/0").await, TakenOffset { epoch: 2, next: None, witness: None });
    let mut tx = begin(store).await;
    tx.begin_offsets(billing, &[(held("t/0", 2), 40)]).await.expect("a log can begin");
    commit(tx).await;
    assert_eq!(look(store, billing, held("t/0", 2)).await, Ok(40));
}

/// Where it begins is settled once: with the second answer some messages would be skipped or done twice.
pub async fn a_log_begins_once<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 40).await;
    for (epoch, next) in [(epoch, 50), (epoch, 40), (epoch - 1, 40)] {
        let mut tx = begin(store).await;
        let refused = tx.begin_offsets(billing, &[(held("t/0", epoch), next)]).await.expect_err("it has begun");
        assert_eq!(refused.kind(), StoreErrorKind::Fenced);
        tx.rollback().await;
    }
    assert_eq!(look(store, billing, held("t/0", epoch)).await, Ok(40));
}

/// With the last message's witness, in any process.
pub async fn whoever_takes_a_log_goes_on_where_it_is<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 5).await;
    assert_eq!(advance(store, billing, &[step("t/0", epoch, 5, 9)]).await, Ok(()));
    assert_eq!(advance(store, billing, &[step("t/0", epoch, 9, 1 << 40)]).await, Ok(()), "offsets have holes");
    let other = setup.fixture.reopen(store).await;
    let taken = take(&other, billing, "t/0").await;
    assert_eq!(taken, TakenOffset { epoch: epoch + 1, next: Some(1 << 40), witness: Some(7 << 40) });
    assert_eq!(look(&other, billing, held("t/0", epoch + 1)).await, Ok(1 << 40));
}

/// Nor does a log that was taken in vain.
pub async fn a_step_that_rolled_back_never_was<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 5).await;
    let mut tx = begin(store).await;
    tx.advance_offsets(billing, &[step("t/0", epoch, 5, 9)]).await.expect("a log can be moved on");
    tx.rollback().await;
    let mut tx = begin(store).await;
    tx.take_offsets(billing, &logs(&["t/0", "t/1"])).await.expect("logs can be taken");
    tx.rollback().await;
    assert_eq!(look(store, billing, held("t/0", epoch)).await, Ok(5));
    assert_eq!(take(store, billing, "t/1").await.epoch, 1);
}

/// Whatever it believes: the zombie of a rebalance commits nothing.
pub async fn the_owner_before_can_neither_look_nor_go_on<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let old = start(store, billing, "t/0", 5).await;
    let new = take(store, billing, "t/0").await.epoch;
    assert_eq!(look(store, billing, held("t/0", old)).await, Err(StoreErrorKind::Fenced));
    assert_eq!(advance(store, billing, &[step("t/0", old, 5, 6)]).await, Err(StoreErrorKind::Fenced));
    assert_eq!(advance(store, billing, &[step("t/0", new + 1, 5, 6)]).await, Err(StoreErrorKind::Fenced));
    assert_eq!(look(store, billing, held("t/0", new)).await, Ok(5));
}

/// One number stands for all below it only if nothing is left out.
pub async fn a_step_that_leaves_a_gap_or_goes_back_is_refused<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 5).await;
    for (from, to) in [(6, 7), (4, 5), (4, 9), (0, 1)] {
        assert_eq!(advance(store, billing, &[step("t/0", epoch, from, to)]).await, Err(StoreErrorKind::Corrupt));
    }
    assert_eq!(advance(store, billing, &[step("t/0", epoch, 5, 7)]).await, Ok(()));
    let again = advance(store, billing, &[step("t/0", epoch, 5, 7)]).await;
    assert_eq!(again, Err(StoreErrorKind::Corrupt), "done once");
    assert_eq!(look(store, billing, held("t/0", epoch)).await, Ok(7));
}

/// A transaction over several logs commits as a whole or not at all.
pub async fn one_refused_step_refuses_them_all<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let a = start(store, billing, "t/0", 5).await;
    let b = start(store, billing, "t/1", 5).await;
    let newer = take(store, billing, "t/1").await.epoch;
    let steps = [step("t/0", a, 5, 6), step("t/1", b, 5, 6)];
    assert_eq!(advance(store, billing, &steps).await, Err(StoreErrorKind::Fenced));
    let mut tx = begin(store).await;
    let locked = tx.lock_offsets(billing, &[held("t/0", a), held("t/1", b)]).await;
    assert_eq!(locked.expect_err("one is lost").kind(), StoreErrorKind::Fenced);
    tx.rollback().await;
    assert_eq!(
        advance(store, billing, &[step("t/0", a, 5, 6), step("t/1", newer, 6, 7)]).await,
        Err(StoreErrorKind::Corrupt)
    );
    assert_eq!(look(store, billing, held("t/0", a)).await, Ok(5));
    assert_eq!(advance(store, billing, &[step("t/0", a, 5, 6), step("t/1", newer, 5, 8)]).await, Ok(()));
    assert_eq!(look(store, billing, held("t/1", newer)).await, Ok(8));
}

/// Two consumers of one topic come as far as each has come. Names that look alike are not the same.
pub async fn logs_belong_to_one_consumer_each<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (billing, shipping) = (consumer(store, "billing").await, consumer(store, "shipping").await);
    let epoch = start(store, billing, "t/0", 5).await;
    for log in ["T/0", "t/0 ", "t/00", "t/\u{30}\u{301}"] {
        assert_eq!(take(store, billing, log).await.next, None, "{log:?}");
    }
    assert_eq!(take(store, shipping, "t/0").await, TakenOffset { epoch: 1, next: None, witness: None });
    assert_eq!(look(store, billing, held("t/0", epoch)).await, Ok(5));
}

fn take_beside<S: OffsetStore>(store: &S, consumer: ConsumerId) -> JoinSet<TakenOffset> {
    let store = store.clone();
    let mut task = JoinSet::new();
    task.spawn(async move { take(&store, consumer, "t/0").await });
    task
}

/// What the old owner commits at the last moment is done; the new one must not do it again.
pub async fn whoever_takes_a_log_waits_for_a_step_under_way<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 5).await;
    let mut old = begin(store).await;
    old.lock_offsets(billing, &[held("t/0", epoch)]).await.expect("a log of ours can be locked");
    let mut new = take_beside(store, billing);
    assert!(stays_pending(new.join_next()).await, "it was taken in the middle of a step");
    old.advance_offsets(billing, &[step("t/0", epoch, 5, 6)]).await.expect("a log can be moved on");
    commit(old).await;
    assert_eq!(new.join_all().await, [TakenOffset { epoch: epoch + 1, next: Some(6), witness: Some(42) }]);
}

/// The other way round: it was too late.
pub async fn a_step_waits_for_whoever_takes_its_log_and_is_refused<F: StoreFixture<Store: OffsetStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let epoch = start(store, billing, "t/0", 5).await;
    for locks_first in [true, false] {
        let now = if locks_first { epoch } else { epoch + 1 };
        let mut new = begin(store).await;
        new.take_offsets(billing, &logs(&["t/0"])).await.expect("a log can be taken");
        let mut old = JoinSet::new();
        let beside = store.clone();
        old.spawn(async move {
            if locks_first {
                return look(&beside, billing, held("t/0", now)).await.map(drop);
            }
            advance(&beside, billing, &[step("t/0", now, 5, 6)]).await
        });
        assert!(stays_pending(old.join_next()).await, "it was answered while the log was being taken");
        commit(new).await;
        assert_eq!(old.join_all().await, [Err(StoreErrorKind::Fenced)]);
    }
}

/// Two processes that are given the same partitions wait for each other.
pub async fn logs_taken_in_opposite_order_by_two_are_all_taken<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    for round in 0..10 {
        let mut names: Vec<String> = (0..20).map(|n| format!("t/{}", n + round / 2)).collect();
        let mut both = JoinSet::new();
        for _ in 0..2 {
            names.reverse();
            let (store, names) = (store.clone(), names.clone());
            both.spawn(async move {
                let mut tx = begin(&store).await;
                tx.take_offsets(billing, &names).await.expect("opposite orders do not deadlock");
                commit(tx).await;
            });
        }
        both.join_all().await;
    }
    assert_eq!(take(store, billing, "t/4").await.epoch, 21);
}

/// Known and new ones mixed, in no order of their own.
pub async fn many_logs_are_answered_in_the_order_asked_for<F: StoreFixture<Store: OffsetStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let billing = consumer(store, "billing").await;
    let names: Vec<String> = (0..200).map(|n| format!("t/{}", n * 7 % 200)).collect();
    let mut tx = begin(store).await;
    let taken = tx.take_offsets(billing, &names).await.expect("logs can be taken");
    let owned: Vec<HeldLog> = names.iter().zip(&taken).map(|(log, taken)| held(log, taken.epoch)).collect();
    let starts: Vec<(HeldLog, i64)> = owned.iter().cloned().zip(100..).collect();
    tx.begin_offsets(billing, &starts).await.expect("logs can begin");
    commit(tx).await;
    let mut tx = begin(store).await;
    let found = tx.lock_offsets(billing, &owned).await.expect("logs of ours can be locked");
    assert_eq!(found, (100..300).collect::<Vec<i64>>());
    assert!(tx.lock_offsets(billing, &[]).await.expect("nothing can be locked").is_empty());
    assert!(tx.take_offsets(billing, &[]).await.expect("nothing can be taken").is_empty());
    tx.rollback().await;
}
