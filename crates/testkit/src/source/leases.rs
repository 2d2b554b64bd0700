//! Deliveries are on loan: they come again when nobody settles them, and a late settle changes nothing.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{Release, Source};

use super::fixture::{Setup, SourceFixture, texts};
use crate::hostile;

/// Short, so that a fixture that has to wait it out can.
const DELAY: Duration = Duration::from_secs(2);

/// A delivery that nobody settled comes again, the same message in the same place, counted once more.
pub async fn a_message_comes_again_when_its_lease_is_over<F: SourceFixture>(setup: Setup<F>) {
    let capabilities = setup.capabilities();
    let Some(lease) = capabilities.lease else { return };
    setup.send(setup.messages(&["1"])).await;
    let first = setup.receive_one().await;
    setup.advance(lease / 2).await;
    setup.assert_nothing_comes().await;
    setup.let_leases_end().await;
    let second = setup.receive_one().await;
    hostile::assert_same(&second.message, &first.message);
    assert_eq!(second.coordinate, first.coordinate);
    if capabilities.counts {
        assert_eq!((first.count, second.count), (Some(1), Some(2)));
    }
    assert_eq!(first.coordinate.is_some(), capabilities.coordinates);
}

/// A released delivery comes again when its delay is over, and not before.
pub async fn a_released_message_comes_again_after_its_delay<F: SourceFixture>(setup: Setup<F>) {
    setup.send(setup.messages(&["1"])).await;
    let first = setup.receive_all(1).await;
    let coordinate = first[0].coordinate.clone();
    setup.release(first, DELAY).await;
    setup.assert_nothing_comes().await;
    setup.advance(DELAY + Duration::from_secs(1)).await;
    let second = setup.receive_one().await;
    assert_eq!(second.coordinate, coordinate);
    if setup.capabilities().counts {
        assert!(second.count >= Some(2), "a second delivery counts {:?}", second.count);
    }
}

/// Released without a delay, it comes again without time passing.
pub async fn a_message_released_without_delay_comes_again_at_once<F: SourceFixture>(setup: Setup<F>) {
    setup.send(setup.messages(&["1"])).await;
    let first = setup.receive_all(1).await;
    setup.release(first, Duration::ZERO).await;
    assert_eq!(texts(&setup.receive_all(1).await), ["1"]);
}

/// An extended delivery does not come to anyone else, however long it takes, and can be acknowledged in the end.
pub async fn an_extended_delivery_stays_ours<F: SourceFixture>(setup: Setup<F>) {
    let Some(lease) = setup.capabilities().lease else { return };
    setup.send(setup.messages(&["1"])).await;
    let ours = setup.receive_all(1).await;
    for _ in 0..4 {
        setup.advance(lease / 2).await;
        let receipts: Vec<_> = ours.iter().map(|delivery| Arc::clone(delivery.receipt())).collect();
        setup.source.extend(&receipts).await.expect("deliveries can be extended");
        setup.assert_nothing_comes().await;
    }
    setup.ack(ours).await.expect("an extended delivery can be acknowledged");
    setup.let_leases_end().await;
    setup.assert_nothing_comes().await;
}

/// Acknowledging a delivery that was given to someone else meanwhile does not take the message from them.
pub async fn a_stale_acknowledgement_leaves_the_message_with_its_new_owner<F: SourceFixture>(setup: Setup<F>) {
    if setup.capabilities().lease.is_none() {
        return;
    }
    setup.send(setup.messages(&["1"])).await;
    let stale = setup.receive_all(1).await;
    setup.let_leases_end().await;
    let current = setup.receive_all(1).await;
    let _ = setup.ack(stale).await;
    // The new owner dies: its message must come again.
    drop(current);
    setup.let_leases_end().await;
    let again = setup.receive_all(1).await;
    assert_eq!(texts(&again), ["1"]);
    setup.ack(again).await.expect("the present owner can acknowledge");
    setup.let_leases_end().await;
    setup.assert_nothing_comes().await;
}

/// Releasing or extending a delivery that was given to someone else meanwhile changes nothing for them.
pub async fn a_stale_release_leaves_the_message_with_its_new_owner<F: SourceFixture>(setup: Setup<F>) {
    let Some(lease) = setup.capabilities().lease else { return };
    setup.send(setup.messages(&["1"])).await;
    let stale = setup.receive_all(1).await;
    setup.let_leases_end().await;
    let current = setup.receive_all(1).await;
    setup.advance(lease / 2).await;
    let receipts: Vec<_> = stale.iter().map(|delivery| Arc::clone(delivery.receipt())).collect();
    // Whether it is an error is the source's affair.
    let _ = setup.source.extend(&receipts).await;
    let _ = setup.source.release(stale, Release::default()).await;
    setup.assert_nothing_comes().await;
    drop(current);
    setup.advance(lease / 2 + Duration::from_secs(1)).await;
    assert_eq!(texts(&setup.receive_all(1).await), ["1"], "the new owner's lease was made longer");
}
