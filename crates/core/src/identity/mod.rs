//! How a consumer tells messages apart, kept with its name.
//!
//! Records say under which keys messages were handled, and nothing about how those keys were made. A process that makes other
//! keys under the same name finds none of the records and handles everything again. So the [`Scheme`] is kept beside the
//! name, every start [holds](decide) its own against it, and what runs looks again every [`LOOK_AGAIN`].
//!
//! ```text
//!   A ──a start with B that names A──▶ B, and A before it ──the horizon passes the last A──▶ B
//!                                       │
//!          both run side by side: who makes B-keys claims the A-key too, so that each finds what the other did
//! ```
//!
//! A change is *bridged*: the new scheme's processes claim the keys of both. The bridge may go once the horizon of the
//! consumer is past the last time that a process with the old scheme alone was seen: of what was handled before that and has
//! no record, nobody applies anything any more.

mod bind;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::ConsumerName;
use crate::time::Timestamp;

pub use bind::{Bound, bind, would_bind};

/// What runs holds its scheme against the store's at least this often, in the transaction of a message.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How a consumer tells messages apart, in words that are compared as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheme {
    /// How keys are made, with the version of whatever hashes.
    pub key: String,
    /// Within what they are unique.
    pub scope: String,
    /// How the second key is made, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business: Option<String>,
    /// What messages are kept in order by. Empty for a caller that keeps none and minds none.
    pub order: String,
    /// What versions are versions of, where messages have any. Aggregates of another kind begin anew, so it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions_of: Option<String>,
    /// What the fingerprint covers, empty where it is the caller's own. Another one finds fewer conflicts and doubles nothing, so it is told, not refused.
    pub fingerprint: String,
}

/// The key of a [`Scheme`] whose keys are made by the caller of a claim: how is not known here.
pub const OWN_KEYS: &str = "the caller's own keys";

impl Scheme {
    /// Keys that the caller of a claim makes.
    pub fn own_keys() -> Self {
        Self::of_caller(OWN_KEYS.to_owned())
    }

    /// Keys that are made so for each claim of a caller, who keeps no order.
    pub fn of_caller(key: String) -> Self {
        let (order, fingerprint) = (String::new(), String::new());
        Self { key, scope: "consumer".to_owned(), business: None, order, versions_of: None, fingerprint }
    }

    /// Whether its records are shared between consumers.
    pub fn is_global(&self) -> bool {
        self.scope == "global"
    }

    /// Whether both find the same records.
    pub fn same_keys(&self, other: &Self) -> bool {
        (&self.key, &self.scope, &self.business) == (&other.key, &other.scope, &other.business)
    }

    /// Whether both may run under one name.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let is_said = |order: &str| !order.is_empty();
        self.same_keys(other)
            && (self.order == other.order || !is_said(&self.order) || !is_said(&other.order))
            && !self.has_other_versions(other)
    }

    /// Whether versions are versions of something else there.
    fn has_other_versions(&self, other: &Self) -> bool {
        matches!((&self.versions_of, &other.versions_of), (Some(own), Some(other)) if own != other)
    }

    /// This one, with what it does not say from another.
    fn filled_from(&self, other: &Self) -> Self {
        let said = |own: &String, other: &String| if own.is_empty() { other.clone() } else { own.clone() };
        let order = said(&self.order, &other.order);
        let versions_of = self.versions_of.clone().or_else(|| other.versions_of.clone());
        Self { order, versions_of, fingerprint: said(&self.fingerprint, &other.fingerprint), ..self.clone() }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, scope, business, order, versions_of, .. } = self;
        write!(f, "key `{key}` within {scope}")?;
        if let Some(business) = business {
            write!(f, ", business key `{business}`")?;
        }
        if !order.is_empty() {
            write!(f, ", order by {order}")?;
        }
        versions_of.as_ref().map_or(Ok(()), |aggregate| write!(f, ", versions of {aggregate}"))
    }
}

