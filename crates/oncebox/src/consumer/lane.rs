//! A lane: takes what waits, runs it in one transaction, and gives every message an honest verdict.
//!
//! ```text
//!  gather ─▶ attempt ─▶ committed ──────────▶ settle, hooks
//!               │  ▲
//!               │  └── again: without the suspect and the later messages of its order key · in halves · singly
//!               ▼
//!            alone and failed ─▶ verdict: set aside, and what follows it under its order key behind it
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::journal::DeliveryEnd;
use oncebox_core::{Class, Code, Failure, Outcome, OutcomeKind, Source, Store, StoreError, StoreErrorKind, planted};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::Engine;
use super::attempt::{During, End, Mode, attempt};
use super::batch::Pace;
use super::bounds::backoff;
use super::fate::Fate;
use super::judgement::SENT_BACK_FOR;
use super::outage::Pause;
use super::plants;
use super::poison;
use super::settle;
use super::stats::Stats;
use super::work::Work;

/// Where a lane takes its work from. Lanes without order share one.
pub(super) type Feed<S, R> = Arc<Mutex<mpsc::Receiver<Work<S, R>>>>;

pub(super) type Works<S, Src> = Vec<Work<S, <Src as Source<S>>::Receipt>>;

pub(super) struct Lane<S: ConsumerStore, Src: Source<S>> {
    pub(super) engine: Arc<Engine<S, Src>>,
    feed: Feed<S, Src::Receipt>,
    /// The lane's own connection; `None` until the first use and after a loss.
    pub(super) session: Option<S::Session>,
    /// How often the store was lost since the last commit.
    pub(super) lost: u32,
    /// How many commits in a row ended unknown.
    unknown: u32,
    pace: Pace,
    /// The conflicts of all lanes that `pace` has taken into account.
    conflicts: u64,
    /// Order keys whose head went back to the source, each with the wave from which on its messages come in order
    /// again.
    pub(super) blocked: HashMap<Arc<str>, u64>,
    /// When the lane last said that it holds messages back.
    pub(super) held_back_said: Option<Instant>,
    /// What a shutdown left: given back once nothing more is received, or it would be received again.
    pub(super) left: Works<S, Src>,
}

/// Messages to run in one transaction.
pub(super) struct Group<W> {
    pub(super) works: Vec<W>,
    mode: Mode,
    /// How often others were in the way.
    contended: u32,
    /// How often the store went away while a handler ran, although it could be reached right after.
    shaken: u32,
    /// Taken from the feed as it is, so that its success says something about batches of this size.
    whole: bool,
}

impl<W> Group<W> {
    fn new(works: Vec<W>) -> Self {
        Self { works, mode: Mode::Handle, contended: 0, shaken: 0, whole: false }
    }
}

/// How soon messages are looked for that waited for a version. Not at once: many versions come together.
const WOKEN_WITHIN: Duration = Duration::from_millis(5);

/// A handler during which the store goes away is given the benefit of the doubt once; then it runs alone, and then it
/// is judged: it may be what takes the connection down, or it may be speaking of another store.
const SHAKEN_MAX: u32 = 2;

impl<S: ConsumerStore, Src: Source<S>> Lane<S, Src> {
    pub(super) fn new(engine: Arc<Engine<S, Src>>, feed: Feed<S, Src::Receipt>) -> Self {
        let pace = Pace::new(engine.bounds.batch_messages_max);
        Self {
            engine,
            feed,
            session: None,
            lost: 0,
            unknown: 0,
            pace,
            conflicts: 0,
            blocked: HashMap::new(),
            held_back_said: None,
            left: Vec::new(),
        }
    }

    /// Runs until the feed ends. Once a shutdown is asked for, what has not begun is released.
    pub(super) async fn run(mut self) {
        while let Some(works) = self.gather().await {
            self.process(works).await;
        }
        let left = std::mem::take(&mut self.left);
        Stats::add(&self.engine.stats.released, left.len());
        settle::release(&self.engine, left, Duration::ZERO, None).await;
    }

