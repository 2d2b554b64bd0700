//! What happened, in order: the trace of a run, and what only shows while it runs.
//!
//! The memory store runs one transaction at a time. So what handlers did since the last begin belongs to the one
//! transaction that is open, and is committed or rolled back with it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oncebox_testkit::faults::Moment;

use crate::clock::VirtualClock;
use crate::verdict::{Kind, Wrong};

/// The journal of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    clock: Arc<VirtualClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A hash over all events: two runs that differ anywhere differ here.
    hash: u64,
    events: u64,
    /// The events themselves, if they were asked for.
    lines: Option<Vec<String>>,
    /// What was seen that must not be.
    wrongs: Vec<Wrong>,
    deliveries: u64,
    faults: u64,
    /// Commits whose answer was lost, the ids in them, and doubts that were laid to rest.
    doubts: u64,
    doubted: HashSet<String>,
    resolved: u64,
    /// Who was last handed each place of the source.
    owners: HashMap<String, (String, u64)>,
    /// Ids that their source was told are settled: applied, or set aside and no longer the source's.
    acknowledged: HashSet<String>,
    /// Ids with a handler call that was not committed: they may have been set aside.
    rolled_back: HashSet<String>,
    /// Ids that were settled in a transaction that committed, whether or not their source was told yet.
    settled_within: HashSet<String>,
    /// Ids that the open transaction settles.
    settling: Vec<String>,
    /// Handler calls of the open transaction.
    open: Vec<Run>,
    /// How many of them there were at its mark.
    at_mark: usize,
    runs: u64,
    committed: HashSet<u64>,
    /// Ids with a committed effect.
    applied: HashSet<String>,
    /// Ids that an operator discarded, and whether they had a record of their own.
    discarded: HashMap<String, bool>,
    /// Hooks that ran, by handler call.
    hooked: HashSet<u64>,
    /// Hooks that ran, by message id.
    settled: HashMap<String, u32>,
}

/// One call of a handler for one message.
#[derive(Debug)]
struct Run {
    number: u64,
    id: String,
    /// Someone else was handed the message since.
    stale: bool,
}

/// The trace in short, and what was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) deliveries: u64,
    pub(crate) faults: u64,
    pub(crate) doubts: u64,
    pub(crate) resolved: u64,
}

impl Journal {
    pub(crate) fn new(clock: Arc<VirtualClock>, trace: bool) -> Self {
        let state = State { hash: 0xcbf2_9ce4_8422_2325, lines: trace.then(Vec::new), ..State::default() };
        Self { clock, state: Mutex::new(state) }
    }

    /// Writes an event down.
    pub(crate) fn note(&self, event: fmt::Arguments<'_>) {
        self.state().note(&self.clock, event);
    }

    /// Writes down something that must not happen.
    pub(crate) fn wrong(&self, kind: Kind, what: String) {
        self.state().wrong(&self.clock, kind, what);
    }

    pub(crate) fn fault(&self) {
        self.state().faults += 1;
    }

    /// A commit's answer is lost.
    pub(crate) fn doubt(&self) {
        let mut state = self.state();
        state.doubts += 1;
        let ids: Vec<String> = state.open.iter().map(|run| run.id.clone()).collect();
        state.doubted.extend(ids);
    }

    /// A lost commit was laid to rest.
    pub(crate) fn resolved(&self) {
        self.state().resolved += 1;
    }

    /// A process was handed a message.
    pub(crate) fn delivered(&self, process: u64, id: &str, place: &str, count: u32) {
        let mut state = self.state();
        state.deliveries += 1;
        state.note(&self.clock, format_args!("process {process} receives {id} from {place}, delivery {count}"));
        state.owners.insert(place.to_owned(), (id.to_owned(), process));
    }

    /// A process told the source that a message is settled.
    pub(crate) fn acknowledged(&self, process: u64, id: &str, place: &str) {
        let mut state = self.state();
        state.note(&self.clock, format_args!("process {process} acknowledges {id} from {place}"));
        state.acknowledged.insert(id.to_owned());
    }

    /// The open transaction settles a message.
    pub(crate) fn settling(&self, id: &str) {
        self.state().settling.push(id.to_owned());
    }

    /// A handler wrote its effect. `fenced`: only whoever was handed the message last may commit it.
    pub(crate) fn handled(&self, process: u64, id: &str, fenced: bool) -> u64 {
        let mut state = self.state();
        let number = state.runs;
        state.runs += 1;
        let owned = state.owners.values().any(|(of, owner)| of == id && *owner == process);
        // What was set aside is leased there.
        let aside = [&state.acknowledged, &state.settled_within, &state.rolled_back].iter().any(|ids| ids.contains(id));
        state.note(&self.clock, format_args!("process {process} handles {id}, run {number}"));
        state.open.push(Run { number, id: id.to_owned(), stale: fenced && !owned && !aside });
        number
    }

