//! The crash matrix: real worker processes on real stores, killed at every crash point, stopped past their leases, cut
//! off inside COMMIT, with servers that crash and disks that fill up; then one auditor that knows what was sent.
//!
//! ```text
//!  generator ─▶ queue in the store, or a broker ─▶ workers (processes) ─▶ business tables ─▶ auditor
//!      │                                              ▲                                          ▲
//!      └───────────── history, a file of its own ─────│──────────────────────────────────────────┘
//!                                   fleet and blows: kill, stop, cut, crash, fill
//! ```
//!
//! The rows of `hops` go on from there: outbox, relays, real brokers. Run it with `scripts/crash-matrix`. Beside the processes it runs seeds of the simulation, `oncebox-sim`.

mod audit;
mod blows;
mod broker;
mod feed;
mod fleet;
mod generator;
mod history;
mod hops;
mod misfortune;
mod operator;
mod pair;
mod place;
mod planted;
mod process;
mod report;
mod row;
mod run;
mod server;
mod wire;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use tokio::time::Instant;

use hops::HopsRow;
use pair::Pair;
use report::Report;
use row::{Faults, Row, StoreKind};
use run::{Ground, Ran};
use server::{Brokers, Disk, Server};

/// Kill, cut, crash and fill; then count.
#[derive(Debug, Parser)]
#[command(name = "crash-matrix")]
enum Command {
    /// Run the rows of a profile, then every planted bug.
    Run(Args),
    /// One worker; started by the matrix itself.
    #[command(hide = true)]
    Worker,
    /// One consumer or relay of a row with a real broker; started by the matrix itself.
    #[command(hide = true)]
    Hand,
}

#[derive(Debug, clap::Args)]
struct Args {
    /// How much of it.
    #[arg(long, value_enum, default_value_t = Profile::Ci)]
    profile: Profile,
    /// Only rows and bugs whose name contains this; the seeds are called "simulation".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Repeats a run's messages and faults; the timing stays the machine's.
    #[arg(long)]
    seed: Option<u64>,
    /// Leave out what needs a PostgreSQL server.
    #[arg(long)]
    no_postgres: bool,
    /// Leave out the planted bugs.
    #[arg(long)]
    no_planted: bool,
    /// Print the report as one JSON object on the last line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Profile {
    /// Every row once: minutes.
    Ci,
    /// Every row with ten times the faults: about an hour and a half.
    Nightly,
    /// Nightly again and again with new seeds, for twelve hours.
    Soak,
}

impl Profile {
    fn factor(self) -> u64 {
        match self {
            Self::Ci => 1,
            Self::Nightly | Self::Soak => 10,
        }
    }

    fn seeds(self) -> u64 {
        match self {
            Self::Ci => 1_500,
            Self::Nightly => 20_000,
            Self::Soak => 200_000,
        }
    }

    fn goes_on_for(self) -> Duration {
        match self {
            Self::Ci | Self::Nightly => Duration::ZERO,
            Self::Soak => Duration::from_secs(12 * 3600),
        }
    }
}

/// The size of a disk that SQLite fills up, and of one for a whole PostgreSQL cluster, in mebibytes.
const SQLITE_DISK: u32 = 24;
const POSTGRES_DISK: u32 = 220;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Worker => worker::run().await.map(|()| ExitCode::SUCCESS),
        Command::Hand => hops::run_hand().await.map(|()| ExitCode::SUCCESS),
        // Servers are stopped with what holds them: an interrupted run leaves none behind.
        Command::Run(args) => tokio::select! {
            ended = matrix(args) => ended,
            () = oncebox::shutdown::signal() => anyhow::bail!("the matrix was interrupted"),
        },
    }
}