    /// Whatever waits, at most a batch. Alone: no added latency. Under load: one commit for many.
    async fn gather(&mut self) -> Option<Works<S, Src>> {
        let mut feed = self.feed.lock().await;
        let first = feed.recv().await?;
        let conflicts = self.engine.conflicts();
        if conflicts != self.conflicts {
            self.conflicts = conflicts;
            self.pace.was_contended();
        }
        let mut bytes = first.bytes();
        let mut works = vec![first];
        while works.len() < self.pace.limit() && bytes < self.engine.bounds.batch_bytes_max {
            let Ok(work) = feed.try_recv() else { break };
            bytes += work.bytes();
            works.push(work);
        }
        Some(works)
    }

    async fn process(&mut self, mut works: Works<S, Src>) {
        let arrivals = self.count_arrivals(&mut works).await;
        let mut groups = VecDeque::from([Group { whole: true, ..Group::new(works) }]);
        while let Some(mut group) = groups.pop_front() {
            if self.engine.is_stopping() {
                self.give_back(group.works).await;
                continue;
            }
            group.works = self.without_blocked(group.works).await;
            group.works = self.while_open(group.works).await;
            // A probe does not overtake what has just gone back under its order key.
            group.works = self.without_blocked(group.works).await;
            if let Some(place) = group.works.iter().position(|work| work.ready.is_err()) {
                let (rest, unfit, behind) = part(std::mem::take(&mut group.works), place);
                if rest.is_empty() && behind.is_empty() {
                    self.unfit(unfit).await;
                    continue;
                }
                // What is before it under its order key comes to an end first, or it would be parked behind it.
                groups.push_front(Group::new(behind));
                groups.push_front(Group::new(vec![unfit]));
                groups.push_front(Group { works: rest, ..group });
                continue;
            }
            match group.works.iter().position(poison::is_suspect) {
                Some(_) if group.works.len() == 1 => self.run_suspect(group, &mut groups).await,
                Some(place) => {
                    let (rest, suspect, behind) = part(std::mem::take(&mut group.works), place);
                    for works in [behind, vec![suspect], rest] {
                        groups.push_front(Group::new(works));
                    }
                }
                None => {
                    let engine = Arc::clone(&self.engine);
                    let _shared = engine.alone.read().await;
                    self.run_group(group, &mut groups).await;
                }
            }
        }
        // The process is alive, whatever became of them.
        self.forget_starts(&arrivals).await;
    }

