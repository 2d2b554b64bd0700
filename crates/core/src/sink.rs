//! The seam to a broker, outbound.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::code::Code;
use crate::message::Message;

/// Where messages go.
///
/// A sink knows nothing of stores: it publishes what it is given, and says of each message whether the broker has it. The
/// relay keeps what was not confirmed and publishes it again, with the same id.
pub trait Sink: Send + Sync + 'static {
    /// What this sink guarantees.
    fn capabilities(&self) -> SinkCapabilities;

    /// Called before the first [`publish`](Self::publish), again if it fails with `Unavailable`: connects and checks
    /// settings.
    fn open(&self) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Publishes messages, in order, and waits until the broker has confirmed or refused each. Answers for each, in their
    /// order.
    ///
    /// Awaited to its end, never cancelled, so it ends by itself within a bounded time: what is not confirmed by then is
    /// [`Unavailable`](SinkErrorKind::Unavailable). It does not publish anything twice on its own account, unless the
    /// broker knows to ignore it.
    fn publish(&self, batch: &[Outgoing]) -> impl Future<Output = Vec<Result<(), SinkError>>> + Send;

    /// Called once at the end, after the last publish.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A message on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to: a topic, a subject, an exchange with a routing key; the sink says how it reads it.
    pub topic: String,
    /// What: with an id, which stays the same however often it is published.
    pub message: Arc<Message>,
}

/// What a sink guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkCapabilities {
    /// What it is, for logs: `rabbitmq`.
    pub name: &'static str,
    /// How long the broker itself recognises an id that it has seen. A help, never counted on; `None`: it does not.
    pub dedup_window: Option<Duration>,
    /// Of the messages of one topic and order key in one batch, those that are confirmed come before those that are not,
    /// for whatever reason they are not. Without it, the relay has one of them under way at a time.
    pub fails_by_prefix: bool,
}

impl SinkCapabilities {
    /// Capabilities of a sink called `name` that promises nothing yet.
    pub const fn none(name: &'static str) -> Self {
        Self { name, dedup_window: None, fails_by_prefix: false }
    }
}

/// What a caller can do about a [`SinkError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SinkErrorKind {
    /// The broker can't be reached, or did not answer in time: it may have the message or not. Publish it again later.
    Unavailable,
    /// The broker will never take this message: it is too large, or names something impossible. Others are not
    /// concerned.
    Refused,
    /// The destination does not exist, or is not allowed to us; a person must act. Other destinations are not concerned.
    Configuration,
}

/// A message could not be published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {attempted}: {reason}")]
pub struct SinkError {
    kind: SinkErrorKind,
    attempted: String,
    reason: String,
}

impl SinkError {
    /// `attempted` completes "cannot …"; neither part may hold payloads or secrets.
    pub fn new(kind: SinkErrorKind, attempted: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, attempted: attempted.into(), reason: reason.into() }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> SinkErrorKind {
        self.kind
    }

    /// The page that tells an operator what to do.
    pub fn code(&self) -> Code {
        match self.kind {
            SinkErrorKind::Unavailable => Code::SinkAway,
            SinkErrorKind::Refused => Code::RowRefused,
            SinkErrorKind::Configuration => Code::SinkSetting,
        }
    }

    /// Why, in words without payload or secrets.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}
