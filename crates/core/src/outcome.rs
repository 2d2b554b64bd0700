//! What is remembered of a message that was handled.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::store::ConsumerId;

/// The largest result that is kept with an outcome. A duplicate gets it back, so it lives as long as the record.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;

/// What is remembered of a message that was handled, and given back to its duplicates.
#[derive(Clone, Debug)]
pub struct Outcome {
    kind: OutcomeKind,
    result: Option<Bytes>,
    replayed: bool,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// Its effect is committed.
    Applied,
    /// The business refused it: recorded, not retried.
    Rejected,
    /// A business constraint shows that its effect was there already.
    AlreadyApplied,
    /// It is older than the state that it describes.
    Stale,
    /// It is set aside, to be tried again or to be looked at by a person: safe, and not done.
    Parked,
    /// Another message with its version of the aggregate was applied before.
    SameVersion,
}

impl Outcome {
    /// The effect is applied.
    pub fn applied() -> Self {
        Self::of(OutcomeKind::Applied)
    }

    /// The business refuses the message, for this reason. What the handler wrote is committed with the refusal.
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self { result: Some(Bytes::from(reason.into())), ..Self::of(OutcomeKind::Rejected) }
    }

    /// An outcome of this kind with nothing to return.
    pub fn of(kind: OutcomeKind) -> Self {
        Self { kind, result: None, replayed: false }
    }

    /// Parked, in the records of `owner`. In those that consumers share it names the consumer whose row it stands for, which
    /// alone may end it.
    pub fn parked_by(consumer: ConsumerId, owner: ConsumerId) -> Self {
        let named = (owner != consumer).then(|| consumer.0.to_string().into());
        Self { result: named, ..Self::of(OutcomeKind::Parked) }
    }

    /// The consumer whose row a shared record stands for. Records of former versions do not name it.
    pub fn parker(&self) -> Option<ConsumerId> {
        let named = self.result.as_deref().filter(|_| self.kind == OutcomeKind::Parked)?;
        std::str::from_utf8(named).ok()?.parse().ok().map(ConsumerId)
    }

    /// Keeps `value` as JSON, to be returned to duplicates.
    pub fn with_json(mut self, value: &impl Serialize) -> Result<Self, Failure> {
        let bytes =
            serde_json::to_vec(value).map_err(|_| Failure::permanent("the result cannot be written as JSON"))?;
        if bytes.len() > RESULT_BYTES_MAX {
            let size = bytes.len();
            return Err(Failure::permanent(format!(
                "the result has {size} bytes; at most {RESULT_BYTES_MAX} are kept"
            )));
        }
        self.result = Some(bytes.into());
        Ok(self)
    }

    /// How it ended.
    pub fn kind(&self) -> OutcomeKind {
        self.kind
    }

    /// What was kept: JSON of an applied message, the reason of a rejected one.
    pub fn result(&self) -> Option<&Bytes> {
        self.result.as_ref()
    }

    /// The kept JSON as a value.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.result.as_deref()?).ok()
    }

    /// Whether this came from an earlier delivery of the message. Not part of equality: it is the same outcome.
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// Takes back what a store kept; it is marked as replayed.
    pub fn from_stored(kind: OutcomeKind, result: Option<Bytes>) -> Self {
        Self { kind, result, replayed: true }
    }

    /// Whether a claim alone says all of it, so that nothing more need be written.
    pub fn is_plain(&self) -> bool {
        self.kind == OutcomeKind::Applied && self.result.is_none()
    }

    /// The same, as a duplicate receives it.
    #[must_use]
    pub fn replayed(mut self) -> Self {
        self.replayed = true;
        self
    }
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.result == other.result
    }
}

impl OutcomeKind {
    /// The stored number. Never changes its meaning.
    pub fn code(self) -> i16 {
        match self {
            Self::Applied => 0,
            Self::Rejected => 1,
            Self::AlreadyApplied => 2,
            Self::Stale => 3,
            Self::Parked => 4,
            Self::SameVersion => 5,
        }
    }

    /// Reads a stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        let all = [Self::Applied, Self::Rejected, Self::AlreadyApplied, Self::Stale, Self::Parked, Self::SameVersion];
        all.into_iter().find(|kind| kind.code() == code)
    }
}
