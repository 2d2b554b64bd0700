//! Runs the simulation: one seed with its trace, or many.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to whoever called it")]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use oncebox_sim::{Hazard, Scenario, Totals, Verdict, simulate};

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
    /// What may come over the seeds beside the weather, instead of the usual; nothing if none is named.
    #[arg(long, value_delimiter = ',', num_args = 0.., value_name = "HAZARD")]
    hazards: Option<Vec<Hazard>>,
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
    let hazards = arguments.hazards.as_deref().unwrap_or(Hazard::USUAL);
    let mut totals = Totals::default();
    for seed in from..from.saturating_add(seeds) {
        let verdict = simulate(Scenario::with(seed, hazards), arguments.trace);
        verdict.trace.iter().for_each(|line| println!("{line}"));
        totals.add(&verdict);
        if !verdict.is_good() {
            tell(&verdict, arguments.hazards.as_deref());
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

fn tell(verdict: &Verdict, hazards: Option<&[Hazard]>) {
    eprintln!("seed {} breaks {} promises:", verdict.seed, verdict.wrongs.len());
    for wrong in verdict.wrongs.iter().take(10) {
        eprintln!("  {:?}: {}", wrong.kind, wrong.what);
    }
    let names = hazards.map(|hazards| hazards.iter().filter_map(Hazard::to_possible_value));
    let names = names.map(|names| names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>().join(","));
    let hazards = names.map(|names| format!(" --hazards {names}")).unwrap_or_default();
    eprintln!("  repeat it: {}{hazards}", verdict.command());
}
