//! A RabbitMQ server to test on, spoken to without the code under test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::path::Path;

use lapin::options::{
    BasicAckOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind};
use oncebox_core::cloud_events::Spelling;
use oncebox_core::{Clock, Message, SystemClock};
use oncebox_rabbitmq::Rabbit;
use oncebox_testkit::skipped;

/// The server's URL; notes `test` as skipped where there is none.
pub(crate) fn url(test: &str) -> Option<String> {
    let url = std::env::var("ONCEBOX_TEST_RABBITMQ_URL").ok();
    if url.is_none() {
        skipped(test);
    }
    url
}

/// The folder of a server that may be killed.
pub(crate) fn folder(test: &str) -> Option<String> {
    let folder = std::env::var("ONCEBOX_TEST_RABBITMQ_DIR").ok();
    if folder.is_none() {
        skipped(test);
    }
    folder
}

/// Runs `scripts/rabbitmq`.
pub(crate) async fn script(words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/rabbitmq");
    let output = tokio::process::Command::new(script).args(words).output().await.unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A name that nobody else uses.
pub(crate) fn name(what: &str) -> String {
    format!("oncebox-test-{what}-{}", SystemClock.id())
}

/// A plain connection with a channel in confirm mode.
pub(crate) struct Bystander {
    pub(crate) url: String,
    pub(crate) channel: Channel,
    connection: Connection,
}

impl Bystander {
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { url: url.to_owned(), channel, connection }
    }

    /// On the server that the environment names, or the test is skipped.
    pub(crate) async fn find(test: &str) -> Option<Self> {
        Some(Self::connect(&url(test)?).await)
    }

    pub(crate) fn rabbit(&self) -> Rabbit {
        Rabbit::new(self.url.as_str())
    }

    /// Declares a durable queue with string and boolean arguments.
    pub(crate) async fn declare(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), options, table).await.unwrap();
    }

    pub(crate) async fn delete(&self, queue: &str) {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// An exchange of its own with `queue` bound to everything.
    pub(crate) async fn exchange(&self, exchange: &str, queue: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        self.channel
            .exchange_declare(exchange.into(), ExchangeKind::Topic, options, FieldTable::default())
            .await
            .unwrap();
        let options = QueueBindOptions::default();
        self.channel
            .queue_bind(queue.into(), exchange.into(), "#".into(), options, FieldTable::default())
            .await
            .unwrap();
    }

    /// Publishes as others do, to a queue by the default exchange, and waits until it is there.
    pub(crate) async fn publish(&self, queue: &str, properties: BasicProperties, payload: &[u8]) {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let properties = properties.with_delivery_mode(2);
        let confirm = self.channel.basic_publish("".into(), queue.into(), options, payload, properties).await.unwrap();
        assert_eq!(confirm.await.unwrap(), Confirmation::Ack(None));
    }

    /// Publishes messages in their order, with nothing added to them.
    pub(crate) async fn send(&self, queue: &str, messages: &[Message]) {
        for message in messages {
            let mut headers: BTreeMap<String, Vec<AMQPValue>> = BTreeMap::new();
            for (name, value) in Spelling::AMQP.write(message, None) {
                headers.entry(name).or_default().push(AMQPValue::LongString(value.into()));
            }
            let mut table = FieldTable::default();
            for (name, values) in headers {
                let value = match &values[..] {
                    [only] => only.clone(),
                    _ => AMQPValue::FieldArray(FieldArray::from(values)),
                };
                table.insert(ShortString::from(name), value);
            }
            self.publish(queue, BasicProperties::default().with_headers(table), &message.payload).await;
        }
    }

    /// Messages that say these texts.
    pub(crate) async fn send_texts(&self, queue: &str, texts: &[&str]) {
        let messages: Vec<Message> =
            texts.iter().map(|text| Message::new("noted").with_payload((*text).to_owned())).collect();
        self.send(queue, &messages).await;
    }

    /// Takes all that is ready in a queue.
    pub(crate) async fn take_all(&self, queue: &str) -> Vec<lapin::message::Delivery> {
        let mut taken = Vec::new();
        while let Some(got) = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap() {
            got.delivery.acker.ack(BasicAckOptions::default()).await.unwrap();
            taken.push(got.delivery);
        }
        taken
    }

    /// How many are ready in a queue.
    pub(crate) async fn ready(&self, queue: &str) -> u32 {
        let channel = self.connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        channel.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap().message_count()
    }
}
