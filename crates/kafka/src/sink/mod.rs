//! Publishing with an idempotent producer.
//!
//! The topic of an [`Outgoing`] is Kafka's topic, its message's order key the record's key. A message is confirmed when all
//! replicas in sync have it. librdkafka repeats what was lost on the way, and the broker drops what it has already; what was
//! not confirmed within the [timeout](KafkaSink::timeout) may be there or not.

mod topics;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::sink::{Outgoing, Sink, SinkCapabilities, SinkError, SinkErrorKind};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tokio::time::{Instant, sleep};

use self::topics::Topics;
use crate::settings::Settings;
use crate::{error, record};

/// Publishes to Kafka.
///
/// | bound | default | set with |
/// | --- | --- | --- |
/// | time until a message is confirmed | 30 s | [`timeout`](Self::timeout) |
/// | wait for an answer of the brokers, as in `open` and about a topic | 10 s | [`answer`](Self::answer) |
/// | bytes that wait to be sent | 64 MiB | `queue.buffering.max.kbytes` |
pub struct KafkaSink {
    settings: Settings,
    source: String,
    timeout: Duration,
    answer: Duration,
    producer: Mutex<Option<Producer>>,
    said: Said,
    topics: Arc<Topics>,
}

type Producer = FutureProducer<Said>;

/// How long to wait before a full queue is tried again.
const QUEUE_FULL: Duration = Duration::from_millis(10);

impl KafkaSink {
    /// Publishes to the brokers that `servers` names as `host:port,host:port`.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            settings: Settings::new(servers),
            source: "oncebox".to_owned(),
            timeout: Duration::from_secs(30),
            answer: Duration::from_secs(10),
            producer: Mutex::default(),
            said: Said::default(),
            topics: Arc::default(),
        }
    }

    /// The CloudEvents `source` of messages that name none. Default: `oncebox`.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// How long a message may take to be confirmed, all of librdkafka's repetitions included. At least one second.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_secs(1));
        self
    }

    /// How long to wait for an answer of the brokers.
    #[must_use]
    pub fn answer(mut self, answer: Duration) -> Self {
        self.answer = answer;
        self
    }

    /// A setting of librdkafka by its own name, such as `security.protocol` or `compression.type`. Those that the promises
    /// rest on are refused by `open`: idempotence, acknowledgements, transactions.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.set(name, value);
        self
    }

    fn slot(&self) -> MutexGuard<'_, Option<Producer>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The producer, made at the first use and after one broke.
    fn producer(&self) -> Result<Producer, SinkError> {
        let mut slot = self.slot();
        if let Some(producer) = &*slot {
            return Ok(producer.clone());
        }
        let producer = self.create()?;
        *slot = Some(producer.clone());
        Ok(producer)
    }

    fn create(&self) -> Result<Producer, SinkError> {
        let refused = |reason| SinkError::new(SinkErrorKind::Configuration, self.attempted(), reason);
        if self.settings.has("transactional.id") {
            let reason = "transactional.id is not for you to set; what Oncebox promises rests on it";
            return Err(refused(reason.to_owned()));
        }
        let timeout = self.timeout.as_millis().to_string();
        let fixed = [
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("message.timeout.ms", timeout.as_str()),
            ("delivery.timeout.ms", timeout.as_str()),
        ];
        let defaults = [
            ("client.id", "oncebox"),
            ("linger.ms", "1"),
            ("queue.buffering.max.kbytes", "65536"),
            // As Java's producers do, so that a key has one partition whoever writes it.
            ("partitioner", "murmur2_random"),
        ];
        let client = self.settings.client(&defaults, &fixed).map_err(refused)?;
        client
            .create_with_context(self.said.clone())
            .map_err(|error| SinkError::new(error::sink_kind(&error), self.attempted(), error::reason(&error)))
    }

    /// Completes "cannot …".
    fn attempted(&self) -> String {
        format!("publish to Kafka at {}", self.settings.servers())
    }

    /// Gives a record to librdkafka, waiting while its queue is full.
    async fn send(&self, producer: &Producer, outgoing: &Outgoing) -> Result<DeliveryFuture, SinkError> {
        let deadline = Instant::now() + self.timeout;
        let message = &outgoing.message;
        loop {
            let mut record = FutureRecord::<str, [u8]>::to(&outgoing.topic)
                .timestamp(message.time.as_millisecond())
                .headers(record::write_headers(message, Some(&self.source)));
            if !message.payload_is_null() {
                record = record.payload(&message.payload);
            }
            if let Some(key) = &message.order_key {
                record = record.key(key);
            }
            match producer.send_result(record) {
                Ok(delivery) => return Ok(delivery),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) if Instant::now() < deadline => {
                    sleep(QUEUE_FULL).await;
                }
                Err((error, _)) => return Err(self.failed(outgoing, &error)),
            }
        }
    }

    async fn confirmed(&self, outgoing: &Outgoing, delivery: DeliveryFuture) -> Result<(), SinkError> {
        match delivery.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err((error, _))) => Err(self.failed(outgoing, &error)),
            // The producer was replaced meanwhile.
            Err(_) => Err(self.failed(outgoing, &KafkaError::Canceled)),
        }
    }

    fn failed(&self, outgoing: &Outgoing, error: &KafkaError) -> SinkError {
        // If the topic is gone, the next look says so.
        self.topics.forget(&outgoing.topic);
        let kind = error::sink_kind(error);
        let reason = match kind {
            SinkErrorKind::Refused if is_too_large(error) => format!(
                "its payload of {} bytes, with its headers, is more than the {} bytes of message.max.bytes here, or than \
                 max.message.bytes of the topic",
                outgoing.message.payload.len(),
                self.settings.get("message.max.bytes").unwrap_or("1000000"),
            ),
            _ => error::reason(error),
        };
        SinkError::new(kind, format!("publish {} to topic {}", outgoing.message.label(), outgoing.topic), reason)
    }

    /// Publishes one by one what was refused for its size together with others: the broker judges what travels together,
    /// and takes or refuses all of it.
    async fn publish_alone(&self, producer: &Producer, batch: &[Outgoing], answers: &mut [Result<(), SinkError>]) {
        let mut away: Option<SinkError> = None;
        for (outgoing, answer) in batch.iter().zip(answers) {
            if !is_refused(answer) {
                continue;
            }
            *answer = match &away {
                // Not known to be impossible: for the relay's next turn.
                Some(error) => Err(error.clone()),
                None => match self.send(producer, outgoing).await {
                    Ok(delivery) => self.confirmed(outgoing, delivery).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = answer
                && error.kind() == SinkErrorKind::Unavailable
            {
                away = Some(error.clone());
            }
        }
    }
}

fn is_refused(answer: &Result<(), SinkError>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == SinkErrorKind::Refused)
}

