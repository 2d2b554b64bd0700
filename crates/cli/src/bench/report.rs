//! What was measured, for people and as JSON.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;

use super::setting::{Server, Variant};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    server: Server,
    messages: u32,
    lanes: u16,
    variants: Vec<Line>,
    ratios: Ratios,
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    name: String,
    /// The median of the rounds.
    messages_per_second: f64,
    slowest: f64,
    fastest: f64,
}

/// What we hold ourselves to.
#[derive(Clone, Debug, Serialize)]
struct Ratios {
    batch_over_hand_batched: f64,
    batch_over_naive: f64,
    each_over_naive: f64,
    batch_over_bare: f64,
}

impl Report {
    pub(super) fn new(server: Server, messages: u32, lanes: u16, measured: Vec<(Variant, Vec<f64>)>) -> Self {
        let rate = |variant| measured.iter().find(|(v, _)| *v == variant).map_or(f64::NAN, |(_, rates)| median(rates));
        let batch = rate(Variant::Batch);
        let ratios = Ratios {
            batch_over_hand_batched: batch / rate(Variant::HandBatched),
            batch_over_naive: batch / rate(Variant::Naive(32)),
            each_over_naive: rate(Variant::Each) / rate(Variant::Naive(32)),
            batch_over_bare: batch / rate(Variant::Bare),
        };
        let line = |(variant, rates): &(Variant, Vec<f64>)| Line {
            name: variant.name(),
            messages_per_second: median(rates),
            slowest: rates.iter().copied().fold(f64::INFINITY, f64::min),
            fastest: rates.iter().copied().fold(0.0, f64::max),
        };
        Self { server, messages, lanes, variants: measured.iter().map(line).collect(), ratios }
    }

    #[allow(clippy::print_stdout, reason = "this is the data that the command is for")]
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self).context("cannot write the report")?);
            return Ok(());
        }
        let Server { version, fsync, synchronous_commit, shared_buffers } = &self.server;
        println!(
            "PostgreSQL {version} · fsync {fsync} · synchronous_commit {synchronous_commit} · shared_buffers \
             {shared_buffers} · {} messages · {} lanes · UUIDv7 keys",
            self.messages, self.lanes
        );
        for Line { name, messages_per_second, slowest, fastest } in &self.variants {
            println!("  {name:<36} {messages_per_second:>9.0} msg/s   ({slowest:.0} to {fastest:.0})");
        }
        let Ratios { batch_over_hand_batched, batch_over_naive, each_over_naive, batch_over_bare } = &self.ratios;
        println!("  `on_batch` / hand-written, batched     {batch_over_hand_batched:>6.2}");
        println!("  `on_batch` / hand-written, 32 conns    {batch_over_naive:>6.2}");
        println!("  `on` / hand-written, 32 conns          {each_over_naive:>6.2}");
        println!("  `on_batch` / bare update               {batch_over_bare:>6.2}");
        Ok(())
    }
}

/// One line per measurement while it runs, on stderr.
pub(super) fn progress(round: u32, rounds: u32, variant: Variant, rate: f64) {
    let line = format!("round {round} of {rounds}: {} {rate:.0} msg/s\n", variant.name());
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }
}
