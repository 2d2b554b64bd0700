//! Where the broker is, and how to reach it.

use std::fmt;
use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};

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

    /// The parsed address. The parser's own words are not repeated: they quote the URL, password and all.
    pub(crate) fn uri(&self) -> Result<AMQPUri, Trouble> {
        let mut uri: AMQPUri = self.url.parse().map_err(|_| {
            Trouble::configuration(
                "its URL cannot be read; write amqp://user:password@host:port/vhost, with %2f for the virtual host /",
            )
        })?;
        if uri.scheme == AMQPScheme::AMQPS && !cfg!(feature = "tls") {
            return Err(Trouble::configuration(
                "amqps:// needs TLS, which is not compiled in; turn on the feature `tls` of oncebox-rabbitmq",
            ));
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(uri)
    }
}

impl fmt::Display for Rabbit {
    /// An allow-list: scheme, host, port and virtual host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.url.parse::<AMQPUri>() {
            Ok(AMQPUri { scheme, authority, vhost, .. }) => {
                write!(f, "{scheme}://{}:{} (virtual host {vhost})", authority.host, authority.port)
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
        ] {
            let rabbit = Rabbit::new(url);
            let told = rabbit.uri().map_err(|trouble| trouble.reason).err().unwrap_or_default();
            let shown = format!("{rabbit} {rabbit:?} {told}");
            assert!(!shown.contains("CANARY"), "{shown}");
        }
        assert_eq!(Rabbit::new("amqp://u:p@h:1/%2f").to_string(), "amqp://h:1 (virtual host /)");
    }
}
