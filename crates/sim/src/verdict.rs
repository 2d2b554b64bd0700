//! What a run came to, and what many runs did together.

use std::collections::BTreeMap;

use serde::Serialize;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A message took no effect and is nowhere left.
    Lost,
    /// A message took effect twice.
    Doubled,
    /// A message overtook another of its order key.
    Unordered,
    /// Another message under a known key was dropped.
    Conflict,
    /// Effect and inbox record do not match.
    Record,
    /// A row left the parked messages without its effect, a recorded outcome or an operator's act.
    Vanished,
    /// What an operator gave up took effect all the same.
    Discarded,
    /// A hook ran too early, too often, or for work that was rolled back.
    Hook,
    /// A process committed a message that it no longer held.
    Fence,
    /// A message came again although nothing had gone wrong.
    Lease,
    /// A lost commit was not laid to rest before its messages went on.
    Doubt,
    /// A lease, a lane or a task outlived its process.
    Leak,
    /// The backlog did not drain after everything healed.
    Stuck,
    /// A consumer stopped by itself, or left something behind.
    Engine,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wrong {
    /// Which promise.
    pub kind: Kind,
    /// What happened, with the message.
    pub what: String,
}

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed that repeats it.
    pub seed: u64,
    /// Everything that must not be. Empty: all promises held.
    pub wrongs: Vec<Wrong>,
    /// Different messages.
    pub messages: u64,
    /// Arrivals.
    pub deliveries: u64,
    /// Committed effects.
    pub effects: u64,
    /// Seam calls that went wrong.
    pub faults: u64,
    /// A hash over everything that happened, in order. The same for each run of a seed.
    pub hash: u64,
    /// Everything that happened, if it was asked for.
    pub trace: Vec<String>,
}

impl Verdict {
    /// Whether all promises held.
    pub fn is_good(&self) -> bool {
        self.wrongs.is_empty()
    }

    /// The command that repeats the run.
    pub fn command(&self) -> String {
        format!("cargo run -p oncebox-sim -- --seed {} --trace", self.seed)
    }
}

/// What many runs did together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Runs.
    pub seeds: u64,
    /// Runs in which a promise was broken.
    pub failed: u64,
    /// The first of them.
    pub first_failed: Option<u64>,
    /// Different messages.
    pub messages: u64,
    /// Arrivals.
    pub deliveries: u64,
    /// Committed effects.
    pub effects: u64,
    /// Seam calls that went wrong.
    pub faults: u64,
    /// Messages that took no effect and are nowhere left.
    pub lost: u64,
    /// Messages that took effect twice.
    pub doubled: u64,
    /// Messages that overtook another of their order key.
    pub unordered: u64,
    /// Broken promises of every kind.
    pub wrongs: BTreeMap<Kind, u64>,
    /// A hash over the hashes of all runs: the same whenever the same seeds are run.
    pub hash: u64,
}

impl Totals {
    /// Adds one run.
    pub fn add(&mut self, verdict: &Verdict) {
        self.seeds += 1;
        if !verdict.is_good() {
            self.failed += 1;
            self.first_failed.get_or_insert(verdict.seed);
        }
        self.messages += verdict.messages;
        self.deliveries += verdict.deliveries;
        self.effects += verdict.effects;
        self.faults += verdict.faults;
        self.hash = (self.hash.rotate_left(5) ^ verdict.hash).wrapping_mul(0x0100_0000_01b3);
        for wrong in &verdict.wrongs {
            *self.wrongs.entry(wrong.kind).or_default() += 1;
            match wrong.kind {
                Kind::Lost => self.lost += 1,
                Kind::Doubled => self.doubled += 1,
                Kind::Unordered => self.unordered += 1,
                _ => {}
            }
        }
    }
}
