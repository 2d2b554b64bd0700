//! What is noted of a delivery.

use std::time::Duration;

use oncebox_core::journal::{DeliveryEnd, JournalEntry, Told, bounded, id_hash};
use oncebox_core::parked::{Cause as FailureCause, Verdict, Waits};
use oncebox_core::{Class, ConsumerStore, Delivery, Failure, Key, Outcome, OutcomeKind, Source, Store};

use crate::consumer::Engine;
use crate::consumer::cause::Cause;
use crate::consumer::fate::{Fate, Kind};
use crate::consumer::parking::stand_in;
use crate::consumer::setup::Flow;
use crate::consumer::stats::Stats;
use crate::consumer::work::Work;

/// How a delivery ended, and why.
pub(in crate::consumer) struct End {
    end: DeliveryEnd,
    cause: Option<String>,
}

impl From<DeliveryEnd> for End {
    fn from(end: DeliveryEnd) -> Self {
        Self { end, cause: None }
    }
}

impl End {
    /// What a committed transaction says; `None` if the delivery has not come to its end.
    fn of_fate<R>(fate: &Fate, flow: Flow, delivery: &Delivery<R>) -> Option<Self> {
        match fate {
            Fate::Handled(_) if flow == Flow::Front => Some(DeliveryEnd::Stored.into()),
            Fate::Handled(outcome) | Fate::Duplicate(outcome, Kind::Ours) => Some(handled(outcome).into()),
            Fate::Duplicate(_, kind) => Some(Self::duplicate(*kind, delivery)),
            Fate::Aside(waits) => Some(waiting(*waits).into()),
            Fate::Conflict(_) | Fate::Unclear(_) | Fate::HeldBack | Fate::Later | Fate::Suspect => None,
        }
    }

    fn duplicate<R>(kind: Kind, delivery: &Delivery<R>) -> Self {
        let cause = Cause::likely(kind, delivery).map(|cause| cause.name().to_owned());
        Self { end: DeliveryEnd::Duplicate, cause }
    }

    /// A message that failed alone; with no verdict if it was found parked or applied.
    pub(in crate::consumer) fn of_verdict<R>(verdict: Option<&Verdict>, delivery: &Delivery<R>) -> Self {
        match verdict {
            None => Self::duplicate(Kind::Transport, delivery),
            Some(verdict) => Self { end: waiting(verdict.waits), cause: Some(verdict.cause.as_str().to_owned()) },
        }
    }

    /// A delivery that went back to its source; with a reason if it failed.
    pub(in crate::consumer) fn of_release<R>(reason: Option<&str>, delivery: &Delivery<R>) -> Self {
        let Some(reason) = reason else { return DeliveryEnd::Released.into() };
        let code = Failure::transient(reason).cause_code();
        let cause = FailureCause::new(Some(Class::Transient), &delivery.message.kind, &code);
        Self { end: DeliveryEnd::Failed, cause: Some(cause.as_str().to_owned()) }
    }
}

fn handled(outcome: &Outcome) -> DeliveryEnd {
    match outcome.kind() {
        OutcomeKind::Rejected => DeliveryEnd::Rejected,
        OutcomeKind::AlreadyApplied => DeliveryEnd::AlreadyApplied,
        OutcomeKind::Stale => DeliveryEnd::Stale,
        OutcomeKind::SameVersion => DeliveryEnd::SameVersion,
        OutcomeKind::Parked => DeliveryEnd::Parked,
        _ => DeliveryEnd::Applied,
    }
}

fn waiting(waits: Waits) -> DeliveryEnd {
    match waits {
        Waits::Turn => DeliveryEnd::Behind,
        Waits::Gap(_) => DeliveryEnd::Gap,
        Waits::Person | Waits::Missing => DeliveryEnd::Dead,
        _ => DeliveryEnd::Parked,
    }
}

impl<S: ConsumerStore, Src: Source<S>> Engine<S, Src> {
    /// Notes what a committed transaction decided, if a journal is kept.
    pub(in crate::consumer) fn journal_fates(&self, works: &[Work<S, Src::Receipt>], fates: &[Fate]) {
        if self.journal.is_none() {
            return;
        }
        let ended = works
            .iter()
            .zip(fates)
            .filter_map(|(work, fate)| Some((work, End::of_fate(fate, self.flow, &work.delivery)?)));
        self.note(ended.map(|(work, end)| self.entry_of(work, end)).collect());
    }

    /// Notes how these deliveries ended, if a journal is kept.
    pub(in crate::consumer) fn journal(
        &self,
        works: &[Work<S, Src::Receipt>],
        end: impl Fn(&Delivery<Src::Receipt>) -> End,
    ) {
        if self.journal.is_some() {
            self.note(works.iter().map(|work| self.entry_of(work, end(&work.delivery))).collect());
        }
    }

    /// The same for deliveries that came to no lane.
    pub(in crate::consumer) fn journal_untouched(&self, deliveries: &[Delivery<Src::Receipt>]) {
        if self.journal.is_some() {
            let released = || DeliveryEnd::Released.into();
            self.note(deliveries.iter().map(|delivery| self.entry(delivery, None, None, released())).collect());
        }
    }

