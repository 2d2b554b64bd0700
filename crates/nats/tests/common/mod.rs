//! A server, and streams of each test's own on it.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::time::Duration;

use async_nats::jetstream::{self, Context, consumer::pull, stream};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Clock, Delivery, Message, Outgoing, Sink, Source, SourceError, SystemClock};
use oncebox_nats::{JetStreamReceipt, JetStreamSink, JetStreamSource, NewConsumer};
use oncebox_testkit::eventually;

/// Short, because tests wait it out. Long enough that a loaded machine does not lose what it has in hand.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(2);

/// Longer than any test takes to receive what is there.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// The server's address, or `None`, noting under `name` that the test was skipped.
pub(crate) fn server(name: &str) -> Option<String> {
    let url = std::env::var("ONCEBOX_TEST_NATS_URL").ok();
    if url.is_none() {
        oncebox_testkit::skipped(name);
    }
    url
}

/// A stream of its own.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) stream: String,
    /// A subject that the stream takes, as it takes everything below it.
    pub(crate) subject: String,
    pub(crate) context: Context,
}

impl Place {
    pub(crate) async fn at(url: String) -> Self {
        Self::with(url, |_| {}).await
    }

    pub(crate) async fn with(url: String, change: impl FnOnce(&mut stream::Config)) -> Self {
        let client = async_nats::connect(&url).await.unwrap();
        let context = jetstream::new(client);
        let stream = format!("t{}", SystemClock.id().simple());
        let mut config = stream::Config {
            name: stream.clone(),
            subjects: vec![stream.clone(), format!("{stream}.>")],
            ..stream::Config::default()
        };
        change(&mut config);
        context.create_stream(config).await.unwrap();
        Self { url, subject: stream.clone(), stream, context }
    }

    pub(crate) fn new_consumer() -> NewConsumer {
        NewConsumer::default().ack_wait(ACK_WAIT)
    }

    /// A source with a consumer named `d`, not open.
    pub(crate) fn source(&self) -> JetStreamSource {
        JetStreamSource::new(self.url.as_str(), &self.stream, "d").create(Self::new_consumer())
    }

    pub(crate) async fn open_source(&self) -> JetStreamSource {
        let source = self.source();
        open(&source).await.unwrap();
        source
    }

    pub(crate) fn sink(&self) -> JetStreamSink {
        JetStreamSink::new(self.url.as_str()).stream(&self.stream)
    }

    pub(crate) async fn open_sink(&self) -> JetStreamSink {
        let sink = self.sink();
        sink.open().await.unwrap();
        sink
    }

    pub(crate) fn outgoing(&self, text: &str) -> Outgoing {
        self.to(&self.subject, Message::new("noted").with_payload(text.to_owned()))
    }

    pub(crate) fn to(&self, topic: &str, message: Message) -> Outgoing {
        Outgoing { topic: topic.to_owned(), message: message.into() }
    }

    pub(crate) async fn publish(&self, texts: &[&str]) {
        let batch: Vec<Outgoing> = texts.iter().map(|text| self.outgoing(text)).collect();
        for answer in self.open_sink().await.publish(&batch).await {
            answer.unwrap();
        }
    }

    pub(crate) async fn create_consumer(&self, config: pull::Config) {
        let stream = self.context.get_stream(&self.stream).await.unwrap();
        stream.create_consumer_strict(config).await.unwrap();
    }

    /// How many messages the stream holds.
    pub(crate) async fn stored(&self) -> u64 {
        self.context.get_stream(&self.stream).await.unwrap().cached_info().state.messages
    }

    /// How many deliveries the consumer `d` waits to hear of.
    pub(crate) async fn pending(&self) -> usize {
        let stream = self.context.get_stream(&self.stream).await.unwrap();
        stream.consumer_info("d").await.unwrap().num_ack_pending
    }
}

// A broker works with any store; these name one.

pub(crate) async fn open(source: &JetStreamSource) -> Result<(), SourceError> {
    Source::<MemoryStore>::open(source, &MemoryStore::new()).await
}

pub(crate) async fn receive(
    source: &JetStreamSource,
    max: usize,
    wait: Duration,
) -> Result<Vec<Delivery<JetStreamReceipt>>, SourceError> {
    Source::<MemoryStore>::receive(source, max, wait).await
}

pub(crate) async fn ack(
    source: &JetStreamSource,
    deliveries: Vec<Delivery<JetStreamReceipt>>,
) -> Result<(), SourceError> {
    Source::<MemoryStore>::ack(source, deliveries).await
}

/// Receives until `count` came.
pub(crate) async fn receive_all(source: &JetStreamSource, count: usize) -> Vec<Delivery<JetStreamReceipt>> {
    let mut got = Vec::new();
    eventually("all come", async || {
        got.extend(receive(source, count - got.len(), Duration::from_secs(1)).await.unwrap_or_default());
        got.len() == count
    })
    .await;
    got
}

pub(crate) fn texts(deliveries: &[Delivery<JetStreamReceipt>]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.message.payload).into_owned()).collect()
}

/// Runs a program of `tests/foreign`, with the client of others. `false` if it can't be had: then `name` is noted as skipped.
pub(crate) async fn foreign(name: &str, program: &str, arguments: &[&str]) -> bool {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = tokio::process::Command::new(here.join("../../scripts/foreign"));
    let ran = command.arg("run").arg(here.join("tests/foreign").join(program)).args(arguments).output().await.unwrap();
    if ran.status.code() == Some(3) {
        oncebox_testkit::skipped(name);
        return false;
    }
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    true
}
