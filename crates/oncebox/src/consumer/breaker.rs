//! A circuit breaker: when most messages fail in a way that may pass, something that they all need is down. Then the
//! consumer pauses and tries one message at a time, instead of setting aside the whole queue.
//!
//! ```text
//!  closed ── most of the last verdicts are transient failures ──▶ open ── pause over ──▶ probing (one message)
//!    ▲                                                              ▲                         │
//!    └────────────── it was handled ────────────────────────────────┼───── it failed ─────────┘
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::setup::Flow;

/// Verdicts that it looks back on.
const WINDOW: usize = 50;

/// Of those, this many in a hundred must have failed.
const FAILED_PERCENT: usize = 80;

const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long a flow that had nothing to try lets others go first.
const TURN: Duration = Duration::from_secs(1);

/// A probe that nothing was heard of for this long is given up, and another one is sent.
const PROBE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Breaker {
    /// It needs this many verdicts; 0: it never opens.
    sample: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The last verdicts: whether each failed.
    verdicts: VecDeque<bool>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    /// How often in a row it was not closed again.
    pauses: u32,
    probe: Option<Instant>,
    /// Whose probe found nothing to try, and when: others go first.
    empty: Option<(Flow, Instant)>,
}

/// What may be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    All,
    /// One message, to see whether things work again.
    Probe,
}

/// What a transient failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It is this message's own.
    Own,
    /// The breaker opened just now.
    Opened(Duration),
    /// It is open: nobody is to blame.
    Open(Duration),
}

impl Breaker {
    pub(super) fn new(sample: usize) -> Self {
        Self { sample, state: Mutex::default(), changed: Notify::new() }
    }

    /// Messages were handled, or failed in a way that is their own. Says whether this closed it.
    pub(super) fn worked(&self, messages: usize) -> bool {
        let mut state = self.state();
        for _ in 0..messages.min(WINDOW) {
            state.add(false);
        }
        // What was in hand when it opened says nothing; a probe does.
        let closes = messages > 0 && state.open.as_ref().is_some_and(|open| open.probe.is_some());
        if closes {
            *state = State::default();
            self.changed.notify_waiters();
        }
        closes
    }

    /// A message failed in a way that may pass.
    pub(super) fn failed(&self, is_probe: bool) -> Failed {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(open) = &mut state.open {
            if is_probe {
                open.pauses += 1;
                open.until = now + pause(open.pauses);
                open.probe = None;
                // Whoever waits for this probe waits for the next one now, and not as long as for one that is lost.
                self.changed.notify_waiters();
            }
            return Failed::Open(open.until.saturating_duration_since(now));
        }
        state.add(true);
        let failed = state.verdicts.iter().filter(|failed| **failed).count();
        let enough = self.sample > 0 && state.verdicts.len() >= self.sample.min(WINDOW);
        if !enough || failed * 100 < state.verdicts.len() * FAILED_PERCENT {
            return Failed::Own;
        }
        state.open = Some(Open { until: now + PAUSE_FIRST, pauses: 0, probe: None, empty: None });
        Failed::Opened(PAUSE_FIRST)
    }

    /// A probe came to nothing that would tell anything: the next one may go.
    pub(super) fn probe_told_nothing(&self) {
        if let Some(open) = &mut self.state().open {
            open.probe = None;
        }
        self.changed.notify_waiters();
    }

    /// A flow had nothing to try: another one may, or it would go on looking for ever while messages wait there.
    pub(super) fn probe_found_nothing(&self, flow: Flow) {
        if let Some(open) = &mut self.state().open {
            open.empty = Some((flow, Instant::now()));
        }
        self.probe_told_nothing();
    }

    /// How long it stays open, if it is.
    pub(super) fn open_for(&self) -> Option<Duration> {
        let state = self.state();
        state.open.as_ref().map(|open| open.until.saturating_duration_since(Instant::now()))
    }

