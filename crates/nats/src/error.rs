//! From the client library's errors to what the caller can do about them.

use std::error::Error as _;

use async_nats::ConnectErrorKind;
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::stream::ConsumerCreateStrictErrorKind;
use async_nats::jetstream::{self, ErrorCode};
use oncebox_core::sink::{SinkError, SinkErrorKind};
use oncebox_core::{SourceError, SourceErrorKind};

/// What went wrong, before it is known whether a source or a sink has to say it. Made of our own words and JetStream's
/// codes: texts of the client library may quote addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    can: Can,
    reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Can {
    TryLater,
    Change,
}

impl Trouble {
    /// It may work later without anyone changing anything.
    pub(crate) fn later(reason: impl Into<String>) -> Self {
        Self { can: Can::TryLater, reason: reason.into() }
    }

    /// A person has to change something.
    pub(crate) fn setting(reason: impl Into<String>) -> Self {
        Self { can: Can::Change, reason: reason.into() }
    }

    pub(crate) fn in_source(self, attempted: String) -> SourceError {
        let kind = match self.can {
            Can::TryLater => SourceErrorKind::Unavailable,
            Can::Change => SourceErrorKind::Configuration,
        };
        SourceError::new(kind, attempted, self.reason)
    }

    pub(crate) fn in_sink(self, attempted: String) -> SinkError {
        let kind = match self.can {
            Can::TryLater => SinkErrorKind::Unavailable,
            Can::Change => SinkErrorKind::Configuration,
        };
        SinkError::new(kind, attempted, self.reason)
    }
}

pub(crate) fn connect(error: &async_nats::ConnectError) -> Trouble {
    match error.kind() {
        ConnectErrorKind::ServerParse => Trouble::setting("the address cannot be read; write nats://host:port"),
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => Trouble::setting(
            "the server refuses the credentials; check the user name and the password or token in the URL",
        ),
        ConnectErrorKind::Tls => Trouble::setting("TLS cannot be set up; check the certificates on both sides"),
        ConnectErrorKind::Dns => Trouble::later("the host name cannot be resolved"),
        ConnectErrorKind::TimedOut => Trouble::later("the server does not answer in time"),
        ConnectErrorKind::Io => {
            // The operating system's words: refused, reset, unreachable.
            let why = error.source().map_or_else(|| "the connection failed".to_owned(), ToString::to_string);
            Trouble::later(format!("{why}; check the address, and that the server runs"))
        }
        ConnectErrorKind::MaxReconnects => Trouble::later("the client gave up connecting"),
    }
}

pub(crate) fn stream(kind: &GetStreamErrorKind) -> Trouble {
    match kind {
        GetStreamErrorKind::EmptyName | GetStreamErrorKind::InvalidStreamName => {
            Trouble::setting("its name is not one that a stream can have")
        }
        GetStreamErrorKind::JetStream(error) => api(error, "the stream does not exist; create it first"),
        GetStreamErrorKind::Request => Trouble::later(NO_ANSWER),
    }
}

pub(crate) fn consumer(kind: &ConsumerInfoErrorKind) -> Trouble {
    match kind {
        ConsumerInfoErrorKind::InvalidName => Trouble::setting("its name is not one that a consumer can have"),
        ConsumerInfoErrorKind::NotFound => {
            Trouble::setting("the consumer does not exist; create it first, or ask for it with `create`")
        }
        ConsumerInfoErrorKind::StreamNotFound => Trouble::setting("its stream does not exist; create it first"),
        ConsumerInfoErrorKind::JetStream(error) => api(error, "the consumer does not exist; create it first"),
        ConsumerInfoErrorKind::Offline => Trouble::later("the consumer is offline"),
        ConsumerInfoErrorKind::Request | ConsumerInfoErrorKind::TimedOut | ConsumerInfoErrorKind::NoResponders => {
            Trouble::later(NO_ANSWER)
        }
    }
}

pub(crate) fn create(kind: &ConsumerCreateStrictErrorKind) -> Trouble {
    match kind {
        ConsumerCreateStrictErrorKind::AlreadyExists => Trouble::setting(
            "the consumer exists with other settings than those asked for; change them by hand, or leave out `create` to \
             take it as it is",
        ),
        ConsumerCreateStrictErrorKind::InvalidName | ConsumerCreateStrictErrorKind::InvalidConsumerType => {
            Trouble::setting("its name is not one that a consumer can have")
        }
        ConsumerCreateStrictErrorKind::JetStream(error) => api(error, "its stream does not exist; create it first"),
        ConsumerCreateStrictErrorKind::TimedOut
        | ConsumerCreateStrictErrorKind::Request
        | ConsumerCreateStrictErrorKind::Other => Trouble::later(NO_ANSWER),
    }
}

/// How large a message was, and how large it may be, headers included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

/// Of one message. `subject` is where it was to go.
pub(crate) fn publish(
    error: &jetstream::context::PublishError,
    Sizes { bytes, limit }: Sizes,
    subject: &str,
    attempted: String,
) -> SinkError {
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            Trouble::setting(format!("no stream takes the subject {subject}; create one that does")).in_sink(attempted)
        }
        PublishErrorKind::MaxPayloadExceeded => {
            let why = format!("its {bytes} bytes with its headers are more than the server's max_payload of {limit}");
            SinkError::new(SinkErrorKind::Refused, attempted, why)
        }
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending => {
            Trouble::later("the server did not confirm it in time").in_sink(attempted)
        }
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence | PublishErrorKind::Other => {
            let api_error = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
            match api_error {
                Some(error) => refused_by_stream(error, attempted),
                None => Trouble::later("the client could not send it").in_sink(attempted),
            }
        }
    }
}

fn refused_by_stream(error: &jetstream::Error, attempted: String) -> SinkError {
    match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
            SinkError::new(SinkErrorKind::Refused, attempted, "it is larger than the stream's max_msg_size")
        }
        ErrorCode::STREAM_NOT_MATCH => {
            Trouble::setting("another stream than the one that was named takes its subject").in_sink(attempted)
        }
        // Full, no space, no leader: all pass, or need a person who finds the message still in the outbox.
        code => Trouble::later(format!("the stream refuses it (JetStream error {})", code.0)).in_sink(attempted),
    }
}

fn api(error: &jetstream::Error, if_missing: &str) -> Trouble {
    let (status, code) = (error.code(), error.error_code().0);
    match status {
        404 => Trouble::setting(if_missing),
        500.. => Trouble::later(format!("JetStream is not ready (error {code})")),
        _ => Trouble::setting(format!("JetStream refuses it (error {code})")),
    }
}

pub(crate) const NO_ANSWER: &str = "JetStream does not answer; is it enabled for this account?";
