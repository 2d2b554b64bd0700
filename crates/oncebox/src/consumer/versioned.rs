//! Versioned messages: each is the next of its aggregate, the same as the last one, older, or too far ahead.
//!
//! Decided with the aggregate's version locked in the message's own transaction, and noted there: a state is never
//! turned back, whatever the order in which messages come. What is too far ahead waits without being in anyone's way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox_core::ConsumerStore;
use oncebox_core::key::TemplateError;
use oncebox_core::parked::{Cause, Parking, Verdict, Waits};
use oncebox_core::versions::{Standing, VersionPolicy, Versions};
use oncebox_core::{Class, Failure, Key, Message, Outcome, OutcomeKind, Source, StoreError, Template, planted};

use super::Engine;
use super::alerts::Missing;
use super::fate::{Fate, Judged};
use super::verdict::age;
use super::work::Work;
use crate::context::Hook;

/// How a consumer reads versions, and what it does about gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    aggregate: Option<Template>,
    version: Option<Template>,
    first: u64,
    gap: Gap,
}

/// What to do with a message whose predecessor is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gap {
    /// Wait for what is missing, for at most this long and with at most this many messages of one aggregate; then the
    /// message is parked for a person, or what is missing is [asked for](super::Consumer::on_missing) and waited for once
    /// more. The time counts from when the message began to wait for the version that is missing.
    Wait {
        /// How long.
        time: Duration,
        /// How many.
        messages: u64,
    },
    /// Apply it: right for messages that carry the full state.
    Apply,
    /// Park it for an operator at once. It blocks no other message, and resumes by itself if the missing version arrives.
    Fail,
}

impl Default for Gap {
    fn default() -> Self {
        Self::Wait { time: Duration::from_secs(15 * 60), messages: 1_000 }
    }
}

/// How long a gap is left alone before it is looked at again, if nothing says that it has closed.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Default for Versioned {
    fn default() -> Self {
        Self { aggregate: None, version: None, first: 1, gap: Gap::default() }
    }
}

impl Versioned {
    /// The aggregate is the message's order key, its version the message's version, and the first version is 1.
    pub fn by_order_key() -> Self {
        Self::default()
    }

    /// The aggregate is built from the message: `order:{order_id}`.
    pub fn by(template: &str) -> Result<Self, TemplateError> {
        Ok(Self { aggregate: Some(Template::parse(template)?), ..Self::default() })
    }

    /// Reads the version from the message: `{version}`.
    pub fn version(self, template: &str) -> Result<Self, TemplateError> {
        Ok(Self { version: Some(Template::parse(template)?), ..self })
    }

    /// Sets the version that an aggregate begins with.
    #[must_use]
    pub fn first(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// Sets what to do about gaps.
    #[must_use]
    pub fn on_gap(self, gap: Gap) -> Self {
        Self { gap, ..self }
    }

    /// What its messages are versions of, and how they are counted, in words: two that count otherwise take each other's
    /// messages for old ones.
    pub(super) fn scheme_text(&self) -> String {
        let aggregate = self.aggregate.as_ref().map_or_else(|| "order key".to_owned(), |of| format!("`{of}`"));
        let version = self.version.as_ref().map(|version| format!(" by `{version}`")).unwrap_or_default();
        let first = if self.first == 1 { String::new() } else { format!(" from {}", self.first) };
        format!("{aggregate}{version}{first}")
    }

    /// Of what a message is a version, and which.
    pub(super) fn read(&self, message: &Message) -> Result<Place, Failure> {
        let permanent = |what: String| Failure::permanent(what).code("unversioned");
        let aggregate = match &self.aggregate {
            Some(template) => template
                .text(message)
                .map_err(|error| permanent(format!("it gets no aggregate from `{template}`: {error}")))?,
            None => {
                message.order_key.clone().ok_or_else(|| permanent("it has no order key to be a version of".into()))?
            }
        };
        let version = match &self.version {
            Some(template) => {
                let text = template
                    .text(message)
                    .map_err(|error| permanent(format!("it gets no version from `{template}`: {error}")))?;
                text.parse()
                    .map_err(|_| permanent(format!("`{template}` gives no version: it is not a whole number")))?
            }
            None => message.version.ok_or_else(|| permanent("it has no version".into()))?,
        };
        let key = Key::parts([aggregate.as_bytes()])
            .map_err(|error| permanent(format!("its aggregate can be no key: {error}")))?;
        Ok(Place { aggregate, key, version })
    }
}

impl VersionPolicy for Versioned {
    fn place(&self, message: &Message) -> Result<(Key, u64), Failure> {
        self.read(message).map(|place| (place.key, place.version))
    }

