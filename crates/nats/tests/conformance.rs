//! The suites of the test kit against a real server.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use oncebox_core::memory::MemoryStore;
use oncebox_core::{Message, Outgoing, Sink};
use oncebox_nats::{JetStreamSink, JetStreamSource};
use oncebox_testkit::ManualClock;
use oncebox_testkit::sink::SinkFixture;
use oncebox_testkit::source::SourceFixture;

use common::{Place, receive};

#[derive(Default)]
struct Read {
    place: OnceLock<Place>,
    ordered: bool,
}

impl Read {
    fn ordered() -> Self {
        Self { ordered: true, ..Self::default() }
    }

    fn source(&self) -> JetStreamSource {
        let source = self.place.get().unwrap().source();
        if self.ordered { source.ordered() } else { source }
    }
}

impl SourceFixture for Read {
    type Store = MemoryStore;
    type Source = JetStreamSource;

    async fn fresh(&self, clock: Arc<ManualClock>) -> Option<(MemoryStore, JetStreamSource)> {
        let url = std::env::var("ONCEBOX_TEST_NATS_URL").ok()?;
        assert!(self.place.set(Place::at(url).await).is_ok(), "one case, one place");
        Some((MemoryStore::with_clock(clock), self.source()))
    }

    async fn send(&self, _store: &MemoryStore, _source: &JetStreamSource, messages: Vec<Message>) {
        // As a producer that speaks CloudEvents and leaves recognising duplicates to the reader.
        let place = self.place.get().unwrap();
        let sink = place.sink().forwarding().without_message_id();
        sink.open().await.unwrap();
        let batch: Vec<Outgoing> = messages.into_iter().map(|message| place.to(&place.subject, message)).collect();
        for answer in sink.publish(&batch).await {
            answer.unwrap();
        }
    }

    async fn after_a_crash(&self, _store: &MemoryStore, source: JetStreamSource) -> Option<JetStreamSource> {
        drop(source);
        let source = self.source();
        common::open(&source).await.unwrap();
        Some(source)
    }

    async fn advance(&self, _source: &JetStreamSource, _clock: &ManualClock, by: Duration) {
        // The server can't be told the time.
        tokio::time::sleep(by).await;
    }
}

#[derive(Default)]
struct Written {
    place: OnceLock<Place>,
    reader: tokio::sync::OnceCell<JetStreamSource>,
    structured: bool,
}

impl Written {
    fn structured() -> Self {
        Self { structured: true, ..Self::default() }
    }
}

impl SinkFixture for Written {
    type Sink = JetStreamSink;

    async fn fresh(&self) -> Option<(JetStreamSink, String)> {
        let url = std::env::var("ONCEBOX_TEST_NATS_URL").ok()?;
        let place = Place::at(url).await;
        let (sink, topic) = (place.sink(), place.subject.clone());
        assert!(self.place.set(place).is_ok(), "one case, one place");
        Some((if self.structured { sink.structured() } else { sink }, topic))
    }

    fn missing_topic(&self) -> String {
        format!("missing.{}", self.place.get().unwrap().stream)
    }

    fn too_large(&self) -> Option<usize> {
        Some(1_048_576)
    }

    async fn arrived(&self, _topic: &str) -> Vec<Message> {
        let reader = self.reader.get_or_init(async || self.place.get().unwrap().open_source().await).await;
        let got = receive(reader, 1_000, Duration::from_millis(150)).await.unwrap();
        let messages = got.iter().map(|delivery| Message::clone(&delivery.message)).collect();
        common::ack(reader, got).await.unwrap();
        messages
    }
}

mod source {
    use super::*;
    oncebox_testkit::source_suite!(Read::default());
}

/// A consumer with one message under way keeps the order of all messages, not only of those with one key, so the cases
/// that want other keys to go on are not for it.
mod ordered_source {
    use super::*;
    oncebox_testkit::source_cases! { delivery, Read::ordered(), [
        messages_of_one_key_come_in_order,
        a_message_comes_again_when_its_lease_is_over,
        a_released_message_comes_again_after_its_delay,
        an_extended_delivery_stays_ours,
        what_was_in_hand_comes_again_after_a_shutdown,
    ] }
}

mod sink {
    use super::*;
    oncebox_testkit::sink_suite!(Written::default());
}

/// A document holds a JSON payload as JSON, not byte for byte, so the cases that compare bytes are not for it.
mod structured_sink {
    use super::*;
    oncebox_testkit::sink_cases! { publishing, Written::structured(), [
        a_batch_arrives_in_its_order,
        many_are_confirmed_and_arrive,
        a_missing_destination_is_named_and_harms_no_other,
        a_message_that_is_too_large_is_refused_and_harms_no_other,
        an_id_that_the_broker_knows_arrives_once,
    ] }
}
