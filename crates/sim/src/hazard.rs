//! What befalls a consumer beside the weather: deployments, operators, user code that panics, other owners.

use std::time::Duration;

use clap::ValueEnum;

/// A trouble that seams and handlers do not make. Each comes over some of the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Hazard {
    /// Some messages are of a type that the first processes have no handler for. It is deployed one process at a time.
    LateHandlers,
    /// An operator revives what is dead while its copies still come, and discards some of it.
    Operator,
    /// Whatever the user wrote panics: handlers, hooks, the reading of errors, the drop of a future.
    Panics,
    /// Handlers fail with errors of stores that are not the consumer's.
    ForeignErrors,
    /// Messages are versions of their key, and come in any order.
    Versions,
    /// Where messages are versions, a person is asked soon after one is missing, and revives what waits for it.
    ShortGaps,
    /// Partitions change hands while their old owner, who is not asked, goes on with what it has.
    Zombies,
    /// Processes are started under the consumer's name that build keys in another way.
    OtherKeys,
}

impl Hazard {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::LateHandlers,
        Self::Operator,
        Self::Panics,
        Self::ForeignErrors,
        Self::Versions,
        Self::ShortGaps,
        Self::Zombies,
        Self::OtherKeys,
    ];

    /// Those that come over the seeds unless others are asked for.
    pub const USUAL: &'static [Self] = &[
        Self::LateHandlers,
        Self::Operator,
        Self::Panics,
        Self::ForeignErrors,
        Self::Versions,
        Self::Zombies,
        Self::ShortGaps,
        Self::OtherKeys,
    ];
}

/// What a seed chooses of the hazards. The default is none of them.
#[derive(Clone, Debug, Default)]
pub struct Hazards {
    /// When the process in each slot is replaced by one that handles the later type; empty: there is no such type.
    pub deploys: Vec<Duration>,
    /// How long an operator pauses between two looks; `None`: they come when everything has healed.
    pub operator: Option<Duration>,
    /// How many of a thousand dead messages that an operator looks at are discarded.
    pub discards: u32,
    /// How many of a thousand calls of user code panic.
    pub panics: u32,
    /// How many of a thousand handler calls fail with an error of another store.
    pub foreign: u32,
    /// How long a version waits for a missing one before it is a person's; `None`: messages have no version.
    pub gap: Option<Duration>,
    /// How many partitions change hands, and how long after one another at most; `None`: there are none.
    pub zombies: Option<(usize, Duration)>,
    /// When a process that builds keys in another way is started in a slot, for a while or until it is refused.
    pub other_keys: Vec<(usize, Duration)>,
}

impl Hazards {
    /// What the dice choose of those that are `on`. The dice are rolled for the others too, so that a seed keeps what it
    /// has whatever else is on.
    pub(crate) fn new(on: &[Hazard], dice: &mut fastrand::Rng, processes: usize, healed_at: Duration) -> Self {
        let window = healed_at.as_millis() as u64;
        let mut rolled = |hazard: Hazard, of: u32| dice.u32(0..of) == 0 && on.contains(&hazard);
        let [late, operator, panics, foreign, versions, short, zombies, other] = [
            rolled(Hazard::LateHandlers, 3),
            rolled(Hazard::Operator, 2),
            rolled(Hazard::Panics, 3),
            rolled(Hazard::ForeignErrors, 4),
            rolled(Hazard::Versions, 5),
            rolled(Hazard::ShortGaps, 2),
            rolled(Hazard::Zombies, 5),
            rolled(Hazard::OtherKeys, 6),
        ];
        let deploys: Vec<Duration> =
            (0..processes.max(3)).map(|_| Duration::from_millis(dice.u64(window / 10..window))).collect();
        let pause = Duration::from_millis(dice.u64(20..600));
        let (discards, some) = ([0, 0, 100][dice.usize(0..3)], [5, 20, 100][dice.usize(0..3)]);
        let foreigners = [10, 60][dice.usize(0..2)];
        let gap = Duration::from_millis(dice.u64(500..15_000));
        let gap = if short { gap } else { Duration::from_secs(900) };
        let strangers = (0..dice.usize(1..=2))
            .map(|_| (dice.usize(0..processes), Duration::from_millis(dice.u64(window / 10..window))))
            .collect();
        let moves = (dice.usize(1..=4), Duration::from_millis(dice.u64(50..800)));
        Self {
            deploys: if late { deploys } else { Vec::new() },
            operator: operator.then_some(pause),
            discards: if operator { discards } else { 0 },
            panics: if panics { some } else { 0 },
            foreign: if foreign { foreigners } else { 0 },
            gap: versions.then_some(gap),
            zombies: zombies.then_some(moves),
            other_keys: if other { strangers } else { Vec::new() },
        }
    }
}
