//! Topics, streams and queues.

use super::finding::{Finding, Severity};
use crate::file::{ConsumerSpec, StartSpec};
use crate::place::Origin;
use crate::retention::Facts;

/// What the broker of a consumer tells.
pub(super) fn look(spec: &ConsumerSpec, facts: &Facts) -> Vec<Finding> {
    let about = format!("consumer {}", spec.name);
    let mut found = Vec::new();
    match facts {
        Facts::None => {}
        Facts::Silent(reason) => {
            let fix = "check the address, and that the broker runs";
            found.push(Finding::new("broker.unreachable", Severity::Error, &about, reason, fix));
        }
        #[cfg(feature = "brokers")]
        Facts::Kafka(facts) => found.extend(replicas(&about, facts)),
        #[cfg(feature = "brokers")]
        Facts::Nats(facts) => {
            found.extend(in_memory(&about, facts));
            found.extend(pending(&about, spec, facts));
        }
    }
    found.extend(start(&about, spec));
    found.extend(unseen(&about, spec));
    found
}

/// A group without an offset that begins at the end skips what is there.
fn start(about: &str, spec: &ConsumerSpec) -> Option<Finding> {
    if !matches!((&spec.from, spec.start), (Origin::Kafka { .. }, StartSpec::End)) {
        return None;
    }
    let evidence = "start = \"end\": a group that lost its offsets skips everything that arrived meanwhile";
    let fix = "write start = \"stop\" once the group has begun; then a person decides";
    Some(Finding::new("kafka.offset-reset", Severity::Warning, about, evidence, fix))
}

/// RabbitMQ shows a client neither TTL nor dead-letter exchange.
fn unseen(about: &str, spec: &ConsumerSpec) -> Option<Finding> {
    let Origin::RabbitMq { queue, .. } = &spec.from else { return None };
    let evidence = format!(
        "AMQP does not show whether queue {queue} is durable, is a quorum queue, or has a dead-letter exchange"
    );
    let fix = "look with `rabbitmqctl list_queues name type durable arguments`: a quorum queue drops a message after its \
               delivery limit unless it has a dead-letter exchange";
    Some(Finding::new("rabbitmq.unseen", Severity::Note, about, evidence, fix))
}

#[cfg(feature = "brokers")]
fn replicas(about: &str, facts: &oncebox::kafka::TopicFacts) -> Option<Finding> {
    let min = facts.in_sync_min.unwrap_or(1);
    if min >= 2 {
        return None;
    }
    let evidence = format!("{} replicas, and min.insync.replicas is {min}", facts.replicas);
    let fix = "have three replicas and min.insync.replicas = 2: with one, a message that was confirmed is lost with its broker";
    Some(Finding::new("kafka.replicas", Severity::Warning, about, evidence, fix))
}

#[cfg(feature = "brokers")]
fn in_memory(about: &str, facts: &oncebox::nats::StreamFacts) -> Option<Finding> {
    let evidence = "its stream is kept in memory, so messages that were confirmed are lost with the server";
    let fix = "make the stream anew with file storage";
    facts.in_memory.then(|| Finding::new("nats.memory", Severity::Error, about, evidence, fix))
}

#[cfg(feature = "brokers")]
fn pending(about: &str, spec: &ConsumerSpec, facts: &oncebox::nats::StreamFacts) -> Option<Finding> {
    let (max, lanes) = (facts.ack_pending_max?, spec.lanes.unwrap_or(4) as u64);
    if max >= lanes || spec.order_by.is_some() {
        return None;
    }
    let evidence = format!("max_ack_pending of its consumer is {max}, and it has {lanes} lanes: some never work");
    let fix = "raise max_ack_pending to a hundred times the lanes, or take fewer lanes";
    Some(Finding::new("prefetch.too-small", Severity::Warning, about, evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Pipeline;

    fn consumer(from: &str, fields: &str) -> ConsumerSpec {
        let text = format!(
            "[store]\nurl = \"sqlite://x.db\"\n[[consumer]]\nname = \"c\"\nfrom = \"{from}\"\n{fields}\n[[consumer.on]]\n\
             type = \"t\"\nsql = \"select 1\"\n"
        );
        Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap().consumers.remove(0)
    }

    fn checks(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|one| one.check).collect()
    }

    #[test]
    fn a_start_at_the_end_is_told() {
        let end = look(&consumer("kafka://h/t", "start = \"end\""), &Facts::None);
        assert_eq!(checks(&end), ["kafka.offset-reset"]);
        assert_eq!(look(&consumer("kafka://h/t", "start = \"stop\""), &Facts::None), []);
    }

    #[test]
    fn a_broker_that_is_away_is_an_error() {
        let away = look(&consumer("queue:q", ""), &Facts::Silent("cannot look".to_owned()));
        assert_eq!((checks(&away), away[0].severity), (vec!["broker.unreachable"], Severity::Error));
        assert_eq!(look(&consumer("queue:q", ""), &Facts::None), []);
    }
}
