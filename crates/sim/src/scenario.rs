//! What a seed chooses.

use std::time::Duration;

/// Where messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A broker in memory: acknowledged after the commit.
    Memory,
    /// A queue in the store: settled in the commit.
    Queue,
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
}

/// How a process ends. A new one takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is settled, nothing given back.
    Killed,
    /// As by SIGTERM.
    Stopped,
}

impl Scenario {
    /// What this seed chooses.
    pub fn new(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let calm = dice.u32(0..8) == 0;
        let scenario = Self::stormy(seed, &mut dice);
        if calm { scenario.calmed() } else { scenario }
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
