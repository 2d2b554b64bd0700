//! How a consumer tells messages apart: the keys that it claims for each.

use oncebox_core::claim::ClaimRequest;
use oncebox_core::{ConsumerId, Content, Coordinate, Failure, Fingerprinter, Key, KeyStrategy, Message, Scope};

/// What a consumer claims for each message.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) key: KeyStrategy,
    pub(super) scope: Scope,
    /// A second key, claimed in the same transaction, that catches the same intent under another id.
    pub(super) business: Option<KeyStrategy>,
    pub(super) fingerprinter: Fingerprinter,
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
    /// Whether the first key is the message's own id.
    pub(super) first_is_id: bool,
}

impl Claims {
    pub(super) fn all(&self) -> impl Iterator<Item = &ClaimRequest> {
        std::iter::once(&self.first).chain(&self.business)
    }
}

impl Identity {
    pub(super) fn covers(&mut self, content: Content) {
        self.fingerprinter = Fingerprinter::new(content);
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
        let key = strategy.key(message, coordinate);
        let scoped = key.and_then(|key| self.scope.within(message, key));
        scoped.map_err(|error| Failure::permanent(format!("it gets no key: {error}")))
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
                // Its own namespace: a business key that reads like some message's id is not that id.
                let key = Key::parts([&b"business"[..], key(strategy)?.as_bytes()])?;
                Some(request(key, id_hash(message)))
            }
        };
        Ok(Claims { first, business, first_is_id })
    }
}

/// A short hash of the message's identity (FNV-1a, folded): tells a redelivery from another message, for counting.
pub(super) fn id_hash(message: &Message) -> Option<i32> {
    let id = message.id.as_ref()?;
    let source = message.source.as_deref().unwrap_or_default();
    let bytes = source.bytes().chain([0]).chain(id.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Some(((hash >> 32) ^ hash) as u32 as i32)
}