    fn note(&self, entries: Vec<Option<JournalEntry>>) {
        let Some(notes) = &self.journal else { return };
        let all = entries.len();
        let entries: Vec<JournalEntry> = entries.into_iter().flatten().collect();
        // What has no key, not even one that stands in, can't be found again.
        let nameless = all - entries.len();
        let left_out = notes.add(entries, self.bounds.journal_buffer_max);
        Stats::add(&self.stats.journal_lost, left_out + nameless);
    }

    fn entry_of(&self, work: &Work<S, Src::Receipt>, end: End) -> Option<JournalEntry> {
        self.entry(&work.delivery, claimed(work), work.took.millis(), end)
    }

    fn entry(
        &self,
        delivery: &Delivery<Src::Receipt>,
        claimed: Option<&Key>,
        handler_millis: Option<u32>,
        end: End,
    ) -> Option<JournalEntry> {
        let (message, coordinate) = (&*delivery.message, delivery.coordinate.as_ref());
        let key = match claimed {
            Some(key) => key.clone(),
            None => match self.identity.first_key(message, coordinate) {
                Ok(key) => key,
                Err(_) => stand_in(message, coordinate).ok()?,
            },
        };
        let id = message.id.as_ref().map(|id| id.as_str());
        let by_id = id.filter(|id| Key::id(id).as_ref() != Ok(&key)).map(id_hash);
        let told = Told {
            end: end.end,
            cause: end.cause,
            attempt: delivery.parked.as_ref().map_or(delivery.count, |parked| Some(parked.attempts.saturating_add(1))),
            was_parked: delivery.parked.is_some(),
            handler_millis,
            coordinate: coordinate.map(|coordinate| bounded(coordinate.as_str()).to_owned()),
        };
        Some(JournalEntry { consumer: self.records.own, ago: Duration::ZERO, key, id_hash: by_id, told })
    }
}

fn claimed<S: Store, R>(work: &Work<S, R>) -> Option<&Key> {
    work.ready.as_ref().ok()?.claims.as_ref().map(|claims| &claims.first.key)
}

#[cfg(test)]
mod tests {
    use oncebox_core::{Conflict, Fingerprint, Message};

    use super::*;

    fn told(fate: &Fate, flow: Flow, count: Option<u32>) -> Option<(DeliveryEnd, Option<String>)> {
        let mut delivery = Delivery::new(Message::new("noted"), ());
        delivery.count = count;
        End::of_fate(fate, flow, &delivery).map(|end| (end.end, end.cause))
    }

    #[test]
    fn a_delivery_ends_as_its_transaction_says() {
        let of = |kind| Fate::Handled(Outcome::of(kind));
        for (fate, end) in [
            (of(OutcomeKind::Applied), DeliveryEnd::Applied),
            (of(OutcomeKind::Rejected), DeliveryEnd::Rejected),
            (of(OutcomeKind::AlreadyApplied), DeliveryEnd::AlreadyApplied),
            (of(OutcomeKind::Stale), DeliveryEnd::Stale),
            (of(OutcomeKind::SameVersion), DeliveryEnd::SameVersion),
            (Fate::Duplicate(Outcome::applied(), Kind::Ours), DeliveryEnd::Applied),
            (Fate::Aside(Waits::Turn), DeliveryEnd::Behind),
            (Fate::Aside(Waits::Gap(Duration::ZERO)), DeliveryEnd::Gap),
            (Fate::Aside(Waits::Person), DeliveryEnd::Dead),
        ] {
            assert_eq!(told(&fate, Flow::Main, None), Some((end, None)), "{fate:?}");
        }
        assert_eq!(told(&of(OutcomeKind::Applied), Flow::Front, None), Some((DeliveryEnd::Stored, None)));
        let again = |kind, count| told(&Fate::Duplicate(Outcome::applied(), kind), Flow::Main, count);
        let duplicate = |cause: &str| Some((DeliveryEnd::Duplicate, Some(cause.to_owned())));
        assert_eq!(again(Kind::Transport, Some(2)), duplicate("redelivery"));
        assert_eq!(again(Kind::Business, Some(1)), duplicate("other_id"));
    }

    #[test]
    fn what_goes_on_has_not_ended() {
        let conflict = Conflict { stored: Fingerprint::from_stored(1, 1), offered: Fingerprint::from_stored(1, 2) };
        for fate in [Fate::Later, Fate::Suspect, Fate::HeldBack, Fate::Conflict(conflict)] {
            assert_eq!(told(&fate, Flow::Main, None), None, "{fate:?}");
        }
    }

    #[test]
    fn a_release_with_a_reason_is_a_failure() {
        let delivery = Delivery::new(Message::new("noted"), ());
        let end = End::of_release(Some("timed out after 17 ms"), &delivery);
        assert_eq!(
            (end.end, end.cause.as_deref()),
            (DeliveryEnd::Failed, Some("transient/noted/timed out after # ms"))
        );
        let end = End::of_release(None, &delivery);
        assert_eq!((end.end, end.cause), (DeliveryEnd::Released, None));
    }
}