async fn matrix(args: Args) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(0..1_000_000));
    let mut report = Report::new(format!("{:?}", args.profile).to_lowercase(), seed);
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only.as_str()));

    let rows: Vec<Row> = row::matrix().into_iter().filter(|row| wanted(&row.name)).collect();
    let bugs = if args.no_planted { Vec::new() } else { planted::bugs() };
    let bugs: Vec<_> = bugs.into_iter().filter(|(bug, _)| wanted(&format!("planted {bug}"))).collect();
    let hops: Vec<HopsRow> =
        hops::matrix(args.profile.factor() > 1).into_iter().filter(|row| wanted(&row.name)).collect();
    let hop_bugs = if args.no_planted { Vec::new() } else { hops::bugs() };
    let hop_bugs: Vec<_> = hop_bugs.into_iter().filter(|(name, ..)| wanted(&format!("planted {name}"))).collect();
    if rows.is_empty() && bugs.is_empty() && hops.is_empty() && hop_bugs.is_empty() && !wanted("simulation") {
        let only = args.only.unwrap_or_default();
        anyhow::bail!("cannot run the matrix: no row and no planted bug has `{only}` in its name");
    }
    anyhow::ensure!(
        (bugs.is_empty() && hop_bugs.is_empty()) || cfg!(feature = "planted-bugs"),
        "cannot run planted bugs: this binary was built without them; build it with `--features planted-bugs`, or \
         leave them out with --no-planted"
    );

    let stores = rows.iter().chain(bugs.iter().map(|(_, row)| row)).map(|row| row.store);
    let hop_rows = hops.iter().chain(hop_bugs.iter().map(|(_, _, row)| row));
    let needs_server = stores.chain(hop_rows.map(|row| row.store)).any(|store| store == StoreKind::Postgres);
    let server = if args.no_postgres || !needs_server { None } else { Server::start(folder.path())? };
    let mut brokers = Brokers::new(folder.path());
    let mut next = seed;
    loop {
        for row in &rows {
            next += 1;
            let row = Row { blows: row.blows * args.profile.factor(), ..row.clone() };
            match one(&row, next, None, server.as_ref(), &mut report).await {
                Ok(Some(ran)) => report.add(&row.name, &ran),
                Ok(None) => {}
                Err(error) => report.fail(&row.name, format!("{error:#}")),
            }
        }
        for row in &hops {
            next += 1;
            let row = row.times(args.profile.factor());
            match hop(&row, next, None, server.as_ref(), &mut brokers, &mut report).await {
                Ok(Some(ran)) => report.add(&row.name, &ran),
                Ok(None) => {}
                Err(error) => report.fail(&row.name, format!("{error:#}")),
            }
        }
        if started.elapsed() >= args.profile.goes_on_for() {
            break;
        }
    }
    for (bug, row) in bugs {
        for chance in 1..=CHANCES {
            next += 1;
            match one(&row, next, Some(bug), server.as_ref(), &mut report).await {
                Ok(Some(ran)) if report::noticed(&ran).is_empty() && chance < CHANCES => continue,
                Ok(Some(ran)) => report.add_planted(bug, &row.name, &ran),
                Ok(None) => {}
                // Where nothing works any more, that was noticed too.
                Err(error) => report.add_planted_broken(bug, &row.name, format!("{error:#}")),
            }
            break;
        }
    }
    for (name, bug, row) in hop_bugs {
        for chance in 1..=CHANCES {
            next += 1;
            match hop(&row, next, Some((name, bug)), server.as_ref(), &mut brokers, &mut report).await {
                Ok(Some(ran)) if report::noticed(&ran).is_empty() && chance < CHANCES => continue,
                Ok(Some(ran)) => report.add_planted(name, &row.name, &ran),
                Ok(None) => {}
                // Unlike above: a broker that could not be started is no bug that was noticed.
                Err(error) => report.fail(&format!("planted {name}"), format!("{error:#}")),
            }
            break;
        }
    }
    if wanted("simulation") {
        simulate(seed, args.profile.seeds(), &mut report).await?;
    }
    if std::env::var("ONCEBOX_REQUIRE_SERVICES").is_ok_and(|required| required == "1") {
        report.demand_all();
    }
    report.seconds = started.elapsed().as_secs();
    report.print(args.json)?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs that a planted bug may take to be noticed. Some need a kill at the right moment, and a few hundred messages do not
/// always have one.
const CHANCES: u32 = 4;

/// Runs a row with a real broker on what it needs; `None` if that can't be had here.
async fn hop(
    row: &HopsRow,
    seed: u64,
    bug: Option<(&'static str, &'static str)>,
    server: Option<&Server>,
    brokers: &mut Brokers,
    report: &mut Report,
) -> anyhow::Result<Option<Ran>> {
    let name = bug.map_or_else(|| row.name.clone(), |(name, _)| format!("planted {name}: {}", row.name));
    if row.store == StoreKind::Postgres && server.is_none() {
        report.skipped.insert(name, "there is no PostgreSQL server".to_owned());
        return Ok(None);
    }
    let Some(broker) = brokers.get(row.broker.script())? else {
        report.skipped.insert(name, format!("{} cannot be had here", row.broker.script()));
        return Ok(None);
    };
    let ground = hops::Ground { postgres: server, broker };
    let ran = hops::run(row, seed, bug.map(|(_, bug)| bug), &ground).await?;
    report::progress(&name, &ran);
    Ok(Some(ran))
}

/// Runs the simulation's seeds, on a thread of their own: each makes a runtime with its own time.
async fn simulate(from: u64, seeds: u64, report: &mut Report) -> anyhow::Result<()> {
    let run = move || {
        let mut totals = oncebox_sim::Totals::default();
        let mut failed = Vec::new();
        for seed in from..from + seeds {
            let verdict = oncebox_sim::simulate(oncebox_sim::Scenario::new(seed), false);
            totals.add(&verdict);
            if !verdict.is_good() {
                failed.push(format!("seed {seed}; repeat it: {}", verdict.command()));
            }
        }
        (totals, failed)
    };
    let (totals, failed) = tokio::task::spawn_blocking(run).await.context("the simulation broke down")?;
    report.add_simulation(&totals, failed);
    Ok(())
}

/// Runs a row on what it needs; `None` if that can't be had here.
async fn one(
    row: &Row,
    seed: u64,
    bug: Option<&'static str>,
    server: Option<&Server>,
    report: &mut Report,
) -> anyhow::Result<Option<Ran>> {
    let name = bug.map_or_else(|| row.name.clone(), |bug| format!("planted {bug}: {}", row.name));
    if row.store == StoreKind::Postgres && server.is_none() {
        report.skipped.insert(name, "there is no PostgreSQL server".to_owned());
        return Ok(None);
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let on_disk = row.faults == Faults::DiskFull;
    let size = if row.store == StoreKind::Postgres { POSTGRES_DISK } else { SQLITE_DISK };
    let disk = if on_disk { Disk::mount(folder.path().join("disk"), size)? } else { None };
    if on_disk && disk.is_none() {
        report.skipped.insert(name, "it needs to mount a small disk, and this user may not".to_owned());
        return Ok(None);
    }
    // Servers that are broken on purpose are nobody else's.
    let own = match (row.store, row.faults, &disk) {
        (StoreKind::Postgres, Faults::ServerCrash, _) => Server::start(folder.path())?,
        (StoreKind::Postgres, _, Some(disk)) => Server::start(&disk.path)?,
        _ => None,
    };
    let pair = if row.faults == Faults::Failover { Pair::start(folder.path()).await? } else { None };
    let ground = Ground { server: own.as_ref().or(server), disk: disk.as_ref(), pair: pair.as_ref() };
    let ran = run::run(row, seed, bug, &ground).await?;
    report::progress(&name, &ran);
    Ok(Some(ran))
}
