//! What a stream is like, for those who check a set-up.

use std::time::Duration;

use async_nats::jetstream::consumer::{FromConsumer as _, pull};
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::stream::{Info, StorageType};
use oncebox_core::{SinkError, SinkErrorKind, SourceError};

use crate::error::{self, Trouble};
use crate::link::Link;
use crate::server::Server;
use crate::settings::Settings;
use crate::sink::check_subject;

/// How long a server has to tell its settings. One whose user may not ask is silent, or says at once that nobody listens.
const SETTINGS_MAX: Duration = Duration::from_secs(1);

/// What the server says of a stream and of a consumer on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamFacts {
    /// Its name.
    pub name: String,
    /// How long messages stay; `None`: until something else removes them.
    pub max_age: Option<Duration>,
    /// How many servers keep it.
    pub replicas: usize,
    /// It is kept in memory, and is gone with the server.
    pub in_memory: bool,
    /// When the server that was asked writes to its disk what it confirmed.
    pub sync: DiskSync,
    /// How long a delivery stays with whoever received it; `None`: the consumer is not there yet.
    pub ack_wait: Option<Duration>,
    /// How many deliveries may be unsettled at a time; `None`: the consumer is not there yet, or no number is set.
    pub ack_pending_max: Option<u64>,
    /// Why a source would refuse the consumer, and what to do; `None`: it would not, or the consumer is not there yet.
    pub refused: Option<String>,
}

/// When a server writes to its disk what it confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskSync {
    /// It did not say: only users who may ask after the settings of servers see it.
    #[default]
    Unseen,
    /// Before it confirms.
    Always,
    /// Now and then; what it confirmed since is lost when the power goes.
    Every(Duration),
}

/// Asks the server about a stream, and about a durable consumer if there is one of this name, which is to keep order if
/// `ordered`.
pub async fn inspect(
    server: impl Into<Server>,
    stream: &str,
    durable: &str,
    ordered: bool,
) -> Result<StreamFacts, SourceError> {
    let server = server.into();
    let attempted = || format!("look at the stream {stream} on NATS at {server}");
    let link = Link::open(&server).await.map_err(|trouble| trouble.in_source(attempted()))?;
    let found = link.context.get_stream(stream).await;
    let found = found.map_err(|error| error::stream(&error.kind()).in_source(attempted()))?;
    let mut facts = facts(&link, found.cached_info()).await;
    if let Ok(consumer) = found.consumer_info(durable).await {
        facts.ack_wait = Some(consumer.config.ack_wait);
        facts.refused = match pull::Config::try_from_consumer_config(consumer.config.clone()) {
            Ok(config) => Settings::read(&config, ordered).err(),
            Err(_) => Some("it is a push consumer; create a pull consumer".to_owned()),
        };
        facts.ack_pending_max = u64::try_from(consumer.config.max_ack_pending).ok().filter(|max| *max > 0);
    }
    link.close().await;
    Ok(facts)
}

/// Asks the server about the stream that takes what is published to `subject`; `None`: none does, and what is published there
/// is not confirmed. Nothing is published.
pub async fn look_for(server: impl Into<Server>, subject: &str) -> Result<Option<StreamFacts>, SinkError> {
    let server = server.into();
    let attempted = || format!("look for the stream of {subject} on NATS at {server}");
    check_subject(subject).map_err(|why| SinkError::new(SinkErrorKind::Refused, attempted(), why))?;
    let link = Link::open(&server).await.map_err(|trouble| trouble.in_sink(attempted()))?;
    let found = look(&link, subject).await;
    link.close().await;
    found.map_err(|trouble| trouble.in_sink(attempted()))
}

async fn look(link: &Link, subject: &str) -> Result<Option<StreamFacts>, Trouble> {
    let name = match link.context.stream_by_subject(subject).await {
        Ok(name) => name,
        Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(Trouble::later(error::NO_ANSWER)),
    };
    let stream = link.context.get_stream(&name).await.map_err(|error| error::stream(&error.kind()))?;
    Ok(Some(facts(link, stream.cached_info()).await))
}

/// What a stream is like, whoever reads it.
async fn facts(link: &Link, info: &Info) -> StreamFacts {
    let config = &info.config;
    StreamFacts {
        name: config.name.clone(),
        max_age: (!config.max_age.is_zero()).then_some(config.max_age),
        replicas: config.num_replicas,
        in_memory: config.storage == StorageType::Memory,
        sync: sync(link).await,
        ..StreamFacts::default()
    }
}

/// Asks the server that we are connected to for its settings, as its monitors do.
async fn sync(link: &Link) -> DiskSync {
    let subject = format!("$SYS.REQ.SERVER.{}.VARZ", link.client.server_info().server_id);
    let request = async_nats::Request::new().timeout(Some(SETTINGS_MAX));
    match link.client.send_request(subject, request).await {
        Ok(answer) => read_sync(&answer.payload),
        Err(_) => DiskSync::Unseen,
    }
}

fn read_sync(varz: &[u8]) -> DiskSync {
    let varz: serde_json::Value = serde_json::from_slice(varz).unwrap_or_default();
    let config = &varz["data"]["jetstream"]["config"];
    match (config["sync_always"].as_bool(), config["sync_interval"].as_u64()) {
        (Some(true), _) => DiskSync::Always,
        (_, Some(nanos)) => DiskSync::Every(Duration::from_nanos(nanos)),
        _ => DiskSync::Unseen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_a_server_are_read() {
        let read =
            |config: &str| read_sync(format!("{{\"data\":{{\"jetstream\":{{\"config\":{config}}}}}}}").as_bytes());
        assert_eq!(read("{\"sync_interval\":120000000000}"), DiskSync::Every(Duration::from_secs(120)));
        assert_eq!(read("{\"sync_interval\":120000000000,\"sync_always\":true}"), DiskSync::Always);
        assert_eq!((read("{}"), read_sync(b"no JSON")), (DiskSync::Unseen, DiskSync::Unseen));
    }
}