    /// A transaction began, set a mark, went back to it, or committed.
    pub(crate) fn moment(&self, moment: Moment) {
        let mut state = self.state();
        match moment {
            Moment::Marked => return state.at_mark = state.open.len(),
            Moment::WentBack => {
                let at_mark = state.at_mark;
                let undone: Vec<String> = state.open.drain(at_mark..).map(|run| run.id).collect();
                return state.rolled_back.extend(undone);
            }
            _ => state.at_mark = 0,
        }
        let runs = std::mem::take(&mut state.open);
        let settling = std::mem::take(&mut state.settling);
        if moment != Moment::Committed {
            state.rolled_back.extend(runs.into_iter().map(|run| run.id));
            return;
        }
        state.note(&self.clock, format_args!("commit of {} runs", runs.len()));
        state.settled_within.extend(settling);
        for run in runs {
            if run.stale {
                let what = format!("{} was committed by a process that had lost its lease", run.id);
                state.wrong(&self.clock, Kind::Fence, what);
            }
            state.committed.insert(run.number);
            state.applied.insert(run.id);
        }
    }

    /// A hook of a handler ran.
    pub(crate) fn hooked(&self, run: u64) {
        let mut state = self.state();
        state.note(&self.clock, format_args!("hook of run {run}"));
        if !state.committed.contains(&run) {
            state.wrong(&self.clock, Kind::Hook, format!("the hook of run {run} ran, and the run is not committed"));
        }
        if !state.hooked.insert(run) {
            state.wrong(&self.clock, Kind::Hook, format!("the hook of run {run} ran twice"));
        }
    }

    /// The consumer's own hook ran for a message.
    pub(crate) fn settled(&self, id: &str, repeats: bool) {
        let mut state = self.state();
        state.note(&self.clock, format_args!("hook of {id}"));
        if !state.applied.contains(id) && !state.discarded.contains_key(id) {
            state.wrong(&self.clock, Kind::Hook, format!("the hook of {id} ran before its commit"));
        }
        let times = state.settled.entry(id.to_owned()).or_default();
        *times += 1;
        // Where a commit was lost and a copy of the message took effect meanwhile, the engine takes that for its own.
        if *times == 2 && !repeats && !state.doubted.contains(id) {
            state.wrong(&self.clock, Kind::Hook, format!("the hook of {id} ran twice"));
        }
    }

    /// An operator gave a message up.
    pub(crate) fn discarded(&self, id: &str, owned: bool) {
        let mut state = self.state();
        state.note(&self.clock, format_args!("the operator discards {id}, record of its own: {owned}"));
        state.discarded.insert(id.to_owned(), owned);
    }

    /// Whether an operator gave a message of this id up, and whether that had a record of its own.
    pub(crate) fn was_discarded(&self, id: &str) -> Option<bool> {
        self.state().discarded.get(id).copied()
    }

    /// Whether anything has a committed effect.
    pub(crate) fn has_any(&self) -> bool {
        !self.state().applied.is_empty()
    }

    /// Whether this id has a committed effect.
    pub(crate) fn has_applied(&self, id: &str) -> bool {
        self.state().applied.contains(id)
    }

    /// How many of these ids have neither a committed effect nor an operator who gave them up.
    pub(crate) fn open(&self, due: &HashSet<String>) -> usize {
        let state = self.state();
        due.iter().filter(|id| !state.applied.contains(*id) && !state.discarded.contains_key(*id)).count()
    }

    /// Whether a hook ran for this id.
    pub(crate) fn was_settled(&self, id: &str) -> bool {
        self.state().settled.contains_key(id)
    }

    /// The handler calls that were committed.
    pub(crate) fn committed(&self) -> HashSet<u64> {
        self.state().committed.clone()
    }

    pub(crate) fn summary(&self) -> Summary {
        let state = self.state();
        Summary {
            hash: state.hash,
            events: state.events,
            deliveries: state.deliveries,
            faults: state.faults,
            doubts: state.doubts,
            resolved: state.resolved,
        }
    }

    /// What must not have happened, and the trace.
    pub(crate) fn close(&self) -> (Vec<Wrong>, Vec<String>) {
        let mut state = self.state();
        (std::mem::take(&mut state.wrongs), state.lines.take().unwrap_or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wrong(&mut self, clock: &VirtualClock, kind: Kind, what: String) {
        self.note(clock, format_args!("WRONG {what}"));
        self.wrongs.push(Wrong { kind, what });
    }

    fn note(&mut self, clock: &VirtualClock, event: fmt::Arguments<'_>) {
        let line = format!("{:>10.3} {event}", clock.elapsed().as_secs_f64());
        // FNV-1a: the same on every machine.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.hash = line.bytes().chain([b'\n']).fold(self.hash, hash);
        self.events += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }
}
