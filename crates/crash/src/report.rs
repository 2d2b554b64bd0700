//! What the matrix found, for people and as JSON.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::run::Ran;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    profile: String,
    seed: u64,
    rows: u64,
    kills: u64,
    stops: u64,
    cuts: u64,
    server_crashes: u64,
    broker_crashes: u64,
    disks_filled: u64,
    /// Messages that relays published to real brokers, those that came again included.
    published: u64,
    /// The longest that a lane of a dead relay stood still, in milliseconds.
    takeover_ms_max: u128,
    unknown_commits: u64,
    messages: u64,
    deliveries: u64,
    lost: u64,
    doubled: u64,
    planted: Planted,
    /// Seeds of the simulation that ran.
    seeds: u64,
    killed_at: BTreeMap<String, u64>,
    /// Rows that were wrong, and what was.
    failed: BTreeMap<String, Vec<String>>,
    /// Rows that could not run here, and why.
    pub(crate) skipped: BTreeMap<String, String>,
    /// No failure in this many trials, each a message: with 95 % confidence the true rate is below `bound`.
    trials: u64,
    bound: f64,
    pub(crate) seconds: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Planted {
    total: u64,
    caught: u64,
    /// Each bug, the row that had to notice it, and what it noticed; empty if nothing.
    by: BTreeMap<String, Caught>,
}

#[derive(Clone, Debug, Serialize)]
struct Caught {
    row: String,
    noticed: Vec<String>,
}

/// What of a planted bug was noticed. A fault that did not happen is not that.
pub(crate) fn noticed(ran: &Ran) -> Vec<String> {
    ran.findings.names().into_iter().filter(|name| !name.starts_with("missing_faults")).collect()
}

impl Report {
    pub(crate) fn new(profile: String, seed: u64) -> Self {
        Self { profile, seed, ..Self::default() }
    }

    pub(crate) fn add(&mut self, row: &str, ran: &Ran) {
        self.rows += 1;
        self.kills += ran.tally.kills + ran.tally.own_deaths;
        self.stops += ran.tally.stops;
        self.cuts += ran.cuts;
        self.server_crashes += ran.server_crashes;
        self.broker_crashes += ran.broker_crashes;
        self.disks_filled += ran.disks_filled;
        self.published += ran.published;
        self.takeover_ms_max = self.takeover_ms_max.max(ran.takeover.map_or(0, |takeover| takeover.as_millis()));
        self.unknown_commits += ran.tally.unknown_commits;
        self.messages += ran.messages;
        self.deliveries += ran.tally.deliveries;
        self.lost += ran.findings.lost;
        self.doubled += ran.findings.doubled;
        for (at, kills) in &ran.tally.killed_at {
            *self.killed_at.entry(at.clone()).or_default() += kills;
        }
        if !ran.findings.is_clean() {
            self.failed.insert(row.to_owned(), ran.findings.names());
        }
        self.trials = self.messages;
        self.bound = 3.0 / self.trials.max(1) as f64;
    }

    pub(crate) fn add_planted(&mut self, bug: &str, row: &str, ran: &Ran) {
        let noticed = noticed(ran);
        self.planted.total += 1;
        self.planted.caught += u64::from(!noticed.is_empty());
        self.planted.by.insert(bug.to_owned(), Caught { row: row.to_owned(), noticed });
    }

    pub(crate) fn add_planted_broken(&mut self, bug: &str, row: &str, how: String) {
        self.planted.total += 1;
        self.planted.caught += 1;
        self.planted.by.insert(bug.to_owned(), Caught { row: row.to_owned(), noticed: vec![how] });
    }

    pub(crate) fn add_simulation(&mut self, totals: &oncebox_sim::Totals, failed: Vec<String>) {
        self.seeds += totals.seeds;
        self.lost += totals.lost;
        self.doubled += totals.doubled;
        for why in failed {
            self.fail("simulation", why);
        }
    }

    pub(crate) fn fail(&mut self, what: &str, why: String) {
        self.failed.entry(what.to_owned()).or_default().push(why);
    }

    /// What was skipped counts as failed.
    pub(crate) fn demand_all(&mut self) {
        for (row, why) in std::mem::take(&mut self.skipped) {
            self.fail(&row, format!("was skipped: {why}"));
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.planted.caught == self.planted.total
    }

    #[allow(clippy::print_stdout, reason = "this is the data that the command is for")]
    pub(crate) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        println!(
            "{} rows · {} messages · {} deliveries · {} kills · {} stops · {} cuts inside COMMIT · {} server crashes · {} broker crashes · {} full disks",
            self.rows,
            self.messages,
            self.deliveries,
            self.kills,
            self.stops,
            self.cuts,
            self.server_crashes,
            self.broker_crashes,
            self.disks_filled
        );
        if self.published > 0 {
            println!(
                "{} published by relays · lanes of a dead relay stood still for {} ms at most",
                self.published, self.takeover_ms_max
            );
        }
        println!("{} lost · {} doubled · {} simulated seeds", self.lost, self.doubled, self.seeds);
        println!("planted bugs: {} of {} caught", self.planted.caught, self.planted.total);
        for (bug, Caught { row, noticed }) in &self.planted.by {
            let noticed = if noticed.is_empty() { "NOT NOTICED".to_owned() } else { noticed.join(", ") };
            println!("  {bug:<32} {noticed}  ({row})");
        }
        for (row, why) in &self.skipped {
            println!("skipped: {row}: {why}");
        }
        for (row, findings) in &self.failed {
            println!("FAILED: {row}: {}", findings.join(", "));
        }
        if self.failed.is_empty() && self.trials > 0 {
            println!(
                "no failure in {} messages: with 95 % confidence fewer than {:.1} in a million fail under these faults",
                self.trials,
                self.bound * 1e6
            );
        }
        println!("{} seconds, seed {}", self.seconds, self.seed);
        Ok(())
    }
}

/// One line per row while it runs, on stderr.
pub(crate) fn progress(name: &str, ran: &Ran) {
    let found = if ran.findings.is_clean() { "clean".to_owned() } else { ran.findings.names().join(", ") };
    let Ran { tally, cuts, server_crashes, broker_crashes, messages, published, took, .. } = ran;
    let crashes = server_crashes + broker_crashes;
    let wire = match (published, ran.takeover) {
        (0, _) => String::new(),
        (_, None) => format!("{published} published, "),
        (_, Some(takeover)) => format!("{published} published, takeover within {:.2} s, ", takeover.as_secs_f64()),
    };
    let line = format!(
        "{name}: {messages} messages, {} deliveries, {} kills, {} stops, {cuts} cuts, {crashes} crashes, {wire}{} unknown, {} own deaths, {:.1} s: {found}\n",
        tally.deliveries,
        tally.kills,
        tally.stops,
        tally.unknown_commits,
        tally.own_deaths,
        took.as_secs_f64()
    );
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    for bad_end in &tally.bad_ends {
        let _ = std::io::stderr().lock().write_all(format!("  did not end in order: {bad_end}\n").as_bytes());
    }
    if !ran.findings.is_clean() && !tally.complaint.is_empty() {
        let _ =
            std::io::stderr().lock().write_all(format!("  a worker's last words: {}\n", tally.complaint).as_bytes());
    }
}
