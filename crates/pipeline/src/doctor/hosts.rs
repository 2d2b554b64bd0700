//! Connections that others on the way can read.

use super::finding::{Finding, Severity};
use crate::file::{Pipeline, StoreAt};
use crate::place::{Destination, Origin};

/// Brokers and stores on other machines that are spoken to in plain text.
pub(super) fn plain_text(pipeline: &Pipeline) -> Vec<Finding> {
    let mut found = Vec::new();
    if let StoreAt::Postgres(url) = &pipeline.store.at
        && let Some(host) = elsewhere(url)
        && !["sslmode=require", "sslmode=verify-ca", "sslmode=verify-full"].iter().any(|mode| url.contains(mode))
    {
        found.push(finding("store", host, "add ?sslmode=verify-full to its URL"));
    }
    let has_tls = pipeline.kafka.0.iter().any(|(name, value)| {
        name == "security.protocol" && ["ssl", "sasl_ssl"].contains(&value.to_ascii_lowercase().as_str())
    });
    let kafka_fix = "set \"security.protocol\" = \"ssl\" or \"sasl_ssl\" under [kafka]";
    for spec in &pipeline.consumers {
        let about = format!("consumer {}", spec.name);
        found.extend(match &spec.from {
            Origin::Queue(_) => None,
            Origin::RabbitMq { url, .. } => open(url, "amqp://", &about, "write amqps:// in its place"),
            Origin::Nats { url, .. } => open(url, "nats://", &about, "write tls:// in its place"),
            Origin::Kafka { servers, .. } => {
                let host = servers.split(',').find_map(|server| elsewhere(server)).filter(|_| !has_tls);
                host.map(|host| finding(&about, host, kafka_fix))
            }
        });
    }
    found.extend(match pipeline.relay.as_ref().map(|relay| &relay.to) {
        Some(Destination::RabbitMq(url)) => open(url, "amqp://", "relay", "write amqps:// in its place"),
        Some(Destination::Nats(url)) => open(url, "nats://", "relay", "write tls:// in its place"),
        Some(Destination::Kafka(servers)) => {
            let host = servers.split(',').find_map(|server| elsewhere(server)).filter(|_| !has_tls);
            host.map(|host| finding("relay", host, kafka_fix))
        }
        Some(Destination::Queue) | None => None,
    });
    found
}

fn open(url: &str, plain: &str, about: &str, fix: &str) -> Option<Finding> {
    let host = elsewhere(url).filter(|_| url.starts_with(plain))?;
    Some(finding(about, host, fix))
}

fn finding(about: &str, host: &str, fix: &str) -> Finding {
    let evidence = format!("the connection to {host} is not encrypted");
    Finding::new("connection.plain-text", Severity::Warning, about, evidence, fix)
}

/// The host of an address, if it is not this machine.
fn elsewhere(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', ',']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => place.split(':').next()?,
    };
    let is_here = host.is_empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
    (!is_here).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(store: &str, from: &str) -> Pipeline {
        let text = format!(
            "[store]\nurl = \"{store}\"\n[[consumer]]\nname = \"c\"\nfrom = \"{from}\"\n[[consumer.on]]\ntype = \"t\"\n\
             sql = \"select 1\"\n"
        );
        Pipeline::parse("x.toml", &text, &|_: &str| None).unwrap()
    }

    #[test]
    fn other_machines_are_told_without_secrets() {
        let found = plain_text(&pipeline("postgres://u:CANARY@db.shop/d", "amqp://u:CANARY@mq.shop/v/q"));
        let said: Vec<&str> = found.iter().map(|one| one.evidence.as_str()).collect();
        assert_eq!(said, ["the connection to db.shop is not encrypted", "the connection to mq.shop is not encrypted"]);
        assert_eq!(plain_text(&pipeline("sqlite://x.db", "kafka://k.shop/t")).len(), 1);
    }

    #[test]
    fn this_machine_and_tls_are_not() {
        for (store, from) in [
            ("postgres://u:p@127.0.0.1:5432/d", "nats://localhost/s"),
            ("postgres://u@db.shop/d?sslmode=verify-full", "amqps://u@mq.shop/v/q"),
            ("postgres://u@[::1]:5432/d", "queue:q"),
        ] {
            assert_eq!(plain_text(&pipeline(store, from)), [], "{store} {from}");
        }
    }
}
