//! The rows with an outbox and a broker.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::row::StoreKind;

/// One setting. A process gets it as JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct HopsRow {
    pub(crate) name: String,
    pub(crate) broker: BrokerKind,
    pub(crate) store: StoreKind,
    pub(crate) shape: Shape,
    pub(crate) trouble: Trouble,
    /// Processes of each consumer.
    pub(crate) consumers: usize,
    /// Relay processes.
    pub(crate) relays: usize,
    /// How many processes are killed, or stopped past their lease.
    pub(crate) kills: u64,
    /// How often the broker is killed.
    pub(crate) broker_kills: u64,
    /// At least this many messages pass.
    pub(crate) messages_min: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum BrokerKind {
    Nats,
    RabbitMq,
    Kafka,
}

impl BrokerKind {
    /// Its name under `scripts/`, and in the names of rows.
    pub(crate) fn script(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::RabbitMq => "rabbitmq",
            Self::Kafka => "kafka",
        }
    }
}

/// What a message passes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Shape {
    /// Topic, consumer, outbox, relay, topic, consumer.
    TwoHops,
    /// A writer's transaction, outbox, relay, topic.
    Relays,
}

/// What is done to the processes. The broker is killed beside it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Trouble {
    None,
    /// SIGKILL at a crash point, or at any moment.
    Kill,
    /// A relay is stopped while it publishes, until others have its lanes; the broker is away meanwhile, so that what it
    /// published is still unsettled when it goes on.
    Stop,
    /// A relay is killed every second, and what happens to its lanes is timed.
    EachSecond,
}

/// What a takeover may take beyond the lease and the quarter of it after which others look: polling, starting to publish,
/// and a machine that has other work to do.
const TAKEOVER_MARGIN: Duration = Duration::from_secs(1);

impl HopsRow {
    fn new(broker: BrokerKind, store: StoreKind, shape: Shape, trouble: Trouble) -> Self {
        let (consumers, relays) = if shape == Shape::TwoHops { (2, 2) } else { (0, 3) };
        let name = String::new();
        Self { name, broker, store, shape, trouble, consumers, relays, kills: 0, broker_kills: 0, messages_min: 300 }
            .named()
    }

    fn two_hops(broker: BrokerKind, store: StoreKind) -> Self {
        let row = Self::new(broker, store, Shape::TwoHops, Trouble::Kill);
        Self { kills: 40, broker_kills: 5, messages_min: 150, ..row }
    }

    fn stops(broker: BrokerKind) -> Self {
        let stops = if broker == BrokerKind::Nats { 4 } else { 1 };
        Self { kills: stops, ..Self::new(broker, StoreKind::Postgres, Shape::Relays, Trouble::Stop) }
    }

    fn ten_relays(broker: BrokerKind) -> Self {
        let row = Self::new(broker, StoreKind::Postgres, Shape::Relays, Trouble::EachSecond);
        Self { relays: 10, kills: 12, messages_min: 2_000, ..row }.named()
    }

    fn named(self) -> Self {
        let shape = match self.shape {
            Shape::TwoHops => "two",
            Shape::Relays => "relays",
        };
        let trouble = match self.trouble {
            Trouble::None => "calm",
            Trouble::Kill => "kill",
            Trouble::Stop => "stop",
            Trouble::EachSecond => "each-second",
        };
        let (broker, store) = (self.broker.script(), format!("{:?}", self.store).to_lowercase());
        Self { name: format!("hops {shape} {broker} {store} {trouble} relays={}", self.relays), ..self }
    }

    /// More of everything.
    pub(crate) fn times(&self, factor: u64) -> Self {
        let row = self.clone();
        Self {
            kills: self.kills * factor,
            broker_kills: self.broker_kills * factor.min(4),
            messages_min: self.messages_min * factor,
            ..row
        }
    }

    /// How long lanes stay with a relay that does not stir.
    pub(crate) fn lease(&self) -> Duration {
        match self.trouble {
            // Ten processes on a small machine: a renewal takes its time.
            Trouble::EachSecond => Duration::from_secs(2),
            Trouble::Stop => Duration::from_secs(1),
            Trouble::None | Trouble::Kill => Duration::from_millis(600),
        }
    }

    /// The longest until a lane of a dead relay moves again.
    pub(crate) fn takeover_max(&self) -> Duration {
        self.lease() * 5 / 4 + TAKEOVER_MARGIN
    }
}

/// Two hops through each broker, relays that stop past their lease at each, ten relays of which one dies every second. The
/// last two on more brokers and stores where there is time for it.
pub(crate) fn matrix(all: bool) -> Vec<HopsRow> {
    use BrokerKind::{Kafka, Nats, RabbitMq};
    use StoreKind::{Postgres, Sqlite};
    let mut rows = vec![HopsRow::two_hops(Nats, Sqlite)];
    for broker in [Nats, RabbitMq, Kafka] {
        rows.push(HopsRow::two_hops(broker, Postgres));
        rows.push(HopsRow::stops(broker));
    }
    rows.push(HopsRow::ten_relays(Nats));
    if all {
        for broker in [RabbitMq, Kafka] {
            rows.push(HopsRow::two_hops(broker, Sqlite));
            rows.push(HopsRow::ten_relays(broker));
        }
    }
    rows
}

/// Planted bugs of relays and adapters: what they are called in the report, the bug, and a row that has to go red.
pub(crate) fn bugs() -> Vec<(&'static str, &'static str, HopsRow)> {
    use BrokerKind::{Kafka, Nats, RabbitMq};
    use StoreKind::Postgres;
    let relays = |trouble| HopsRow::new(Nats, Postgres, Shape::Relays, trouble);
    let two = |broker, kills| HopsRow { broker_kills: 0, kills, ..HopsRow::two_hops(broker, Postgres) };
    vec![
        ("relay-by-cursor", "relay-by-cursor", relays(Trouble::None)),
        ("relay-deletes-first", "relay-deletes-first", HopsRow { kills: 30, broker_kills: 3, ..relays(Trouble::Kill) }),
        ("relay-settles-without-epoch", "relay-settles-without-epoch", HopsRow::stops(Nats)),
        ("kafka-offset-past-unfinished", "kafka-offset-past-unfinished", two(Kafka, 20)),
        (
            "events-not-undone",
            "events-not-undone",
            HopsRow { messages_min: 600, ..HopsRow::new(RabbitMq, Postgres, Shape::TwoHops, Trouble::None) },
        ),
        ("ack-before-commit on nats", "ack-before-commit", two(Nats, 20)),
        ("ack-before-commit on rabbitmq", "ack-before-commit", two(RabbitMq, 30)),
    ]
}
