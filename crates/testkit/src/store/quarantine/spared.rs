//! What old records leave behind: those that must stay, and a horizon that only goes forward.

use std::time::Duration;

use oncebox_core::horizon::{Consumers, Expired, Expiry};
use oncebox_core::quarantine::QuarantineStore;
use oncebox_core::replay::Replays;
use oncebox_core::{ConsumerId, ConsumerName, Store, Transaction};

use super::history::let_retention_pass;
use super::steps::{dead, discard, far_future, park, request, revive, spec};
use crate::eventually::eventually;
use crate::store::steps::{assert_duplicate, begin, claim_and_commit, commit, consumer, fingerprint, look};
use crate::store::{Setup, StoreFixture};

/// Deletes whatever may go.
async fn expire<S: QuarantineStore>(store: &S, consumer: ConsumerId) -> Expired {
    let mut tx = begin(store).await;
    let expired = tx.expire(Expiry::first(consumer, far_future(), 100)).await.expect("records can expire");
    commit(tx).await;
    expired
}

/// A record that stayed for long is older than the horizon when it goes; the horizon stays where it is.
pub async fn a_horizon_never_goes_back<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    claim_and_commit(store, &request(ours, "first")).await;
    setup.advance(Duration::from_secs(60)).await;
    // Databases write records by their own clocks, and some count in milliseconds.
    let old = async |before| {
        let mut tx = begin(store).await;
        let old = tx.old_records(ours, before).await.expect("old records can be counted");
        tx.rollback().await;
        old
    };
    let at_first = old(far_future()).await.oldest.expect("one was claimed") + Duration::from_micros(1);
    let mut later = 0;
    eventually("a record is later than the first", async || {
        later += 1;
        claim_and_commit(store, &request(ours, &format!("later {later}"))).await;
        old(at_first).await.records <= later
    })
    .await;
    let mut conflict = dead(ours, "first");
    conflict.owns_record = false;
    conflict.fingerprint = fingerprint(8);
    let rows = park(store, &[conflict]).await;
    let_retention_pass(&setup).await;
    let second = expire(store, ours).await;
    assert!(second.deleted == later && second.horizon >= Some(at_first), "{second:?}");
    assert_eq!(discard(store, &rows).await, [true]);
    let first = expire(store, ours).await;
    assert_eq!((first.deleted, first.horizon), (1, second.horizon));
    let mut tx = begin(store).await;
    assert_eq!(tx.horizon(ours).await.expect("a horizon can be read"), second.horizon);
    tx.rollback().await;
}

/// Records that consumers share stay where any of them has a message parked under the key.
pub async fn shared_records_stay_where_any_consumer_parked<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    let shared = store.consumer(&ConsumerName::global()).await.expect("there is an id for all");
    for text in ["held", "free"] {
        claim_and_commit(store, &request(shared, text)).await;
    }
    let mut conflict = dead(ours, "held");
    conflict.owns_record = false;
    conflict.fingerprint = fingerprint(8);
    park(store, &[conflict]).await;
    let_retention_pass(&setup).await;
    assert_eq!(expire(store, shared).await.deleted, 1);
    assert_duplicate(&look(store, &request(shared, "held")).await);
}

/// What an open replay has put back is not applied yet: its record stays until it is.
pub async fn what_an_open_replay_put_back_stays<F: StoreFixture<Store: QuarantineStore>>(setup: Setup<F>) {
    let store = &setup.store;
    let ours = consumer(store, "invoices").await;
    claim_and_commit(store, &request(ours, "copied")).await;
    let mut copy = dead(ours, "copied");
    copy.owns_record = false;
    copy.fingerprint = fingerprint(8);
    let rows = park(store, &[dead(ours, "parked"), copy]).await;
    let mut tx = begin(store).await;
    let replay = tx.create_replay(&spec(ours)).await.expect("a replay can be created");
    commit(tx).await;
    assert_eq!(revive(store, &rows, Some(replay)).await, [true, true]);
    let_retention_pass(&setup).await;
    assert_eq!(expire(store, ours).await.deleted, 0);
    assert_duplicate(&look(store, &request(ours, "parked")).await);
    assert_duplicate(&look(store, &request(ours, "copied")).await);
}
