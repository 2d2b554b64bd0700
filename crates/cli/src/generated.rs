//! `oncebox completions` and `oncebox man`: made from the command line as it is read.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use clap_complete::Shell;
use oncebox::Code;

use crate::fault::fault;

/// Completions for a shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Man pages.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder to write them to.
    folder: PathBuf,
}

pub(crate) fn completions(args: &Completions, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "oncebox", &mut script);
    match std::io::Write::write_all(&mut std::io::stdout(), &script) {
        // Whoever reads it has had enough.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[allow(clippy::print_stderr, reason = "this is where the command talks")]
pub(crate) fn man(args: &Man, command: Command) -> anyhow::Result<ExitCode> {
    let folder = args.folder.display();
    let unwritten = |error| fault(Code::FileUnusable, format!("cannot write man pages to {folder}: {error}"));
    std::fs::create_dir_all(&args.folder).map_err(unwritten)?;
    clap_mangen::generate_to(command, &args.folder).map_err(unwritten)?;
    eprintln!("wrote the man pages to {folder}; `man -l {folder}/oncebox.1` shows the first");
    Ok(ExitCode::SUCCESS)
}
