//! Queues of RabbitMQ.

use oncebox::rabbitmq::{QueueFacts, Rabbit, RabbitSource, inspect};

use super::brokers::{starved, unreachable};
use super::finding::{Finding, Severity};
use crate::file::ConsumerSpec;
use crate::place::Origin;

const DEAD_LETTERS: &str = "x-dead-letter-exchange";
const SINGLE_ACTIVE: &str = "x-single-active-consumer";

/// Looks at the queue of a consumer, if it has one. It is never created.
pub(super) async fn look(about: &str, spec: &ConsumerSpec) -> Vec<Finding> {
    let Origin::RabbitMq { url, queue } = &spec.from else { return Vec::new() };
    let fix = "take fewer lanes, and more processes";
    let starved = starved(about, spec, "the prefetch of a process", RabbitSource::PREFETCH.into(), fix);
    let mut found = match inspect(&Rabbit::new(url), queue).await {
        Ok(Some(facts)) => checks(about, spec, queue, &facts),
        // It is made at the start.
        Ok(None) if spec.create => Vec::new(),
        Ok(None) => vec![missing(about, queue)],
        Err(error) => vec![unreachable(about, &error.to_string())],
    };
    found.extend(starved);
    found
}

fn missing(about: &str, queue: &str) -> Finding {
    let fix = "declare it, or write `create = true` to have it made at the start";
    Finding::new("broker.unreachable", Severity::Error, about, format!("there is no queue {queue}"), fix)
}

fn checks(about: &str, spec: &ConsumerSpec, queue: &str, facts: &QueueFacts) -> Vec<Finding> {
    let seen = Seen { about, queue, facts };
    let all = [
        seen.passing(),
        seen.kind(spec),
        seen.order(spec),
        seen.delivery_limit(),
        seen.drops(),
        seen.unread(),
        seen.unseen(),
    ];
    all.into_iter().flatten().collect()
}

/// What a queue shows that is published to.
pub(super) fn kept(about: &str, queue: &str, facts: &QueueFacts) -> Vec<Finding> {
    let seen = Seen { about, queue, facts };
    [seen.passing(), seen.drops()].into_iter().flatten().collect()
}

/// A queue, and how it is called.
struct Seen<'s> {
    about: &'s str,
    queue: &'s str,
    facts: &'s QueueFacts,
}

impl Seen<'_> {
    fn finding(&self, check: &'static str, severity: Severity, evidence: &str, fix: &str) -> Finding {
        Finding::new(check, severity, self.about, format!("queue {} {evidence}", self.queue), fix)
    }

    fn is_quorum(&self) -> bool {
        self.facts.kind() == "quorum"
    }

    /// Policies can't be seen; they may add what is missed here, and the text says so.
    fn has_dead_letters(&self) -> bool {
        self.facts.argument(DEAD_LETTERS).is_some()
    }

    /// A queue that is gone after a restart, with everything in it.
    fn passing(&self) -> Option<Finding> {
        let evidence = "is not durable: it and the messages in it are gone when the broker restarts";
        let fix = "declare it anew as a durable quorum queue";
        let is_passing = self.facts.durable == Some(false);
        is_passing.then(|| self.finding("rabbitmq.not-durable", Severity::Error, evidence, fix))
    }

    /// What `create = true` expects, and what a queue on one node can't do.
    fn kind(&self, spec: &ConsumerSpec) -> Option<Finding> {
        if self.is_quorum() || self.facts.unseen.is_some() {
            return None;
        }
        if spec.create {
            let evidence = format!(
                "is a {} queue, and `create = true` stands for a quorum queue: the start fails",
                self.facts.kind()
            );
            let fix = "take `create` out of the file, or declare the queue anew";
            return Some(self.finding("rabbitmq.kind", Severity::Error, &evidence, fix));
        }
        let evidence = "is a classic queue: one node keeps it, and nobody counts how often a message was delivered";
        let fix = "declare it anew with x-queue-type = quorum, if its messages matter";
        (self.facts.durable == Some(true)).then(|| self.finding("rabbitmq.classic", Severity::Note, evidence, fix))
    }

    fn order(&self, spec: &ConsumerSpec) -> Option<Finding> {
        let is_single = self.facts.argument(SINGLE_ACTIVE) == Some("true");
        if spec.order_by.is_none() || is_single || self.facts.unseen.is_some() {
            return None;
        }
        let evidence = "has no x-single-active-consumer, and `order_by` asks for order: the start fails";
        let fix = "declare it anew with x-single-active-consumer = true, or take `order_by` out of the file";
        Some(self.finding("rabbitmq.order", Severity::Error, evidence, fix))
    }

    /// What a quorum queue does with a message that was delivered too often.
    fn delivery_limit(&self) -> Option<Finding> {
        if !self.is_quorum() || self.has_dead_letters() {
            return None;
        }
        let fix = "give it a dead-letter exchange (x-dead-letter-exchange, or by a policy, which a client can't see)";
        Some(match self.facts.number("x-delivery-limit") {
            Some(limit) => {
                let evidence = format!(
                    "has a delivery limit of {limit} and no x-dead-letter-exchange: what was delivered more often is dropped"
                );
                self.finding("rabbitmq.dead-letters", Severity::Error, &evidence, fix)
            }
            None => {
                let evidence = "is a quorum queue without x-dead-letter-exchange: from RabbitMQ 4 on it drops what was \
                                delivered 20 times, and each lost connection counts";
                self.finding("rabbitmq.dead-letters", Severity::Warning, evidence, fix)
            }
        })
    }

    /// What it throws away before anyone has read it.
    fn drops(&self) -> Option<Finding> {
        let refuses = self.facts.argument("x-overflow").is_some_and(|overflow| overflow.starts_with("reject-publish"));
        let full = ["x-max-length", "x-max-length-bytes"].into_iter().filter(|_| !refuses);
        let drops: Vec<&str> =
            full.chain(["x-message-ttl"]).filter(|name| self.facts.argument(name).is_some()).collect();
        // A queue that expires goes with everything in it, dead-letter exchange or not.
        let expires = self.facts.argument("x-expires").map(|_| "x-expires");
        let drops: Vec<&str> = drops.into_iter().filter(|_| !self.has_dead_letters()).chain(expires).collect();
        if drops.is_empty() {
            return None;
        }
        let evidence = format!("drops messages that nobody has read, by {}", drops.join(", "));
        let fix = "declare it anew without, or with x-overflow = reject-publish or x-dead-letter-exchange";
        Some(self.finding("rabbitmq.drops", Severity::Warning, &evidence, fix))
    }

    fn unread(&self) -> Option<Finding> {
        let QueueFacts { messages, consumers: 0, .. } = self.facts else { return None };
        let evidence = format!("has {messages} messages, and nobody reads it");
        let fix = "start the consumer with `oncebox run`";
        (*messages > 0).then(|| self.finding("rabbitmq.unread", Severity::Note, &evidence, fix))
    }

    /// Whoever may not declare a queue can't find out what it is.
    fn unseen(&self) -> Option<Finding> {
        let said = self.facts.unseen.as_ref()?;
        let evidence = format!("does not show what it is made of: {said}");
        let fix = "look with `rabbitmqctl list_queues name type durable arguments`, or let this user configure it";
        Some(self.finding("rabbitmq.unseen", Severity::Note, &evidence, fix))
    }
}
