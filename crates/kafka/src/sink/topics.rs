//! Which topics exist. Asked before the first record goes there: librdkafka itself waits for a topic that does not exist
//! until the record times out.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::sink::{Outgoing, SinkError, SinkErrorKind};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;
use tokio::time::{Instant, sleep};

use super::Producer;
use crate::error;

/// How long a topic is believed to exist.
const BELIEVED: Duration = Duration::from_secs(300);

/// How many topics are remembered; above, all are asked about again.
const TOPICS_MAX: usize = 10_000;

/// How long brokers take to hear of a new topic.
const SPREADING: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
pub(super) struct Topics {
    seen: Mutex<HashMap<String, Instant>>,
}

impl Topics {
    fn seen(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, topic: &str) {
        self.seen().remove(topic);
    }

    /// What is wrong with topics of the batch, by topic.
    pub(super) async fn look<'b>(
        self: &Arc<Self>,
        producer: &Producer,
        batch: &'b [Outgoing],
        answer: Duration,
    ) -> HashMap<&'b str, SinkError> {
        let unseen: BTreeSet<&str> = {
            let seen = self.seen();
            let is_seen = |topic: &str| seen.get(topic).is_some_and(|since| since.elapsed() < BELIEVED);
            batch.iter().map(|outgoing| outgoing.topic.as_str()).filter(|topic| !is_seen(topic)).collect()
        };
        let mut wrong = HashMap::new();
        let mut away: Option<KafkaError> = None;
        for topic in unseen {
            // When nobody answers about one, nobody does about the next: the wait is for all of them.
            let asked = match &away {
                Some(error) => Err(error.clone()),
                None => ask_twice(producer, topic, answer).await,
            };
            match asked {
                Ok(()) => {
                    let mut seen = self.seen();
                    if seen.len() >= TOPICS_MAX {
                        seen.clear();
                    }
                    seen.insert(topic.to_owned(), Instant::now());
                }
                Err(error) => {
                    wrong.insert(topic, says(topic, &error));
                    if error::sink_kind(&error) == SinkErrorKind::Unavailable {
                        away = Some(error);
                    }
                }
            }
        }
        wrong
    }
}

fn says(topic: &str, error: &KafkaError) -> SinkError {
    let kind = error::sink_kind(error);
    let reason = match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition) => {
            "there is no such topic; create it, or correct its name".to_owned()
        }
        _ => error::reason(error),
    };
    SinkError::new(kind, format!("publish to topic {topic}"), reason)
}

/// A topic that was just created is not known to every broker yet.
async fn ask_twice(producer: &Producer, topic: &str, answer: Duration) -> Result<(), KafkaError> {
    match ask(producer, topic, answer).await {
        Err(error) if error::sink_kind(&error) == SinkErrorKind::Configuration => {
            sleep(SPREADING).await;
            ask(producer, topic, answer).await
        }
        asked => asked,
    }
}

async fn ask(producer: &Producer, topic: &str, answer: Duration) -> Result<(), KafkaError> {
    let (producer, topic) = (producer.clone(), topic.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = producer.client().fetch_metadata(Some(&topic), answer)?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        match found.map(|found| found.error().map(RDKafkaErrorCode::from)) {
            Some(None) => Ok(()),
            Some(Some(code)) => Err(KafkaError::MetadataFetch(code)),
            None => Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopic)),
        }
    });
    asked.await.unwrap_or(Err(KafkaError::Canceled))
}