fn is_too_large(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize)
    )
}

impl Sink for KafkaSink {
    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities::none("kafka")
    }

    async fn open(&self) -> Result<(), SinkError> {
        let (producer, answer) = (self.producer()?, self.answer);
        let asked = tokio::task::spawn_blocking(move || producer.client().fetch_cluster_id(answer)).await;
        if matches!(asked, Ok(Some(_))) {
            return Ok(());
        }
        if let Some(error) = self.said.permanent() {
            return Err(SinkError::new(SinkErrorKind::Configuration, self.attempted(), error::reason(&error)));
        }
        let reason =
            format!("no broker answered within {answer:?}; check the address, that they run, and who they let in");
        Err(SinkError::new(SinkErrorKind::Unavailable, self.attempted(), reason))
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<(), SinkError>> {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(error) => return batch.iter().map(|_| Err(error.clone())).collect(),
        };
        let unknown = self.topics.look(&producer, batch, self.answer).await;
        let mut sent = Vec::with_capacity(batch.len());
        for outgoing in batch {
            sent.push(match unknown.get(outgoing.topic.as_str()) {
                Some(error) => Err(error.clone()),
                None => self.send(&producer, outgoing).await,
            });
        }
        let mut answers = Vec::with_capacity(batch.len());
        let mut is_refused_by_broker = false;
        for (outgoing, sent) in batch.iter().zip(sent) {
            answers.push(match sent {
                Ok(delivery) => {
                    let answer = self.confirmed(outgoing, delivery).await;
                    is_refused_by_broker |= is_refused(&answer);
                    answer
                }
                Err(error) => Err(error),
            });
        }
        if is_refused_by_broker {
            self.publish_alone(&producer, batch, &mut answers).await;
        }
        if let Some((code, _)) = producer.client().fatal_error() {
            tracing::warn!(%code, "the Kafka producer broke; another takes its place");
            let broken = self.slot().take();
            // Dropping it waits for its thread.
            let _ = tokio::task::spawn_blocking(move || drop((broken, producer))).await;
        }
        answers
    }

    async fn close(&self) {
        let producer = self.slot().take();
        let _ = tokio::task::spawn_blocking(move || drop(producer)).await;
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Sends librdkafka's log where ours goes, and keeps what will not get better by itself: a question to the brokers just finds
/// no answer then.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<Option<KafkaError>>>);

impl Said {
    /// The last of these, once.
    fn permanent(&self) -> Option<KafkaError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for Said {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, reason);
        if error::sink_kind(&error) == SinkErrorKind::Configuration {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}
