//! What was measured, for people and as JSON.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;

use super::chart::{self, Bar};
use super::database::Settings;
use super::hand::Took;
use super::load::Latency;
use super::process;
use super::variant::Variant;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    oncebox: &'static str,
    pub(super) server: Settings,
    cores: usize,
    keys: &'static str,
    lanes: u16,
    batch: usize,
    pub(super) variants: Vec<Line>,
    ratios: Ratios,
    /// The most memory that this process ever used; all variants share it.
    peak_kib: Option<u64>,
}

/// One variant.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    #[serde(skip)]
    pub(super) variant: Variant,
    pub(super) name: String,
    /// The median of the rounds.
    pub(super) messages_per_second: f64,
    pub(super) slowest: f64,
    pub(super) fastest: f64,
    /// Measured in each round.
    messages: u64,
    commits_per_message: f64,
    /// Full-page images after a checkpoint included.
    log_bytes_per_message: Option<f64>,
    pub(super) latency: Option<Latency>,
    #[serde(skip)]
    rates: Vec<f64>,
}

/// What we hold ourselves to. `naive` is the hand-written inbox at its best number of connections.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    batch_over_hand_batched: Option<f64>,
    batch_over_naive: Option<f64>,
    each_over_naive: Option<f64>,
    batch_over_bare: Option<f64>,
    hot_each_over_naive: Option<f64>,
}

impl Line {
    pub(super) fn new(variant: Variant) -> Self {
        Self {
            variant,
            name: variant.name(),
            messages_per_second: 0.0,
            slowest: 0.0,
            fastest: 0.0,
            messages: 0,
            commits_per_message: 0.0,
            log_bytes_per_message: None,
            latency: None,
            rates: Vec::new(),
        }
    }

    /// One more round.
    pub(super) fn add(&mut self, took: Took, log_bytes_per_message: Option<f64>) {
        self.rates.push(took.per_second());
        self.messages_per_second = median(&self.rates);
        self.slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        self.fastest = self.rates.iter().copied().fold(0.0, f64::max);
        self.messages = took.messages;
        self.commits_per_message = took.commits as f64 / took.messages as f64;
        self.log_bytes_per_message = log_bytes_per_message;
    }

    pub(super) fn messages_per_second(&self) -> f64 {
        self.messages_per_second
    }
}

impl Report {
    pub(super) fn new(server: Settings, lanes: u16, variants: Vec<Line>) -> Self {
        Self {
            oncebox: env!("CARGO_PKG_VERSION"),
            server,
            cores: process::cores(),
            keys: "UUIDv7",
            lanes,
            batch: super::BATCH,
            ratios: Ratios::of(&variants),
            variants,
            peak_kib: process::peak_kib(),
        }
    }

    /// Throughput as a picture.
    pub(super) fn bars(&self) -> String {
        let bar = |line: &Line| Bar {
            name: line.name.clone(),
            is_ours: line.variant.is_ours(),
            rate: line.messages_per_second,
            slowest: line.slowest,
            fastest: line.fastest,
        };
        let bars: Vec<Bar> = self.variants.iter().map(bar).collect();
        chart::bars("Messages per second", &conditions(&self.server), &bars)
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut text = format!("{}\n", conditions(&self.server));
        text += &format!(
            "oncebox {} · {} cores · {} keys · {} lanes · batches of {}\n",
            self.oncebox, self.cores, self.keys, self.lanes, self.batch
        );
        text += &format!(
            "  {:<40} {:>9} {:>19} {:>9} {:>9}   {}\n",
            "", "msg/s", "(slowest to fastest)", "commits/1", "log B/1", "p50 / p99 ms at msg/s"
        );
        for line in &self.variants {
            let spread = format!("({:.0} to {:.0})", line.slowest, line.fastest);
            let log = line.log_bytes_per_message.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
            let latency = line.latency.as_ref().map_or_else(String::new, |latency| {
                let Latency { p50_ms, p99_ms, messages_per_second } = latency;
                format!("{p50_ms:.2} / {p99_ms:.2} at {messages_per_second:.0}")
            });
            text += &format!(
                "  {:<40} {:>9.0} {spread:>19} {:>9.3} {log:>9}   {latency}\n",
                line.name, line.messages_per_second, line.commits_per_message
            );
        }
        for (name, ratio) in self.ratios.named() {
            if let Some(ratio) = ratio {
                text += &format!("  {name:<50} {ratio:>6.2}\n");
            }
        }
        print_text(&text);
        Ok(())
    }
}

impl Ratios {
    fn of(lines: &[Line]) -> Self {
        let best = |is: fn(Variant) -> bool| {
            lines.iter().filter(|line| is(line.variant)).map(|line| line.messages_per_second).max_by(f64::total_cmp)
        };
        let rate = |variant| lines.iter().find(|line| line.variant == variant).map(|line| line.messages_per_second);
        let over = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
        let (each, batch) = (rate(Variant::Each), rate(Variant::Batch));
        let naive = best(|variant| matches!(variant, Variant::Naive(_)));
        let hot_naive = best(|variant| matches!(variant, Variant::HotNaive(_)));
        let hot_each = best(|variant| matches!(variant, Variant::HotEach(_)));
        Self {
            batch_over_hand_batched: over(batch, rate(Variant::HandBatched)),
            batch_over_naive: over(batch, naive),
            each_over_naive: over(each, naive),
            batch_over_bare: over(batch, rate(Variant::Bare)),
            hot_each_over_naive: over(hot_each, hot_naive),
        }
    }

    fn named(self) -> [(&'static str, Option<f64>); 5] {
        [
            ("`on_batch` / hand-written, batched", self.batch_over_hand_batched),
            ("`on_batch` / hand-written, one at a time", self.batch_over_naive),
            ("`on` / hand-written, one at a time", self.each_over_naive),
            ("`on_batch` / bare update", self.batch_over_bare),
            ("hot rows: `on` / hand-written, one at a time", self.hot_each_over_naive),
        ]
    }
}

/// What the figures depend on, in one line.
pub(super) fn conditions(server: &Settings) -> String {
    let of = |name: &str| server.get(name).cloned().unwrap_or_default();
    let rest = server.iter().filter(|(name, _)| !matches!(**name, "database" | "server_version"));
    let rest: Vec<String> = rest.map(|(name, value)| format!("{name} {value}")).collect();
    format!("{} {} · {}", of("database"), of("server_version"), rest.join(" · "))
}

/// One object on one line.
pub(super) fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string(report).context("cannot write the report")?;
    print_text(&format!("{json}\n"));
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is the data that the command is for")]
pub(super) fn print_text(text: &str) {
    print!("{text}");
}

/// One line while it runs, on stderr.
pub(super) fn progress(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

pub(super) fn median(rates: &[f64]) -> f64 {
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

    fn line(variant: Variant, rates: &[u64]) -> Line {
        let mut line = Line::new(variant);
        for rate in rates {
            line.add(Took { messages: *rate, commits: 1, seconds: 1.0 }, None);
        }
        line
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_of_medians_and_against_the_best_hand_written_one() {
        let lines = [
            line(Variant::Naive(8), &[100, 300, 200]),
            line(Variant::Naive(32), &[150]),
            line(Variant::Batch, &[2_000, 1, 9_000]),
        ];
        let ratios = Ratios::of(&lines);
        assert!((ratios.batch_over_naive.unwrap() - 10.0).abs() < 1e-9);
        assert!(ratios.batch_over_bare.is_none(), "not measured");
    }
}
