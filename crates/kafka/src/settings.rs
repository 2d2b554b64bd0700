//! What librdkafka is told.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;

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

    /// The brokers, fit for a log line: whatever stands before an `@` may be a password.
    pub(crate) fn servers(&self) -> String {
        let shown = self.servers.split(',').map(|server| server.rsplit('@').next().unwrap_or_default().trim());
        shown.collect::<Vec<_>>().join(",")
    }

    /// The client's settings: `defaults` first, which the user may replace; then the user's; then `ours`, on which the
    /// promises rest. The name of one of ours that the user set otherwise is an error.
    pub(crate) fn client(&self, defaults: &[(&str, &str)], ours: &[(&str, &str)]) -> Result<ClientConfig, String> {
        let mut client = ClientConfig::new();
        for (name, value) in defaults {
            client.set(*name, *value);
        }
        for (name, value) in &self.by_name {
            let is_ours =
                name == "bootstrap.servers" || ours.iter().any(|(ours, fixed)| ours == name && fixed != value);
            if is_ours {
                return Err(name.clone());
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
        let mut settings = Settings::new("SASL_SSL://ada:CANARY@kafka:9092, other:9092");
        settings.set("sasl.password", "CANARY");
        let shown = format!("{settings:?} {}", settings.servers());
        assert!(!shown.contains("CANARY") && shown.contains("kafka:9092,other:9092"), "{shown}");
    }

    #[test]
    fn what_the_promises_rest_on_cannot_be_changed() {
        let mut settings = Settings::new("kafka:9092");
        settings.set("enable.auto.commit", "true");
        assert_eq!(settings.client(&[], &[("enable.auto.commit", "false")]).unwrap_err(), "enable.auto.commit");
        let mut settings = Settings::new("kafka:9092");
        settings.set("linger.ms", "7");
        let client = settings.client(&[("linger.ms", "1")], &[]).unwrap();
        assert_eq!(client.get("linger.ms"), Some("7"));
    }
}
