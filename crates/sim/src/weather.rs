//! What goes wrong during a run, rolled by the seed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox::{Class, StoreErrorKind};
use oncebox_testkit::faults::{Fault, FaultPlan};

use crate::clock::VirtualClock;
use crate::journal::Journal;
use crate::scenario::{Origin, Scenario};

/// Rolls for each seam call and each handler call, until everything heals.
#[derive(Debug)]
pub(crate) struct Weather {
    scenario: Scenario,
    clock: Arc<VirtualClock>,
    journal: Arc<Journal>,
    dice: Mutex<fastrand::Rng>,
}

/// Whose seam calls a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The consumer's store.
    Store,
    /// The store of a queue, when it does not settle.
    Queue,
    /// The source.
    Source,
}

/// What goes wrong in a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Fails,
    Contended,
    StoreAway,
    /// With an error that the user's own reading gives a class.
    Own(Class),
    /// With an error of some other store.
    Foreign(StoreErrorKind),
}

impl Weather {
    pub(crate) fn new(scenario: Scenario, clock: Arc<VirtualClock>, journal: Arc<Journal>) -> Self {
        let dice = fastrand::Rng::with_seed(scenario.seed ^ 0x7765_6174_6865_7221);
        Self { scenario, clock, journal, dice: Mutex::new(dice) }
    }

    /// A plan by which this weather comes over the calls of one side.
    pub(crate) fn plan(self: &Arc<Self>, side: Side) -> FaultPlan {
        let plan = FaultPlan::new();
        let (weather, journal) = (Arc::clone(self), Arc::clone(&self.journal));
        plan.decide(move |call| weather.decide(side, call));
        plan.watch(move |moment| journal.moment(moment));
        plan
    }

    fn decide(&self, side: Side, call: &'static str) -> Option<Fault> {
        let fault = self.roll(side, call);
        match fault {
            // Polls say nothing: without the waiting ones, a trace can be read.
            None if matches!(call, "receive" | "lease" | "connect" | "begin" | "commit") => {}
            None => self.journal.note(format_args!("{side:?} {call}")),
            Some(fault) => {
                self.journal.fault();
                self.journal.note(format_args!("{side:?} {call}: {fault:?}"));
            }
        }
        if side == Side::Store {
            match (call, fault) {
                ("commit", Some(Fault::AfterDoing | Fault::Lost | Fault::Late(_))) => self.journal.doubt(),
                ("resolve", None | Some(Fault::Delay(_) | Fault::Late(_) | Fault::Repeat)) => self.journal.resolved(),
                _ => {}
            }
        }
        fault
    }

    fn roll(&self, side: Side, call: &'static str) -> Option<Fault> {
        if self.is_healed() {
            return None;
        }
        let now = self.clock.elapsed();
        if side != Side::Source && self.scenario.outages.iter().any(|(start, end)| (*start..*end).contains(&now)) {
            return Some(Fault::BeforeDoing);
        }
        let mut dice = self.dice();
        if dice.u32(0..1_000) >= self.scenario.faults {
            return None;
        }
        let delay = Duration::from_millis(dice.u64(1..1_500));
        let ways: &[Fault] = match call {
            // Without leases, what is lost between the two is lost with the connection, and comes again with the next one.
            _ if side == Side::Source && self.scenario.origin == Origin::Partitions => &[Fault::Delay(delay)],
            "connect" | "consumer" | "queue" => &[Fault::BeforeDoing, Fault::AfterDoing, Fault::Delay(delay)],
            "commit" => &[
                Fault::BeforeDoing,
                Fault::AfterDoing,
                Fault::Lost,
                Fault::Late(delay),
                Fault::Contended,
                Fault::Delay(delay),
            ],
            _ => &[
                Fault::BeforeDoing,
                Fault::AfterDoing,
                Fault::Lost,
                Fault::Contended,
                Fault::Delay(delay),
                Fault::Repeat,
            ],
        };
        Some(ways[dice.usize(0..ways.len())])
    }

    /// Whether nothing goes wrong any more.
    pub(crate) fn is_healed(&self) -> bool {
        self.clock.elapsed() >= self.scenario.healed_at
    }

    /// Whether a call that was made before everything healed can still fail: some faults are late.
    pub(crate) fn lingers(&self) -> bool {
        self.clock.elapsed() < self.scenario.healed_at + Duration::from_secs(5)
    }

    /// How long a handler takes. Some take longer than a lease.
    pub(crate) fn handler_takes(&self) -> Duration {
        let mut dice = self.dice();
        // The slow ones heal too, or a hot key would take forever.
        if self.is_healed() || dice.u32(0..1_000) >= self.scenario.slow {
            return Duration::ZERO;
        }
        let longest = self.scenario.lease.as_millis() as u64 * 3 / 2;
        Duration::from_millis(dice.u64(1..longest))
    }

    /// What goes wrong in a handler.
    pub(crate) fn handler_trouble(&self) -> Option<Trouble> {
        let mut dice = self.dice();
        if self.is_healed() || dice.u32(0..1_000) >= self.scenario.failures {
            return None;
        }
        Some([Trouble::Fails, Trouble::Fails, Trouble::Contended, Trouble::StoreAway][dice.usize(0..4)])
    }

    /// An error of some other store, or one that only the user can read.
    pub(crate) fn odd_trouble(&self) -> Option<Trouble> {
        let hazards = &self.scenario.hazards;
        let mut dice = self.dice();
        if self.is_healed() {
            return None;
        }
        if hazards.foreign > 0 && dice.u32(0..1_000) < hazards.foreign {
            let kinds = [
                StoreErrorKind::Unavailable,
                StoreErrorKind::Contended,
                StoreErrorKind::TransactionLost,
                StoreErrorKind::Fenced,
                StoreErrorKind::Refused,
            ];
            return Some(Trouble::Foreign(kinds[dice.usize(0..kinds.len())]));
        }
        // Where nothing panics there is no use in errors that do.
        if hazards.panics > 0 && dice.u32(0..1_000) < hazards.panics {
            let classes = [Class::Transient, Class::Permanent, Class::Unknown];
            return Some(Trouble::Own(classes[dice.usize(0..classes.len())]));
        }
        None
    }

    /// Lets the user's code panic here, if the dice say so.
    pub(crate) fn may_panic(&self, place: &'static str) {
        self.panic_for(self.scenario.hazards.panics, place);
    }

    /// The same for code that is seldom called: where anything panics, this often does.
    pub(crate) fn may_well_panic(&self, place: &'static str) {
        self.panic_for(if self.scenario.hazards.panics > 0 { 400 } else { 0 }, place);
    }

    fn panic_for(&self, of_a_thousand: u32, place: &'static str) {
        if of_a_thousand == 0 || self.is_healed() || self.dice().u32(0..1_000) >= of_a_thousand {
            return;
        }
        self.journal.fault();
        self.journal.note(format_args!("{place} panics"));
        // The usual hook of a panic is not run: it would print.
        std::panic::resume_unwind(Box::new(place));
    }

    fn dice(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
