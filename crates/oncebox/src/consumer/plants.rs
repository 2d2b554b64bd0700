//! Deliberate bugs of the engine that need more than a branch; see [`oncebox_core::planted`]. None of this runs in a
//! build without the `planted-bugs` feature.

use std::sync::Arc;

use oncebox_core::ConsumerStore;
use oncebox_core::store::{Ended, Session, Transaction};
use oncebox_core::{Delivery, Source, Store, planted};

use super::Engine;
use super::work::Work;
use crate::context::Hook;

/// The bug of every tutorial: settled first, handled afterwards.
pub(super) async fn acknowledge_first<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: &[Work<S, Src::Receipt>],
) {
    // Only the front of stored mode has nothing to claim.
    let stores = || works.iter().all(|work| work.ready.as_ref().is_ok_and(|ready| ready.claims.is_none()));
    if !(planted::is("ack-before-commit") || (planted::is("stored-acknowledged-first") && stores())) {
        return;
    }
    if let Ok(session) = engine.store.connect().await
        && let Ok(mut tx) = session.begin(engine.bounds.lock_wait_alone).await
    {
        let receipts: Vec<&Src::Receipt> = works.iter().map(|work| &**work.delivery.receipt()).collect();
        if engine.source.ack_in(&mut tx, &receipts).await.is_ok() {
            let _ = tx.commit().await;
        }
    }
    acknowledge_now(engine, works).await;
}

/// Tells the broker that messages are done, whatever became of them.
pub(super) async fn acknowledge_now<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    works: &[Work<S, Src::Receipt>],
) {
    let _ = engine.source.ack(works.iter().map(|work| Delivery::twin(&work.delivery)).collect()).await;
}

/// Claims that outlive what they were made for: committed before the handler runs.
pub(super) async fn commit_claims<S: Store>(tx: S::Tx, lock_wait: std::time::Duration) -> S::Tx {
    if !planted::is("claim-outside-transaction") {
        return tx;
    }
    match tx.commit().await {
        Ended::Committed(session) => match session.begin(lock_wait).await {
            Ok(tx) => tx,
            Err(_) => std::process::abort(),
        },
        _ => std::process::abort(),
    }
}

/// Hooks that tell the world of something that may never have happened.
pub(super) async fn run_hooks_early(hooks: Vec<Hook>) -> Vec<Hook> {
    if !planted::is("hook-before-commit") {
        return hooks;
    }
    for hook in hooks {
        let _ = hook.await;
    }
    Vec::new()
}

/// Which lane a key goes to: any, so that two of one key run side by side.
pub(super) fn any_lane(lane: usize, lanes: usize, message: &Arc<oncebox_core::Message>) -> usize {
    if !planted::is("lane-order-broken") {
        return lane;
    }
    message.payload.iter().map(|byte| usize::from(*byte)).sum::<usize>() % lanes
}