    fn standing(&self, version: u64, applied: Option<u64>) -> Standing {
        match Standing::of(version, applied, self.first) {
            Standing::Gap if self.gap == Gap::Apply => Standing::Next,
            standing => standing,
        }
    }
}

/// Where a message belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) aggregate: String,
    key: Key,
    version: u64,
}

/// What versions say about the messages of a batch.
#[derive(Default)]
pub(super) struct Sorted {
    /// Those that are not to be run, and how they end.
    pub(super) ended: Vec<(usize, Outcome)>,
    /// Those that are set aside.
    pub(super) aside: Vec<(usize, Verdict)>,
    /// What to tell after the commit.
    pub(super) hooks: Vec<Hook>,
    /// How far aggregates come by the rest.
    advanced: BTreeMap<Key, (String, u64)>,
}

/// Sorts out what is fresh, with the versions of its aggregates locked. Within a batch versions advance in memory.
///
/// A duplicate that is done with takes its version along if that is the next one. It usually has done so in the transaction
/// that recorded it, but not if an operator discarded it, or if it was handled before its consumer read versions: without
/// this, the version after it would wait for ever.
pub(super) async fn sort_out<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    versioned: &Versioned,
    tx: &mut S::Tx,
    works: &[Work<S, Src::Receipt>],
    judged: &Judged,
) -> Result<Sorted, StoreError> {
    let place_of = |at: &usize| works[*at].ready.as_ref().ok().and_then(|ready| ready.version.as_ref());
    let is_done = |at: usize| matches!(&judged.fates[at], Some(fate) if is_done_with(fate));
    let asked: Vec<usize> =
        (0..works.len()).filter(|at| judged.fresh.binary_search(at).is_ok() || is_done(*at)).collect();
    // In one order for all, so that two batches wait for each other instead of deadlocking.
    let keys: BTreeSet<&Key> = asked.iter().filter_map(place_of).map(|place| &place.key).collect();
    let keys: Vec<Key> = keys.into_iter().cloned().collect();
    if keys.is_empty() {
        return Ok(Sorted::default());
    }
    let locked = tx.lock_versions(engine.records.own, &keys).await?;
    let mut applied: BTreeMap<&Key, Option<u64>> = keys.iter().zip(locked).collect();
    let mut sorted = Sorted::default();
    for at in &asked {
        let Some(Place { aggregate, key, version }) = place_of(at) else { continue };
        let Some(known) = applied.get_mut(key) else { continue };
        if is_done(*at) {
            // Over a gap it would make old ones of what is missing, whatever the policy.
            if Standing::of(*version, *known, versioned.first) == Standing::Next {
                *known = Some(*version);
                sorted.advanced.insert(key.clone(), (aggregate.clone(), *version));
            }
            continue;
        }
        let standing = match versioned.standing(*version, *known) {
            Standing::Stale if planted::is("stale-applied") => Standing::Next,
            standing => standing,
        };
        match standing {
            Standing::Next => {
                *known = Some(*version);
                sorted.advanced.insert(key.clone(), (aggregate.clone(), *version));
            }
            Standing::Same => sorted.ended.push((*at, Outcome::of(OutcomeKind::SameVersion))),
            Standing::Stale => sorted.ended.push((*at, Outcome::of(OutcomeKind::Stale))),
            Standing::Gap => {
                let missing = known.map_or(versioned.first, |known| known + 1);
                let (verdict, is_asked) = wait_for(engine, versioned, tx, &works[*at], aggregate, missing).await?;
                let (consumer, message) = (engine.name.as_str(), &works[*at].delivery.message);
                let parked = works[*at].delivery.parked.as_ref();
                let gave_up = parked.and_then(|parked| parked.gap.as_ref()).is_some_and(|gap| gap.class.is_some());
                // Where nothing is waited for, it dies anew whenever its aggregate comes further. Told once.
                if !(gave_up && versioned.gap == Gap::Fail) {
                    sorted.hooks.extend(engine.alerts.verdict(consumer, message, &verdict));
                }
                if is_asked {
                    let (consumer, aggregate) = (consumer.to_owned(), aggregate.clone());
                    let missing = Missing { consumer, aggregate, from: missing, before: *version };
                    sorted.hooks.extend(engine.alerts.missing(&missing));
                }
                sorted.aside.push((*at, verdict));
            }
        }
    }
    Ok(sorted)
}

