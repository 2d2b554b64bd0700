//! What is written into the store, and under which id.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebox_core::counters::{CounterStore, Counters, Part, Process, Tally, TallyBody};
use oncebox_core::{Clock, ConsumerName, StoreError};

use super::overview::Overview;
use crate::own_session::OwnSession;

/// The rows of this process.
pub(super) struct Flush {
    process: Process,
    clock: Arc<dyn Clock>,
    /// They are in the store.
    is_begun: bool,
    /// What an earlier id of this process has written: not written again.
    before: BTreeMap<Part, BTreeMap<String, u64>>,
    /// What was written last.
    written: Vec<Tally>,
}

impl Flush {
    pub(super) fn new(label: String, clock: Arc<dyn Clock>) -> Self {
        let process = Process { id: clock.id(), label };
        Self { process, clock, is_begun: false, before: BTreeMap::new(), written: Vec::new() }
    }

    /// Whether there is something to write that the store does not know.
    pub(super) fn has_news(&self, overview: &Overview) -> bool {
        tallies(overview) != self.written
    }

    /// Writes what is counted now.
    pub(super) async fn write<S: CounterStore>(
        &mut self,
        own: &OwnSession<S>,
        overview: &Overview,
    ) -> Result<(), StoreError> {
        let now = tallies(overview);
        if now.is_empty() {
            return Ok(());
        }
        if self.is_begun {
            let (id, since) = (self.process.id, self.since(&now));
            let written = own
                .run(
                    async |mut tx| {
                        let written = tx.write_counters(id, &since).await;
                        (tx, written)
                    },
                    |written| *written,
                )
                .await?;
            if written {
                self.written = now;
                return Ok(());
            }
            // Others took us for dead, and have added up what we had written. We go on from there.
            self.process.id = self.clock.id();
            self.is_begun = false;
            let counts = |tally: Tally| (tally.part, tally.body.counts);
            self.before = std::mem::take(&mut self.written).into_iter().map(counts).collect();
        }
        let since = self.since(&now);
        let process = &self.process;
        own.in_transaction(async |mut tx| {
            let begun = tx.begin_counters(process, &since).await;
            (tx, begun)
        })
        .await?;
        self.is_begun = true;
        self.written = now;
        Ok(())
    }

    /// Says that this process ends.
    pub(super) async fn end<S: CounterStore>(&self, own: &OwnSession<S>) -> Result<(), StoreError> {
        let id = self.process.id;
        own.in_transaction(async |mut tx| {
            let ended = tx.end_counters(id).await;
            (tx, ended)
        })
        .await
    }

    /// Without what an earlier id has written.
    fn since(&self, now: &[Tally]) -> Vec<Tally> {
        let mut since = now.to_vec();
        for tally in &mut since {
            let Some(before) = self.before.get(&tally.part) else { continue };
            for (name, count) in &mut tally.body.counts {
                *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
            }
        }
        since
    }
}

/// What is counted now.
fn tallies(overview: &Overview) -> Vec<Tally> {
    let mut tallies = Vec::new();
    for (name, stats) in &overview.consumers {
        let Ok(name) = ConsumerName::new(name) else { continue };
        let seen = stats.snapshot();
        let mut counts: BTreeMap<String, u64> = seen.counts().map(|(name, count)| (name.to_owned(), count)).collect();
        for of in stats.duplicates() {
            *counts.entry(format!("duplicates_{}", of.cause.name())).or_default() += of.count;
        }
        let handler = stats.handler_seconds();
        counts.insert("handler_calls".to_owned(), handler.count);
        counts.insert("handler_millis".to_owned(), (handler.sum * 1e3).round() as u64);
        let body = TallyBody {
            counts,
            in_hand: Some(seen.in_hand),
            backlog: stats.backlog(),
            guarantee: stats.guarantee().map(|guarantee| guarantee.to_string()),
            waiting_for: seen.waiting_for,
            slowest_micros: handler.slowest.and_then(|slowest| u64::try_from(slowest.as_micros()).ok()),
            last_seen: None,
        };
        tallies.push(Tally { part: Part::Consumer(name), body });
    }
    if let Some(relay) = &overview.relay {
        let seen = relay.snapshot();
        let counts = seen.counts().map(|(name, count)| (name.to_owned(), count)).collect();
        let (in_hand, waiting_for) = (Some(seen.lanes as u64), seen.waiting_for);
        tallies.push(Tally {
            part: Part::Relay,
            body: TallyBody { counts, in_hand, waiting_for, ..TallyBody::default() },
        });
    }
    tallies
}