    /// Runs one transaction and decides what comes next.
    pub(super) async fn run_group(
        &mut self,
        group: Group<Work<S, Src::Receipt>>,
        groups: &mut VecDeque<Group<Work<S, Src::Receipt>>>,
    ) {
        let Group { works, mode, contended, shaken, whole } = group;
        if works.is_empty() {
            return;
        }
        let alone = works.len() == 1;
        // Versions are counted ahead of the handlers, so one that is left out would leave a hole.
        let marks = !alone && self.pace.uses_marks() && self.engine.versioned.is_none();
        let Some((works, end)) = self.attempt(works, mode.clone(), marks).await else { return };
        if planted::is("rolled-back-batch-acknowledged") && !alone && matches!(end, End::Suspect { .. }) {
            plants::acknowledge_now(&self.engine, &works).await;
        }
        match end {
            End::Committed { session, fates, hooks, woken } => {
                self.session = Some(session);
                self.lost = 0;
                self.unknown = 0;
                let suspects = fates.iter().any(|fate| matches!(fate, Fate::Suspect));
                if whole {
                    self.pace.went_well(suspects);
                }
                let probes = works.iter().any(|work| work.is_probe);
                let handled = fates.iter().filter(|fate| matches!(fate, Fate::Handled(_))).count();
                self.worked(handled);
                if probes && handled == 0 {
                    self.engine.breaker.probe_told_nothing();
                }
                if woken {
                    self.engine.due.after(WOKEN_WITHIN);
                }
                let later = settle::committed(&self.engine, works, fates, hooks).await;
                self.conflicts(later.conflicts).await;
                for work in later.unfit {
                    self.unfit(work).await;
                }
                self.hold_back(later.held_back).await;
                if !later.again.is_empty() {
                    groups.push_front(Group::new(later.again));
                }
                for suspect in later.suspects.into_iter().rev() {
                    groups.push_front(Group::new(vec![suspect]));
                }
            }
            End::Suspect { session, doubt, place, failure, unique } => {
                self.session = session;
                if let Some(doubt) = doubt
                    && !self.engine.resolve(doubt).await
                {
                    return self.give_back(works).await;
                }
                let known = unique.is_some_and(|name| self.engine.constraints.contains(&name));
                if !alone {
                    self.pace.was_undone(self.engine.versioned.is_none());
                    let (rest, suspect, behind) = part(works, place);
                    for works in [behind, vec![suspect], rest] {
                        groups.push_front(Group::new(works));
                    }
                } else if known && mode == Mode::Handle {
                    let mode = Mode::Instead(Outcome::of(OutcomeKind::AlreadyApplied));
                    groups.push_front(Group { works, mode, contended, shaken, whole: false });
                } else if failure.class() == Some(Class::Rejected) && mode == Mode::Handle {
                    let mode = Mode::Instead(Outcome::rejected(failure.reason()));
                    groups.push_front(Group { works, mode, contended, shaken, whole: false });
                } else {
                    for work in works {
                        self.failed(work, &failure).await;
                    }
                }
            }
            End::Broken { session, doubt, error, during } => {
                self.session = session;
                if let Some(doubt) = doubt
                    && !self.engine.resolve(doubt).await
                {
                    return self.give_back(works).await;
                }
                self.broken(Group { works, mode, contended, shaken, whole }, error, during, groups).await;
            }
            End::Panicked => self.panicked(Group { works, mode, contended, shaken, whole }, groups).await,
            End::Unknown { doubt, error, fates } => {
                Stats::add(&self.engine.stats.unknown_commits, 1);
                tracing::warn!(code = %Code::CommitUnknown, consumer = %self.engine.name, "a commit's answer was lost; looking each key up: {error}");
                if planted::is("unknown-as-done") {
                    return settle::acknowledge(&self.engine, works).await;
                }
                if !self.engine.resolve(doubt).await || !self.rest_after_unknown().await {
                    return self.give_back(works).await;
                }
                let works = works.into_iter().zip(fates).map(|(mut work, fate)| {
                    if let (Ok(ready), Fate::Handled(_)) = (&mut work.ready, fate) {
                        ready.in_doubt = true;
                    }
                    work
                });
                groups.push_front(Group { works: works.collect(), mode, contended, shaken, whole: false });
            }
        }
    }

    /// A lost answer is looked up at once. Where one follows another, as on a full disk, the store is left alone for longer
    /// and longer; `false` if a shutdown came first.
    async fn rest_after_unknown(&mut self) -> bool {
        self.unknown = self.unknown.saturating_add(1);
        let Some(tries) = self.unknown.checked_sub(2) else { return true };
        tokio::select! {
            biased;
            () = self.engine.stopping() => false,
            () = async { Pause::new(&*self.engine.clock, tries).wait().await } => true,
        }
    }

    /// Something panicked outside what handlers do, so no message stands out before it has run alone. Once may be
    /// anyone's; a message during which it happens again is judged.
    async fn panicked(
        &mut self,
        group: Group<Work<S, Src::Receipt>>,
        groups: &mut VecDeque<Group<Work<S, Src::Receipt>>>,
    ) {
        let Group { works, mode, contended, shaken, .. } = group;
        tracing::error!(code = %Code::TaskBroke, consumer = %self.engine.name, "something panicked beside the handlers of a transaction, which was rolled back");
        if works.len() > 1 {
            self.pace.went_badly();
            for work in works.into_iter().rev() {
                groups.push_front(Group::new(vec![work]));
            }
        } else if shaken + 1 < SHAKEN_MAX {
            groups.push_front(Group { works, mode, contended, shaken: shaken + 1, whole: false });
        } else {
            let failure = Failure::permanent("something panicked beside its handler, each time that it was tried")
                .code("panicked");
            for work in works {
                self.failed(work, &failure).await;
            }
        }
    }

