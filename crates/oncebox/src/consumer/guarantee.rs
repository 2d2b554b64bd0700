//! What a consumer can promise, computed from its parts.
//!
//! Every source delivers at least once. Whether each message takes effect once depends on a chain: a store that remembers, a
//! key that stays the same, and a claim for each handler. The weakest link decides, and is named.

use std::fmt;

use oncebox_core::source::SourceCapabilities;
use oncebox_core::store::StoreCapabilities;
use oncebox_core::{KeyStrategy, Store};

use super::identity::Identity;
use super::routes::Routes;

/// How often a message takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Guarantee {
    /// Once or more often: handlers must bear being repeated.
    AtLeastOnce,
    /// Once, whatever the broker delivers again; but a producer that sends it a second time makes it a second message.
    OncePerSending,
    /// Once, whoever sends or delivers it again, for as long as its record is kept.
    EffectivelyOnce,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtLeastOnce => "at least once",
            Self::OncePerSending => "once per sending",
            Self::EffectivelyOnce => "effectively once",
        })
    }
}

/// What a consumer can promise, and what keeps it from promising more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) guarantee: Guarantee,
    /// The weakest link, and what would mend it.
    pub(super) because: Option<String>,
}

pub(super) fn promise<S: Store>(
    store: &StoreCapabilities,
    source: &SourceCapabilities,
    identity: &Identity,
    routes: &Routes<S>,
) -> Promise {
    let mut links: Vec<(Guarantee, String)> = Vec::new();
    if !store.durable {
        let why = format!("the {} store forgets what was handled; use one that keeps it", store.name);
        links.push((Guarantee::AtLeastOnce, why));
    }
    if let Some(kind) = routes.unclaimed() {
        let why = format!("the handler of {kind} has no claim; register it with `on` instead of `on_idempotent`");
        links.push((Guarantee::AtLeastOnce, why));
    }
    if matches!(identity.key, KeyStrategy::Coordinate) {
        if source.coordinates {
            let why = "its key is the place in the broker, which a message that is sent again does not share; use the \
                       message's id or a business key";
            links.push((Guarantee::OncePerSending, why.to_owned()));
        } else {
            let why = format!("its key is the place in the broker, and {} has none that lasts", source.name);
            links.push((Guarantee::AtLeastOnce, why));
        }
    }
    match links.into_iter().min_by_key(|(guarantee, _)| *guarantee) {
        Some((guarantee, because)) => Promise { guarantee, because: Some(because) },
        None => Promise { guarantee: Guarantee::EffectivelyOnce, because: None },
    }
}