/// What is kept with a consumer's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// How its keys are made now.
    pub scheme: Scheme,
    /// How they were made before, while a change is bridged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Before>,
}

/// The scheme before a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// How keys were made.
    pub scheme: Scheme,
    /// When a process was last seen that made no others, by the store's clock in microseconds since 1970.
    pub seen_at: i64,
}

impl Binding {
    /// As a store keeps it.
    pub fn to_stored(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(|_| corrupt("write"))
    }

    /// Takes back what a store kept.
    pub fn from_stored(text: &str) -> Result<Self, StoreError> {
        serde_json::from_str(text).map_err(|_| corrupt("read"))
    }

    /// The scheme before the change, while records may be left that only its keys find.
    pub fn bridges(&self, horizon: Option<Timestamp>) -> Option<&Before> {
        let is_over = |was: &&Before| horizon.is_some_and(|horizon| horizon.as_microsecond() >= was.seen_at);
        self.was.as_ref().filter(|was| !is_over(was))
    }
}

fn corrupt(attempted: &str) -> StoreError {
    let why = "it is not what this program keeps there; was it changed by hand, or by a newer version?";
    StoreError::new(StoreErrorKind::Corrupt, format!("{attempted} how a consumer tells messages apart"), why)
}

/// What a start brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// How it makes keys.
    pub scheme: Scheme,
    /// How they were made before, where the start names it and can make those keys as well.
    pub was: Option<Scheme>,
    /// How versions before this record made them, where that differs from `scheme`; they kept no binding.
    pub legacy: Option<Scheme>,
}

/// What the store knows when a start asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What is kept with the name.
    pub binding: Option<Binding>,
    /// When the newest record was made that was deleted where the scheme before a bridged change kept its own.
    pub horizon: Option<Timestamp>,
    /// The store's time.
    pub now: Timestamp,
    /// There are records.
    pub has_records: bool,
}

/// How a start goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What is to be kept from now on, if something else than is.
    pub keep: Option<Binding>,
    /// Which keys it claims beside its own.
    pub bridge: Bridge,
}

/// Which keys are claimed beside the scheme's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bridge {
    /// None.
    #[default]
    None,
    /// Those of the scheme that the start names as the one before.
    Was,
    /// Those that versions before this record made.
    Legacy,
}

/// Holds what a start brings along against what is kept; an error names both.
pub fn decide(name: &ConsumerName, offer: &Offer, known: &Known) -> Result<Decided, StoreError> {
    if crate::planted::is("scheme-unchecked") {
        return Ok(Decided { keep: None, bridge: Bridge::None });
    }
    let Offer { scheme, was, legacy } = offer;
    let now = known.now.as_microsecond();
    let fresh = |was: Option<&Scheme>, bridge| {
        // Where the keys are the same there is nothing to bridge.
        let was = was.filter(|was| !was.same_keys(scheme));
        let bridge = if was.is_some() { bridge } else { Bridge::None };
        let was = was.map(|was| Before { scheme: was.clone(), seen_at: now });
        Ok(Decided { keep: Some(Binding { scheme: scheme.clone(), was }), bridge })
    };
    let Some(kept) = &known.binding else {
        return match (was, legacy) {
            (Some(was), _) => fresh(Some(was), Bridge::Was),
            (None, Some(legacy)) if known.has_records => fresh(Some(legacy), Bridge::Legacy),
            _ => fresh(None, Bridge::None),
        };
    };
    let bridged = kept.bridges(known.horizon);
    if scheme.agrees_with(&kept.scheme) {
        let renewed = |was: Option<&Before>| {
            let binding = Binding { scheme: scheme.filled_from(&kept.scheme), was: was.cloned() };
            (binding != *kept).then_some(binding)
        };
        let Some(before) = bridged else { return Ok(Decided { keep: renewed(None), bridge: Bridge::None }) };
        let bridge = match (was, legacy) {
            (Some(was), _) if was.same_keys(&before.scheme) => Bridge::Was,
            (_, Some(legacy)) if legacy.same_keys(&before.scheme) => Bridge::Legacy,
            // Whatever was said to be the same as the caller's own keys was bridged under its own name.
            _ => return Err(under_way(name, scheme, before)),
        };
        return Ok(Decided { keep: renewed(Some(before)), bridge });
    }
    if let Some(before) = bridged {
        // The old deployment, started once more while the new one claims its keys too.
        if scheme.agrees_with(&before.scheme) {
            let was = Some(Before { seen_at: now.max(before.seen_at), ..before.clone() });
            let names_new = was_offered(offer, &kept.scheme);
            let bridge = if names_new { Bridge::Was } else { Bridge::None };
            return Ok(Decided { keep: Some(Binding { scheme: kept.scheme.clone(), was }), bridge });
        }
        return Err(refused(name, scheme, &kept.scheme, Some(before)));
    }
    match was {
        Some(was) if was.agrees_with(&kept.scheme) || kept.scheme.key == OWN_KEYS => fresh(Some(was), Bridge::Was),
        _ => Err(refused(name, scheme, &kept.scheme, None)),
    }
}

