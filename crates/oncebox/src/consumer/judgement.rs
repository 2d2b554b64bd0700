//! The verdicts of a lane: what becomes of a message that failed alone.
//!
//! It is set aside in the store and its source is told; from there the parked flow tries it again. Only where it can't
//! be set aside does it go back to its source.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::crashpoint::crashpoint;
use oncebox_core::journal::DeliveryEnd;
use oncebox_core::parked::{Verdict, Waits};
use oncebox_core::{Class, Code, Failure, Source, StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::bounds::backoff;
use super::breaker::Failed;
use super::cause::{Cause, Causes};
use super::fate::Kind;
use super::journal::End;
use super::lane::{Lane, Works};
use super::parking::{self, SetAside};
use super::settle;
use super::setup::Flow;
use super::stats::Stats;
use super::verdict;
use super::work::Work;

/// Order keys that a lane remembers as blocked.
const BLOCKED_MAX: usize = 10_000;

/// How long a message stays with its source if it can't be set aside.
pub(super) const SENT_BACK_FOR: Duration = Duration::from_millis(200);

/// How long a message stays with its source if there is no room to park it behind others.
const HELD_BACK_FOR: Duration = Duration::from_secs(1);

/// How often a lane says that it holds messages back.
const SAY_AGAIN: Duration = Duration::from_secs(60);

impl<S: ConsumerStore, Src: Source<S>> Lane<S, Src> {
    /// This message failed, alone.
    pub(super) async fn failed(&mut self, work: Work<S, Src::Receipt>, failure: &Failure) {
        Stats::add(&self.engine.stats.failures, 1);
        if self.engine.flow == Flow::Front && failure.class() == Some(Class::Transient) {
            // It is not stored yet: parked, it would be overtaken by what is stored after it.
            return self.send_back(work, SENT_BACK_FOR, Some(failure.reason().to_owned())).await;
        }
        if failure.class() == Some(Class::Transient) {
            if let Some(delay) = self.is_everyones(&work, failure) {
                return self.send_back(work, delay, Some(failure.reason().to_owned())).await;
            }
        } else {
            self.worked(1);
        }
        let verdict = verdict::judge(&self.engine, &work, failure);
        let (label, class) = (work.delivery.message.label().to_string(), verdict.class.map_or("none", Class::name));
        match verdict.waits {
            Waits::Person | Waits::Missing => tracing::warn!(
                code = %Code::MessageDead, consumer = %self.engine.name, message_id = %label, attempts = verdict.attempts, class,
                "cannot handle message {label}; it is parked until someone looks at it: {failure}"
            ),
            waits => tracing::info!(
                consumer = %self.engine.name, message_id = %label, attempts = verdict.attempts, class,
                "cannot handle message {label}, trying again in {:.1?}: {failure}", waits.delay().unwrap_or_default()
            ),
        }
        self.set_aside(work, verdict).await;
    }

    /// How long to wait, if a failure is not this message's own: something that most messages need is down.
    fn is_everyones(&self, work: &Work<S, Src::Receipt>, failure: &Failure) -> Option<Duration> {
        let engine = &self.engine;
        match engine.breaker.failed(work.is_probe) {
            Failed::Own => None,
            Failed::Opened(pause) => {
                Stats::add(&engine.stats.breaker_opened, 1);
                tracing::warn!(code = %Code::MostFail, consumer = %engine.name, "most messages fail; pausing, and trying one at a time: {failure}");
                engine.stats.set_waiting_for(Some(format!("most messages fail: {failure}")));
                Some(pause)
            }
            Failed::Open(pause) => Some(pause),
        }
    }

    /// Messages were handled, or failed by their own fault.
    pub(super) fn worked(&self, messages: usize) {
        if self.engine.breaker.worked(messages) {
            self.engine.stats.set_waiting_for(None);
            tracing::info!(consumer = %self.engine.name, "messages can be handled again");
        }
    }

    /// Gives back what is in hand while the breaker is open, but for the probe.
    pub(super) async fn while_open(&mut self, works: Works<S, Src>) -> Works<S, Src> {
        let Some(pause) = self.engine.breaker.open_for() else { return works };
        let (probes, others): (Vec<_>, Vec<_>) = works.into_iter().partition(|work| work.is_probe);
        Stats::add(&self.engine.stats.released, others.len());
        for work in others {
            self.send_back(work, pause, None).await;
        }
        probes
    }

    pub(super) async fn conflicts(&mut self, conflicts: Vec<(Work<S, Src::Receipt>, oncebox_core::Conflict)>) {
        for (work, conflict) in conflicts {
            Stats::add(&self.engine.stats.conflicts, 1);
            let failure = Failure::permanent(conflict.diagnosis()).code("conflict");
            self.failed(work, &failure).await;
        }
    }

    /// A message that can't even be tried.
    pub(super) async fn unfit(&mut self, mut work: Work<S, Src::Receipt>) {
        let unfit = Failure::permanent("it cannot be read");
        let failure = std::mem::replace(&mut work.ready, Err(unfit)).err();
        if let Some(failure) = failure {
            self.failed(work, &failure).await;
        }
    }

    /// As many of their order keys are parked as may be: they stay with their source until there is room.
    pub(super) async fn hold_back(&mut self, works: Works<S, Src>) {
        let Some(first) = works.first() else { return };
        Stats::add(&self.engine.stats.held_back, works.len());
        // Once in a while, and not for each of what may be a flood.
        if self.held_back_said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            self.held_back_said = Some(Instant::now());
            tracing::warn!(
                code = %Code::KeyFull, consumer = %self.engine.name, message_id = %first.delivery.message.label(),
                "{} messages of one order key are parked, which is as many as may be; what follows stays with its source \
                 until someone looks at the first of them", self.engine.bounds.parked_per_key_max
            );
        }
        for work in works {
            self.send_back(work, HELD_BACK_FOR, None).await;
        }
    }

    /// Parks a message, and goes on until that is durable or can't be.
    async fn set_aside(&mut self, mut work: Work<S, Src::Receipt>, verdict: Verdict) {
        let order_key = work.order_key.clone();
        // Its own commit may have gone through and its answer be lost: found parked, it is still ours.
        let mut in_doubt = false;
        for tries in 1.. {
            let run = parking::set_aside(Arc::clone(&self.engine), self.session.take(), work, verdict.clone());
            #[allow(clippy::disallowed_methods, reason = "awaited here; a task so that nothing cancels it half-way")]
            let (back, ended) = match tokio::spawn(run).await {
                Ok(ended) => ended,
                Err(error) => {
                    // Nothing was settled: it comes again when its lease runs out.
                    tracing::error!(code = %Code::TaskBroke, consumer = %self.engine.name, "a task that parks a message broke down: {error}");
                    return self.block(order_key);
                }
            };
            work = back;
            match ended {
                SetAside::Done { session, is_new } => {
                    self.session = Some(session);
                    self.lost = 0;
                    return self.is_aside(work, (is_new || in_doubt).then_some(&verdict)).await;
                }
                SetAside::Broken { session, doubt, error } => {
                    self.session = session;
                    in_doubt |= doubt.is_some();
                    if let Some(doubt) = doubt
                        && !self.engine.resolve(doubt).await
                    {
                        return self.give_back(vec![work]).await;
                    }
                    match self.not_aside(work, error, tries).await {
                        Some(again) => work = again,
                        None => return,
                    }
                }
            }
        }
    }

    /// With no verdict if it was found parked or applied.
    async fn is_aside(&mut self, work: Work<S, Src::Receipt>, verdict: Option<&Verdict>) {
        let _ = crashpoint("parked").await;
        let delay = verdict.and_then(|verdict| verdict.waits.delay());
        let stats = &self.engine.stats;
        let counter = match verdict {
            None => &stats.transport_duplicates,
            Some(_) if delay.is_some() => &stats.parked,
            Some(_) => &stats.dead,
        };
        Stats::add(counter, 1);
        if verdict.is_none()
            && let Some(cause) = Cause::likely(Kind::Transport, &work.delivery)
        {
            stats.sight.add_duplicates(Causes::one(&work.delivery.message.kind, cause));
        }
        self.engine.journal(std::slice::from_ref(&work), |delivery| End::of_verdict(verdict, delivery));
        let alerts = &self.engine.alerts;
        let told = verdict.map(|verdict| alerts.verdict(self.engine.name.as_str(), &work.delivery.message, verdict));
        settle::acknowledge(&self.engine, vec![work]).await;
        for hook in told.into_iter().flatten() {
            settle::run_hook(&self.engine, hook).await;
        }
        if let Some(delay) = delay {
            self.engine.due.after(delay);
        }
    }

    /// The message, if parking it is worth another try.
    async fn not_aside(
        &mut self,
        work: Work<S, Src::Receipt>,
        error: StoreError,
        tries: u32,
    ) -> Option<Work<S, Src::Receipt>> {
        match error.kind() {
            StoreErrorKind::Unavailable
            | StoreErrorKind::Troubled
            | StoreErrorKind::Stale
            | StoreErrorKind::TransactionLost => {
                let back = self.engine.wait_for_store(error, self.lost).await;
                self.lost = self.lost.saturating_add(1);
                let Some(back) = back else {
                    self.give_back(vec![work]).await;
                    return None;
                };
                self.session = Some(back.session);
                Some(work)
            }
            StoreErrorKind::Contended if tries <= self.engine.bounds.contended_tries_max => {
                Stats::add(&self.engine.stats.contended, 1);
                let (first, max) = (Duration::from_millis(2), Duration::from_millis(200));
                tokio::time::sleep(backoff(first, max, tries, self.engine.clock.random())).await;
                Some(work)
            }
            // Its new owner judges it.
            StoreErrorKind::Fenced => {
                Stats::add(&self.engine.stats.leases_lost, 1);
                self.engine.journal(std::slice::from_ref(&work), |_| DeliveryEnd::LeaseLost.into());
                let order_key = work.order_key.clone();
                settle::let_go(&self.engine, vec![work]).await;
                self.block(order_key);
                None
            }
            StoreErrorKind::Configuration | StoreErrorKind::Corrupt | StoreErrorKind::Breached => {
                self.engine.fail(error.to_string());
                self.give_back(vec![work]).await;
                None
            }
            _ => {
                tracing::warn!(code = %error.code(), consumer = %self.engine.name, "cannot park a message, so it stays with its source: {error}");
                self.send_back(work, SENT_BACK_FOR, Some(error.to_string())).await;
                None
            }
        }
    }

    /// Releases one message and blocks its order key until the source has taken it back.
    pub(super) async fn send_back(&mut self, work: Work<S, Src::Receipt>, delay: Duration, reason: Option<String>) {
        let key = work.order_key.clone();
        settle::release(&self.engine, vec![work], delay, reason).await;
        self.block(key);
    }

    /// Nothing of this order key that was received before now may go on.
    pub(super) fn block(&mut self, key: Option<Arc<str>>) {
        if let Some(key) = key {
            self.blocked.insert(key, self.engine.next_wave());
        }
        // An entry serves what was received before the release, and that is long through the lane. It is left behind
        // when the key's queue lane moved to another process.
        if self.blocked.len() > BLOCKED_MAX {
            let mut waves: Vec<u64> = self.blocked.values().copied().collect();
            waves.sort_unstable();
            let oldest_kept = waves[BLOCKED_MAX / 2];
            self.blocked.retain(|_, wave| *wave >= oldest_kept);
        }
    }

    /// Gives messages back without blame.
    pub(super) async fn give_back(&mut self, works: Works<S, Src>) {
        if self.engine.is_stopping() {
            return self.left.extend(works);
        }
        Stats::add(&self.engine.stats.released, works.len());
        settle::release(&self.engine, works, Duration::ZERO, None).await;
    }
}
