//! The broker that the relay publishes to.

use std::collections::{BTreeMap, BTreeSet};

use oncebox::sqlite::Sqlite;
use oncebox::{Sink as _, SinkError};

use super::brokers::advised;
use super::finding::{Finding, Severity};
use crate::file::{Pipeline, RelaySpec};
use crate::outlet::Outlet;

pub(super) const ABOUT: &str = "relay";

/// What the relay would find. Nothing is published.
pub(super) async fn look(pipeline: &Pipeline) -> Vec<Finding> {
    let Some(spec) = &pipeline.relay else { return Vec::new() };
    // The kind of the store does not matter: the sink of a broker has none.
    match Outlet::<Sqlite>::broker(&spec.to, &pipeline.kafka) {
        Err(reason) => vec![refused(spec, &reason)],
        Ok(None) => queues(pipeline),
        Ok(Some(outlet)) => {
            let opened = outlet.open().await;
            outlet.close().await;
            match opened {
                Err(error) => vec![unreachable(&error)],
                #[cfg(feature = "brokers")]
                Ok(()) => super::topics::look(pipeline, &spec.to).await,
                #[cfg(not(feature = "brokers"))]
                Ok(()) => Vec::new(),
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
pub(super) fn named(pipeline: &Pipeline) -> BTreeMap<String, BTreeSet<&str>> {
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

pub(super) fn finding(severity: Severity, topic: &str, by: &BTreeSet<&str>, so: &str, fix: &str) -> Finding {
    let by: Vec<&str> = by.iter().copied().collect();
    let (noun, verb) = if by.len() == 1 { ("consumer", "emits") } else { ("consumers", "emit") };
    let evidence = format!("{noun} {} {verb} to `{topic}`: {so}", by.join(", "));
    Finding::new("relay.topic", severity, ABOUT, evidence, fix)
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
}
