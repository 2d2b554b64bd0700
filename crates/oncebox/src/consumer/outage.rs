//! Waiting for what is away: said once, tried with backoff, never in a hot loop.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use oncebox_core::{Clock, Code};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bounds::backoff;
use super::stats::Stats;

const FIRST: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(5);

/// Who waits for the store at the moment.
#[derive(Debug, Default)]
pub(super) struct Outage {
    waiting: AtomicUsize,
    over: Notify,
}

impl Outage {
    /// Whether some lane waits for the store; then nothing more is received.
    pub(super) fn is_on(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Returns when no lane waits any more.
    pub(super) async fn over(&self) {
        loop {
            let over = self.over.notified();
            if !self.is_on() {
                return;
            }
            over.await;
        }
    }

    /// One lane begins to wait. Of several, the first says so.
    pub(super) fn wait<'o>(&'o self, stats: &'o Stats, consumer: &'o str, what: String) -> Waiting<'o> {
        let is_first = self.waiting.fetch_add(1, SeqCst) == 0;
        if is_first {
            tracing::warn!(
                code = %Code::StoreAway,
                consumer,
                "waiting for the store; what is in hand is held, nothing more is received: {what}"
            );
        }
        stats.set_waiting_for(Some(what));
        Waiting { outage: self, stats, consumer, since: Instant::now() }
    }
}

/// One lane that waits. Dropped when it goes on.
#[derive(Debug)]
pub(super) struct Waiting<'o> {
    outage: &'o Outage,
    stats: &'o Stats,
    consumer: &'o str,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.outage.waiting.fetch_sub(1, SeqCst) == 1 {
            self.stats.set_waiting_for(None);
            self.outage.over.notify_waiters();
            let seconds = self.since.elapsed().as_secs_f64();
            tracing::info!(consumer = self.consumer, "no longer waiting for the store, after {seconds:.1} s");
        }
    }
}

/// Waits between tries, each time longer.
#[derive(Debug)]
pub(super) struct Pause<'c> {
    clock: &'c dyn Clock,
    tries: u32,
}

impl<'c> Pause<'c> {
    /// The first wait is as long as the one after `tries` waits.
    pub(super) fn new(clock: &'c dyn Clock, tries: u32) -> Self {
        Self { clock, tries }
    }

    pub(super) async fn wait(&mut self) {
        self.tries = self.tries.saturating_add(1);
        tokio::time::sleep(backoff(FIRST, MAX, self.tries, self.clock.random())).await;
    }
}
