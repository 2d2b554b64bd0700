//! Where messages come from and go to, as one address.

use std::fmt;

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
        let (scheme, authority, path) = split(text).ok_or(format!("it is no address; {ORIGINS}"))?;
        match scheme {
            "amqp" | "amqps" => {
                let (vhost, queue) = path.rsplit_once('/').unwrap_or(("%2f", path));
                if queue.is_empty() {
                    return Err("it names no queue; write amqp://user:password@host/vhost/queue".to_owned());
                }
                let vhost = if vhost.is_empty() { "%2f" } else { vhost };
                Ok(Self::RabbitMq { url: format!("{scheme}://{authority}/{vhost}"), queue: decoded(queue)? })
            }
            "nats" | "tls" => {
                let (stream, durable) = match path.split_once('/') {
                    Some((stream, durable)) => (stream, Some(durable.to_owned())),
                    None => (path, None),
                };
                if stream.is_empty() {
                    return Err("it names no stream; write nats://host/stream".to_owned());
                }
                Ok(Self::Nats { url: format!("{scheme}://{authority}"), stream: stream.to_owned(), durable })
            }
            "kafka" if path.is_empty() || path.contains('/') => {
                Err("it names no topic; write kafka://host:port/topic".to_owned())
            }
            "kafka" => Ok(Self::Kafka { servers: servers(authority)?, topic: path.to_owned() }),
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
        let (scheme, authority, path) = split(text).ok_or(format!("it is no address; {DESTINATIONS}"))?;
        match scheme {
            "amqp" | "amqps" => {
                let vhost = if path.is_empty() { "%2f" } else { path };
                Ok(Self::RabbitMq(format!("{scheme}://{authority}/{vhost}")))
            }
            "nats" | "tls" => Ok(Self::Nats(format!("{scheme}://{authority}"))),
            "kafka" => Ok(Self::Kafka(servers(authority)?)),
            other => Err(unknown(other, DESTINATIONS)),
        }
    }
}

fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    (!authority.is_empty()).then_some((scheme, authority, path))
}

fn servers(authority: &str) -> Result<String, String> {
    if authority.contains('@') {
        return Err("user and password do not go into a Kafka address; write them under [kafka] settings".to_owned());
    }
    let with_port = |host: &str| if host.contains(':') { host.to_owned() } else { format!("{host}:9092") };
    Ok(authority.split(',').map(with_port).collect::<Vec<_>>().join(","))
}

/// Undoes `%2F` and the like.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a `%` is not followed by two digits; write %25 for a literal one")?);
        rest = after.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| "its name is not UTF-8".to_owned())
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

/// Without user, password and parameters. Where a mangled address leaves no plain hosts and ports, they are not shown: what
/// looks like a port may be a password.
pub(crate) fn shown(url: &str) -> String {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    // An `@` beyond the host belongs to a path or a parameter, and so may what stands before it.
    if after_scheme.find(['/', '?', '#']).is_some_and(|end| after_scheme[end..].contains('@')) {
        return "(hidden)".to_owned();
    }
    let rest =
        url.rsplit_once('@').map_or_else(|| url.split_once("://").map_or(url, |(_, rest)| rest), |(_, host)| host);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (hosts, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if hosts.split(',').all(is_plain_host) { format!("{hosts}{path}") } else { "(hidden)".to_owned() }
}

/// `host`, `host:port` or `[::1]:port`.
fn is_plain_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]".contains(&byte) || (is_v6 && byte == b':');
    host.bytes().all(in_host) && port.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue:{name}"),
            Self::RabbitMq { url, queue } => write!(f, "amqp://{}/{queue}", shown(url)),
            Self::Nats { url, stream, .. } => write!(f, "nats://{}/{stream}", shown(url)),
            Self::Kafka { servers, topic } => write!(f, "kafka://{}/{topic}", shown(servers)),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RabbitMq(url) => write!(f, "amqp://{}", shown(url)),
            Self::Nats(url) => write!(f, "nats://{}", shown(url)),
            Self::Kafka(servers) => write!(f, "kafka://{}", shown(servers)),
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
            ("amqp://u:p@h:5672/v", "h:5672/v"),
            ("amqp://u:CANARY/v", "(hidden)"),
            ("postgres://app:CANARY\u{e9}db/shop", "(hidden)"),
            ("nats://[::1]:4222", "[::1]:4222"),
            ("h1:9092,h2", "h1:9092,h2"),
            ("postgres://h/d?password=CANARY", "h/d"),
            ("postgres://app@h/d?password=a@CANARY", "(hidden)"),
            ("postgres://app:a/b@CANARY", "(hidden)"),
        ] {
            assert_eq!(shown(url), expected);
        }
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
        ] {
            let complaint = Origin::parse(text).unwrap_err();
            assert!(complaint.contains(says) && !complaint.contains("CANARY"), "{text}: {complaint}");
        }
    }
}
