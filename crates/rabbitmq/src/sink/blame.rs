//! Which message made the broker close a channel.

use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use oncebox_core::message::Shown;
use oncebox_core::{SinkError, SinkErrorKind};

use super::round::Parcel;
use crate::error::soft;

/// What the broker's words say about the message that it closed a channel over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// `no exchange 'x' in vhost '/'`, or `access to exchange 'x' in vhost '/' refused`.
    Exchange(String),
    /// `message size 20000000 larger than max size 16777216`.
    TooLarge(String),
}

impl Blame {
    pub(super) fn read(error: &lapin::Error) -> Option<Self> {
        let said = soft(error)?;
        let text = said.get_message().to_string();
        match said.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED) => Some(Self::Exchange(text)),
            AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) if text.contains("message size") => {
                Some(Self::TooLarge(text))
            }
            _ => None,
        }
    }

    pub(super) fn is_on(&self, parcel: &Parcel) -> bool {
        match self {
            Self::Exchange(text) => text.contains(&format!("exchange '{}'", parcel.topic.exchange)),
            Self::TooLarge(text) => text.contains(&format!("message size {} ", parcel.written.payload.len())),
        }
    }

    pub(super) fn verdict(&self, parcel: &Parcel) -> SinkError {
        let (kind, text) = match self {
            Self::Exchange(text) => (SinkErrorKind::Configuration, text),
            Self::TooLarge(text) => (SinkErrorKind::Refused, text),
        };
        SinkError::new(kind, parcel.attempted(), format!("the broker answered {}", Shown(text)))
    }
}
