//! What a topic is like, for those who check a set-up.

use std::time::Duration;

use oncebox_core::{SinkError, SinkErrorKind, SourceError, SourceErrorKind};
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::error;
use crate::settings::Settings;

/// How long the brokers have to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What the brokers say of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicFacts {
    /// How long messages stay; `None`: for ever, or until they are compacted.
    pub retention: Option<Duration>,
    /// How many replicas must have a message before it is confirmed.
    pub in_sync_min: Option<u32>,
    /// How many replicas its first partition has.
    pub replicas: usize,
    /// How many partitions it has.
    pub partitions: usize,
}

/// Asks the brokers about a topic. `settings` are librdkafka's own, for instance those that say who asks.
pub async fn inspect(servers: &str, topic: &str, settings: &[(String, String)]) -> Result<TopicFacts, SourceError> {
    let attempted = || format!("look at the topic {topic} on Kafka at {}", Settings::new(servers).servers());
    match look(servers, topic, settings).await {
        Ok(Some(facts)) => Ok(facts),
        Ok(None) => {
            let reason = "the topic does not exist, or this user may not see it; create it first";
            Err(SourceError::new(SourceErrorKind::Configuration, attempted(), reason))
        }
        Err(Trouble::Setting(reason)) => Err(SourceError::new(SourceErrorKind::Configuration, attempted(), reason)),
        Err(Trouble::Client(error)) => {
            Err(SourceError::new(error::source_kind(&error), attempted(), error::reason(&error)))
        }
        Err(Trouble::Silent(reason)) => Err(SourceError::new(SourceErrorKind::Unavailable, attempted(), reason)),
    }
}

/// What is at a topic that something is to be published to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The topic.
    Topic(TopicFacts),
    /// Nothing yet: the brokers make it with the first message, as they make all (`auto.create.topics.enable`).
    MadeAtFirst,
    /// Nothing, or nothing that this user may see.
    Missing,
    /// This user may not ask, which does not mean that it may not publish.
    Unseen,
}

/// Asks the brokers about a topic that something is to be published to. Nothing is published, and no topic is made.
pub async fn look_for(servers: &str, topic: &str, settings: &[(String, String)]) -> Result<Target, SinkError> {
    let attempted = || format!("look for the topic {topic} on Kafka at {}", Settings::new(servers).servers());
    let looked = async {
        Ok(match look(servers, topic, settings).await {
            Ok(Some(facts)) => Target::Topic(facts),
            Ok(None) if are_made(servers, settings).await? => Target::MadeAtFirst,
            Ok(None) => Target::Missing,
            Err(Trouble::Client(KafkaError::AdminOp(RDKafkaErrorCode::TopicAuthorizationFailed))) => Target::Unseen,
            Err(trouble) => return Err(trouble),
        })
    };
    looked.await.map_err(|trouble| match trouble {
        Trouble::Setting(reason) => SinkError::new(SinkErrorKind::Configuration, attempted(), reason),
        Trouble::Client(error) => SinkError::new(error::sink_kind(&error), attempted(), error::reason(&error)),
        Trouble::Silent(reason) => SinkError::new(SinkErrorKind::Unavailable, attempted(), reason),
    })
}

/// Why a topic could not be looked at, before it is known who asks.
enum Trouble {
    /// A setting that is wrong, or not the user's to make.
    Setting(String),
    Client(KafkaError),
    Silent(&'static str),
}

impl From<KafkaError> for Trouble {
    fn from(error: KafkaError) -> Self {
        Self::Client(error)
    }
}

type Admin = AdminClient<DefaultClientContext>;

fn admin(servers: &str, settings: &[(String, String)]) -> Result<Admin, Trouble> {
    let mut all = Settings::new(servers);
    for (name, value) in settings {
        all.set(name, value);
    }
    Ok(all.client(&[], &[]).map_err(Trouble::Setting)?.create()?)
}

/// Whether the first message makes its topic. Brokers that do not say so do not.
async fn are_made(servers: &str, settings: &[(String, String)]) -> Result<bool, Trouble> {
    let admin = admin(servers, settings)?;
    let asked = tokio::task::spawn_blocking(move || {
        let metadata = admin.inner().fetch_metadata(None, ANSWER_MAX)?;
        Ok::<_, KafkaError>((metadata.brokers().first().map(|broker| broker.id()), admin))
    });
    let (Some(broker), admin) = asked.await.map_err(|_| Trouble::Silent("the look at it was broken off"))?? else {
        return Ok(false);
    };
    let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
    let described = admin.describe_configs([&ResourceSpecifier::Broker(broker)], &options).await?;
    Ok(described.iter().flatten().any(makes_topics))
}

fn makes_topics(config: &ConfigResource) -> bool {
    let value = config.get("auto.create.topics.enable").and_then(|entry| entry.value.as_deref());
    value == Some("true")
}

async fn look(servers: &str, topic: &str, settings: &[(String, String)]) -> Result<Option<TopicFacts>, Trouble> {
    let admin = admin(servers, settings)?;
    let options = AdminOptions::new().request_timeout(Some(ANSWER_MAX));
    let described = admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options).await?;
    let config = match described.into_iter().next() {
        // Of a topic that is not there the client answers with no settings at all, and asking on might create it.
        Some(Ok(config)) if config.entries.is_empty() => return Ok(None),
        Some(Ok(config)) => config,
        Some(Err(code)) => return Err(KafkaError::AdminOp(code).into()),
        None => return Err(Trouble::Silent("the broker said nothing about it")),
    };
    let mut facts = read(&config);
    let name = topic.to_owned();
    let counted = tokio::task::spawn_blocking(move || {
        let metadata = admin.inner().fetch_metadata(Some(&name), ANSWER_MAX)?;
        let partitions = metadata.topics().first().map_or(&[][..], |topic| topic.partitions());
        Ok::<_, KafkaError>((partitions.len(), partitions.first().map_or(0, |partition| partition.replicas().len())))
    });
    (facts.partitions, facts.replicas) =
        counted.await.map_err(|_| Trouble::Silent("the look at it was broken off"))??;
    Ok(Some(facts))
}

fn read(config: &ConfigResource) -> TopicFacts {
    let value = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
    let deletes = value("cleanup.policy").is_none_or(|policy| policy.split(',').any(|part| part.trim() == "delete"));
    let millis = value("retention.ms").and_then(|text| text.parse::<i64>().ok());
    let retention = millis.filter(|_| deletes).and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    let in_sync_min = value("min.insync.replicas").and_then(|text| text.parse().ok());
    TopicFacts { retention, in_sync_min, ..TopicFacts::default() }
}

#[cfg(test)]
mod tests {
    use rdkafka::admin::{ConfigEntry, ConfigSource, OwnedResourceSpecifier};

    use super::*;

    #[test]
    fn brokers_that_make_topics_say_so() {
        let config = |name: &str, value: &str| ConfigResource {
            specifier: OwnedResourceSpecifier::Broker(1),
            entries: vec![ConfigEntry {
                name: name.to_owned(),
                value: Some(value.to_owned()),
                source: ConfigSource::Default,
                is_read_only: true,
                is_default: true,
                is_sensitive: false,
            }],
        };
        assert!(makes_topics(&config("auto.create.topics.enable", "true")));
        assert!(!makes_topics(&config("auto.create.topics.enable", "false")));
        assert!(!makes_topics(&config("delete.topic.enable", "true")));
    }
}