/// Whether nothing more will come of a message: it is a duplicate of what was applied, or refused, and not of what is parked.
fn is_done_with(fate: &Fate) -> bool {
    matches!(fate, Fate::Duplicate(outcome, _) if outcome.kind() != OutcomeKind::Parked)
}

/// How long a message waits for version `missing` of its aggregate, and whether it is time to ask for that.
///
/// It waits for as long as the policy says from when it began to, and once more from when it was asked for. How far that
/// is, its row tells by the reason of its verdict. Where the aggregate has come further since, it begins anew.
async fn wait_for<S: ConsumerStore, Src: Source<S>>(
    engine: &Engine<S, Src>,
    versioned: &Versioned,
    tx: &mut S::Tx,
    work: &Work<S, Src::Receipt>,
    aggregate: &str,
    missing: u64,
) -> Result<(Verdict, bool), StoreError> {
    let kind = &work.delivery.message.kind;
    let parked = work.delivery.parked.as_ref();
    let attempts = parked.map_or(0, |parked| parked.attempts);
    let lacks = format!("version {missing} of its aggregate is missing");
    let dead = |reason: String| {
        let class = Some(Class::Permanent);
        // Also where nothing is waited for: in the way of its order key it would hold up the very message that it misses.
        Verdict { waits: Waits::Missing, class, cause: Cause::new(class, kind, "gap"), reason, attempts }
    };
    let Gap::Wait { time, messages } = versioned.gap else { return Ok((dead(lacks), false)) };
    if parked.is_none() && tx.count_gaps(engine.records.own, aggregate).await? >= messages {
        return Ok((dead(format!("{lacks}, and as many messages as may be wait for it")), false));
    }
    let waits = |reason: String, wait: Duration| {
        let cause = Cause::new(None, kind, "gap");
        Verdict { waits: Waits::Gap(LOOK_AGAIN.min(wait)), class: None, cause, reason, attempts }
    };
    let asked = format!("{lacks}, and was asked for");
    let can_ask = engine.alerts.has_fetcher();
    let now = engine.clock.now();
    let (is_asked, gone) = match (parked, parked.and_then(|parked| parked.gap.as_ref())) {
        (_, Some(gap)) if gap.class.is_none() && gap.reason == asked => (true, age(now, gap.since)),
        (_, Some(gap)) if gap.class.is_none() && gap.reason == lacks => (false, age(now, gap.since)),
        // It gave up before, and was revived: nothing has changed.
        (_, Some(gap)) if gap.reason == lacks => (false, Duration::MAX),
        // Parked for another reason, it was away for as long. A replay of what is old is not to wait before what is missing is
        // asked for, nor where nothing can be asked for; if it comes after all, that wakes the message.
        (Some(parked), None) => (false, age(now, parked.since)),
        _ => (false, Duration::ZERO),
    };
    Ok(match (is_asked, time.checked_sub(gone).filter(|left| !left.is_zero())) {
        (true, Some(left)) => (waits(asked, left), false),
        (false, Some(left)) => (waits(lacks, left), false),
        (false, None) if can_ask => (waits(asked, time), true),
        (_, None) => (dead(lacks), false),
    })
}

impl Sorted {
    /// Notes how far aggregates have come, and wakes what waited for it. Answers whether any came further.
    pub(super) async fn advance<S: ConsumerStore, Src: Source<S>>(
        self,
        engine: &Engine<S, Src>,
        tx: &mut S::Tx,
    ) -> Result<bool, StoreError> {
        if self.advanced.is_empty() {
            return Ok(false);
        }
        let versions: Vec<(Key, u64)> =
            self.advanced.iter().map(|(key, (_, version))| (key.clone(), *version)).collect();
        tx.advance_versions(engine.records.own, &versions).await?;
        let aggregates: Vec<&str> = self.advanced.values().map(|(aggregate, _)| aggregate.as_str()).collect();
        tx.wake_gaps(engine.records.own, &aggregates).await.map(|()| true)
    }
}
