//! Streams of NATS and the consumers on them.

use std::time::Duration;

use oncebox::Bounds;
use oncebox::nats::{DiskSync, StreamFacts};

use super::brokers::starved;
use super::finding::{Finding, Severity};
use crate::file::ConsumerSpec;
use crate::retention::Span;

/// What a stream and its consumer show.
pub(super) fn checks(about: &str, spec: &ConsumerSpec, facts: &StreamFacts) -> Vec<Finding> {
    let pending = "raise max_ack_pending to a hundred times the lanes, or take fewer lanes";
    let starved = facts.ack_pending_max.and_then(|max| {
        starved(about, spec, "max_ack_pending of its consumer", max, pending).filter(|_| facts.refused.is_none())
    });
    let all = [in_memory(about, facts), sync(about, facts), refused(about, facts), lease(about, facts), starved];
    all.into_iter().flatten().collect()
}

/// What a stream shows that is published to.
pub(super) fn kept(about: &str, facts: &StreamFacts) -> Vec<Finding> {
    [in_memory(about, facts), sync(about, facts)].into_iter().flatten().collect()
}

fn in_memory(about: &str, facts: &StreamFacts) -> Option<Finding> {
    let evidence = "its stream is kept in memory, so messages that were confirmed are lost with the server";
    let fix = "make the stream anew with file storage";
    facts.in_memory.then(|| Finding::new("nats.memory", Severity::Error, about, evidence, fix))
}

/// A stream that one server keeps is as safe as that server's disk. With more, the others still have it.
fn sync(about: &str, facts: &StreamFacts) -> Option<Finding> {
    if facts.in_memory || facts.replicas > 1 {
        return None;
    }
    let fix = "set `sync_interval: always` under jetstream in the server's file, or give the stream three replicas";
    match facts.sync {
        DiskSync::Always => None,
        DiskSync::Every(every) => {
            let evidence = format!(
                "one server keeps its stream, and writes to its disk every {}: what it confirmed since is lost when the \
                 power goes",
                Span(every)
            );
            Some(Finding::new("nats.sync-interval", Severity::Warning, about, evidence, fix))
        }
        DiskSync::Unseen => {
            let evidence = "one server keeps its stream, and this user can't see its sync_interval: if that is the default, up \
                            to 2m of confirmed messages are lost when the power goes";
            let fix = format!(
                "look at jetstream.config of the server's /varz (port 8222, or `nats server request jetstream`): {fix}"
            );
            Some(Finding::new("nats.sync-interval", Severity::Note, about, evidence, fix))
        }
    }
}

/// What the consumer would say at its start.
fn refused(about: &str, facts: &StreamFacts) -> Option<Finding> {
    let (what, fix) = facts.refused.as_ref()?.split_once("; ")?;
    let evidence = format!("the consumer on its stream can't be used: {what}");
    Some(Finding::new("nats.consumer", Severity::Error, about, evidence, fix))
}

/// While a handler runs its lease is extended. A process that stalls does not, and another begins beside it.
fn lease(about: &str, facts: &StreamFacts) -> Option<Finding> {
    let (ack_wait, deadline): (Duration, Duration) = (facts.ack_wait?, Bounds::default().handler_deadline);
    if ack_wait >= deadline || facts.refused.is_some() {
        return None;
    }
    let evidence = format!(
        "ack_wait of its consumer is {}, and a handler may take {}: if a process stalls meanwhile, the message comes again",
        Span(ack_wait),
        Span(deadline)
    );
    let fix = format!("set ack_wait to {} or more", Span(deadline));
    Some(Finding::new("lease.short", Severity::Note, about, evidence, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> StreamFacts {
        let mut facts = StreamFacts::default();
        facts.replicas = 1;
        facts.sync = DiskSync::Always;
        facts
    }

    #[test]
    fn a_stream_that_several_servers_keep_may_sync_when_it_likes() {
        let mut many = facts();
        (many.replicas, many.sync) = (3, DiskSync::Every(Duration::from_secs(120)));
        assert_eq!(sync("c", &many), None);
        many.replicas = 1;
        assert!(sync("c", &many).is_some_and(|found| found.evidence.contains("every 2m")));
        assert_eq!(sync("c", &facts()), None);
    }
}
