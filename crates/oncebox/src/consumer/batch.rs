//! How large batches are, and which messages of a batch are the same.

use std::collections::HashMap;

use oncebox_core::{ConsumerId, Fingerprint, Key};

use super::identity::Claims;

/// How many messages go into one transaction: grows by one, halves on failure. At the start, before anything went wrong, it
/// doubles.
///
/// A conflict costs more than a batch saves: everyone in it has waited for a lock in vain, holding his own. So after one,
/// messages go singly; then the size doubles up to half of where it was, and goes on by one. Each conflict also multiplies
/// the successes that a step takes: where lanes keep meeting on the same rows, the next try at a larger batch becomes
/// rare.
#[derive(Debug)]
pub(super) struct Pace {
    limit: usize,
    max: usize,
    /// Successes since it last grew.
    credit: u32,
    /// Successes it takes to grow.
    price: u32,
    /// Up to here it doubles.
    known_good: usize,
    /// Batches that set marks, from here on: messages failed a short while ago.
    marked: u32,
}

/// Batches with marks after a failure.
const MARKED_AFTER: u32 = 16;

/// The first batch: enough to be worth a commit, little to lose where lanes meet on the same rows.
const FIRST: usize = 8;

/// How much dearer a step becomes with each conflict.
const PRICE_FACTOR: u32 = 32;

/// The most successes it takes to try a larger batch again.
const PRICE_MAX: u32 = 1024;

impl Pace {
    pub(super) fn new(max: usize) -> Self {
        Self { limit: FIRST.min(max), max, credit: 0, price: 1, known_good: max, marked: 0 }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether to set marks, so that a message that fails does not undo the whole batch.
    pub(super) fn uses_marks(&self) -> bool {
        self.marked > 0
    }

    /// Committed, perhaps without some suspects.
    pub(super) fn went_well(&mut self, suspects: bool) {
        self.marked = if suspects { MARKED_AFTER } else { self.marked.saturating_sub(1) };
        self.credit += 1;
        if self.credit >= self.price {
            self.credit = 0;
            // Forgiven slowly: the rows that were hot a moment ago probably still are.
            self.price = (self.price - self.price.div_ceil(8)).max(1);
            self.limit = if self.limit < self.known_good {
                (self.limit * 2).min(self.known_good)
            } else {
                (self.limit + 1).min(self.max)
            };
        }
    }

    /// A message failed and the batch was undone. Marks help against that where they can be set; if that was so with
    /// them, or they can't, only smaller batches do.
    pub(super) fn was_undone(&mut self, can_mark: bool) {
        if self.uses_marks() || !can_mark {
            self.went_badly();
        }
        self.marked = if can_mark { MARKED_AFTER } else { 0 };
    }

    /// The batch failed as a whole.
    pub(super) fn went_badly(&mut self) {
        self.limit = (self.limit / 2).max(1);
        self.known_good = self.limit;
    }

    /// Others were in the way.
    pub(super) fn was_contended(&mut self) {
        self.went_badly();
        self.limit = 1;
        self.credit = 0;
        self.price = (self.price * PRICE_FACTOR).min(PRICE_MAX);
    }
}

/// What a message is within its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The first under its keys: it is claimed.
    Leader,
    /// The same message again: takes the leader's outcome after the commit.
    Follower(usize),
    /// Another message with the leader's key, or the same intent under another id: waits for the next transaction,
    /// where the store tells what it is.
    Later,
}

/// Finds the messages of a batch that share a key. `ON CONFLICT` names a key once however often it is inserted, so two
/// deliveries of one message in one statement would both pass for fresh.
///
/// With its claims, a message that was parked brings the fingerprint that it was parked with: two that were known to be
/// different stay so, also where today's fingerprints can't tell.
pub(super) fn collapse<'c>(batch: impl IntoIterator<Item = (Option<&'c Claims>, Option<Fingerprint>)>) -> Vec<Place> {
    let batch = batch.into_iter();
    let (expected, _) = batch.size_hint();
    let mut leaders: HashMap<(ConsumerId, &Key), usize> = HashMap::with_capacity(expected);
    let mut leading: Vec<(Option<&Claims>, Option<Fingerprint>)> = Vec::with_capacity(expected);
    let mut places = Vec::with_capacity(expected);
    for (place, (claims, parked_as)) in batch.enumerate() {
        leading.push((claims, parked_as));
        let Some(claims) = claims else {
            places.push(Place::Leader);
            continue;
        };
        let taken = claims.all().find_map(|request| leaders.get(&(request.consumer, &request.key)).copied());
        let found = match taken {
            None => {
                leaders.extend(claims.all().map(|request| ((request.consumer, &request.key), place)));
                Place::Leader
            }
            Some(leader) => match leading[leader] {
                (Some(first), first_parked_as) if same(first, claims) && agree(first_parked_as, parked_as) => {
                    Place::Follower(leader)
                }
                _ => Place::Later,
            },
        };
        places.push(found);
    }
    places
}

/// Whether two claims are of one message, in every respect that the store would compare.
fn same(a: &Claims, b: &Claims) -> bool {
    let keys = |claims: &Claims| (claims.first.key.clone(), claims.business.as_ref().map(|b| b.key.clone()));
    a.first.consumer == b.first.consumer
        && keys(a) == keys(b)
        && a.first.id_hash == b.first.id_hash
        && a.first.fingerprint.agrees_with(b.first.fingerprint)
}

fn agree(a: Option<Fingerprint>, b: Option<Fingerprint>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a.agrees_with(b))
}