/// A step back that names what it steps back from.
fn was_offered(offer: &Offer, kept: &Scheme) -> bool {
    offer.was.as_ref().is_some_and(|was| was.same_keys(kept))
}

/// Holds the scheme of what runs against what is kept. `Some`: it runs with the one before, and this is to be kept, so that
/// the bridge lasts as long as that goes on.
pub fn look(
    name: &ConsumerName,
    scheme: &Scheme,
    kept: Option<&Binding>,
    now: Timestamp,
) -> Result<Option<Binding>, StoreError> {
    let Some(kept) = kept else { return Ok(None) };
    if crate::planted::is("scheme-unchecked") || scheme.agrees_with(&kept.scheme) {
        return Ok(None);
    }
    match &kept.was {
        Some(before) if scheme.agrees_with(&before.scheme) => {
            let seen_at = now.as_microsecond().max(before.seen_at);
            let was = Some(Before { seen_at, ..before.clone() });
            Ok(Some(Binding { scheme: kept.scheme.clone(), was }))
        }
        _ => Err(refused(name, scheme, &kept.scheme, None)),
    }
}

fn error(name: &ConsumerName, why: String) -> StoreError {
    let attempted = format!("handle messages as consumer {name}");
    StoreError::new(StoreErrorKind::Configuration, attempted, why).with_code(Code::IdentityChanged)
}

fn refused(name: &ConsumerName, offered: &Scheme, kept: &Scheme, bridged: Option<&Before>) -> StoreError {
    let advice = match bridged {
        Some(before) => format!(
            "a change from {} is still under way there; finish it first, or use another consumer name",
            before.scheme
        ),
        None => advice(offered, kept),
    };
    let harm = match kept.same_keys(offered) {
        true if kept.has_other_versions(offered) => "the version of each aggregate would be unknown",
        true => "messages could overtake those that are parked",
        false => "everything that was handled would be handled again",
    };
    error(
        name,
        format!("this store has its records by {kept}, and it is configured with {offered}, so {harm}; {advice}"),
    )
}

/// What to write to have a change bridged.
fn advice(offered: &Scheme, kept: &Scheme) -> String {
    if kept.has_other_versions(offered) {
        return "go back to the former, or use another consumer name".to_owned();
    }
    let mut write = Vec::new();
    if kept.key == OWN_KEYS {
        write.push("`key_was` with the key that equals those that its callers make".to_owned());
    } else if kept.key != offered.key {
        write.push(format!("`key_was = {:?}`", kept.key));
    }
    if kept.scope != offered.scope {
        write.push("`scope_was`".to_owned());
    }
    if kept.business != offered.business {
        write.push("`business_key_was`".to_owned());
    }
    if kept.order != offered.order {
        write.push(format!("`order_by_was = {:?}`", kept.order));
    }
    if offered.key == OWN_KEYS {
        return "open the inbox with that key (`inbox_by`)".to_owned();
    }
    format!("go back to the former, or have the change bridged: add {}", write.join(" and "))
}

