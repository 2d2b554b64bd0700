//! Messages to streams.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use oncebox_core::message::Shown;
use oncebox_core::sink::SinkCapabilities;
use oncebox_core::{Outgoing, Sink, SinkError, SinkErrorKind};
use tokio::time::{Instant, timeout_at};

use crate::error::{self, Trouble};
use crate::headers::{self, Mode, NATS_ID};
use crate::link::Link;
use crate::server::Server;

/// Publishes to JetStream. A topic is a subject: `invoices.paid`.
///
/// A message is confirmed when its stream has stored it. Its id goes along as `Nats-Msg-Id`, with a digest of its subject and
/// source, so that a stream ignores what is published again within its `duplicate_window` (2 minutes unless set): a help,
/// never counted on. The window knows this text only, and remembers it when the message is gone; two messages that share an
/// id, on two subjects or from two sources, have two.
///
/// It creates no streams: a subject that none takes is a [`Configuration`](SinkErrorKind::Configuration) error.
pub struct JetStreamSink {
    server: Server,
    stream: Option<String>,
    source: Option<String>,
    mode: Mode,
    names_id: bool,
    in_flight_max: usize,
    timeout: Duration,
    /// Written by `open` and `close`.
    open: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    link: Link,
    dedup_window: Option<Duration>,
}

/// A message that was sent and not confirmed.
struct Sent {
    /// Its place in the batch.
    n: usize,
    confirmed: PublishAckFuture,
    source: Option<String>,
}

impl JetStreamSink {
    /// Messages that are under way at a time, unless told otherwise.
    pub const IN_FLIGHT_MAX: usize = 256;

    /// How long one call of `publish` may take, unless told otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// A sink on this server.
    pub fn new(server: impl Into<Server>) -> Self {
        Self {
            server: server.into(),
            stream: None,
            source: Some("oncebox".to_owned()),
            mode: Mode::default(),
            names_id: true,
            in_flight_max: Self::IN_FLIGHT_MAX,
            timeout: Self::TIMEOUT,
            open: Mutex::default(),
        }
    }

    /// Publishes to this stream only: it must be there when the sink is opened, and a subject that another stream takes is
    /// an error. Also shows its window in the capabilities.
    #[must_use]
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = Some(name.into());
        self
    }

    /// The CloudEvents `source` of messages that name none. Default `oncebox`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Forwards the messages of others: one that names no source stays without.
    #[must_use]
    pub fn forwarding(mut self) -> Self {
        self.source = None;
        self
    }

    /// Publishes each message as one JSON document (CloudEvents structured mode) in place of headers and payload.
    #[must_use]
    pub fn structured(mut self) -> Self {
        self.mode = Mode::Structured;
        self
    }

    /// Leaves out `Nats-Msg-Id`: the stream stores whatever is published, as often as it is.
    #[must_use]
    pub fn without_message_id(mut self) -> Self {
        self.names_id = false;
        self
    }

    /// How many messages may be under way at a time. Default [`IN_FLIGHT_MAX`](Self::IN_FLIGHT_MAX).
    #[must_use]
    pub fn in_flight_max(mut self, max: usize) -> Self {
        self.in_flight_max = max.max(1);
        self
    }

    /// How long one call of `publish` may take; what is not confirmed by then is
    /// [`Unavailable`](SinkErrorKind::Unavailable). Default [`TIMEOUT`](Self::TIMEOUT).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn slot(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Open, Trouble> {
        let mut link = Link::open(&self.server).await?;
        link.context.set_timeout(self.timeout);
        let dedup_window = match &self.stream {
            Some(name) => {
                let stream = link.context.get_stream(name).await.map_err(|error| error::stream(&error.kind()))?;
                let window = stream.cached_info().config.duplicate_window;
                (self.names_id && !window.is_zero()).then_some(window)
            }
            None => None,
        };
        Ok(Open { link, dedup_window })
    }

    async fn send(
        &self,
        open: &Open,
        outgoing: &Outgoing,
        deadline: Instant,
    ) -> Result<(PublishAckFuture, Option<String>), SinkError> {
        let topic = outgoing.topic.as_str();
        check_subject(topic).map_err(|why| SinkError::new(SinkErrorKind::Refused, attempted(outgoing), why))?;
        let message = &outgoing.message;
        let (mut headers, payload) = headers::write(message, self.source.as_deref(), self.mode);
        let named = message.source.as_deref().or(self.source.as_deref());
        if let Some(id) = message.id.as_ref().filter(|_| self.names_id)
            && let Ok(id) = headers::nats_id(id, topic, named).parse::<async_nats::HeaderValue>()
        {
            headers.insert(NATS_ID, id);
        }
        let source = headers.get(SOURCE).map(ToString::to_string);
        let bytes = payload.len();
        let mut publish = PublishMessage::build().payload(payload).headers(headers);
        if let Some(stream) = &self.stream {
            publish = publish.expected_stream(stream);
        }
        match timeout_at(deadline, open.link.context.send_publish(topic.to_owned(), publish)).await {
            Ok(Ok(confirmed)) => Ok((confirmed, source)),
            Ok(Err(error)) => Err(failed(open, &error, outgoing, bytes)),
            Err(_) => Err(late(outgoing)),
        }
    }

    async fn confirm(&self, open: &Open, sent: Sent, outgoing: &Outgoing, deadline: Instant) -> Result<(), SinkError> {
        let confirmed = match timeout_at(deadline, sent.confirmed.into_future()).await {
            Ok(Ok(confirmed)) => confirmed,
            Ok(Err(error)) => return Err(failed(open, &error, outgoing, outgoing.message.payload.len())),
            Err(_) => return Err(late(outgoing)),
        };
        if confirmed.duplicate && is_another(open, &confirmed, sent.source.as_deref(), deadline).await {
            let why = format!(
                "another message with its id is in stream {} already, and the stream would drop this one; give it an id of \
                 its own",
                confirmed.stream
            );
            return Err(SinkError::new(SinkErrorKind::Refused, attempted(outgoing), why));
        }
        Ok(())
    }
}

