//! `oncebox bench`: what inbox and outbox cost, measured against the same work written by hand, in one run on one server.
//!
//! Absolute figures belong to the machine; the ratios are what we hold ourselves to. `docs/performance.md` says how to
//! read them.

mod chart;
#[cfg_attr(not(feature = "brokers"), allow(dead_code, unused_imports, reason = "the outbox is for `relay` alone"))]
mod database;
mod failures;
mod growth;
mod hand;
mod inbox;
mod load;
mod memory;
mod ours;
mod process;
#[cfg(feature = "brokers")]
pub(crate) mod relay;
mod report;
mod retention;
mod variant;
mod work;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;

use database::{Database, PostgresPlace, SqlitePlace};

/// Messages in one transaction of the batched variants.
const BATCH: usize = 100;

/// Measure what Oncebox costs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    Inbox(inbox::Args),
    Growth(growth::Args),
    Memory(memory::Args),
    Failures(failures::Args),
    Retention(retention::Args),
    #[cfg(feature = "brokers")]
    Relay(relay::Args),
    /// Compare outbox and relay with the broker's client used by hand. Not in this build; it takes the feature `brokers`.
    #[cfg(not(feature = "brokers"))]
    Relay {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
}

/// What all measurements take.
#[derive(Clone, Debug, clap::Args)]
struct On {
    /// Where to measure: postgres://… gets a schema of its own, sqlite:PATH a new file, sqlite: a temporary one; all are
    /// removed at the end.
    #[arg(long, value_name = "URL")]
    store: String,
    /// Lanes, and connections of every variant but the one-transaction-per-message ones.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    lanes: u16,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = match &args.what {
        What::Inbox(inbox) => &inbox.on.store,
        What::Growth(growth) => &growth.on.store,
        What::Memory(memory) => &memory.on.store,
        What::Failures(failures) => &failures.on.store,
        What::Retention(retention) => &retention.on.store,
        #[cfg(feature = "brokers")]
        What::Relay(relay) => &relay.store,
        #[cfg(not(feature = "brokers"))]
        What::Relay { .. } => bail!("this program was built without brokers; build it with `--features brokers`"),
    };
    match store.split(':').next() {
        Some("postgres" | "postgresql") => run_on::<PostgresPlace>(store, &args.what).await,
        Some("sqlite") => run_on::<SqlitePlace>(store, &args.what).await,
        _ => bail!("--store must begin with postgres:// or sqlite:"),
    }
}

/// Opens, measures, and cleans up: at the end, after an error, and after Ctrl-C.
async fn run_on<D: Database>(store: &str, what: &What) -> anyhow::Result<ExitCode> {
    let db = D::open(store).await?;
    let measured = async {
        match what {
            What::Inbox(args) => inbox::run(&db, args).await,
            What::Growth(args) => growth::run(&db, args).await,
            What::Memory(args) => memory::run(&db, args).await,
            What::Failures(args) => failures::run(&db, args).await,
            What::Retention(args) => retention::run(&db, args).await,
            #[cfg(feature = "brokers")]
            What::Relay(args) => relay::run(&db, args).await,
            #[cfg(not(feature = "brokers"))]
            What::Relay { .. } => Ok(()),
        }
    };
    let done = tokio::select! {
        done = measured => done,
        () = oncebox::shutdown::signal() => Err(anyhow::anyhow!("interrupted; nothing is left behind")),
    };
    db.close().await;
    done.map(|()| ExitCode::SUCCESS)
}
