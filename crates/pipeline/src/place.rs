//! Where messages come from and go to, as one address.

use std::fmt;

use oncebox::address::{Address, Host};

/// A place that messages come from.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    /// A queue in the store itself.
    Queue(String),
    /// A queue of RabbitMQ.
    RabbitMq {
        /// The broker, with its virtual host.
        url: String,
        /// The queue.
        queue: String,
    },
    /// A durable consumer of a JetStream stream.
    Nats {
        /// The server.
        url: String,
        /// The stream.
        stream: String,
        /// The consumer; absent, it is named like ours.
        durable: Option<String>,
    },
    /// A topic of Kafka.
    Kafka {
        /// `host:port,host:port`.
        servers: String,
        /// The topic.
        topic: String,
    },
}

/// A broker that messages go to.
#[derive(Clone, PartialEq, Eq)]
pub enum Destination {
    /// RabbitMQ, at a URL with its virtual host.
    RabbitMq(String),
    /// NATS, at a URL.
    Nats(String),
    /// Kafka, at `host:port,host:port`.
    Kafka(String),
    /// The store itself: each topic is one of its queues.
    Queue,
}

/// Schemes of brokers that are planned.
const PLANNED: [&str; 3] = ["redis", "servicebus", "sqs"];

const ORIGINS: &str =
    "write queue:NAME, amqp://user:password@host/vhost/queue, nats://host/stream or kafka://host/topic";
const DESTINATIONS: &str = "write queue:, amqp://user:password@host/vhost, nats://host or kafka://host";

impl Origin {
    /// Reads an address. A complaint never holds the address: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("queue:") {
            let bad = |_| "the name of a queue has 1 to 100 visible ASCII characters, and is not `*`".to_owned();
            oncebox::ConsumerName::new(name).map_err(bad)?;
            return Ok(Self::Queue(name.to_owned()));
        }
        let address = Address::read(text).map_err(|error| format!("{error}; {ORIGINS}"))?;
        let path = address.path().to_owned();
        match address.scheme() {
            "amqp" | "amqps" => {
                let (vhost, queue) = path.rsplit_once('/').unwrap_or(("", &path));
                if queue.is_empty() {
                    return Err("it names no queue; write amqp://user:password@host/vhost/queue".to_owned());
                }
                Ok(Self::RabbitMq { url: rabbit(address, vhost)?, queue: name(queue)? })
            }
            "nats" | "tls" => {
                let (stream, durable) = match path.split_once('/') {
                    Some((stream, durable)) => (stream, Some(name(durable)?)),
                    None => (path.as_str(), None),
                };
                if stream.is_empty() {
                    return Err("it names no stream; write nats://host/stream".to_owned());
                }
                Ok(Self::Nats { url: nats(address)?, stream: name(stream)?, durable })
            }
            "kafka" if path.is_empty() || path.contains('/') => {
                Err("it names no topic; write kafka://host:port/topic".to_owned())
            }
            "kafka" => Ok(Self::Kafka { servers: servers(&address)?, topic: name(&path)? }),
            other => Err(unknown(other, ORIGINS)),
        }
    }
}

impl Origin {
    /// The broker that it is on, and what a sink calls it there.
    pub fn as_destination(&self) -> (Destination, String) {
        match self {
            Self::Queue(name) => (Destination::Queue, name.clone()),
            // The default exchange leads to the queue of that name.
            Self::RabbitMq { url, queue } if queue.contains('/') => {
                (Destination::RabbitMq(url.clone()), format!("/{queue}"))
            }
            Self::RabbitMq { url, queue } => (Destination::RabbitMq(url.clone()), queue.clone()),
            Self::Nats { url, stream, .. } => (Destination::Nats(url.clone()), stream.clone()),
            Self::Kafka { servers, topic } => (Destination::Kafka(servers.clone()), topic.clone()),
        }
    }
}