/// The header that tells the sources of two messages with one id apart.
const SOURCE: &str = "ce-source";

impl Sink for JetStreamSink {
    fn capabilities(&self) -> SinkCapabilities {
        let mut capabilities = SinkCapabilities::none("jetstream");
        capabilities.dedup_window = self.slot().as_ref().and_then(|open| open.dedup_window);
        capabilities
    }

    async fn open(&self) -> Result<(), SinkError> {
        let open = self.connect().await.map_err(|trouble| {
            let to = self.stream.as_ref().map(|stream| format!("stream {stream} on ")).unwrap_or_default();
            trouble.in_sink(format!("open a sink to {to}{}", self.server))
        })?;
        *self.slot() = Some(open);
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let open = self.slot().clone();
        let refusal = match &open {
            None => Some(Trouble::setting("the sink is not open")),
            Some(open) if !open.link.is_up() => Some(Link::down()),
            Some(_) => None,
        };
        let (Some(open), None) = (open, &refusal) else {
            let said = refusal.unwrap_or_else(Link::down).in_sink(format!("publish to {}", self.server));
            return vec![Err(said); batch.len()];
        };
        let deadline = Instant::now() + self.timeout;
        let mut answers: Vec<Result<(), SinkError>> = batch.iter().map(|outgoing| Err(late(outgoing))).collect();
        let mut under_way: VecDeque<Sent> = VecDeque::new();
        for (n, outgoing) in batch.iter().enumerate() {
            match self.send(&open, outgoing, deadline).await {
                Ok((confirmed, source)) => under_way.push_back(Sent { n, confirmed, source }),
                Err(error) => answers[n] = Err(error),
            }
            if under_way.len() >= self.in_flight_max
                && let Some(sent) = under_way.pop_front()
            {
                let n = sent.n;
                answers[n] = self.confirm(&open, sent, &batch[n], deadline).await;
            }
        }
        for sent in under_way {
            let n = sent.n;
            answers[n] = self.confirm(&open, sent, &batch[n], deadline).await;
        }
        answers
    }

    async fn close(&self) {
        let open = self.slot().take();
        if let Some(open) = open {
            open.link.close().await;
        }
    }
}

impl fmt::Debug for JetStreamSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamSink")
            .field("server", &self.server)
            .field("stream", &self.stream)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// Whether the message that the stream took this one for is another, which would take a producer that writes our ids. If it
/// can't be looked at, it is gone: stored once, under an id that has topic, source and id in it, so it was this one. Its
/// subject says nothing: a stream may rewrite it.
async fn is_another(open: &Open, confirmed: &PublishAck, source: Option<&str>, deadline: Instant) -> bool {
    let stored = async {
        let stream = open.link.context.get_stream_no_info(&confirmed.stream).await.ok()?;
        stream.get_raw_message(confirmed.sequence).await.ok()
    };
    match timeout_at(deadline, stored).await {
        Ok(Some(stored)) => stored.headers.get(SOURCE).map(|value| value.as_str()) != source,
        Ok(None) | Err(_) => false,
    }
}

fn attempted(outgoing: &Outgoing) -> String {
    format!("publish message {} to {}", outgoing.message.label(), Shown(&outgoing.topic))
}

fn late(outgoing: &Outgoing) -> SinkError {
    Trouble::later("the server did not confirm it in time").in_sink(attempted(outgoing))
}

fn failed(open: &Open, error: &PublishError, outgoing: &Outgoing, bytes: usize) -> SinkError {
    let limit = open.link.client.server_info().max_payload;
    error::publish(error, error::Sizes { bytes, limit }, &outgoing.topic, attempted(outgoing))
}

/// What the server, or a stream, would take for something else than one subject.
pub(crate) fn check_subject(subject: &str) -> Result<(), &'static str> {
    if subject.split('.').any(str::is_empty) {
        return Err("its subject is empty or has an empty part");
    }
    if subject.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("its subject holds a space or a control character");
    }
    if subject.split('.').any(|part| part == "*" || part == ">") {
        return Err("its subject holds a wildcard, which can be listened to but not published to");
    }
    if subject.starts_with('$') {
        return Err("subjects that begin with $ are orders to the server");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_subjects_are_published_to() {
        for subject in ["a", "orders.new", "orders.\u{fc}ber", "a*b.c>d", "-_/"] {
            assert_eq!(check_subject(subject), Ok(()), "{subject}");
        }
        for subject in ["", ".", "a.", ".a", "a..b", "a b", "a\r\nPUB x", "a.*", "a.>", ">", "$JS.API.STREAM.PURGE.S"] {
            assert!(check_subject(subject).is_err(), "{subject}");
        }
    }
}
