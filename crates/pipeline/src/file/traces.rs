//! `[traces]`: where spans are sent.

use std::fmt;

use oncebox::address::Address;
use toml::de::DeValue;

use super::table::Field;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TracesSpec {
    /// The collector.
    pub endpoint: Endpoint,
    /// How many of the traces that begin here are kept, from 0 to 1. Default 1. A trace that came with a message is kept
    /// if its producer keeps it.
    pub ratio: f64,
}

/// A collector of OpenTelemetry, by HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// Reads an address such as `http://127.0.0.1:4318`. A complaint never holds it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = "write http://HOST:4318";
        let address = Address::read(text).map_err(|error| format!("{error}; {known}"))?;
        match address.scheme() {
            "http" => {}
            "https" => return Err(format!("TLS to a collector is not built in; run one beside it and {known}")),
            _ => return Err(format!("it is no address of a collector; {known}")),
        }
        let [host] = address.hosts() else { return Err(format!("it names no host, or several; {known}")) };
        if address.user().is_some() || !address.parameters().is_empty() || host.name.contains('%') {
            return Err(format!("it has no plain host and port; {known}, without user and password"));
        }
        match address.path().trim_end_matches('/') {
            "" | "v1/traces" => Ok(Self(host.to_string())),
            _ => Err(format!("it has a path that is not /v1/traces; {known}")),
        }
    }

    /// Where spans are posted.
    pub fn url(&self) -> String {
        format!("http://{}/v1/traces", self.0)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What a build without the exporter says.
const NOT_BUILT: &str = "this build sends no traces; build it with the feature `otlp` (`cargo build --release -p \
                         oncebox-cli --features otlp`), or leave the section out";

pub(super) fn read(field: &Field<'_>) -> Option<TracesSpec> {
    read_in(field, cfg!(feature = "otlp"))
}

/// In a build that can send traces, or in one that cannot.
fn read_in(field: &Field<'_>, can_send: bool) -> Option<TracesSpec> {
    let table = field.table("[traces]")?;
    let endpoint = table.required("endpoint").and_then(|endpoint| endpoint.read_address(Endpoint::parse));
    let ratio = table.field("ratio").map_or(Some(1.0), |ratio| read_ratio(&ratio));
    table.finish();
    if !can_send {
        table.mistake(format!("[traces]: {NOT_BUILT}"));
        return None;
    }
    Some(TracesSpec { endpoint: endpoint?, ratio: ratio? })
}

fn read_ratio(field: &Field<'_>) -> Option<f64> {
    let ratio = match field.value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok(),
        _ => None,
    };
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
    if ratio.is_none() {
        field.mistake("expected a number from 0 to 1");
    }
    ratio
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::super::table::{Reader, Table};
    use super::*;

    #[test]
    fn a_build_that_sends_no_traces_says_so_where_the_section_stands() {
        let text = "\n[traces]\nendpoint = \"http://127.0.0.1:4318\"\n";
        let none = |_: &str| None;
        let (root, _) = DeTable::parse_recoverable(text);
        for can_send in [true, false] {
            let reader = Reader::new(text, &none);
            let is_read = {
                let table = Table::new(&reader, "the file", root.get_ref(), 1);
                table.field("traces").and_then(|field| read_in(&field, can_send)).is_some()
            };
            assert_eq!(is_read, can_send);
            let told: Vec<String> =
                reader.into_mistakes().iter().map(|one| format!("{}: {}", one.line, one.says)).collect();
            let expected = if can_send { vec![] } else { vec![format!("2: [traces]: {NOT_BUILT}")] };
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn an_endpoint_is_a_host_and_nothing_secret() {
        for good in ["http://127.0.0.1:4318", "http://collector:4318/", "http://[::1]:4318/v1/traces"] {
            assert!(Endpoint::parse(good).unwrap().url().ends_with("/v1/traces"), "{good}");
        }
        assert_eq!(Endpoint::parse("http://c:1/v1/traces").unwrap().to_string(), "http://c:1");
        for bad in [
            "",
            "c:4318",
            "http://",
            "http://u:CANARY@c",
            "https://c",
            "http://c/CANARY",
            "http://c?CANARY",
            "grpc://c",
        ] {
            assert!(!Endpoint::parse(bad).unwrap_err().contains("CANARY"), "{bad}");
        }
    }
}
