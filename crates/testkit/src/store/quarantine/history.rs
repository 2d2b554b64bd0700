//! What is kept of the past: the audit log, and how far back records go.

use std::time::Duration;

use oncebox_core::audit::{Action, Audits};
use oncebox_core::horizon::{Consumers, Expiry, RETENTION_MIN};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::ReplayId;
use oncebox_core::{Claim, Clock, Inbox, StoreErrorKind, Timestamp, Transaction};
use tokio::task::JoinSet;

use super::steps::{dead, far_future, park, request};
use crate::eventually::stays_pending;
use crate::store::steps::{
    assert_duplicate, assert_kind, begin, claim_and_commit, commit, consumer, fingerprint, look,
};
use crate::store::{Setup, StoreFixture};

/// The audit log keeps what was committed, the newest first, and nothing that was rolled back.
pub async fn the_audit_log_keeps_what_was_committed<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let action = |verb: &str| Action {
        who: "ada".to_owned(),
        why: "the bank said so: \u{e4}".to_owned(),
        verb: verb.to_owned(),
        consumer: Some(consumer),
        replay: None,
        messages: 3,
        detail: r#"{"filter":"all"}"#.to_owned(),
    };
    let second = Action { consumer: None, replay: Some(ReplayId(4)), ..action("replay.pause") };
    for action in [&action("parked.discard"), &second] {
        let mut tx = begin(store).await;
        tx.audit(action).await.expect("an entry can be added");
        commit(tx).await;
    }
    let mut tx = begin(store).await;
    tx.audit(&action("never")).await.expect("an entry can be added");
    tx.rollback().await;
    let mut tx = begin(store).await;
    let log = tx.audit_log(None, 10).await.expect("the log can be read");
    let actions: Vec<&Action> = log.iter().map(|entry| &entry.action).collect();
    assert_eq!(actions, [&second, &action("parked.discard")]);
    let earlier = tx.audit_log(Some(log[0].id), 10).await.expect("the log can be read");
    assert_eq!(earlier, log[1..]);
    tx.rollback().await;
}

/// Old records go, a bounded number at a time, and the horizon goes with them; those of parked messages stay.
pub async fn expiry_moves_the_horizon_and_spares_what_is_parked<F: StoreFixture<Store: QuarantineStore>>(
    setup: Setup<F>,
) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for text in ["1", "2", "3", "conflicting"] {
        claim_and_commit(store, &request(ours, text)).await;
    }
    claim_and_commit(store, &request(other, "1")).await;
    let mut conflict = dead(ours, "conflicting");
    conflict.owns_record = false;
    conflict.fingerprint = fingerprint(8);
    park(store, &[dead(ours, "parked"), conflict]).await;
    let horizon = async || {
        let mut tx = begin(store).await;
        let known = tx.consumers().await.expect("consumers can be listed");
        tx.rollback().await;
        let find = |id| known.iter().find(|known| known.id == id).expect("a registered consumer is listed").clone();
        assert_eq!(find(ours).name.as_str(), "invoices");
        assert_eq!(find(other).horizon, None);
        find(ours).horizon
    };
    assert_eq!(horizon().await, None);
    let_retention_pass(&setup).await;
    let expire = async |older_than, limit| {
        let mut tx = begin(store).await;
        let expired = tx.expire(Expiry::first(ours, older_than, limit)).await.expect("records can expire");
        commit(tx).await;
        expired
    };
    let nothing = expire(Timestamp::UNIX_EPOCH, 100).await;
    assert_eq!((nothing.deleted, nothing.horizon), (0, None));
    let first = expire(far_future(), 2).await;
    assert_eq!(first.deleted, 2);
    assert!(first.horizon.is_some_and(|at| at < far_future() && at > Timestamp::UNIX_EPOCH));
    let second = expire(far_future(), 100).await;
    assert_eq!(second.deleted, 1);
    assert!(second.horizon >= first.horizon, "a horizon never goes back");
    assert_eq!(horizon().await, second.horizon);
    let mut tx = begin(store).await;
    assert_eq!(tx.horizon(ours).await.expect("a horizon can be read"), second.horizon);
    assert_eq!(tx.horizon(other).await.expect("a horizon can be read"), None);
    tx.rollback().await;
    assert_eq!(look(store, &request(ours, "1")).await, Claim::Fresh);
    assert_duplicate(&look(store, &request(other, "1")).await);
    assert_duplicate(&look(store, &request(ours, "parked")).await);
    assert_duplicate(&look(store, &request(ours, "conflicting")).await);
}

