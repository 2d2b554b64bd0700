//! The topics of a broker that the file emits to: whether they are there, and whether they keep what they get.

use std::collections::BTreeSet;

use oncebox::{SinkError, SinkErrorKind};

use super::finding::{Finding, Severity};
use super::relay::{ABOUT, finding, named};
use crate::file::Pipeline;
use crate::place::Destination;

/// What is at the topics that the file names in full, on a broker that answers.
pub(super) async fn look(pipeline: &Pipeline, to: &Destination) -> Vec<Finding> {
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
fn missing(topic: &str, by: &BTreeSet<&str>, what: &str) -> Finding {
    let so = format!("there is no {what}, and its rows wait in the outbox");
    finding(Severity::Error, topic, by, &so, "create it, or correct `topic`")
}

async fn rabbitmq(url: &str, topic: &str, by: &BTreeSet<&str>) -> Result<Vec<Finding>, SinkError> {
    use oncebox::rabbitmq::{Rabbit, Target, look_for};
    Ok(match look_for(&Rabbit::new(url), topic).await? {
        (what, Target::Missing) => vec![missing(topic, by, &what)],
        (_, Target::Queue(facts)) => super::rabbitmq::kept(ABOUT, topic.trim_start_matches('/'), &facts),
        _ => Vec::new(),
    })
}

async fn nats(url: &str, topic: &str, by: &BTreeSet<&str>) -> Result<Vec<Finding>, SinkError> {
    Ok(match oncebox::nats::look_for(url, topic).await? {
        None => vec![missing(topic, by, "stream that takes it")],
        Some(facts) => super::nats::kept(&format!("{ABOUT}, stream {}", facts.name), &facts),
    })
}

/// A name that was misspelt is made as well, and one broker that has a topic of one replica loses it.
fn made_at_first(topic: &str, by: &BTreeSet<&str>) -> Finding {
    let so = "there is no such topic, and the brokers make it with the first message, with their own settings";
    let fix = "create it as it should be, or correct `topic`";
    finding(Severity::Warning, topic, by, so, fix)
}

async fn kafka(
    servers: &str,
    topic: &str,
    by: &BTreeSet<&str>,
    pipeline: &Pipeline,
) -> Result<Vec<Finding>, SinkError> {
    use oncebox::kafka::{Target, look_for};
    Ok(match look_for(servers, topic, &pipeline.kafka.0).await? {
        Target::MadeAtFirst => vec![made_at_first(topic, by)],
        Target::Topic(facts) => {
            super::brokers::replicas(&format!("{ABOUT}, topic {topic}"), &facts).into_iter().collect()
        }
        Target::Unseen => vec![unknown(topic, by, "this user may not ask")],
        _ => vec![missing(topic, by, "such topic, or this user may not see it")],
    })
}

/// Why a topic could not be looked at.
fn unseen(topic: &str, by: &BTreeSet<&str>, error: &SinkError) -> Finding {
    let (reason, advice) =
        error.reason().rsplit_once("; ").unwrap_or((error.reason(), "create it, or correct `topic`"));
    match error.kind() {
        SinkErrorKind::Refused => {
            let so = format!("{reason}: its rows are set aside");
            finding(Severity::Error, topic, by, &so, "correct `topic`")
        }
        SinkErrorKind::Configuration => {
            let so = format!("{reason}: its rows wait in the outbox");
            finding(Severity::Error, topic, by, &so, advice)
        }
        // A broker that was there a moment ago and says nothing of it may not have been asked by the right user.
        _ => unknown(topic, by, reason),
    }
}

fn unknown(topic: &str, by: &BTreeSet<&str>, reason: &str) -> Finding {
    let so = format!("nobody can tell whether it is there ({reason})");
    finding(Severity::Note, topic, by, &so, "let the user of the relay ask for it, or look yourself")
}

#[cfg(test)]
mod tests {
    use super::*;

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
