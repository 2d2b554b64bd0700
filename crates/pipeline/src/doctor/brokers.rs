//! Topics, streams and queues: what differs between brokers is in `nats` and `rabbitmq`.

use super::finding::{Finding, Severity};
#[cfg(feature = "brokers")]
use super::{nats, rabbitmq};
use crate::file::{ConsumerSpec, StartSpec};
use crate::place::Origin;
use crate::retention::Facts;

/// Lanes of a consumer whose file does not say how many.
pub(super) const LANES: usize = 4;

/// What the broker of a consumer tells.
pub(super) async fn look(spec: &ConsumerSpec, facts: &Facts) -> Vec<Finding> {
    let about = format!("consumer {}", spec.name);
    let mut found = Vec::new();
    match facts {
        Facts::None => {}
        Facts::Silent(reason) => found.push(unreachable(&about, reason)),
        #[cfg(feature = "brokers")]
        Facts::Kafka(facts) => found.extend(replicas(&about, facts)),
        #[cfg(feature = "brokers")]
        Facts::Nats(facts) => found.extend(nats::checks(&about, spec, facts)),
    }
    #[cfg(feature = "brokers")]
    found.extend(rabbitmq::look(&about, spec).await);
    found.extend(start(&about, spec));
    found
}

/// Told once: what else nobody can say of it follows from this. What to do stands at the end of a reason.
pub(super) fn unreachable(about: &str, reason: &str) -> Finding {
    let (evidence, advice) = advised(reason);
    let fix = format!("{advice}; until then, nobody knows for how long records must be kept");
    Finding::new("broker.unreachable", Severity::Error, about, evidence, fix)
}

/// What happened, and what to do, of a reason that says both.
pub(super) fn advised(reason: &str) -> (&str, &str) {
    reason.rsplit_once("; ").unwrap_or((reason, "check the address, and that the broker runs"))
}

/// Fewer may be under way than there are lanes.
#[cfg(feature = "brokers")]
pub(super) fn starved(about: &str, spec: &ConsumerSpec, name: &str, max: u64, fix: &str) -> Option<Finding> {
    let lanes = spec.lanes.unwrap_or(LANES) as u64;
    if max >= lanes || spec.order_by.is_some() {
        return None;
    }
    let evidence = format!("{name} is {max}, and it has {lanes} lanes: some never work");
    Some(Finding::new("prefetch.too-small", Severity::Warning, about, evidence, fix))
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

#[cfg(feature = "brokers")]
pub(super) fn replicas(about: &str, facts: &oncebox::kafka::TopicFacts) -> Option<Finding> {
    let min = facts.in_sync_min.unwrap_or(1);
    if min >= 2 {
        return None;
    }
    let evidence = format!("{} replicas, and min.insync.replicas is {min}", facts.replicas);
    let fix = "have three replicas and min.insync.replicas = 2: with one, a message that was confirmed is lost with its broker";
    Some(Finding::new("kafka.replicas", Severity::Warning, about, evidence, fix))
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

    #[tokio::test]
    async fn a_start_at_the_end_is_told() {
        let end = look(&consumer("kafka://h/t", "start = \"end\""), &Facts::None).await;
        assert_eq!(checks(&end), ["kafka.offset-reset"]);
        assert_eq!(look(&consumer("kafka://h/t", "start = \"stop\""), &Facts::None).await, []);
    }

    #[tokio::test]
    async fn a_broker_that_is_away_is_an_error() {
        let away = look(&consumer("queue:q", ""), &Facts::Silent("cannot look".to_owned())).await;
        assert_eq!((checks(&away), away[0].severity), (vec!["broker.unreachable"], Severity::Error));
        let told = unreachable("c", "cannot look: refused; check the address");
        assert_eq!(told.evidence, "cannot look: refused");
        assert!(told.fix.starts_with("check the address; until then"), "{told:?}");
        assert_eq!(look(&consumer("queue:q", ""), &Facts::None).await, []);
    }
}