impl Destination {
    /// Reads an address. A complaint never holds the address: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "queue:" {
            return Ok(Self::Queue);
        }
        let address = Address::read(text).map_err(|error| format!("{error}; {DESTINATIONS}"))?;
        match address.scheme() {
            "amqp" | "amqps" => {
                let vhost = address.path().to_owned();
                rabbit(address, &vhost).map(Self::RabbitMq)
            }
            // Each message says where it goes: what stands there was meant as a topic, or as another host.
            scheme @ ("nats" | "tls" | "kafka") if !address.path().is_empty() => Err(format!(
                "something stands behind its hosts, where nothing belongs: each message names its topic; several hosts are \
                 written as {scheme}://host:port,host:port"
            )),
            "nats" | "tls" => nats(address).map(Self::Nats),
            "kafka" => servers(&address).map(Self::Kafka),
            other => Err(unknown(other, DESTINATIONS)),
        }
    }
}

/// What the client of RabbitMQ gets. `vhost` is written as in an address.
fn rabbit(address: Address, vhost: &str) -> Result<String, String> {
    if address.hosts().len() != 1 {
        return Err("it names no host, or several; write amqp://user:password@host/vhost".to_owned());
    }
    Ok(address.with_path(if vhost.is_empty() { "%2f" } else { vhost }).for_client())
}

/// What the client of NATS gets.
fn nats(address: Address) -> Result<String, String> {
    if address.hosts().is_empty() {
        return Err("it names no host; write nats://host:port".to_owned());
    }
    if !address.parameters().is_empty() {
        return Err("an address of NATS has no parameters; leave out what stands behind the `?`".to_owned());
    }
    Ok(address.with_path("").for_client())
}

/// What the client of Kafka gets.
fn servers(address: &Address) -> Result<String, String> {
    if address.user().is_some() {
        return Err("user and password do not go into a Kafka address; write them under [kafka] settings".to_owned());
    }
    if address.hosts().is_empty() || !address.parameters().is_empty() {
        return Err("it is no list of hosts; write kafka://host:port,host:port".to_owned());
    }
    let with_port = |host: &Host| Host { port: host.port.or(Some(9092)), ..host.clone() };
    Ok(Host::list(&address.hosts().iter().map(with_port).collect::<Vec<_>>()))
}

/// A name in a path, with `%2F` and the like undone.
fn name(part: &str) -> Result<String, String> {
    Address::name(part).map_err(|error| error.to_string())
}

/// No broker's scheme is longer.
const SCHEME_MAX: usize = 12;

fn unknown(scheme: &str, known: &str) -> String {
    if PLANNED.contains(&scheme) {
        return format!("{scheme} is not built yet; {known}");
    }
    // What stands before a `://` in a mangled address may be a password.
    let is_scheme = scheme.len() <= SCHEME_MAX && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_scheme {
        return format!("it is no address; {known}");
    }
    format!("`{scheme}` is no broker that is known; {known}")
}

/// The address that a client gets, without user, password and parameters.
pub(crate) fn shown(url: &str) -> String {
    Address::read(url).map_or_else(|_| "(an address that cannot be read)".to_owned(), |address| address.to_string())
}

/// The same for a list of hosts.
fn shown_list(hosts: &str) -> String {
    Host::read_list(hosts).map_or_else(|| "(hosts that cannot be read)".to_owned(), |hosts| Host::list(&hosts))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue:{name}"),
            Self::RabbitMq { url, queue } => write!(f, "{}/{queue}", shown(url)),
            Self::Nats { url, stream, .. } => write!(f, "{}/{stream}", shown(url)),
            Self::Kafka { servers, topic } => write!(f, "kafka://{}/{topic}", shown_list(servers)),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RabbitMq(url) | Self::Nats(url) => f.write_str(&shown(url)),
            Self::Kafka(servers) => write!(f, "kafka://{}", shown_list(servers)),
            Self::Queue => f.write_str("queue:"),
        }
    }
}

