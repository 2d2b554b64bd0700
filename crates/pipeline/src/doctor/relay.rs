//! The broker that the relay publishes to, and the topics there that the file names.

use std::collections::{BTreeMap, BTreeSet};

use oncebox::sqlite::Sqlite;
use oncebox::{Sink as _, SinkError, SinkErrorKind};

use super::brokers::advised;
use super::finding::{Finding, Severity};
use crate::file::{Pipeline, RelaySpec};
use crate::outlet::Outlet;
use crate::place::Destination;

const ABOUT: &str = "relay";

/// What the relay would find. Nothing is published.
pub(super) async fn look(pipeline: &Pipeline) -> Vec<Finding> {
    let Some(spec) = &pipeline.relay else { return Vec::new() };
    // The kind of the store does not matter: the sink of a broker has none.
    match Outlet::<Sqlite>::broker(&spec.to, pipeline) {
        Err(reason) => vec![refused(spec, &reason)],
        Ok(None) => queues(pipeline),
        Ok(Some(outlet)) => {
            let opened = outlet.open().await;
            outlet.close().await;
            match opened {
                Err(error) => vec![unreachable(&error)],
                Ok(()) => topics(pipeline, &spec.to).await,
            }
        }
    }
}

/// What `run` says of it at the start.
fn refused(spec: &RelaySpec, reason: &str) -> Finding {
    let evidence = format!("line {}: `to` of the relay: {reason}", spec.line);
    Finding::new("file.mistake", Severity::Error, ABOUT, evidence, "mend it in the file")
}

fn unreachable(error: &SinkError) -> Finding {
    let reason = error.to_string();
    let (evidence, advice) = advised(&reason);
    let fix = format!("{advice}; until then, what is emitted waits in the outbox");
    Finding::new("broker.unreachable", Severity::Error, ABOUT, evidence, fix)
}

/// The topics that the file names in full, each with the consumers that emit to it. What depends on a message is seen when
/// it comes.
fn named(pipeline: &Pipeline) -> BTreeMap<String, BTreeSet<&str>> {
    let mut named: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for spec in &pipeline.consumers {
        for topic in spec.on.iter().flat_map(|on| &on.emit).filter_map(|emit| emit.topic.literal()) {
            named.entry(topic).or_default().insert(&spec.name);
        }
    }
    named
}

/// Queues are made when they are needed, if they can be called so.
fn queues(pipeline: &Pipeline) -> Vec<Finding> {
    let wrong = named(pipeline).into_iter().filter_map(|(topic, by)| {
        oncebox::ConsumerName::new(&topic).err()?;
        let fix = "give the queue a name of 1 to 100 visible ASCII characters that is not `*`";
        Some(finding(Severity::Error, &topic, &by, "no queue can be called so, and its rows are set aside", fix))
    });
    wrong.collect()
}

fn finding(severity: Severity, topic: &str, by: &BTreeSet<&str>, so: &str, fix: &str) -> Finding {
    let by: Vec<&str> = by.iter().copied().collect();
    let (noun, verb) = if by.len() == 1 { ("consumer", "emits") } else { ("consumers", "emit") };
    let evidence = format!("{noun} {} {verb} to `{topic}`: {so}", by.join(", "));
    Finding::new("relay.topic", severity, ABOUT, evidence, fix)
}

/// Why a topic could not be looked at. A broker that was there a moment ago and says nothing of it may not have been
/// asked by the right user.
fn unseen(topic: &str, by: &BTreeSet<&str>, error: &SinkError) -> Finding {
    let (reason, advice) = advised(error.reason());
    match error.kind() {
        SinkErrorKind::Refused => {
            let so = format!("{reason}: its rows are set aside");
            finding(Severity::Error, topic, by, &so, "correct `topic`")
        }
        SinkErrorKind::Configuration => {
            let so = format!("{reason}: its rows wait in the outbox");
            finding(Severity::Error, topic, by, &so, advice)
        }
        _ => {
            let so = format!("nobody can tell whether it is there ({reason})");
            let fix = "let the user of the relay ask for it, or look yourself";
            finding(Severity::Note, topic, by, &so, fix)
        }
    }
}

#[cfg(not(feature = "brokers"))]
async fn topics(_: &Pipeline, _: &Destination) -> Vec<Finding> {
    Vec::new()
}

