//! Runs the simulation: one seed with its trace, or many.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever called it")]

use std::process::ExitCode;

use clap::Parser;
use oncebox_sim::{Scenario, Totals, Verdict, simulate};

/// Runs real consumers in virtual time under faults that a seed decides, and audits what they left.
#[derive(Debug, Parser)]
#[command(name = "oncebox-sim")]
struct Arguments {
    /// Runs this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Prints everything that happened.
    #[arg(long)]
    trace: bool,
    /// Stops at the first seed that fails.
    #[arg(long)]
    fail_fast: bool,
    /// Ends with the totals as one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, seeds) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    let mut totals = Totals::default();
    for seed in from..from.saturating_add(seeds) {
        let verdict = simulate(Scenario::new(seed), arguments.trace);
        verdict.trace.iter().for_each(|line| println!("{line}"));
        totals.add(&verdict);
        if !verdict.is_good() {
            tell(&verdict);
            if arguments.fail_fast {
                break;
            }
        }
    }
    eprintln!(
        "{} seeds · {} messages · {} deliveries · {} faults · {} effects · {} lost · {} doubled · {} unordered · {} failed",
        totals.seeds,
        totals.messages,
        totals.deliveries,
        totals.faults,
        totals.effects,
        totals.lost,
        totals.doubled,
        totals.unordered,
        totals.failed
    );
    if arguments.json {
        println!("{}", serde_json::to_string(&totals).unwrap_or_default());
    }
    if totals.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(verdict: &Verdict) {
    eprintln!("seed {} breaks {} promises:", verdict.seed, verdict.wrongs.len());
    for wrong in verdict.wrongs.iter().take(10) {
        eprintln!("  {:?}: {}", wrong.kind, wrong.what);
    }
    eprintln!("  repeat it: {}", verdict.command());
}
