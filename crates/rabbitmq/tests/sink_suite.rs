//! The sink suite: to a queue, and to an exchange.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic anywhere")]

mod common;

use std::time::Duration;

use common::{Bystander, name};
use oncebox_core::memory::MemoryStore;
use oncebox_core::{Message, Source};
use oncebox_rabbitmq::{RabbitSink, RabbitSource};
use oncebox_testkit::sink::SinkFixture;
use tokio::sync::OnceCell;

struct Sinks {
    queue: String,
    exchange: Option<String>,
    /// Reads what arrives.
    reader: OnceCell<RabbitSource>,
}

impl Sinks {
    fn new(exchange: bool) -> Self {
        let exchange = exchange.then(|| name("exchange"));
        Self { queue: name("sink"), exchange, reader: OnceCell::new() }
    }
}

fn server() -> Option<String> {
    std::env::var("ONCEBOX_TEST_RABBITMQ_URL").ok()
}

impl SinkFixture for Sinks {
    type Sink = RabbitSink;

    async fn fresh(&self) -> Option<(RabbitSink, String)> {
        let bystander = Bystander::connect(&server()?).await;
        bystander.declare(&self.queue, &[]).await;
        let topic = match &self.exchange {
            Some(exchange) => {
                bystander.exchange(exchange, &self.queue).await;
                format!("{exchange}/noted.here")
            }
            None => self.queue.clone(),
        };
        Some((bystander.rabbit().sink(), topic))
    }

    fn missing_topic(&self) -> String {
        // An exchange that is not there closes the channel; a queue that is not there gives the message back.
        if self.exchange.is_some() { format!("{}/noted", name("missing")) } else { name("missing") }
    }

    fn too_large(&self) -> Option<usize> {
        Some(RabbitSink::MESSAGE_BYTES_MAX + 1)
    }

    async fn arrived(&self, _topic: &str) -> Vec<Message> {
        let store = MemoryStore::new();
        let reader = self
            .reader
            .get_or_init(async || {
                let reader = Bystander::connect(&server().unwrap()).await.rabbit().source(self.queue.as_str());
                Source::<MemoryStore>::open(&reader, &store).await.unwrap();
                reader
            })
            .await;
        let got = Source::<MemoryStore>::receive(reader, 10_000, Duration::from_millis(200)).await.unwrap();
        let messages = got.iter().map(|delivery| Message::clone(&delivery.message)).collect();
        Source::<MemoryStore>::ack(reader, got).await.unwrap();
        messages
    }
}

mod to_a_queue {
    use super::*;
    oncebox_testkit::sink_suite!(Sinks::new(false));
}

mod to_an_exchange {
    use super::*;
    oncebox_testkit::sink_suite!(Sinks::new(true));
}
