//! Messages of one order key are handled in the order they were put in.

use std::time::Duration;

use oncebox_core::queue::{LeaseRequest, QueueStore};

use super::steps::{
    LEASE, LEASE_AND_MORE, add, hold, in_order, lease_as, lease_lanes, message, open, ordered, owner, receipts,
    release, settle, texts,
};
use crate::store::{Setup, StoreFixture};

/// Rows come in order, over all lanes and also if only a few are asked for.
pub async fn rows_of_one_key_are_leased_in_order<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    for n in 0..5 {
        add(store, &spec, ["a", "b", "c"].map(|key| in_order(key, &format!("{key}{n}")))).await;
    }
    add(store, &spec, [message("no key")]).await;
    let held = hold(store, queue, owner(&setup.clock)).await;
    let mut seen = Vec::new();
    loop {
        let request = LeaseRequest { queue, max: 4, lease: LEASE, lanes: Some(held.lanes.clone()) };
        let leased = lease_as(store, request).await;
        if leased.is_empty() {
            break;
        }
        seen.extend(texts(&leased));
        settle(store, queue, &receipts(&leased)).await.expect("leased rows can be settled");
    }
    for key in ["a", "b", "c"] {
        let of_key: Vec<&String> = seen.iter().filter(|text| text.starts_with(key)).collect();
        let expected: Vec<String> = (0..5).map(|n| format!("{key}{n}")).collect();
        assert_eq!(of_key, expected.iter().collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), 16, "one without an order key came too");
}

/// A row that was released with a delay holds up those behind it with the same order key, and nobody else, not even
/// in its own lane.
pub async fn a_delayed_row_blocks_its_key_and_no_other<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    let [key, neighbour] = two_keys_of_one_lane();
    add(store, &spec, [in_order(&key, "1"), in_order(&key, "2")]).await;
    let owner = owner(&setup.clock);
    let held = hold(store, queue, owner).await;
    let both = lease_lanes(store, queue, &held.lanes).await;
    assert_eq!(texts(&both), ["1", "2"]);
    let receipts = receipts(&both);
    release(store, queue, &receipts[..1], LEASE / 2).await;
    release(store, queue, &receipts[1..], Duration::ZERO).await;

    add(store, &spec, [in_order(&neighbour, "in the same lane"), in_order(&key, "3"), message("without a key")]).await;
    let others = lease_lanes(store, queue, &held.lanes).await;
    assert_eq!(texts(&others), ["in the same lane", "without a key"]);
    setup.advance(LEASE / 2 + Duration::from_secs(1)).await;
    assert_eq!(texts(&lease_lanes(store, queue, &held.lanes).await), ["1", "2", "3"]);
}

/// While a row is out, those behind it with the same order key wait, even if its lane changes hands.
pub async fn a_leased_row_blocks_its_key_and_no_other<F: StoreFixture<Store: QueueStore>>(setup: Setup<F>) {
    let (store, spec) = (&setup.store, ordered("payments"));
    let queue = open(store, &spec).await;
    let [key, neighbour] = two_keys_of_one_lane();
    add(store, &spec, [in_order(&key, "1")]).await;
    let held = hold(store, queue, owner(&setup.clock)).await;
    let request = |lease| LeaseRequest { queue, max: 100, lease, lanes: Some(held.lanes.clone()) };
    // The row's lease is longer than the lane's.
    assert_eq!(texts(&lease_as(store, request(LEASE * 3)).await), ["1"]);
    add(store, &spec, [in_order(&key, "2"), in_order(&neighbour, "beside it")]).await;
    assert_eq!(texts(&lease_as(store, request(LEASE)).await), ["beside it"]);

    setup.advance(LEASE_AND_MORE).await;
    let next = hold(store, queue, owner(&setup.clock)).await;
    assert_eq!(texts(&lease_lanes(store, queue, &next.lanes).await), ["beside it"]);
    setup.advance(LEASE_AND_MORE * 2).await;
    let next = hold(store, queue, owner(&setup.clock)).await;
    assert_eq!(texts(&lease_lanes(store, queue, &next.lanes).await), ["1", "2", "beside it"]);
}

/// Two different order keys that share a lane.
fn two_keys_of_one_lane() -> [String; 2] {
    let spec = ordered("payments");
    let key = "account-0".to_owned();
    let neighbour = (1..)
        .map(|n| format!("account-{n}"))
        .find(|other| spec.lane(Some(other)) == spec.lane(Some(&key)))
        .expect("there are fewer lanes than keys");
    [key, neighbour]
}
