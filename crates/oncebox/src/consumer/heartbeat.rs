//! Keeps what was received ours while it waits and works.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::{Source, planted};

use super::Engine;

/// The receipts of everything in hand. Weak: a delivery that is settled is dropped, and forgotten here by itself.
#[derive(Debug)]
pub(super) struct Held<R> {
    receipts: Mutex<Vec<Weak<R>>>,
    /// From this many on, the forgotten ones are swept out.
    sweep_at: usize,
}

impl<R> Held<R> {
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self { receipts: Mutex::default(), sweep_at: 2 * in_flight_max }
    }

    pub(super) fn add(&self, receipts: impl Iterator<Item = Weak<R>>) {
        let mut all = self.all();
        all.extend(receipts);
        if all.len() > self.sweep_at {
            all.retain(|receipt| receipt.strong_count() > 0);
        }
    }

    fn alive(&self) -> Vec<Arc<R>> {
        let mut all = self.all();
        all.retain(|receipt| receipt.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<R>>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Extends at a quarter of the lease, so that two beats may fail before it runs out. Ends with the process's last lane.
pub(super) async fn run<S: ConsumerStore, Src: Source<S>>(
    engine: Arc<Engine<S, Src>>,
    held: Arc<Held<Src::Receipt>>,
    lease: Duration,
) {
    let mut failing = false;
    loop {
        tokio::time::sleep(lease / 4).await;
        let receipts = held.alive();
        if receipts.is_empty() || planted::is("no-renewal") {
            continue;
        }
        let extended = engine.source.extend(&receipts).await;
        let _ = crashpoint("extended").await;
        match extended {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(code = %error.code(), consumer = %engine.name, "leases not extended; what is in hand may come again: {error}");
            }
            Err(_) => {}
        }
    }
}