fn under_way(name: &ConsumerName, scheme: &Scheme, before: &Before) -> StoreError {
    let seen = Timestamp::from_microsecond(before.seen_at).map_or_else(|_| "then".to_owned(), |at| at.to_string());
    let Scheme { key, .. } = &before.scheme;
    error(
        name,
        format!(
            "the change from {} to {scheme} is still bridged: a process with the former alone was seen at {seen}, and \
             records from before then are kept; leave `key_was = {key:?}` in place until retention is past that time",
            before.scheme
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(key: &str) -> Scheme {
        let [order, fingerprint] = ["none", "all"].map(str::to_owned);
        Scheme { order, fingerprint, ..Scheme::of_caller(key.to_owned()) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn offer(key: &str, was: Option<&str>) -> Offer {
        Offer { scheme: scheme(key), was: was.map(scheme), legacy: None }
    }

    fn known(binding: Option<Binding>, horizon: Option<i64>) -> Known {
        Known { binding, horizon: horizon.map(at), now: at(1_000), has_records: true }
    }

    fn ask(offer: &Offer, known: &Known) -> Result<Decided, StoreError> {
        decide(&ConsumerName::new("c").expect("a name"), offer, known)
    }

    fn bound(key: &str, was: Option<(&str, i64)>) -> Binding {
        let was = was.map(|(key, at)| Before { scheme: scheme(key), seen_at: at * 1_000_000 });
        Binding { scheme: scheme(key), was }
    }

    #[test]
    fn the_first_start_is_kept_and_the_same_one_again_changes_nothing() {
        let first = ask(&offer("a", None), &known(None, None)).unwrap();
        assert_eq!(first, Decided { keep: Some(bound("a", None)), bridge: Bridge::None });
        let again = ask(&offer("a", None), &known(first.keep, None)).unwrap();
        assert_eq!(again, Decided { keep: None, bridge: Bridge::None });
    }

    #[test]
    fn another_scheme_is_refused_and_both_are_named() {
        let error = ask(&offer("b", None), &known(Some(bound("a", None)), None)).unwrap_err();
        assert_eq!((error.kind(), error.code()), (StoreErrorKind::Configuration, Code::IdentityChanged));
        let says = error.to_string();
        assert!(says.contains("key `a`") && says.contains("key `b`") && says.contains("key_was = \"a\""), "{says}");
        assert!(ask(&offer("b", Some("c")), &known(Some(bound("a", None)), None)).is_err(), "it was not c");
    }

    #[test]
    fn keys_that_callers_make_are_bridged_by_the_one_that_equals_them() {
        let error = ask(&offer("b", None), &known(Some(bound(OWN_KEYS, None)), None)).unwrap_err().to_string();
        assert!(error.contains("add `key_was` with the key that equals those that its callers make"), "{error}");
    }

    #[test]
    fn a_change_that_names_what_was_is_bridged_until_the_horizon_is_past_it() {
        let changed = ask(&offer("b", Some("a")), &known(Some(bound("a", None)), None)).unwrap();
        assert_eq!(changed, Decided { keep: Some(bound("b", Some(("a", 1_000)))), bridge: Bridge::Was });
        let kept = || changed.keep.clone();
        let early = ask(&offer("b", None), &known(kept(), Some(999))).unwrap_err();
        assert!(early.to_string().contains("still bridged"), "{early}");
        assert_eq!(ask(&offer("b", Some("a")), &known(kept(), Some(999))).unwrap().bridge, Bridge::Was);
        for was in [None, Some("a")] {
            let over = ask(&offer("b", was), &known(kept(), Some(1_000))).unwrap();
            assert_eq!(over, Decided { keep: Some(bound("b", None)), bridge: Bridge::None });
        }
    }

    #[test]
    fn the_old_deployment_may_go_on_and_start_again_while_the_change_is_bridged() {
        let kept = bound("b", Some(("a", 500)));
        let again = ask(&offer("a", None), &known(Some(kept.clone()), None)).unwrap();
        assert_eq!(again.keep, Some(bound("b", Some(("a", 1_000)))), "the bridge lasts longer");
        let name = ConsumerName::new("c").unwrap();
        let seen = look(&name, &scheme("a"), Some(&kept), at(2_000)).unwrap();
        assert_eq!(seen, Some(bound("b", Some(("a", 2_000)))));
        assert!(look(&name, &scheme("a"), Some(&bound("b", None)), at(2_000)).is_err(), "the bridge is gone");
        assert!(ask(&offer("a", None), &known(Some(kept), Some(500))).is_err(), "the bridge is over");
    }

    #[test]
    fn one_change_at_a_time() {
        let kept = bound("b", Some(("a", 500)));
        assert!(ask(&offer("c", Some("b")), &known(Some(kept), None)).is_err());
    }

    #[test]
    fn a_caller_with_keys_of_its_own_is_followed_only_by_who_says_what_they_were() {
        let own = Binding { scheme: Scheme::own_keys(), was: None };
        assert!(ask(&offer("a", None), &known(Some(own.clone()), None)).is_err());
        let same = ask(&offer("a", Some("a")), &known(Some(own.clone()), None)).unwrap();
        assert_eq!(same, Decided { keep: Some(bound("a", None)), bridge: Bridge::None });
        let other = ask(&offer("b", Some("a")), &known(Some(own), None)).unwrap();
        assert_eq!((other.bridge, other.keep.unwrap().was.unwrap().scheme.key.as_str()), (Bridge::Was, "a"));
    }

    #[test]
    fn a_caller_who_makes_the_same_keys_minds_no_order() {
        let caller = Offer { scheme: Scheme::of_caller("a".to_owned()), was: None, legacy: None };
        let kept = known(Some(bound("a", None)), None);
        assert_eq!(ask(&caller, &kept).unwrap().keep, None, "what it does not say stays");
        let first = ask(&caller, &known(None, None)).unwrap().keep;
        assert_eq!(ask(&offer("a", None), &known(first, None)).unwrap().keep, Some(bound("a", None)));
    }

    #[test]
    fn what_an_older_version_recorded_is_bridged_by_itself() {
        let offer = Offer { legacy: Some(scheme("a/1")), ..offer("a/2", None) };
        let found = ask(&offer, &known(None, None)).unwrap();
        assert_eq!((found.bridge, found.keep.clone()), (Bridge::Legacy, Some(bound("a/2", Some(("a/1", 1_000))))));
        assert_eq!(ask(&offer, &known(found.keep, None)).unwrap().bridge, Bridge::Legacy, "the next start too");
        let nothing = Known { has_records: false, ..known(None, None) };
        assert_eq!(ask(&offer, &nothing).unwrap().bridge, Bridge::None);
    }

    #[test]
    fn another_fingerprint_is_taken_over_and_another_order_is_not() {
        let mut other = offer("a", None);
        other.scheme.fingerprint = "some".to_owned();
        let taken = ask(&other, &known(Some(bound("a", None)), None)).unwrap();
        assert_eq!(taken.keep.unwrap().scheme.fingerprint, "some");
        other.scheme.order = "{account}".to_owned();
        let kept = || Some(bound("a", None));
        assert!(ask(&other, &known(kept(), None)).unwrap_err().to_string().contains("order_by_was = \"none\""));
        other.was = Some(scheme("a"));
        let taken = ask(&other, &known(kept(), None)).unwrap();
        assert_eq!((taken.bridge, taken.keep.unwrap().was), (Bridge::None, None), "its keys are the same");
    }

    #[test]
    fn a_binding_comes_back_from_a_store() {
        let binding = bound("payment:{id}", Some(("message-id", 7)));
        assert_eq!(Binding::from_stored(&binding.to_stored().unwrap()).unwrap(), binding);
        assert!(Binding::from_stored("{}").is_err());
    }
}