#[cfg(test)]
mod tests {
    use oncebox_core::claim::ClaimRequest;
    use oncebox_core::{Fingerprinter, Message};

    use super::*;

    fn claims(id: &str, business: Option<&str>, payload: &str) -> Claims {
        let fingerprint = Fingerprinter::default().fingerprint(&Message::new("t").with_payload(payload.to_owned()));
        let request = |key| ClaimRequest { consumer: ConsumerId(1), key, fingerprint, id_hash: None };
        Claims {
            first: request(Key::id(id).unwrap()),
            business: business.map(|key| request(Key::parts([&b"business"[..], key.as_bytes()]).unwrap())),
            was: Vec::new(),
            first_is_id: true,
        }
    }

    fn places(batch: &[Claims]) -> Vec<Place> {
        collapse(batch.iter().map(|claims| (Some(claims), None)))
    }

    #[test]
    fn the_same_message_three_times_has_one_leader() {
        let batch =
            [claims("d1", None, "a"), claims("d2", None, "b"), claims("d1", None, "a"), claims("d1", None, "a")];
        assert_eq!(places(&batch), [Place::Leader, Place::Leader, Place::Follower(0), Place::Follower(0)]);
    }

    #[test]
    fn one_key_with_two_contents_waits_for_the_store_to_judge() {
        assert_eq!(places(&[claims("d1", None, "a"), claims("d1", None, "b")]), [Place::Leader, Place::Later]);
    }

    #[test]
    fn the_same_intent_under_another_id_waits_for_the_store_to_judge() {
        let batch = [claims("d1", Some("p1"), "a"), claims("d2", Some("p1"), "a")];
        assert_eq!(places(&batch), [Place::Leader, Place::Later]);
    }

    #[test]
    fn what_was_parked_as_two_messages_stays_two() {
        let content =
            |text: &str| Fingerprinter::default().fingerprint(&Message::new("t").with_payload(text.to_owned()));
        let (alike, a, b) = (claims("d1", None, "a"), content("a"), content("b"));
        let parked = |parked_as| collapse([(Some(&alike), Some(a)), (Some(&alike), parked_as)]);
        assert_eq!(parked(Some(b)), [Place::Leader, Place::Later]);
        assert_eq!(parked(Some(a)), [Place::Leader, Place::Follower(0)]);
        assert_eq!(parked(None), [Place::Leader, Place::Follower(0)]);
    }

    #[test]
    fn messages_that_need_no_claim_never_collapse() {
        assert_eq!(collapse([(None, None), (None, None)]), [Place::Leader, Place::Leader]);
    }

    #[test]
    fn pace_halves_and_grows_by_one() {
        let mut pace = Pace::new(100);
        for _ in 0..4 {
            pace.went_well(false);
        }
        assert_eq!(pace.limit(), 100, "from eight, it doubles");
        pace.went_badly();
        pace.went_badly();
        assert_eq!(pace.limit(), 25);
        pace.went_well(false);
        assert_eq!(pace.limit(), 26);
        for _ in 0..200 {
            pace.went_badly();
        }
        assert_eq!(pace.limit(), 1);
        for _ in 0..200 {
            pace.went_well(false);
        }
        assert_eq!(pace.limit(), 100);
    }

    #[test]
    fn after_a_failure_marks_are_set_for_a_while_instead_of_smaller_batches() {
        let mut pace = Pace::new(100);
        while pace.limit() < 100 {
            pace.went_well(false);
        }
        assert!(!pace.uses_marks());
        pace.was_undone(true);
        assert_eq!((pace.limit(), pace.uses_marks()), (100, true));
        pace.went_well(true);
        for _ in 0..MARKED_AFTER {
            assert!(pace.uses_marks());
            pace.went_well(false);
        }
        assert!(!pace.uses_marks());
        pace.was_undone(true);
        pace.was_undone(true);
        assert_eq!(pace.limit(), 50, "they did not help");
        pace.was_undone(false);
        assert_eq!((pace.limit(), pace.uses_marks()), (25, false));
    }

    #[test]
    fn after_a_conflict_the_limit_grows_one_by_one_from_half() {
        let mut pace = Pace::new(100);
        while pace.limit() < 100 {
            pace.went_well(false);
        }
        pace.was_contended();
        assert_eq!(pace.limit(), 1);
        let mut limits = vec![1];
        while pace.limit() < 53 {
            pace.went_well(false);
            if limits.last() != Some(&pace.limit()) {
                limits.push(pace.limit());
            }
        }
        assert_eq!(limits, [1, 2, 4, 8, 16, 32, 50, 51, 52, 53]);
    }

    #[test]
    fn a_single_conflict_is_soon_forgotten() {
        let mut pace = Pace::new(100);
        while pace.limit() < 100 {
            pace.went_well(false);
        }
        pace.was_contended();
        assert_eq!(pace.limit(), 1);
        for _ in 0..200 {
            pace.went_well(false);
        }
        assert!(pace.limit() >= 50, "{}", pace.limit());
    }

    #[test]
    fn a_larger_batch_is_tried_ever_more_rarely_while_it_meets_others() {
        let mut pace = Pace::new(100);
        let mut conflicts = 0;
        for _ in 0..10_000 {
            if pace.limit() > 1 {
                conflicts += 1;
                pace.was_contended();
            } else {
                pace.went_well(false);
            }
        }
        assert!(conflicts < 40, "{conflicts} conflicts in 10,000 transactions");
        // And once the way is free, it recovers.
        for _ in 0..12_000 {
            pace.went_well(false);
        }
        assert_eq!(pace.limit(), 100);
    }
}