    /// Waits until something may be received in this flow.
    pub(super) async fn admit(&self, flow: Flow) -> Admission {
        loop {
            let changed = self.changed.notified();
            let until = {
                let mut state = self.state();
                let Some(open) = &mut state.open else { return Admission::All };
                let now = Instant::now();
                let until = open.probe.map_or(open.until, |since| since + PROBE_MAX);
                let until = match open.empty {
                    Some((empty, since)) if empty == flow => until.max(since + TURN),
                    _ => until,
                };
                if now >= until {
                    open.probe = Some(now);
                    return Admission::Probe;
                }
                until
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, failed: bool) {
        if self.verdicts.len() == WINDOW {
            self.verdicts.pop_front();
        }
        self.verdicts.push_back(failed);
    }
}

fn pause(pauses: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1_u32.checked_shl(pauses).unwrap_or(u32::MAX)).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Breaker, times: usize) -> Option<Failed> {
        (0..times).map(|_| breaker.failed(false)).last()
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_when_most_fail_and_closes_when_a_probe_works() {
        let breaker = Breaker::new(20);
        breaker.worked(3);
        assert_eq!(fail(&breaker, 16), Some(Failed::Own));
        assert_eq!(breaker.admit(Flow::Main).await, Admission::All);
        assert_eq!(breaker.failed(false), Failed::Opened(PAUSE_FIRST));
        assert!(!breaker.worked(5), "what was in hand says nothing");

        let asked = Instant::now();
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        assert_eq!(asked.elapsed(), PAUSE_FIRST);
        assert_eq!(breaker.failed(true), Failed::Open(PAUSE_FIRST * 2));
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        assert!(breaker.worked(1));
        assert_eq!(breaker.admit(Flow::Main).await, Admission::All);
        assert_eq!(fail(&breaker, 19), Some(Failed::Own), "it starts anew");
    }

    #[tokio::test(start_paused = true)]
    async fn it_leaves_failures_alone_that_are_not_most() {
        let breaker = Breaker::new(20);
        for _ in 0..500 {
            breaker.worked(1);
            assert_eq!(fail(&breaker, 2), Some(Failed::Own));
        }
        let off = Breaker::new(0);
        assert_eq!(fail(&off, 500), Some(Failed::Own));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_lost_is_followed_by_another() {
        let breaker = Breaker::new(1);
        breaker.failed(false);
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        let asked = Instant::now();
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        assert_eq!(asked.elapsed(), PROBE_MAX);
        breaker.probe_told_nothing();
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        assert_eq!(asked.elapsed(), PROBE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_with_nothing_to_try_lets_the_other_probe() {
        let breaker = Breaker::new(1);
        breaker.failed(false);
        assert_eq!(breaker.admit(Flow::Parked).await, Admission::Probe);
        breaker.probe_found_nothing(Flow::Parked);
        let asked = Instant::now();
        tokio::select! {
            biased;
            _ = breaker.admit(Flow::Parked) => panic!("it went again before the other"),
            admitted = breaker.admit(Flow::Main) => assert_eq!(admitted, Admission::Probe),
        }
        assert_eq!(asked.elapsed(), Duration::ZERO);
        // With nobody else, it goes again.
        breaker.probe_found_nothing(Flow::Main);
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        assert_eq!(asked.elapsed(), TURN);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_a_probe_hears_that_it_failed() {
        let breaker = Breaker::new(1);
        breaker.failed(false);
        assert_eq!(breaker.admit(Flow::Main).await, Admission::Probe);
        let asked = Instant::now();
        let next = breaker.admit(Flow::Main);
        tokio::pin!(next);
        let fails = async {
            tokio::task::yield_now().await;
            breaker.failed(true)
        };
        let (admitted, failed) = tokio::join!(&mut next, fails);
        assert_eq!((admitted, failed), (Admission::Probe, Failed::Open(PAUSE_FIRST * 2)));
        assert_eq!(asked.elapsed(), PAUSE_FIRST * 2);
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        assert_eq!((pause(0), pause(2), pause(40)), (PAUSE_FIRST, PAUSE_FIRST * 4, PAUSE_MAX));
    }
}
