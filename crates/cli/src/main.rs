//! The `oncebox` command.
//!
//! Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 it was tried and failed (for `demo`: something was lost
//! or doubled), 2 the command line or the file is wrong.

mod bench;
#[cfg(feature = "otlp")]
mod collector;
mod command_line;
mod demo;
mod explain;
mod fault;
mod generated;
mod init;
mod logs;
mod number;
mod ops;
mod pages;
mod send;
mod serve;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use oncebox_pipeline::Parts;

/// Makes every message take effect once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Kill workers while messages pass, then count the effects.
    Demo(demo::Args),
    /// Write a file to begin with.
    Init(init::Args),
    /// Run everything that a file says.
    Run(serve::Args),
    /// Run the relay of a file alone.
    Relay(serve::Args),
    /// Send messages to a broker or a queue.
    Send(send::Args),
    /// The tables of the store.
    Schema(ops::schema::Args),
    /// Messages that are set aside.
    Parked(ops::parked::Args),
    /// Replays that were started.
    Replay(ops::replay::Args),
    /// How the pipeline is.
    Status(ops::status::Args),
    /// What is to be published.
    Outbox(ops::outbox::Args),
    /// One message's whole life.
    Message(ops::message::Args),
    /// Say what the code of an error means, and what to do.
    Explain(explain::Args),
    /// Print completions for a shell.
    Completions(generated::Completions),
    /// Write man pages.
    Man(generated::Man),
    /// How old records go, and what stays.
    Retention(ops::retention::Args),
    /// Examine everything that a file names, and say what to mend.
    Doctor(ops::doctor::Args),
    /// Measure what Oncebox costs, against the same work written by hand.
    Bench(bench::Args),
    /// One worker of the demo.
    #[command(hide = true)]
    DemoWorker(demo::worker::Args),
    /// The relay of `bench relay` that runs by itself.
    #[cfg(feature = "brokers")]
    #[command(hide = true)]
    BenchRelay,
}

fn main() -> ExitCode {
    let Cli { verb } = match command_line::read() {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fault::told(&anyhow::Error::from(error).context("cannot start the runtime")),
    };
    let done = match verb {
        Verb::Demo(args) => runtime.block_on(demo::run(args)),
        Verb::Init(args) => init::run(&args),
        Verb::Run(args) => runtime.block_on(serve::serve(args, Parts::All)),
        Verb::Relay(args) => runtime.block_on(serve::serve(args, Parts::Relay)),
        Verb::Send(args) => runtime.block_on(send::run(args)),
        Verb::Schema(args) => runtime.block_on(ops::schema::run(args)),
        Verb::Parked(args) => runtime.block_on(ops::parked::run(args)),
        Verb::Replay(args) => runtime.block_on(ops::replay::run(args)),
        Verb::Status(args) => runtime.block_on(ops::status::run(args)),
        Verb::Outbox(args) => runtime.block_on(ops::outbox::run(args)),
        Verb::Message(args) => runtime.block_on(ops::message::run(args)),
        Verb::Explain(args) => explain::run(&args),
        Verb::Completions(args) => generated::completions(&args, Cli::command()),
        Verb::Man(args) => generated::man(&args, Cli::command()),
        Verb::Retention(args) => runtime.block_on(ops::retention::run(args)),
        Verb::Doctor(args) => runtime.block_on(ops::doctor::run(args)),
        Verb::Bench(args) => runtime.block_on(bench::run(args)),
        Verb::DemoWorker(args) => runtime.block_on(demo::worker::run(args)).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "brokers")]
        Verb::BenchRelay => runtime.block_on(bench::relay::child::run()).map(|()| ExitCode::SUCCESS),
    };
    // Blocking reads of stdin must not hold up the end.
    runtime.shutdown_background();
    done.unwrap_or_else(|error| fault::told(&error))
}
