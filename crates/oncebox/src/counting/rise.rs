//! Notices that duplicates suddenly come in numbers, and says so once.

use std::time::Duration;

use crate::consumer::{Cause, DuplicatesOf, Stats};

/// Fewer duplicates than this in one look are never worth a word.
const WORTH_A_WORD: u64 = 50;

/// Nor is a smaller part of what arrives.
const SHARE_MIN: f64 = 0.2;

/// A rise is so many times what was usual.
const TIMES_USUAL: f64 = 3.0;

/// The weight of one look in what is usual: about two minutes of looks every ten seconds.
const WEIGHT: f64 = 0.08;

/// As long as it goes on, and for so many looks after, it is the same rise.
const QUIET_LOOKS: u32 = 6;

/// How often to look.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What was seen of one consumer.
#[derive(Debug, Default)]
pub(super) struct Rise {
    arrivals: u64,
    causes: [u64; Cause::ALL.len()],
    /// The share of duplicates that is usual; `None` before the first look at any.
    usual: Option<f64>,
    /// Looks since it was last above what is usual; `None`: no rise was told, or it is over.
    quiet: Option<u32>,
}

/// One rise.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Diagnosis {
    pub(super) duplicates: u64,
    pub(super) arrivals: u64,
    /// In percent.
    pub(super) usual: u64,
    /// The most frequent one, and how many of the duplicates it explains.
    pub(super) cause: (Cause, u64),
}

impl Rise {
    /// Looks once more; a diagnosis, if there is one to tell.
    pub(super) fn look(&mut self, stats: &Stats) -> Option<Diagnosis> {
        let seen = stats.snapshot();
        self.note(seen.deliveries + seen.retried, &stats.duplicates())
    }

    fn note(&mut self, arrivals: u64, duplicates: &[DuplicatesOf]) -> Option<Diagnosis> {
        let mut causes = [0; Cause::ALL.len()];
        for of in duplicates {
            if let Some(at) = Cause::ALL.iter().position(|cause| *cause == of.cause) {
                causes[at] += of.count;
            }
        }
        let came = arrivals.saturating_sub(self.arrivals);
        let mut by_cause = causes;
        by_cause.iter_mut().zip(self.causes).for_each(|(now, before)| *now = now.saturating_sub(before));
        (self.arrivals, self.causes) = (arrivals, causes);
        if came == 0 {
            return None;
        }
        let again: u64 = by_cause.iter().sum();
        let share = (again as f64 / came as f64).min(1.0);
        let usual = self.usual.unwrap_or(0.0);
        let is_high = again >= WORTH_A_WORD && share >= SHARE_MIN && share >= TIMES_USUAL * usual;
        // What is high for long becomes usual.
        self.usual = Some(usual + WEIGHT * (share - usual));
        let was_told = self.quiet.is_some();
        self.quiet = match self.quiet {
            _ if is_high => Some(0),
            Some(quiet) if quiet < QUIET_LOOKS => Some(quiet + 1),
            _ => None,
        };
        if !is_high || was_told {
            return None;
        }
        let (at, count) = by_cause.iter().enumerate().max_by_key(|(_, count)| **count)?;
        let cause = (Cause::ALL[at], *count);
        Some(Diagnosis { duplicates: again, arrivals: came, usual: (usual * 100.0).round() as u64, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Load {
        rise: Rise,
        arrivals: u64,
        again: u64,
    }

    impl Load {
        fn new() -> Self {
            Self { rise: Rise::default(), arrivals: 0, again: 0 }
        }

        /// `arrivals` more, so many of them duplicates.
        fn look(&mut self, arrivals: u64, again: u64) -> Option<Diagnosis> {
            self.arrivals += arrivals;
            self.again += again;
            let of = DuplicatesOf { kind: "paid".to_owned(), cause: Cause::Redelivery, count: self.again };
            self.rise.note(self.arrivals, &[of])
        }
    }

    #[test]
    fn a_sudden_rise_is_told_once() {
        let mut load = Load::new();
        for _ in 0..30 {
            assert_eq!(load.look(1_000, 5), None, "a few are normal");
        }
        let told = load.look(1_000, 600).expect("a rise");
        assert_eq!((told.duplicates, told.arrivals, told.cause), (600, 1_000, (Cause::Redelivery, 600)));
        for _ in 0..10 {
            assert_eq!(load.look(1_000, 600), None, "it is the same rise");
        }
    }

    #[test]
    fn the_next_rise_is_told_again_after_a_pause() {
        let mut load = Load::new();
        load.look(1_000, 0);
        assert!(load.look(1_000, 900).is_some());
        assert!(load.look(1_000, 0).is_none() && load.look(1_000, 900).is_none(), "a short pause is none");
        for _ in 0..60 {
            assert!(load.look(1_000, 0).is_none());
        }
        assert!(load.look(1_000, 900).is_some());
    }

    #[test]
    fn a_few_or_the_usual_are_no_rise() {
        let mut load = Load::new();
        assert!(load.look(40, 40).is_none(), "too few to speak of");
        for _ in 0..200 {
            // Half of what arrives is usual here: told when it began, and never again.
            load.look(1_000, 500);
        }
        assert!(load.look(1_000, 600).is_none());
        assert!(load.look(0, 0).is_none(), "nothing came");
    }
}