#[cfg(feature = "brokers")]
async fn topics(pipeline: &Pipeline, to: &Destination) -> Vec<Finding> {
    let mut found = Vec::new();
    for (topic, by) in named(pipeline) {
        let looked = match to {
            Destination::RabbitMq(url) => rabbitmq(url, &topic, &by).await,
            Destination::Nats(url) => nats(url, &topic, &by).await,
            Destination::Kafka(servers) => kafka(servers, &topic, &by, pipeline).await,
            Destination::Queue => Ok(Vec::new()),
        };
        // Several topics may lead to one stream or queue.
        for one in looked.unwrap_or_else(|error| vec![unseen(&topic, &by, &error)]) {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// Rows whose topic is not there.
#[cfg(feature = "brokers")]
fn missing(topic: &str, by: &BTreeSet<&str>, what: &str) -> Finding {
    let so = format!("there is no {what}, and its rows wait in the outbox");
    finding(Severity::Error, topic, by, &so, "create it, or correct `topic`")
}

#[cfg(feature = "brokers")]
async fn rabbitmq(url: &str, topic: &str, by: &BTreeSet<&str>) -> Result<Vec<Finding>, SinkError> {
    use oncebox::rabbitmq::{Rabbit, Target, look_for};
    Ok(match look_for(&Rabbit::new(url), topic).await? {
        (what, Target::Missing) => vec![missing(topic, by, &what)],
        (_, Target::Queue(facts)) => super::rabbitmq::kept(ABOUT, topic.trim_start_matches('/'), &facts),
        _ => Vec::new(),
    })
}

#[cfg(feature = "brokers")]
async fn nats(url: &str, topic: &str, by: &BTreeSet<&str>) -> Result<Vec<Finding>, SinkError> {
    Ok(match oncebox::nats::look_for(url, topic).await? {
        None => vec![missing(topic, by, "stream that takes it")],
        Some(facts) => super::nats::kept(&format!("{ABOUT}, stream {}", facts.name), &facts),
    })
}

#[cfg(feature = "brokers")]
async fn kafka(
    servers: &str,
    topic: &str,
    by: &BTreeSet<&str>,
    pipeline: &Pipeline,
) -> Result<Vec<Finding>, SinkError> {
    Ok(match oncebox::kafka::look_for(servers, topic, &pipeline.kafka.0).await? {
        None => vec![missing(topic, by, "such topic, or this user may not see it")],
        Some(facts) => super::brokers::replicas(&format!("{ABOUT}, topic {topic}"), &facts).into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(to: &str, topics: [&str; 2]) -> Pipeline {
        let [one, other] = topics.map(|topic| format!("{{ type = \"e\", topic = \"{topic}\" }}"));
        let on = |emit: &str| format!("[[consumer.on]]\ntype = \"t\"\nemit = [{emit}]\n");
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[relay]\nto = \"{to}\"\n[[consumer]]\nname = \"a\"\nfrom = \"queue:a\"\n{}\
             [[consumer]]\nname = \"b\"\nfrom = \"queue:b\"\n{}",
            on(&one),
            on(&format!("{one}, {other}"))
        );
        Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap()
    }

    #[test]
    fn topics_that_depend_on_the_message_are_not_named() {
        let (whole, parted) = (pipeline("queue:", ["paid", "paid.{shop}"]), pipeline("queue:", ["{a}", "{{b}}"]));
        assert_eq!(named(&whole), [("paid".to_owned(), ["a", "b"].into())].into());
        assert_eq!(named(&parted), [("{b}".to_owned(), ["b"].into())].into());
    }

    #[tokio::test]
    async fn a_queue_that_can_t_be_called_so_is_told() {
        assert_eq!(look(&pipeline("queue:", ["paid", "sent"])).await, []);
        let found = look(&pipeline("queue:", ["paid", "*"])).await;
        assert_eq!((found.len(), found[0].check, found[0].severity), (1, "relay.topic", Severity::Error));
        assert!(found[0].evidence.starts_with("consumer b emits to `*`: "), "{found:?}");
    }

    /// What the relay does with its rows is what its sink's errors say.
    #[test]
    fn a_topic_that_can_t_be_looked_at_is_judged_by_its_error() {
        let judged = |kind| unseen("t", &["a", "b"].into(), &SinkError::new(kind, "look", "it is so; mend it"));
        let (refused, wrong, away) =
            (judged(SinkErrorKind::Refused), judged(SinkErrorKind::Configuration), judged(SinkErrorKind::Unavailable));
        assert_eq!(refused.evidence, "consumers a, b emit to `t`: it is so: its rows are set aside");
        assert_eq!((wrong.severity, wrong.fix.as_str()), (Severity::Error, "mend it"));
        assert!(wrong.evidence.ends_with("it is so: its rows wait in the outbox"), "{wrong:?}");
        assert_eq!(away.severity, Severity::Note);
    }
}
