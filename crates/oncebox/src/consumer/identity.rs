//! How a consumer tells messages apart: the keys that it claims for each.

use std::sync::Arc;

use oncebox_core::claim::{ClaimRequest, Earlier};
use oncebox_core::identity::Scheme;
use oncebox_core::{
    ConsumerId, Content, Coordinate, Failure, Fingerprint, Fingerprinter, Key, KeyError, KeyStrategy, Message, Scope,
};

use super::OrderBy;
use super::bound::Watch;

/// What a consumer claims for each message.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) key: KeyStrategy,
    pub(super) scope: Scope,
    /// A second key, claimed in the same transaction, that catches the same intent under another id.
    pub(super) business: Option<KeyStrategy>,
    pub(super) fingerprinter: Fingerprinter,
    /// What was otherwise before, as far as it is said.
    pub(super) was: Was,
    /// How keys were made before, while they are claimed as well. Known once the name is bound.
    pub(super) bridge: Option<Before>,
    /// Looks while it runs whether its name is still bound to this.
    pub(super) watch: Option<Arc<Watch>>,
}

/// What was otherwise before.
#[derive(Clone, Debug, Default)]
pub(super) struct Was {
    pub(super) key: Option<KeyStrategy>,
    pub(super) scope: Option<Scope>,
    /// Said, and perhaps that there was none.
    pub(super) business: Option<Option<KeyStrategy>>,
    pub(super) order: Option<OrderBy>,
}

/// How keys were made before.
#[derive(Clone, Debug)]
pub(super) struct Before {
    key: KeyStrategy,
    scope: Scope,
    business: Option<KeyStrategy>,
    order: Option<OrderBy>,
    /// Its keys are broader than those of now by a mistake of ours. A record that was made under one beside a key of now
    /// names that key, and belongs to no message with another.
    is_broader: bool,
}

impl Before {
    pub(super) fn scheme(&self, now: &Identity, order: &OrderBy) -> Scheme {
        let order = self.order.as_ref().unwrap_or(order);
        scheme(&self.key, &self.scope, self.business.as_ref(), order, &now.fingerprinter)
    }

    /// What was claimed for a message before. A message that had no key then has no record either.
    fn requests(
        &self,
        records: Records,
        message: &Message,
        coordinate: Option<&Coordinate>,
        now: &ClaimRequest,
    ) -> impl Iterator<Item = Former> {
        let is_broader = self.is_broader;
        let fingerprint = if is_broader { Fingerprint::of_key(&now.key) } else { now.fingerprint };
        let consumer = if self.scope.is_global() { records.shared } else { records.own };
        let first = scoped(&self.key, &self.scope, message, coordinate);
        let business = self.business.as_ref().map(|key| business(key, &self.scope, message, coordinate));
        let first_hash = if self.key.is_message_id() { None } else { id_hash(message) };
        let former = move |key: Result<Key, KeyError>, id_hash, fingerprint, is_business, is_broader| {
            let request = ClaimRequest { consumer, key: key.ok()?, fingerprint, id_hash };
            Some(Former { request, is_business, is_broader })
        };
        let first = former(first, first_hash, fingerprint, false, is_broader);
        let business = business.and_then(|key| former(key, id_hash(message), fingerprint, true, is_broader));
        // Versions that kept no scheme may have made them in a broader way still.
        let of_key = Fingerprint::of_key(&now.key);
        let broader = |key, is_business| former(key, id_hash(message), of_key, is_business, true);
        let legacy = self.key.legacy().map(|key| scoped(&key, &self.scope, message, coordinate));
        let legacy_business = self.business.as_ref().and_then(KeyStrategy::legacy);
        let legacy_business = legacy_business.map(|key| self::business(&key, &self.scope, message, coordinate));
        let legacy = legacy.and_then(|key| broader(key, false));
        let legacy_business = legacy_business.and_then(|key| broader(key, true));
        [first, business, legacy, legacy_business].into_iter().flatten()
    }
}

fn scheme(
    key: &KeyStrategy,
    scope: &Scope,
    business: Option<&KeyStrategy>,
    order: &OrderBy,
    fingerprinter: &Fingerprinter,
) -> Scheme {
    Scheme {
        key: key.scheme_text(),
        scope: scope.scheme_text(),
        business: business.map(KeyStrategy::scheme_text),
        order: order.to_string(),
        versions_of: None,
        fingerprint: fingerprinter.scheme_text(),
    }
}

/// Where a consumer keeps its records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    pub(super) own: ConsumerId,
    pub(super) shared: ConsumerId,
}

/// The claims of one message.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) first: ClaimRequest,
    pub(super) business: Option<ClaimRequest>,
    /// What was claimed for it in the way of before, while a change is bridged. None of them is one of the others.
    pub(super) was: Vec<Former>,
    /// Whether the first key is the message's own id.
    pub(super) first_is_id: bool,
}

/// A claim in the way of before.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) request: ClaimRequest,
    /// It was a business key: the message is never parked under it.
    pub(super) is_business: bool,
    /// Messages share it that were never the same: nothing that knows the key alone can tell.
    pub(super) is_broader: bool,
}

