//! `oncebox run` and `oncebox relay`: what a file says, until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use oncebox::Code;
use oncebox_pipeline::file::{Pipeline, ProcessEnvironment};
use oncebox_pipeline::{Parts, Running, run};

use crate::fault::fault;
use crate::logs::{LogForm, Telling};

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

pub(crate) async fn serve(args: Args, parts: Parts) -> anyhow::Result<ExitCode> {
    let pipeline = args.log.around(|| Pipeline::open(&args.file, &ProcessEnvironment))?;
    if parts == Parts::Relay && pipeline.relay.is_none() {
        let says = format!("cannot relay: {} has no [relay]; add one with `to`", args.file.display());
        return Err(fault(Code::FileMistakes, says));
    }
    if pipeline.consumers.is_empty() && pipeline.relay.is_none() {
        let says = format!("{} has neither a [[consumer]] nor a [relay]: there is nothing to run", args.file.display());
        return Err(fault(Code::FileMistakes, says));
    }
    let telling = Telling::start(args.log, &pipeline)?;
    let done = run_file(args, parts, &pipeline).await;
    telling.end().await;
    done
}

async fn run_file(args: Args, parts: Parts, pipeline: &Pipeline) -> anyhow::Result<ExitCode> {
    let file = args.file.display().to_string();
    let started = |running: &Running| {
        let names: Vec<&str> = running.consumers.iter().map(|(name, _)| name.as_str()).collect();
        let parts = match (names.is_empty(), running.relay.is_some()) {
            (true, _) => "the relay".to_owned(),
            (false, false) => format!("consumers {}", names.join(", ")),
            (false, true) => format!("consumers {} and the relay", names.join(", ")),
        };
        tracing::info!("running {parts} of {file}");
    };
    if args.check {
        run(&file, pipeline, Parts::Nothing, |_| (), std::future::pending()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    run(&file, pipeline, parts, started, oncebox::shutdown::signal()).await?;
    Ok(ExitCode::SUCCESS)
}