/// A pass goes on where its last step ended, comes to its end, and leaves nothing behind but what must stay.
pub async fn a_pass_of_many_steps_finds_every_old_record<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let (ours, other) = (consumer(store, "invoices").await, consumer(store, "reports").await);
    for number in 0..25 {
        claim_and_commit(store, &request(ours, &number.to_string())).await;
        claim_and_commit(store, &request(other, &number.to_string())).await;
    }
    park(store, &[dead(ours, "parked")]).await;
    let_retention_pass(&setup).await;
    let old = async |whose| {
        let mut tx = begin(store).await;
        let old = tx.old_records(whose, far_future()).await.expect("old records can be counted");
        tx.rollback().await;
        old
    };
    let before = old(ours).await;
    assert_eq!((before.records, before.held, before.counted), (26, 1, true));
    assert!(before.oldest.is_some_and(|oldest| oldest < far_future()));
    let mut step = Expiry::first(ours, far_future(), 10);
    let (mut deleted, mut steps) = (0, 0);
    loop {
        let mut tx = begin(store).await;
        let expired = tx.expire(step).await.expect("records can expire");
        commit(tx).await;
        assert!(expired.deleted <= 10, "{expired:?}");
        deleted += expired.deleted;
        steps += 1;
        let Some(next) = expired.next else { break };
        step.from = next;
        assert!(steps < 20, "a pass must come to its end");
    }
    assert_eq!(deleted, 25);
    let after = old(ours).await;
    assert_eq!((after.records, after.held), (1, 1));
    let others = old(other).await;
    assert_eq!((others.records, others.held), (25, 0));
}

/// Two that expire at once delete each record once, and both come to their end.
pub async fn two_that_expire_at_once_do_no_harm<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    for number in 0..40 {
        claim_and_commit(store, &request(ours, &number.to_string())).await;
    }
    let_retention_pass(&setup).await;
    let mut passes = JoinSet::new();
    for _ in 0..2 {
        let store = store.clone();
        passes.spawn(async move {
            let (mut step, mut deleted) = (Expiry::first(ours, far_future(), 3), 0);
            loop {
                let mut tx = begin(&store).await;
                let expired = tx.expire(step).await.expect("records can expire");
                commit(tx).await;
                deleted += expired.deleted;
                let Some(next) = expired.next else { return deleted };
                step.from = next;
            }
        });
    }
    let deleted: u64 = passes.join_all().await.into_iter().sum();
    assert!(deleted <= 40, "a record was deleted twice");
    let mut tx = begin(store).await;
    // What one had in hand the other may have passed over; the next pass finds it.
    let rest = tx.expire(Expiry::first(ours, far_future(), 100)).await.expect("records can expire").deleted;
    tx.rollback().await;
    assert_eq!(deleted + rest, 40);
}

/// An expiry that rolled back leaves records and horizon.
pub async fn an_expiry_that_rolled_back_never_was<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    claim_and_commit(store, &request(consumer, "1")).await;
    let_retention_pass(&setup).await;
    let mut tx = begin(store).await;
    assert_eq!(tx.expire(Expiry::first(consumer, far_future(), 10)).await.expect("records can expire").deleted, 1);
    tx.rollback().await;
    assert_duplicate(&look(store, &request(consumer, "1")).await);
    let mut tx = begin(store).await;
    let known = tx.consumers().await.expect("consumers can be listed");
    assert!(known.iter().all(|known| known.horizon.is_none()), "{known:?}");
    tx.rollback().await;
}

/// Records that consumers count on are not deleted, whoever asks.
pub async fn young_records_are_not_deleted<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    claim_and_commit(store, &request(consumer, "1")).await;
    let_retention_pass(&setup).await;
    let oldest_kept = setup.clock.now() - RETENTION_MIN;
    let mut tx = begin(store).await;
    assert_kind(
        tx.expire(Expiry::first(consumer, oldest_kept + Duration::from_secs(1), 10)).await,
        StoreErrorKind::Refused,
    );
    assert_kind(tx.expire(Expiry::first(consumer, Timestamp::MAX, 10)).await, StoreErrorKind::Refused);
    tx.rollback().await;
    assert_duplicate(&look(store, &request(consumer, "1")).await);
    let mut tx = begin(store).await;
    assert_eq!(tx.expire(Expiry::first(consumer, oldest_kept, 10)).await.expect("records can expire").deleted, 1);
    tx.rollback().await;
}

/// A claim that finds its key free because the record is being deleted sees, afterwards, how far the horizon came.
pub async fn whoever_claims_what_expires_sees_the_horizon<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let consumer = consumer(store, "invoices").await;
    let request = request(consumer, "1");
    claim_and_commit(store, &request).await;
    let_retention_pass(&setup).await;
    let mut expiring = begin(store).await;
    let expired = expiring.expire(Expiry::first(consumer, far_future(), 10)).await.expect("records can expire");
    assert_eq!(expired.deleted, 1);
    assert!(expired.horizon.is_some(), "a record went, and the horizon does not know");
    let beside = store.clone();
    let mut claiming = JoinSet::new();
    claiming.spawn(async move {
        let mut tx = begin(&beside).await;
        let claims = tx.claim(&[request]).await.expect("a key can be claimed");
        let horizon = tx.horizon(consumer).await.expect("a horizon can be read");
        tx.rollback().await;
        (claims, horizon)
    });
    assert!(stays_pending(claiming.join_next()).await, "the claim was answered while the deletion was open");
    commit(expiring).await;
    let (claims, horizon) = claiming.join_next().await.expect("there is a task").expect("it ends without a panic");
    assert_eq!((claims, horizon), (vec![Claim::Fresh], expired.horizon));
}

/// Moves the store's clock beyond everything that [`far_future`] asks for.
pub(super) async fn let_retention_pass<F: StoreFixture>(setup: &Setup<F>) {
    let then = far_future() + RETENTION_MIN;
    let far = then.duration_since(setup.clock.now()).unsigned_abs();
    setup.advance(far).await;
}
