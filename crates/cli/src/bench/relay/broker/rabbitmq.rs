//! RabbitMQ: quorum queues.

use anyhow::{Context, bail, ensure};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use oncebox::cloud_events::Spelling;
use oncebox::rabbitmq::{QueueKind, Rabbit, RabbitSink, RabbitSource};
use oncebox::{Outgoing, Sink};

use super::{Broker, ByHand, SOURCE};

pub(in crate::bench) struct RabbitMq {
    rabbit: Rabbit,
    connection: Connection,
    channel: Channel,
}

pub(in crate::bench) struct RabbitByHand(Channel);

/// Enough that the subscriber is not what is measured.
const PREFETCH: u16 = 2_000;

impl Broker for RabbitMq {
    const NAME: &'static str = "RabbitMQ";
    const DURABILITY: &'static str = "quorum queue, persistent, mandatory, confirmed";

    type Sink = RabbitSink;
    type Source = RabbitSource;
    type ByHand = RabbitByHand;

    async fn connect(url: &str) -> anyhow::Result<Self> {
        let rabbit = Rabbit::new(url);
        // It says what is wrong with a URL or a server better than the client does, and repeats no secret.
        let probe = rabbit.sink();
        probe.open().await?;
        probe.close().await;
        let connection = Connection::connect(url, ConnectionProperties::default()).await.ok();
        let connection = connection.with_context(|| format!("cannot open a second connection to {rabbit}"))?;
        let channel = connection.create_channel().await.context("cannot open a channel")?;
        Ok(Self { rabbit, connection, channel })
    }

    async fn make(&self, topic: &str) -> anyhow::Result<()> {
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(topic.into(), options, arguments).await.context("cannot declare a queue")?;
        Ok(())
    }

    async fn remove(&self, topic: &str) -> anyhow::Result<()> {
        let deleted = self.channel.queue_delete(topic.into(), QueueDeleteOptions::default()).await;
        deleted.map(drop).context("cannot delete the queue")
    }

    async fn stored(&self, topic: &str) -> anyhow::Result<u64> {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.channel.queue_declare(topic.into(), options, FieldTable::default()).await;
        Ok(queue.context("cannot count a queue")?.message_count().into())
    }

    fn sink(&self, _topic: &str) -> RabbitSink {
        self.rabbit.sink()
    }

    fn source(&self, topic: &str) -> RabbitSource {
        self.rabbit.source(topic).kind(QueueKind::Quorum).prefetch(PREFETCH)
    }

    async fn by_hand(&self, _topic: &str, publishers: usize) -> anyhow::Result<Vec<RabbitByHand>> {
        let mut channels = Vec::new();
        for _ in 0..publishers {
            let channel = self.connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            channels.push(RabbitByHand(channel));
        }
        Ok(channels)
    }
}

impl ByHand for RabbitByHand {
    async fn publish(&mut self, batch: &[Outgoing]) -> anyhow::Result<()> {
        let mut confirms = Vec::with_capacity(batch.len());
        for Outgoing { topic, message } in batch {
            let mut headers = FieldTable::default();
            for (name, value) in Spelling::AMQP.write(message, Some(SOURCE)) {
                headers.insert(ShortString::try_new(name)?, AMQPValue::LongString(value.into()));
            }
            let mut properties = BasicProperties::default().with_delivery_mode(2).with_headers(headers);
            if let Some(id) = &message.id {
                properties = properties.with_message_id(ShortString::try_new(id.as_str())?);
            }
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let routing_key = ShortString::try_new(topic.as_str())?;
            confirms.push(self.0.basic_publish("".into(), routing_key, options, &message.payload, properties).await?);
        }
        for confirm in confirms {
            match confirm.await? {
                Confirmation::Ack(returned) => ensure!(returned.is_none(), "RabbitMQ returned a message"),
                _ => bail!("RabbitMQ did not confirm a message"),
            }
        }
        Ok(())
    }
}
