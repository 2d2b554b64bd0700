//! `oncebox run` and `oncebox relay`: what a file says, until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use oncebox::Code;
use oncebox_pipeline::file::{Pipeline, ProcessEnvironment};
use oncebox_pipeline::{Parts, Running, run};

use crate::fault::fault;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file.
    #[arg(long, short, default_value = "oncebox.toml")]
    file: PathBuf,
    /// How to log: a line for people, or one JSON object each.
    #[arg(long, value_enum, default_value_t = LogForm::Text)]
    log: LogForm,
    /// Check everything, which takes the statements of `setup`, and start nothing.
    #[arg(long)]
    check: bool,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogForm {
    /// For people.
    Text,
    /// For machines.
    Json,
}

pub(crate) async fn serve(args: Args, parts: Parts) -> anyhow::Result<ExitCode> {
    log_to_stderr(args.log);
    let pipeline = Pipeline::open(&args.file, &ProcessEnvironment)?;
    if parts == Parts::Relay && pipeline.relay.is_none() {
        let says = format!("cannot relay: {} has no [relay]; add one with `to`", args.file.display());
        return Err(fault(Code::FileMistakes, says));
    }
    if pipeline.consumers.is_empty() && pipeline.relay.is_none() {
        let says = format!("{} has neither a [[consumer]] nor a [relay]: there is nothing to run", args.file.display());
        return Err(fault(Code::FileMistakes, says));
    }
    let file = args.file.display().to_string();
    let started = |running: &Running| {
        let names: Vec<&str> = running.consumers.iter().map(|(name, _)| name.as_str()).collect();
        let relay = if running.relay.is_some() { " and the relay" } else { "" };
        tracing::info!("running consumers {}{relay} of {file}", names.join(", "));
    };
    if args.check {
        run(&file, &pipeline, Parts::Nothing, |_| (), std::future::pending()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    run(&file, &pipeline, parts, started, oncebox::shutdown::signal()).await?;
    Ok(ExitCode::SUCCESS)
}

fn log_to_stderr(form: LogForm) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ONCEBOX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,lapin=off,async_nats=warn"));
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).with_target(false);
    match form {
        LogForm::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogForm::Json => log.json().init(),
    }
}
