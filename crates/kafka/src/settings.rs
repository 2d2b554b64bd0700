//! What librdkafka is told.

use std::collections::BTreeMap;
use std::fmt;

use oncebox_core::address::Host;
use rdkafka::ClientConfig;

/// What librdkafka allows before a broker.
const PROTOCOLS: [&str; 4] = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// Where the brokers are, and settings by librdkafka's own names.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    servers: String,
    by_name: BTreeMap<String, String>,
}

impl Settings {
    pub(crate) fn new(servers: impl Into<String>) -> Self {
        Self { servers: servers.into(), by_name: BTreeMap::new() }
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.by_name.insert(name.into(), value.into());
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The brokers, fit for a log line: nothing but hosts and ports is shown.
    pub(crate) fn servers(&self) -> String {
        self.hosts().map_or_else(|| "brokers that cannot be read".to_owned(), |hosts| Host::list(&hosts))
    }

    /// Hosts and ports, without the protocol that librdkafka allows before each: `SSL://host:9093`.
    fn hosts(&self) -> Option<Vec<Host>> {
        let plain = |server: &str| {
            let server = server.trim();
            let host = server.split_once("://").filter(|(protocol, _)| PROTOCOLS.contains(protocol));
            host.map_or(server, |(_, host)| host).to_owned()
        };
        let hosts = self.servers.split(',').map(plain).collect::<Vec<_>>().join(",");
        Host::read_list(&hosts).filter(|hosts| !hosts.is_empty())
    }

    /// The client's settings: `defaults` first, which the user may replace; then the user's; then `ours`, on which the
    /// promises rest. One of ours that the user set otherwise is an error, and so is a list of brokers that is none.
    pub(crate) fn client(&self, defaults: &[(&str, &str)], ours: &[(&str, &str)]) -> Result<ClientConfig, String> {
        // librdkafka would look it up, and log it.
        if self.hosts().is_none() {
            return Err(
                "its brokers cannot be read; write host:port,host:port, and user and password as settings".to_owned()
            );
        }
        let mut client = ClientConfig::new();
        for (name, value) in defaults {
            client.set(*name, *value);
        }
        for (name, value) in &self.by_name {
            let is_ours =
                name == "bootstrap.servers" || ours.iter().any(|(ours, fixed)| ours == name && fixed != value);
            if is_ours {
                return Err(format!("{name} is not for you to set; what Oncebox promises rests on it"));
            }
            client.set(name, value);
        }
        for (name, value) in ours {
            client.set(*name, *value);
        }
        client.set("bootstrap.servers", &self.servers);
        Ok(client)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be passwords; names are enough to debug with.
        let names: Vec<&String> = self.by_name.keys().collect();
        f.debug_struct("Settings").field("servers", &self.servers()).field("set", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for (servers, expected) in [
            ("SASL_SSL://kafka:9092, other:9092", "kafka:9092,other:9092"),
            ("SASL_SSL://ada:CANARY@kafka:9092, other:9092", "brokers that cannot be read"),
            ("ada:CAN,ARY@kafka:9092", "brokers that cannot be read"),
            ("CANARY/h", "brokers that cannot be read"),
        ] {
            let mut settings = Settings::new(servers);
            settings.set("sasl.password", "CANARY");
            let shown = format!("{settings:?} {}", settings.servers());
            assert!(!shown.contains("CANARY") && shown.contains(expected), "{shown}");
            assert_eq!(settings.client(&[], &[]).is_ok(), expected.starts_with("kafka"), "{servers}");
        }
    }

    #[test]
    fn what_the_promises_rest_on_cannot_be_changed() {
        let mut settings = Settings::new("kafka:9092");
        settings.set("enable.auto.commit", "true");
        let refused = settings.client(&[], &[("enable.auto.commit", "false")]).unwrap_err();
        assert!(refused.contains("enable.auto.commit"), "{refused}");
        let mut settings = Settings::new("kafka:9092");
        settings.set("linger.ms", "7");
        let client = settings.client(&[("linger.ms", "1")], &[]).unwrap();
        assert_eq!(client.get("linger.ms"), Some("7"));
    }
}
