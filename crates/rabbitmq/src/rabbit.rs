//! Where the broker is, and how to reach it.

use std::fmt;
use std::time::Duration;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use oncebox_core::address::{Address, Host};

use crate::error::Trouble;
use crate::sink::RabbitSink;
use crate::source::RabbitSource;

/// A RabbitMQ server, from which sources and sinks are made. Nothing is connected before they are opened.
///
/// `Debug` shows where it is, never the password.
#[derive(Clone)]
pub struct Rabbit {
    url: String,
    pub(crate) name: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect_pause_max: Duration,
}

/// Shorter than the 60 s that servers suggest: a peer that vanished without a word is noticed in twice this.
const HEARTBEAT_SECONDS: u16 = 10;

impl Rabbit {
    /// The server at `url`: `amqp://user:password@host:5672/vhost`, with `%2f` for the virtual host `/`; `amqps://` with
    /// the feature `tls`. A wrong one is reported when a source or sink is opened.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: "oncebox".to_owned(),
            connect_timeout: Duration::from_secs(10),
            reconnect_pause_max: Duration::from_secs(5),
        }
    }

    /// What the server shows its operators as the name of our connections. Default `oncebox`.
    #[must_use]
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long connecting may take, and each request on a connection. Default 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest pause between two attempts to connect; the first is a tenth of a second, and each is about twice the one
    /// before. Default 5 s.
    #[must_use]
    pub fn reconnect_pause_max(mut self, pause: Duration) -> Self {
        self.reconnect_pause_max = pause;
        self
    }

    /// A source that reads `queue`.
    pub fn source(&self, queue: impl Into<String>) -> RabbitSource {
        RabbitSource::new(self.clone(), queue.into())
    }

    /// A sink.
    pub fn sink(&self) -> RabbitSink {
        RabbitSink::new(self.clone())
    }

    /// What the client gets. Not by its own parser, which takes `[::1]` for `localhost`.
    pub(crate) fn uri(&self) -> Result<AMQPUri, Trouble> {
        let address =
            Address::read(&self.url).map_err(|why| Trouble::configuration(format!("{CANNOT_READ}: {why}")))?;
        let scheme = match address.scheme() {
            "amqp" => AMQPScheme::AMQP,
            "amqps" => AMQPScheme::AMQPS,
            _ => return Err(Trouble::configuration(format!("{CANNOT_READ}; {FORM}"))),
        };
        if scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
            return Err(Trouble::configuration(
                "amqps:// needs TLS, which is not compiled in; turn on the feature `tls` of oncebox-rabbitmq",
            ));
        }
        let [host] = address.hosts() else {
            return Err(Trouble::configuration(format!("its URL names no host, or several; {FORM}")));
        };
        let default = AMQPUserInfo::default();
        let userinfo = AMQPUserInfo {
            username: address.user().filter(|user| !user.is_empty()).map_or(default.username, str::to_owned),
            password: address.password().map_or(default.password, str::to_owned),
        };
        let port = host.port.unwrap_or_else(|| scheme.default_port());
        Ok(AMQPUri {
            scheme,
            authority: AMQPAuthority { userinfo, host: host.name.clone(), port },
            vhost: virtual_host(&address)?,
            query: parameters(&address)?,
        })
    }
}

const FORM: &str = "write amqp://user:password@host:port/vhost, with %2f for the virtual host /";
const CANNOT_READ: &str = "its URL cannot be read";

fn virtual_host(address: &Address) -> Result<String, Trouble> {
    let unread = |why| Trouble::configuration(format!("{CANNOT_READ}: {why}"));
    if address.path().is_empty() { Ok("/".to_owned()) } else { Address::name(address.path()).map_err(unread) }
}

/// What the client understands behind a `?`. A complaint shows no name and no value: either may be a secret.
fn parameters(address: &Address) -> Result<AMQPQueryString, Trouble> {
    let mut query = AMQPQueryString { heartbeat: Some(HEARTBEAT_SECONDS), ..AMQPQueryString::default() };
    for (name, value) in address.parameters() {
        let is_read = match name.as_str() {
            "frame_max" => value.parse().map(|value| query.frame_max = Some(value)).is_ok(),
            "channel_max" => value.parse().map(|value| query.channel_max = Some(value)).is_ok(),
            "heartbeat" => value.parse().map(|value| query.heartbeat = Some(value)).is_ok(),
            "connection_timeout" => value.parse().map(|value| query.connection_timeout = Some(value)).is_ok(),
            "auth_mechanism" => value.parse().map(|value| query.auth_mechanism = Some(value)).is_ok(),
            _ => false,
        };
        if !is_read {
            return Err(Trouble::configuration(
                "its URL has a parameter that is not known or has no such value; known are frame_max, channel_max, \
                 heartbeat, connection_timeout and auth_mechanism",
            ));
        }
    }
    Ok(query)
}

impl fmt::Display for Rabbit {
    /// An allow-list: scheme, host, port and virtual host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uri() {
            Ok(AMQPUri { scheme, authority: AMQPAuthority { host, port, .. }, vhost, .. }) => {
                let host = Host { name: host, port: Some(port) };
                write!(f, "{scheme}://{host} (virtual host {vhost})")
            }
            Err(_) => f.write_str("a RabbitMQ server"),
        }
    }
}

impl fmt::Debug for Rabbit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rabbit({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "amqp://u:CANARY@h:1/%2f",
            "amqp://u:CANARY@h:1/v?password=CANARY",
            "http://u:CANARY@h",
            "amqp:CANARY",
            "amqp://u:CANARY@:x",
            "amqp://u:CANARY@h:1/v?heartbeat=CANARY",
            "amqp://u:CANARY@h:1/v?CANARY=1",
            "amqp://u:12/CANARY@h/v",
            "amqp://u:CANARY@a,b/v",
        ] {
            let rabbit = Rabbit::new(url);
            let told = rabbit.uri().map_err(|trouble| trouble.reason).err().unwrap_or_default();
            let shown = format!("{rabbit} {rabbit:?} {told}");
            assert!(!shown.contains("CANARY"), "{shown}");
        }
        assert_eq!(Rabbit::new("amqp://u:p@h:1/%2f").to_string(), "amqp://h:1 (virtual host /)");
    }

    #[test]
    fn what_a_url_says_is_what_the_client_gets() {
        let uri = Rabbit::new("amqp://ada:a%40b@[::1]:1/shop%2Feu?heartbeat=7&frame_max=9000").uri().unwrap();
        assert_eq!((uri.authority.host.as_str(), uri.authority.port), ("::1", 1));
        assert_eq!((uri.vhost.as_str(), uri.query.heartbeat, uri.query.frame_max), ("shop/eu", Some(7), Some(9000)));
        for url in ["amqp://h", "amqp://h/%2f", "amqp://h/"] {
            let uri = Rabbit::new(url).uri().unwrap();
            assert_eq!((uri.vhost.as_str(), uri.authority.port, uri.query.heartbeat), ("/", 5672, Some(10)), "{url}");
            assert_eq!(uri.authority.userinfo, AMQPUserInfo::default());
        }
        let printable: String = (' '..='~').chain("é日\u{1f980}\n".chars()).collect();
        let each = printable.chars().map(String::from);
        for secret in each.chain([printable.clone()]) {
            let part = oncebox_core::address::encode(&secret);
            let uri = Rabbit::new(format!("amqp://{part}:{part}@h/{part}")).uri().unwrap();
            let found = (uri.authority.userinfo.username, uri.authority.userinfo.password, uri.vhost);
            assert_eq!(found, (secret.clone(), secret.clone(), secret));
        }
    }
}
