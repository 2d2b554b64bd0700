//! What a seed chooses.

use std::time::Duration;

use crate::hazard::{Hazard, Hazards};

/// Where messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A broker in memory: acknowledged after the commit.
    Memory,
    /// A queue in the store: settled in the commit.
    Queue,
    /// A broker that gives each partition to one process at a time, knows no leases, and takes partitions away unasked.
    Partitions,
}

/// Everything that a seed chooses before the run begins. What goes wrong during the run is rolled by the same seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Processes that run the same consumer on one store.
    pub processes: usize,
    /// Lanes of each.
    pub lanes: usize,
    /// Messages in one transaction at most.
    pub batch_max: usize,
    /// Messages in hand at most.
    pub in_flight_max: usize,
    /// Whether order is kept per order key.
    pub ordered: bool,
    /// Whether messages are stored before they are handled.
    pub stored: bool,
    /// Whether the handler takes many messages at a time.
    pub batch_handler: bool,
    /// Whether the hook also runs for duplicates.
    pub hook_on_duplicates: bool,
    /// Where messages come from.
    pub origin: Origin,
    /// How long a delivery stays with whoever received it.
    pub lease: Duration,
    /// The longest wait after a failure.
    pub backoff_max: Duration,
    /// Different messages.
    pub messages: usize,
    /// Order keys; the first is hot.
    pub keys: usize,
    /// How many of a hundred messages come again.
    pub duplicates: u32,
    /// How many of a thousand messages meet another message under their id.
    pub conflicts: u32,
    /// How many of a thousand seam calls go wrong.
    pub faults: u32,
    /// How many of a thousand handler calls fail.
    pub failures: u32,
    /// How many of a thousand handler calls are slow.
    pub slow: u32,
    /// When the store is away: start and end.
    pub outages: Vec<(Duration, Duration)>,
    /// When a process ends: which one, when, and how.
    pub ends: Vec<(usize, Duration, Ending)>,
    /// From when on nothing goes wrong any more.
    pub healed_at: Duration,
    /// What befalls it beside the weather.
    pub hazards: Hazards,
}

/// How a process ends. A new one takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is settled, nothing given back.
    Killed,
    /// As by SIGTERM.
    Stopped,
    /// Killed, and replaced by one that builds keys in another way, until that is refused or killed.
    Replaced,
}

impl Scenario {
    /// What this seed chooses.
    pub fn new(seed: u64) -> Self {
        Self::with(seed, Hazard::USUAL)
    }

    /// What this seed chooses where these hazards may come over it.
    pub fn with(seed: u64, on: &[Hazard]) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let calm = dice.u32(0..8) == 0;
        let scenario = Self::stormy(seed, &mut dice);
        if calm { scenario.calmed() } else { scenario.endangered(on) }
    }

    /// With dice of their own: without hazards, a seed is what it was before there were any.
    fn endangered(mut self, on: &[Hazard]) -> Self {
        let mut dice = fastrand::Rng::with_seed(self.seed ^ 0x6861_7a61_7264_7321);
        self.hazards = Hazards::new(on, &mut dice, self.processes, self.healed_at);
        if self.hazards.zombies.is_some() {
            self.origin = Origin::Partitions;
            self.processes = self.processes.max(2);
            self.ordered = dice.u32(0..4) > 0;
        }
        if self.ordered {
            // What waits for its turn and what waits for a version are two ways to keep order.
            self.hazards.gap = None;
        }
        self.ends.extend(self.hazards.other_keys.iter().map(|(slot, at)| (*slot, *at, Ending::Replaced)));
        let deploys = self.hazards.deploys.iter().take(self.processes).enumerate();
        self.ends.extend(deploys.map(|(slot, at)| {
            let ending = if dice.bool() { Ending::Killed } else { Ending::Stopped };
            (slot, *at, ending)
        }));
        self
    }

    fn stormy(seed: u64, dice: &mut fastrand::Rng) -> Self {
        let origin = if dice.bool() { Origin::Memory } else { Origin::Queue };
        let ordered = dice.bool();
        // A memory source keeps order within one process only, and says so.
        let processes = if ordered && origin == Origin::Memory { 1 } else { dice.usize(1..=3) };
        let healed_at = Duration::from_millis(dice.u64(1_000..6_000));
        let within = |dice: &mut fastrand::Rng| Duration::from_millis(dice.u64(0..healed_at.as_millis() as u64));
        let outages = (0..dice.usize(0..=2)).map(|_| {
            let start = within(dice);
            (start, start + Duration::from_millis(dice.u64(50..2_000)))
        });
        let outages = outages.collect();
        let ends = (0..dice.usize(0..=2)).map(|_| {
            let ending = if dice.bool() { Ending::Killed } else { Ending::Stopped };
            (dice.usize(0..processes), within(dice), ending)
        });
        let ends = ends.collect();
        let conflicts = [0, 0, 30][dice.usize(0..3)];
        // Conflicts come again for good, oldest first: with less room than that, nothing else would ever be received.
        let in_flight_max =
            if conflicts > 0 { [50, 1_000][dice.usize(0..2)] } else { [4, 20, 1_000][dice.usize(0..3)] };
        Self {
            seed,
            processes,
            lanes: dice.usize(1..=4),
            batch_max: [1, 2, 5, 20, 100][dice.usize(0..5)],
            in_flight_max,
            ordered,
            stored: dice.u32(0..4) == 0,
            batch_handler: dice.u32(0..3) == 0,
            hook_on_duplicates: dice.bool(),
            origin,
            lease: Duration::from_millis(dice.u64(600..3_000)),
            backoff_max: Duration::from_millis(dice.u64(50..500)),
            messages: dice.usize(5..60),
            keys: dice.usize(1..8),
            duplicates: 30,
            conflicts,
            faults: [5, 20, 60, 150][dice.usize(0..4)],
            failures: [0, 20, 150][dice.usize(0..3)],
            slow: [0, 20, 150][dice.usize(0..3)],
            outages,
            ends,
            healed_at,
            hazards: Hazards::default(),
        }
    }

    /// One lane on a broker, slow handlers and no fault: nothing may be delivered again, however long a handler takes.
    fn calmed(self) -> Self {
        Self {
            processes: 1,
            lanes: 1,
            stored: false,
            origin: Origin::Memory,
            faults: 0,
            failures: 0,
            slow: 150,
            outages: Vec::new(),
            ends: Vec::new(),
            ..self
        }
    }

    /// Whether nothing goes wrong but slow handlers.
    pub fn is_calm(&self) -> bool {
        self.faults == 0
    }
}