impl Claims {
    /// Whether nothing tells if what was handled, or is parked, under a key of before is this message: the key is another
    /// now, perhaps because messages shared it, and so are the fingerprints.
    pub(super) fn cannot_compare(&self, former: &Former, earlier: &Earlier) -> bool {
        let same_key = [Some(&self.first), self.business.as_ref()].into_iter().flatten();
        let same_key = same_key.map(|now| &now.key).any(|now| *now == former.request.key);
        !same_key && !former.is_broader && earlier.fingerprint.scheme() != former.request.fingerprint.scheme()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ClaimRequest> {
        std::iter::once(&self.first).chain(self.beside())
    }

    /// All but the first.
    pub(super) fn beside(&self) -> impl Iterator<Item = &ClaimRequest> {
        self.business.iter().chain(self.was.iter().map(|former| &former.request))
    }

    /// Those that say of a message that it is parked: its own key, and in the way of before its key then. Never a business
    /// key, under which another message with the same intent may still come.
    pub(super) fn parked(&self) -> impl Iterator<Item = &ClaimRequest> {
        let was = self.was.iter().filter(|former| !former.is_business);
        std::iter::once(&self.first).chain(was.map(|former| &former.request))
    }

    /// Business keys, of now and of before.
    pub(super) fn business(&self) -> impl Iterator<Item = &ClaimRequest> {
        let was = self.was.iter().filter(|former| former.is_business);
        self.business.iter().chain(was.map(|former| &former.request))
    }
}

impl Identity {
    pub(super) fn covers(&mut self, content: Content) {
        self.fingerprinter = Fingerprinter::new(content);
    }

    /// In words, with what its messages are kept in order by.
    pub(super) fn scheme(&self, order: &OrderBy) -> Scheme {
        scheme(&self.key, &self.scope, self.business.as_ref(), order, &self.fingerprinter)
    }

    /// How keys were made before, if anything is said about that.
    pub(super) fn before(&self) -> Option<Before> {
        let Was { key, scope, business, order } = &self.was;
        if key.is_none() && scope.is_none() && business.is_none() && order.is_none() {
            return None;
        }
        Some(Before {
            key: key.clone().unwrap_or_else(|| self.key.clone()),
            scope: scope.clone().unwrap_or_else(|| self.scope.clone()),
            business: business.clone().unwrap_or_else(|| self.business.clone()),
            order: order.clone(),
            is_broader: false,
        })
    }

    /// How versions before made keys that kept no scheme, where that differs.
    pub(super) fn legacy(&self) -> Option<Before> {
        let business = self.business.as_ref().and_then(KeyStrategy::legacy);
        if self.key.legacy().is_none() && business.is_none() {
            return None;
        }
        Some(Before {
            key: self.key.legacy().unwrap_or_else(|| self.key.clone()),
            scope: self.scope.clone(),
            business: business.or_else(|| self.business.clone()),
            order: None,
            is_broader: true,
        })
    }

    /// Whether a message's place in the broker is part of its keys, and must not be lost.
    pub(super) fn needs_coordinate(&self) -> bool {
        let before = self.bridge.as_ref().map(|before| &before.key);
        [Some(&self.key), before].into_iter().flatten().any(|key| *key == KeyStrategy::Coordinate)
    }

    /// The key of a message's first claim alone.
    pub(super) fn first_key(&self, message: &Message, coordinate: Option<&Coordinate>) -> Result<Key, Failure> {
        self.scoped(&self.key, message, coordinate)
    }

    fn scoped(
        &self,
        strategy: &KeyStrategy,
        message: &Message,
        coordinate: Option<&Coordinate>,
    ) -> Result<Key, Failure> {
        scoped(strategy, &self.scope, message, coordinate)
            .map_err(|error| Failure::permanent(format!("it gets no key: {error}")))
    }

    pub(super) fn claims(
        &self,
        records: Records,
        message: &Message,
        coordinate: Option<&Coordinate>,
    ) -> Result<Claims, Failure> {
        let fingerprint = self.fingerprinter.fingerprint(message);
        let consumer = if self.scope.is_global() { records.shared } else { records.own };
        let key = |strategy: &KeyStrategy| self.scoped(strategy, message, coordinate);
        let request = |key: Key, id_hash| ClaimRequest { consumer, key, fingerprint, id_hash };
        let first_is_id = self.key.is_message_id();
        let first = request(key(&self.key)?, if first_is_id { None } else { id_hash(message) });
        let business = match &self.business {
            None => None,
            Some(strategy) => {
                let key = business(strategy, &self.scope, message, coordinate)
                    .map_err(|error| Failure::permanent(format!("it gets no key: {error}")))?;
                Some(request(key, id_hash(message)))
            }
        };
        let mut claims = Claims { first, business, was: Vec::new(), first_is_id };
        if let Some(before) = &self.bridge {
            for former in before.requests(records, message, coordinate, &claims.first.clone()) {
                let request = &former.request;
                let is_there = |claim: &ClaimRequest| (claim.consumer, &claim.key) == (request.consumer, &request.key);
                if !claims.all().any(is_there) {
                    claims.was.push(former);
                }
            }
        }
        Ok(claims)
    }
}

fn scoped(
    strategy: &KeyStrategy,
    scope: &Scope,
    message: &Message,
    coordinate: Option<&Coordinate>,
) -> Result<Key, KeyError> {
    strategy.key(message, coordinate).and_then(|key| scope.within(message, key))
}

/// A business key has its own namespace: one that reads like some message's id is not that id.
fn business(
    strategy: &KeyStrategy,
    scope: &Scope,
    message: &Message,
    coordinate: Option<&Coordinate>,
) -> Result<Key, KeyError> {
    let key = scoped(strategy, scope, message, coordinate)?;
    Key::parts([&b"business"[..], key.as_bytes()])
}

/// A short hash of the message's identity (FNV-1a, folded): tells a redelivery from another message, for counting.
pub(super) fn id_hash(message: &Message) -> Option<i32> {
    let id = message.id.as_ref()?;
    let source = message.source.as_deref().unwrap_or_default();
    let bytes = source.bytes().chain([0]).chain(id.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Some(((hash >> 32) ^ hash) as u32 as i32)
}