    /// A transaction in its own task, awaited to its end. `None` if it broke down; its messages come again.
    async fn attempt(&mut self, works: Works<S, Src>, mode: Mode, marks: bool) -> Option<(Works<S, Src>, End<S>)> {
        let order_keys: Vec<Arc<str>> = works.iter().filter_map(|work| work.order_key.clone()).collect();
        let run = attempt(Arc::clone(&self.engine), self.session.take(), works, mode, marks);
        #[allow(clippy::disallowed_methods, reason = "awaited here; a task so that nothing cancels it half-way")]
        match tokio::spawn(run).await {
            Ok(done) => Some(done),
            Err(error) => {
                // Nothing was settled: the deliveries come again when their leases run out.
                tracing::error!(code = %Code::TaskBroke, consumer = %self.engine.name, "a transaction's task broke down: {error}");
                let from = self.engine.next_wave();
                self.blocked.extend(order_keys.into_iter().map(|key| (key, from)));
                None
            }
        }
    }

    /// Rolled back, and no message stands out.
    pub(super) async fn broken(
        &mut self,
        group: Group<Work<S, Src::Receipt>>,
        error: StoreError,
        during: During,
        groups: &mut VecDeque<Group<Work<S, Src::Receipt>>>,
    ) {
        let Group { works, mode, contended, shaken, whole } = group;
        let alone = works.len() == 1;
        match error.kind() {
            StoreErrorKind::Unavailable | StoreErrorKind::Troubled | StoreErrorKind::Stale => {
                let (kind, reason) = (error.kind(), error.to_string());
                let back = self.engine.wait_for_store(error, self.lost).await;
                self.lost = self.lost.saturating_add(1);
                let was_there = back.as_ref().is_some_and(|back| !back.was_away);
                let Some(back) = back else { return self.give_back(works).await };
                self.session = Some(back.session);
                // A handler can spoil its session so that our own statements fail in it, or its commit by a rule that
                // speaks only there.
                let may_be_handlers = match during {
                    During::Begin => false,
                    During::Engine => kind != StoreErrorKind::Unavailable,
                    During::Handler(_) | During::BatchHandler => true,
                };
                let shaken = if was_there && may_be_handlers { shaken + 1 } else { shaken };
                if shaken < SHAKEN_MAX {
                    return groups.push_front(Group { works, mode, contended, shaken, whole });
                }
                match (alone, during) {
                    (true, _) => {
                        let why = format!("the store went away {shaken} times while it was handled: {reason}");
                        let failure = Failure::transient(why);
                        for work in works {
                            self.failed(work, &failure).await;
                        }
                    }
                    (false, During::Handler(place)) => {
                        let (rest, suspect, behind) = part(works, place);
                        for works in [behind, vec![suspect], rest] {
                            groups.push_front(Group::new(works));
                        }
                    }
                    (false, _) => halve(works, groups),
                }
            }
            StoreErrorKind::Contended if !alone => {
                Stats::add(&self.engine.stats.contended, 1);
                self.conflicts = self.engine.note_conflict();
                self.pace.was_contended();
                for work in works.into_iter().rev() {
                    groups.push_front(Group::new(vec![work]));
                }
            }
            StoreErrorKind::Contended if contended < self.engine.bounds.contended_tries_max => {
                Stats::add(&self.engine.stats.contended, 1);
                let (first, max) = (Duration::from_millis(2), Duration::from_millis(200));
                tokio::time::sleep(backoff(first, max, contended + 1, self.engine.clock.random())).await;
                groups.push_front(Group { works, mode, contended: contended + 1, shaken, whole: false });
            }
            // Still in the way: not the message's fault, and not an attempt.
            StoreErrorKind::Contended => {
                tracing::info!(consumer = %self.engine.name, "others are in the way for too long; released: {error}");
                Stats::add(&self.engine.stats.released, works.len());
                for work in works {
                    self.send_back(work, SENT_BACK_FOR, None).await;
                }
            }
            // Its new owner has it; whatever we did was rolled back.
            StoreErrorKind::Fenced if alone => {
                Stats::add(&self.engine.stats.leases_lost, 1);
                tracing::debug!(consumer = %self.engine.name, "a lease was lost before its message was done: {error}");
                self.engine.journal(&works, |_| DeliveryEnd::LeaseLost.into());
                // Its new owner may be ourselves, with what follows it still in hand under leases that hold.
                let order_keys: Vec<_> = works.iter().map(|work| work.order_key.clone()).collect();
                settle::let_go(&self.engine, works).await;
                order_keys.into_iter().for_each(|key| self.block(key));
            }
            StoreErrorKind::Configuration | StoreErrorKind::Corrupt | StoreErrorKind::Breached => {
                self.engine.fail(format!("{error}"));
                self.give_back(works).await;
            }
            _ if !alone => {
                self.pace.went_badly();
                halve(works, groups);
            }
            // A constraint that is checked at the end may be one that says "already applied".
            StoreErrorKind::Refused if mode == Mode::Handle && self.is_known(&error) => {
                let mode = Mode::Instead(Outcome::of(OutcomeKind::AlreadyApplied));
                groups.push_front(Group { works, mode, contended, shaken, whole: false });
            }
            kind => {
                // Whatever broke the transaction has been swallowed, and may pass.
                let may_pass = kind == StoreErrorKind::TransactionLost;
                let reason = error.to_string();
                let failure = if may_pass { Failure::transient(reason) } else { Failure::permanent(reason) };
                for work in works {
                    self.failed(work, &failure).await;
                }
            }
        }
    }

