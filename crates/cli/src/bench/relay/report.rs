//! What was measured, for people and as JSON.

use serde::Serialize;

use super::broker::Broker;
use super::latency::Latencies;
use super::rows::Shape;
use super::throughput::Variant;
use crate::bench::chart::{self, Bar};
use crate::bench::database::Settings;
use crate::bench::process;
use crate::bench::report::{conditions, median, print_json, print_text};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    oncebox: &'static str,
    server: Settings,
    cores: usize,
    rows: u32,
    payload_bytes: u32,
    rounds: u32,
    brokers: Vec<OfBroker>,
}

#[derive(Debug, Serialize)]
pub(super) struct OfBroker {
    broker: &'static str,
    durability: &'static str,
    shapes: Vec<OfShape>,
    /// From the return of COMMIT to a subscriber of the broker.
    latency: Option<Latencies>,
}

#[derive(Debug, Serialize)]
struct OfShape {
    keys: u32,
    variants: Vec<Measured>,
    /// Over the faster of the two that have no outbox, in case one of them is not the best use of its client. The aim is 0.7.
    relay_over_fastest: f64,
    relay_over_client: f64,
    relay_over_sink: f64,
    /// Over an outbox that is written by hand, which promises less: what the machine allows any relay.
    relay_over_hand_relay: f64,
    #[serde(skip)]
    name: String,
}

/// One variant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    #[serde(skip)]
    pub(super) variant: Variant,
    name: &'static str,
    /// The median of the rounds.
    rows_per_second: f64,
    slowest: f64,
    fastest: f64,
    #[serde(skip)]
    rates: Vec<f64>,
}

impl Measured {
    pub(super) fn new(variant: Variant) -> Self {
        Self {
            variant,
            name: variant.name(),
            rows_per_second: 0.0,
            slowest: f64::INFINITY,
            fastest: 0.0,
            rates: Vec::new(),
        }
    }

    /// One more round.
    pub(super) fn add(&mut self, rate: f64) {
        self.rates.push(rate);
        self.rows_per_second = median(&self.rates);
        self.slowest = self.slowest.min(rate);
        self.fastest = self.fastest.max(rate);
    }
}

impl OfBroker {
    pub(super) fn new<B: Broker>(shapes: Vec<(Shape, Vec<Measured>)>, latency: Option<Latencies>) -> Self {
        let shapes = shapes.into_iter().map(|(shape, variants)| OfShape::new(shape, variants)).collect();
        Self { broker: B::NAME, durability: B::DURABILITY, shapes, latency }
    }
}

impl OfShape {
    fn new(shape: Shape, variants: Vec<Measured>) -> Self {
        let rate = |variant| {
            variants.iter().find(|measured| measured.variant == variant).map_or(f64::NAN, |of| of.rows_per_second)
        };
        Self {
            keys: shape.keys,
            name: shape.name(),
            relay_over_fastest: rate(Variant::Relay) / rate(Variant::ByHand).max(rate(Variant::Sink)),
            relay_over_client: rate(Variant::Relay) / rate(Variant::ByHand),
            relay_over_sink: rate(Variant::Relay) / rate(Variant::Sink),
            relay_over_hand_relay: rate(Variant::Relay) / rate(Variant::HandRelay),
            variants,
        }
    }
}

impl Report {
    pub(super) fn new(
        server: Settings,
        (rows, payload_bytes, rounds): (u32, u32, u32),
        brokers: Vec<OfBroker>,
    ) -> Self {
        let (oncebox, cores) = (env!("CARGO_PKG_VERSION"), process::cores());
        Self { oncebox, server, cores, rows, payload_bytes, rounds, brokers }
    }

    /// Throughput as a picture.
    pub(super) fn bars(&self) -> String {
        let mut bars = Vec::new();
        for (of, shape) in self.brokers.iter().flat_map(|of| of.shapes.iter().map(move |shape| (of, shape))) {
            bars.extend(shape.variants.iter().map(|measured| Bar {
                name: format!("{}, {}: {}", of.broker, shape.name, measured.name),
                is_ours: measured.variant == Variant::Relay,
                rate: measured.rows_per_second,
                slowest: measured.slowest,
                fastest: measured.fastest,
            }));
        }
        chart::bars("Rows per second", &conditions(&self.server), &bars)
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let Self { oncebox, cores, rows, payload_bytes, rounds, .. } = self;
        let mut text = format!("{}\n", conditions(&self.server));
        text +=
            &format!("oncebox {oncebox} · {cores} cores · {rows} rows of {payload_bytes} bytes · {rounds} rounds\n");
        for OfBroker { broker, durability, shapes, latency } in &self.brokers {
            text += &format!("{broker}: {durability}\n");
            for shape in shapes {
                text += &format!("  {:<30} {:>9} {:>21}\n", shape.name, "rows/s", "(slowest to fastest)");
                for Measured { name, rows_per_second, slowest, fastest, .. } in &shape.variants {
                    let spread = format!("({slowest:.0} to {fastest:.0})");
                    text += &format!("    {name:<28} {rows_per_second:>9.0} {spread:>21}\n");
                }
                text += &format!(
                    "    relay / the faster of both {:.2}   / client by hand {:.2}   / sink {:.2}   / outbox by hand {:.2}\n",
                    shape.relay_over_fastest,
                    shape.relay_over_client,
                    shape.relay_over_sink,
                    shape.relay_over_hand_relay
                );
            }
            if let Some(Latencies { in_process, apart }) = latency {
                text += &format!("  from COMMIT to a subscriber, at {:.0} rows/s\n", in_process.messages_per_second);
                for (name, of) in [("relay in the process", in_process), ("relay in a process of its own", apart)] {
                    text += &format!("    {name:<30} p50 {:>7.2} ms   p99 {:>7.2} ms\n", of.p50_ms, of.p99_ms);
                }
            }
        }
        print_text(&text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians() {
        let measured = |variant, rates: &[f64]| {
            let mut measured = Measured::new(variant);
            rates.iter().for_each(|rate| measured.add(*rate));
            measured
        };
        let shape = Shape { payload_bytes: 1, keys: 0 };
        let variants = vec![
            measured(Variant::ByHand, &[100.0, 1.0, 300.0]),
            measured(Variant::Sink, &[80.0]),
            measured(Variant::HandRelay, &[50.0]),
            measured(Variant::Relay, &[40.0, 90.0, 2.0]),
        ];
        let of = OfShape::new(shape, variants.clone());
        assert!((of.relay_over_client - 0.4).abs() < 1e-9 && (of.relay_over_sink - 0.5).abs() < 1e-9, "{of:?}");
        assert!((of.relay_over_hand_relay - 0.8).abs() < 1e-9, "{of:?}");
        assert!((of.relay_over_fastest - 0.4).abs() < 1e-9, "the client is faster: {of:?}");
        let mut faster = variants;
        faster[1] = measured(Variant::Sink, &[400.0]);
        let of = OfShape::new(shape, faster);
        assert!((of.relay_over_fastest - 0.1).abs() < 1e-9, "the sink is faster: {of:?}");
    }
}