/// As [`fmt::Display`]: no secrets.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As [`fmt::Display`]: no secrets.
impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_not_shown() {
        for (url, expected) in [
            ("amqp://u:p@h:5672/v", "amqp://h:5672/v"),
            ("amqp://u:CANARY/v", "(an address that cannot be read)"),
            ("postgres://app:CANARY\u{e9}db/shop", "(an address that cannot be read)"),
            ("nats://[::1]:4222", "nats://[::1]:4222"),
            ("postgres://h/d?password=CANARY", "postgres://h/d"),
            ("postgres://app@h/d?password=a@CANARY", "(an address that cannot be read)"),
            ("postgres://app:a/b@CANARY", "(an address that cannot be read)"),
        ] {
            assert_eq!(shown(url), expected);
        }
        assert_eq!(shown_list("h1:9092,h2"), "h1:9092,h2");
        assert_eq!(shown_list("u:CANARY@h1:9092"), "(hosts that cannot be read)");
    }

    #[test]
    fn what_a_client_gets_is_what_was_meant() {
        let url = |text: &str| match Origin::parse(text).unwrap() {
            Origin::RabbitMq { url, .. } | Origin::Nats { url, .. } => url,
            other => panic!("{other}"),
        };
        assert_eq!(url("amqp://u:a%40b%2F@h/v/q?heartbeat=5"), "amqp://u:a%40b%2F@h/v?heartbeat=5");
        assert_eq!(url("nats://u:a%2Cb@h:1,i/s"), "nats://u:a%2Cb@h:1,i");
        assert_eq!(url("tls://to%3Aken@h/s/d"), "tls://to%3Aken@h");
        let Origin::Kafka { servers, .. } = Origin::parse("kafka://a,[::1]:1/t").unwrap() else { panic!("no Kafka") };
        assert_eq!(servers, "a:9092,[::1]:1");
    }

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        for (text, shown) in [
            ("queue:payments", "queue:payments"),
            ("amqp://u:CANARY@h:5672/shop/orders", "amqp://h:5672/shop/orders"),
            ("amqp://h/orders", "amqp://h/%2f/orders"),
            ("amqp://h//a%2Fb", "amqp://h/%2f/a/b"),
            ("nats://CANARY@h:4222/ORDERS", "nats://h:4222/ORDERS"),
            ("kafka://a,b:9093/orders", "kafka://a:9092,b:9093/orders"),
        ] {
            assert_eq!(format!("{:?}", Origin::parse(text).unwrap()), shown);
        }
        assert_eq!(Destination::parse("amqp://u:CANARY@h").unwrap().to_string(), "amqp://h/%2f");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said_without_it() {
        for (text, says) in [
            ("payments", "queue:NAME"),
            ("queue:", "name"),
            ("amqp://u:CANARY@h/", "names no queue"),
            ("nats://CANARY@h", "names no stream"),
            ("kafka://h", "names no topic"),
            ("kafka://u:CANARY@h/t", "do not go into"),
            ("sqs://CANARY@h/q", "not built yet"),
            ("http://CANARY@h/q", "no broker that is known"),
            ("amqp://h/v/a%2", "not followed by two digits"),
            ("amqp://u:CANARY@a,b/v/q", "several"),
            ("amqp://u:CAN/ARY@h/v/q", "host or port"),
            ("amqp://u:12/CANARY@h/v/q", "%40"),
            ("nats://h/s?password=CANARY", "no parameters"),
            ("kafka://h/t?password=CANARY", "no list of hosts"),
        ] {
            let complaint = Origin::parse(text).unwrap_err();
            assert!(complaint.contains(says) && !complaint.contains("CANARY"), "{text}: {complaint}");
        }
    }

    #[test]
    fn several_hosts_go_into_one_address() {
        let hosts = "host:port,host:port";
        for text in [
            "nats://a:4222,nats://b:4222",
            "nats://u:CANARY@a,nats://u:CANARY@b",
            "kafka://a:9092,kafka://b:9092",
            "nats://a:4222/b:4222",
            "kafka://a:9092/CANARY",
            "kafka://a/b/c",
        ] {
            let complaint = Destination::parse(text).unwrap_err();
            assert!(complaint.contains(hosts) && !complaint.contains("CANARY"), "{text}: {complaint}");
        }
        for text in ["nats://a:4222,nats://b:4222/s", "kafka://a:9092/t,kafka://b:9092/t"] {
            assert!(Origin::parse(text).unwrap_err().contains(hosts), "{text}");
        }
        for (text, shown) in [
            ("nats://a:4222,b:4222", "nats://a:4222,b:4222"),
            ("nats://a/", "nats://a"),
            ("kafka://a,b/", "kafka://a:9092,b:9092"),
        ] {
            assert_eq!(Destination::parse(text).unwrap().to_string(), shown);
        }
    }
}