    /// Whether an error is the violation of a constraint that means "already applied".
    fn is_known(&self, error: &StoreError) -> bool {
        let unique = self.engine.store.read_error(error).and_then(|read| read.unique);
        unique.is_some_and(|name| self.engine.constraints.contains(&name))
    }

    /// Takes out messages that were received before the head of their order key went back.
    async fn without_blocked(&mut self, works: Works<S, Src>) -> Works<S, Src> {
        if self.blocked.is_empty() {
            return works;
        }
        let mut behind = Vec::new();
        let mut free = Vec::new();
        for work in works {
            match work.order_key.as_ref().and_then(|key| self.blocked.get(key)) {
                Some(&from) if work.wave < from => behind.push(work),
                Some(_) => {
                    // The source has seen the release: from here on it delivers this key in order again.
                    if let Some(key) = &work.order_key {
                        self.blocked.remove(key);
                    }
                    free.push(work);
                }
                None => free.push(work),
            }
        }
        if behind.iter().any(|work| work.is_probe) {
            self.engine.breaker.probe_told_nothing();
        }
        self.give_back(behind).await;
        free
    }
}

/// Two groups in place of one.
fn halve<W>(mut works: Vec<W>, groups: &mut VecDeque<Group<W>>) {
    let second = works.split_off(works.len() / 2);
    for works in [second, works] {
        groups.push_front(Group::new(works));
    }
}

type Parted<W> = (Vec<W>, W, Vec<W>);

/// Splits a batch at a suspect: those that can run without it, itself, and the later messages of its order key.
fn part<S: Store, R>(mut rest: Vec<Work<S, R>>, place: usize) -> Parted<Work<S, R>> {
    let mut after = rest.split_off(place);
    let suspect = after.remove(0);
    let (behind, free): (Vec<_>, Vec<_>) = after.into_iter().partition(|work| work.shares_order_with(&suspect));
    rest.extend(free);
    (rest, suspect, behind)
}
