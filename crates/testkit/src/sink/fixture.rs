//! What an adapter supplies so that the sink suite can run on it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use oncebox_core::{Message, Outgoing, Sink, SinkError};

use crate::eventually::eventually;
use crate::skip::skipped;

/// Gives each case a sink, and destinations of its own.
pub trait SinkFixture: Send + Sync + 'static {
    /// The sink under test.
    type Sink: Sink;

    /// A sink and a topic that exists, is empty, and belongs to this case alone. Not opened.
    ///
    /// `None` if the server is not there: the case is skipped, and [`skipped`](crate::skipped) notes its name.
    fn fresh(&self) -> impl Future<Output = Option<(Self::Sink, String)>> + Send;

    /// A topic that does not exist.
    fn missing_topic(&self) -> String;

    /// Payload bytes that the broker, or the sink, does not take; `None` if it takes anything that fits into memory.
    fn too_large(&self) -> Option<usize>;

    /// Everything that was published to `topic` up to now and not returned before, in order, as a consumer sees it.
    fn arrived(&self, topic: &str) -> impl Future<Output = Vec<Message>> + Send;
}

/// An open sink with its topic, as each case gets it.
pub struct Setup<F: SinkFixture> {
    /// Whose it is.
    pub fixture: F,
    /// The sink under test.
    pub sink: F::Sink,
    /// Where the case publishes to.
    pub topic: String,
}

/// Runs one case on a fresh, open sink, or notes under `name` that it was skipped. The suite's macro calls this.
pub async fn run<F, C, Case>(name: &str, fixture: F, case: C)
where
    F: SinkFixture,
    C: FnOnce(Setup<F>) -> Case,
    Case: Future<Output = ()>,
{
    match fixture.fresh().await {
        Some((sink, topic)) => {
            sink.open().await.expect("a sink can be opened");
            case(Setup { fixture, sink, topic }).await;
        }
        None => skipped(name),
    }
}

impl<F: SinkFixture> Setup<F> {
    pub(super) fn outgoing(&self, message: Message) -> Outgoing {
        Outgoing { topic: self.topic.clone(), message: Arc::new(message) }
    }

    pub(super) async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let answers = self.sink.publish(batch).await;
        assert_eq!(answers.len(), batch.len(), "each message gets an answer");
        answers
    }

    pub(super) async fn publish_all(&self, messages: &[Message]) {
        let batch: Vec<Outgoing> = messages.iter().cloned().map(|message| self.outgoing(message)).collect();
        for answer in self.publish(&batch).await {
            answer.expect("the broker takes it");
        }
    }

    /// Waits until `count` messages have arrived, and fails if more do.
    pub(super) async fn arrived(&self, count: usize) -> Vec<Message> {
        let mut got = Vec::new();
        eventually(&format!("{count} messages arrive"), async || {
            got.extend(self.fixture.arrived(&self.topic).await);
            got.len() >= count
        })
        .await;
        got.extend(self.fixture.arrived(&self.topic).await);
        assert_eq!(got.len(), count, "more arrived than were published");
        got
    }
}

impl<F: SinkFixture> fmt::Debug for Setup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("topic", &self.topic).finish_non_exhaustive()
    }
}
