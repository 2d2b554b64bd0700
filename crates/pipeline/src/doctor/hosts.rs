//! Connections that others on the way can read.

use oncebox::address::{Address, Host};
use oncebox::postgres::Postgres;

use super::finding::{Finding, Severity};
use crate::file::{Pipeline, StoreAt};
use crate::place::{Destination, Origin};

/// Brokers and stores on other machines that are spoken to in plain text.
pub(super) fn plain_text(pipeline: &Pipeline) -> Vec<Finding> {
    let mut found = Vec::new();
    // The driver knows best where its URL leads. One that can't be read is told where it is opened.
    if let StoreAt::Postgres(url) = &pipeline.store.at
        && let Ok(Some(host)) = Postgres::builder(url).host_without_tls()
        && !is_here(&host)
    {
        found.push(finding("store", &host, "add ?sslmode=verify-full to its URL"));
    }
    let has_tls = pipeline.kafka.0.iter().any(|(name, value)| {
        name == "security.protocol" && ["ssl", "sasl_ssl"].contains(&value.to_ascii_lowercase().as_str())
    });
    let kafka_fix = "set \"security.protocol\" = \"ssl\" or \"sasl_ssl\" under [kafka]";
    for spec in &pipeline.consumers {
        let about = format!("consumer {}", spec.name);
        found.extend(match &spec.from {
            Origin::Queue(_) => None,
            Origin::RabbitMq { url, .. } => open(url, "amqp", &about, "write amqps:// in its place"),
            Origin::Nats { url, .. } => open(url, "nats", &about, "write tls:// in its place"),
            Origin::Kafka { servers, .. } => {
                let host = Host::read_list(servers).and_then(|hosts| elsewhere(&hosts)).filter(|_| !has_tls);
                host.map(|host| finding(&about, &host, kafka_fix))
            }
        });
    }
    found.extend(match pipeline.relay.as_ref().map(|relay| &relay.to) {
        Some(Destination::RabbitMq(url)) => open(url, "amqp", "relay", "write amqps:// in its place"),
        Some(Destination::Nats(url)) => open(url, "nats", "relay", "write tls:// in its place"),
        Some(Destination::Kafka(servers)) => {
            let host = Host::read_list(servers).and_then(|hosts| elsewhere(&hosts)).filter(|_| !has_tls);
            host.map(|host| finding("relay", &host, kafka_fix))
        }
        Some(Destination::Queue) | None => None,
    });
    found
}

fn open(url: &str, plain: &str, about: &str, fix: &str) -> Option<Finding> {
    // One that can't be read is told where it is opened.
    let address = Address::read(url).ok().filter(|address| address.scheme() == plain)?;
    elsewhere(address.hosts()).map(|host| finding(about, &host, fix))
}

fn finding(about: &str, host: &str, fix: &str) -> Finding {
    let evidence = format!("the connection to {host} is not encrypted");
    Finding::new("connection.plain-text", Severity::Warning, about, evidence, fix)
}

/// The first host that is not this machine: one is enough.
fn elsewhere(hosts: &[Host]) -> Option<String> {
    hosts.iter().find(|host| !is_here(&host.name)).map(|host| host.name.clone())
}

/// Whether a host is this machine. What is not a name may begin like an address: `127.example.com`.
fn is_here(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    host.is_empty() || host == "localhost" || is_loopback
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
        for (from, host) in [("nats://localhost,n.shop/s", "n.shop"), ("amqp://u:CAN,ARY@mq.shop/v/q", "mq.shop")] {
            let found = plain_text(&pipeline("sqlite://x.db", from));
            assert_eq!(found[0].evidence, format!("the connection to {host} is not encrypted"));
        }
    }

    #[test]
    fn a_host_that_stands_in_a_parameter_is_told() {
        for (store, host) in [
            ("postgres:///d?host=db.shop", "db.shop"),
            ("postgres://localhost/d?hostaddr=10.0.0.7&password=CANARY", "10.0.0.7"),
            ("postgres://127.example.com/d", "127.example.com"),
        ] {
            let found = plain_text(&pipeline(store, "queue:q"));
            assert_eq!(found.len(), 1, "{store}");
            assert_eq!(found[0].evidence, format!("the connection to {host} is not encrypted"));
        }
    }

    #[test]
    fn this_machine_and_tls_are_not() {
        for (store, from) in [
            ("postgres://u:p@127.0.0.1:5432/d", "nats://localhost/s"),
            ("postgres://u@db.shop/d?sslmode=verify-full", "amqps://u@mq.shop/v/q"),
            ("postgres://u@[::1]:5432/d", "queue:q"),
            ("postgres:///d?host=/run/postgresql", "queue:q"),
            ("postgres://db.shop/d?hostaddr=127.0.0.1", "queue:q"),
            ("postgres:///d?host=db.shop&sslmode=require", "queue:q"),
        ] {
            assert_eq!(plain_text(&pipeline(store, from)), [], "{store} {from}");
        }
    }
}
